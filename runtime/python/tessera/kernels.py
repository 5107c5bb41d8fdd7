"""Kernels as .tir text, and graphs of them (graph.py writes those), on NumPy arrays and on tensors of whatever speaks
DLPack."""

import ctypes
import hashlib
import os
import re

import numpy as np

from tessera._files import open_file
from tessera._native_library import CArray, Error, check, device_name, native

_NAMES = {
    "bool": "bool",
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "f32",
    "float64": "f64",
    "float8_e4m3fn": "f8e4m3fn",
    "float8_e5m2": "f8e5m2",
}
_NAMES.update({f"{k}int{n}": f"{k or 'i'}{n}" for k in ("", "u") for n in (4, 8, 16, 32, 64)})
_ML_DTYPES = ("bf16", "f8e4m3fn", "f8e5m2", "i4", "u4")  # which NumPy itself lacks
_DTYPES = {v: k for k, v in _NAMES.items()}
_KDL_CPU = 1


def _dtype(name):
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
            return x.view(width).numpy().view(_dtype(name))
    return x.resolve_conj().resolve_neg().numpy()


def _array(x, position):
    """x as a NumPy array in the host's memory, without a copy where there is one already."""
    if isinstance(x, np.ndarray) or not hasattr(x, "__dlpack__"):
        return np.asarray(x)
    if type(x).__module__.partition(".")[0] == "torch":
        return _torch_array(x)
    if x.__dlpack_device__()[0] != _KDL_CPU:
        raise Error(
            f"tessera: argument {position} is a {type(x).__name__} on another device than the CPU: copy it to the host"
            " first"
        )
    try:
        return np.from_dlpack(x)
    except (BufferError, RuntimeError, TypeError):  # dtypes that NumPy's DLPack lacks
        return np.asarray(x)


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
        dtype, shape = _dtype(c.dtype.decode()), tuple(c.shape[: c.rank])
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        if size == 0:
            return np.empty(shape, dtype)
        memory = (ctypes.c_byte * size).from_address(c.data)
        memory.owner = self  # NumPy keeps `memory`, which keeps the outputs
        return np.frombuffer(memory, np.uint8).view(dtype).reshape(shape)


class Kernel:
    """Called with one array per input; returns the output, or a tuple of several. Arguments are NumPy arrays, what
    NumPy makes arrays of, and tensors that speak DLPack and lie in the host's memory; they are only read, and copied
    first where they are not dense and row-major."""

    def __init__(self, text, device, path, folder=None, key=""):
        self.text, self.device, self.path, self.folder, self.key = (
            text.encode(),
            device_name(device).encode(),
            path,
            folder,
            key.encode(),
        )

    def __call__(self, *arrays):
        arrays = [_array(a, i) for i, a in enumerate(arrays)]
        # ascontiguousarray makes scalars vectors
        arrays = [
            np.ascontiguousarray(a).reshape(a.shape).astype(a.dtype.newbyteorder("="), copy=False) for a in arrays
        ]
        shapes = [(ctypes.c_int64 * max(a.ndim, 1))(*a.shape) for a in arrays]
        inputs = (CArray * max(len(arrays), 1))()
        for c, a, s in zip(inputs, arrays, shapes):
            c.dtype, c.rank, c.shape, c.data = _NAMES.get(a.dtype.name, a.dtype.name).encode(), a.ndim, s, a.ctypes.data
        handle = ctypes.c_void_p()
        if self.folder is None:
            try:
                check(
                    native.tessera_run_text(
                        self.text, len(self.text), self.device, inputs, len(arrays), ctypes.byref(handle)
                    )
                )
            except Error as error:  # which knows the text only
                raise Error(str(error).replace("<text>:", self.path + ":")) from None
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
        results = _Outputs(handle).arrays()
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
