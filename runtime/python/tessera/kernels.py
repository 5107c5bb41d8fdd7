"""Kernels as .tir text, and graphs of them (graph.py writes those), on NumPy arrays and on tensors of whatever speaks
DLPack."""

import ctypes
import hashlib
import os
import re

import numpy as np

from tessera._files import open_file
from tessera._native_library import CArray, Error, check, device_name, native

NAMES = {
    "bool": "bool",
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "f32",
    "float64": "f64",
    "float8_e4m3fn": "f8e4m3fn",
    "float8_e5m2": "f8e5m2",
}
NAMES.update({f"{k}int{n}": f"{k or 'i'}{n}" for k in ("", "u") for n in (4, 8, 16, 32, 64)})
_ML_DTYPES = ("bf16", "f8e4m3fn", "f8e5m2", "i4", "u4")  # which NumPy itself lacks
_DTYPES = {v: k for k, v in NAMES.items()}
_KDL_CPU = 1


def dtype_named(name):
    if name in _ML_DTYPES:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, _DTYPES[name]))
    return np.dtype(_DTYPES[name])


def _torch_array(x):
    """A torch tensor as an array: bits of the dtypes that NumPy's DLPack lacks go through integers."""
    import torch

    if x.device.type != "cpu":
        raise Error(f"tessera: an argument is a torch tensor on {x.device}: move it to the CPU first (x.cpu())")
    x = x.detach()
    for torch_name, width, name in (
        ("bfloat16", torch.int16, "bf16"),
        ("float8_e4m3fn", torch.uint8, "f8e4m3fn"),
        ("float8_e5m2", torch.uint8, "f8e5m2"),
    ):
        if x.dtype == getattr(torch, torch_name, None):
            return x.view(width).numpy().view(dtype_named(name))
    return x.resolve_conj().resolve_neg().numpy()


def _elsewhere(x, position):
    return Error(
        f"tessera: argument {position} is a {type(x).__name__} on another device than the CPU: copy it to the host"
        " first"
    )


def _array(x, position):
    """x as a NumPy array in the host's memory, without a copy where there is one already."""
    if isinstance(x, np.ndarray):
        return x
    if not hasattr(x, "__dlpack__"):
        if hasattr(x, "__cuda_array_interface__"):
            raise _elsewhere(x, position)
        return np.asarray(x)
    if type(x).__module__.partition(".")[0] == "torch":
        return _torch_array(x)
    if x.__dlpack_device__()[0] != _KDL_CPU:
        raise _elsewhere(x, position)
    try:
        return np.from_dlpack(x)
    except (BufferError, RuntimeError, TypeError):  # dtypes that NumPy's DLPack lacks
        return np.asarray(x)


def host_array(x, position):
    """The same, dense and row-major, in this machine's order of bytes."""
    a = _array(x, position)
    # ascontiguousarray makes scalars vectors
    return np.ascontiguousarray(a).reshape(a.shape).astype(a.dtype.newbyteorder("="), copy=False)


def describe(c, name, shape, address):
    """Fills c; what is returned is to be kept as long."""
    sizes = (ctypes.c_int64 * max(len(shape), 1))(*shape)
    c.dtype, c.rank, c.shape, c.data = name.encode(), len(shape), sizes, address
    return sizes


class _Outputs:
    """Arrays that the library has made, for as long as a view of them lives."""

    def __init__(self, handle):
        self.handle = handle

    def __del__(self):
        native.tessera_outputs_free(self.handle)

    def arrays(self):
        return [self._array(i) for i in range(native.tessera_outputs_count(self.handle))]

    def _array(self, i):
        c = CArray()
        native.tessera_output(self.handle, i, ctypes.byref(c))
        dtype, shape = dtype_named(c.dtype.decode()), tuple(c.shape[: c.rank])
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        if size == 0:
            return np.empty(shape, dtype)
        memory = (ctypes.c_byte * size).from_address(c.data)
        memory.owner = self  # NumPy keeps `memory`, which keeps the outputs
        return np.frombuffer(memory, np.uint8).view(dtype).reshape(shape)


class Kernel:
    """Called with one array per input; returns the output, or a tuple of several. Arguments are NumPy arrays, what
    NumPy makes arrays of, and tensors that speak DLPack and lie in the host's memory; they are only read, and copied
    first where they are not dense and row-major. A kernel loaded for "cuda:N" takes arrays on that GPU in place, too
    (DLPack or __cuda_array_interface__), and then gives GpuArrays (gpu.py)."""

    def __init__(self, text, device, path, folder=None, key=""):
        self.text, self.device, self.path, self.folder, self.key = (
            text.encode(),
            device_name(device).encode(),
            path,
            folder,
            key.encode(),
        )

    def __call__(self, *arrays):
        if not all(isinstance(a, np.ndarray) for a in arrays) and self._runs_on_gpu(arrays):
            return self._on_gpu(arrays)
        arrays = [host_array(a, i) for i, a in enumerate(arrays)]
        inputs = (CArray * max(len(arrays), 1))()
        shapes = [
            describe(c, NAMES.get(a.dtype.name, a.dtype.name), a.shape, a.ctypes.data) for c, a in zip(inputs, arrays)
        ]
        handle = ctypes.c_void_p()
        if self.folder is None:
            path = os.fsencode(self.path)
            check(
                native.tessera_run_text(
                    self.text, len(self.text), path, self.device, inputs, len(arrays), ctypes.byref(handle)
                )
            )
        else:
            check(
                native.tessera_run_graph(
                    self.text,
                    len(self.text),
                    self.folder.encode(),
                    self.key,
                    self.device,
                    inputs,
                    len(arrays),
                    ctypes.byref(handle),
                )
            )
        del shapes  # which the inputs point at
        results = _Outputs(handle).arrays()
        return results[0] if len(results) == 1 else tuple(results)

    def _runs_on_gpu(self, arrays):
        from tessera import gpu

        return self.device.startswith(b"cuda:") and any(map(gpu.is_there, arrays))

    def _on_gpu(self, arrays):
        from tessera import gpu

        if self.folder is not None:
            raise Error(f"tessera: the graph {self.path} takes arrays of the host alone: copy them there first")
        results = gpu.call(self.text, self.path, self.device.decode(), arrays)
        return results[0] if len(results) == 1 else tuple(results)


def _contents(folder, text):
    """A key of a graph's kernels and constants, which another export into the same folder changes. What cannot be read
    is said when the graph is."""
    key = hashlib.sha256()
    for name in sorted(set(re.findall(r'"([^"/\\]+)"', text))):
        try:
            with open_file(folder, name) as f:
                key.update(f"{name}\n".encode() + hashlib.file_digest(f, "sha256").digest())
        except Error as error:
            key.update(f"{error}\n".encode())
    return key.hexdigest()


def load(path, device="vulkan"):
    """The kernel in a .tir file, or the graph that tessera.export() wrote into a folder, to be called with arrays."""
    path = os.fspath(path)
    if os.path.isdir(path):
        with open_file(path, "graph.txt") as f:
            text = f.read().decode(errors="replace")
        graph = Kernel(text, device, path, path, _contents(path, text))
        check(native.tessera_load_graph(graph.text, len(graph.text), path.encode(), graph.key, graph.device))
        return graph
    with open(path, encoding="utf-8", errors="replace") as f:  # what is no text, the parser refuses
        return Kernel(f.read(), device, os.fsdecode(path))
