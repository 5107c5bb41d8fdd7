"""Arrays on an NVIDIA GPU: those of other libraries, which kernels use in place, and those that kernels give."""

import ctypes
import os

import numpy as np

from tessera import kernels
from tessera._native_library import CGpuArray, Error, check, native

_KDL_CUDA = 2
# DLPack's codes of kinds of dtypes
_KINDS = {0: "i", 1: "u", 2: "f", 4: "bf", 6: "bool", 10: "f8e4m3fn", 12: "f8e5m2"}
_CODES = {"bool": 6, "bf16": 4, "f8e4m3fn": 10, "f8e5m2": 12}


class _Tensor(ctypes.Structure):  # DLTensor, with which a DLManagedTensor begins
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.argtypes, _pointer_of.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p
_pointer_at = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_is_valid_at = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_IsValid", ctypes.pythonapi)
)
_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_new_capsule.restype = ctypes.py_object


@ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
def _unused(capsule):  # whoever takes the tensor renames the capsule
    if _is_valid_at(capsule, b"dltensor"):
        native.tessera_gpu_dlpack_free(_pointer_at(capsule, b"dltensor"))


class GpuArray:
    """An array on an NVIDIA GPU, dense and row-major: what a kernel gives that was called with arrays there. Other
    libraries use it in place, by DLPack or __cuda_array_interface__; np.asarray(x) copies it to the host. Calls do not
    wait for each other's results; whoever asks for its memory does."""

    def __init__(self, c, device):
        self._own, self._address = c.own, c.array.data or 0
        self._name = c.array.dtype.decode()
        self.shape, self.device = tuple(c.array.shape[: c.array.rank]), device

    def __del__(self):
        native.tessera_gpu_free(self._own)

    @property
    def dtype(self):
        return kernels.dtype_named(self._name)

    @property
    def ndim(self):
        return len(self.shape)

    def __repr__(self):
        return f"GpuArray({self._name}[{', '.join(map(str, self.shape))}] on {self.device})"

    def __array__(self, dtype=None, copy=None):
        if copy is False:
            raise ValueError("tessera: an array on a GPU becomes one of NumPy by a copy alone")
        host = np.empty(self.shape, self.dtype)
        check(native.tessera_gpu_download(self._own, host.ctypes.data))
        return host if dtype is None else host.astype(dtype, copy=False)

    @property
    def __cuda_array_interface__(self):
        if self.dtype.kind == "V":
            raise AttributeError(f"tessera: __cuda_array_interface__ has no name for {self._name}")
        check(native.tessera_gpu_wait(self._own))
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self._address, False),
            "strides": None,
            "stream": None,  # all of it has been done
            "version": 3,
        }

    def __dlpack_device__(self):
        return _KDL_CUDA, int(self.device.partition(":")[2])

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        if dl_device not in (None, self.__dlpack_device__()) or copy:
            raise BufferError("tessera: an array on a GPU is given as it lies there, without a copy")
        check(native.tessera_gpu_wait(self._own))
        code = _CODES[self._name] if self._name in _CODES else {"i": 0, "u": 1, "f": 2}[self._name[0]]
        tensor = native.tessera_gpu_dlpack(self._own, code, self.dtype.itemsize * 8)
        return _new_capsule(tensor, b"dltensor", ctypes.cast(_unused, ctypes.c_void_p))


def is_there(x):
    """Whether x lies on a GPU of CUDA's."""
    if isinstance(x, np.ndarray):
        return False
    if hasattr(x, "__dlpack_device__"):
        return x.__dlpack_device__()[0] == _KDL_CUDA
    return hasattr(x, "__cuda_array_interface__")


def _dense(shape, strides, size):
    """Whether strides in units of which an element takes `size` are those of rows that lie one behind another."""
    for n, stride in zip(reversed(shape), reversed(strides)):
        if n != 1 and stride != size:
            return False
        size *= n
    return True


def _by_dlpack(x, position, device):
    kind, number = x.__dlpack_device__()
    if kind != _KDL_CUDA or f"cuda:{number}" != device:
        raise Error(f"tessera: argument {position} lies on cuda:{number}, and the kernel runs on {device}")
    if type(x).__module__.partition(".")[0] == "torch":
        x = x.detach()
    stream = ctypes.c_uint64()
    check(native.tessera_gpu_stream(device.encode(), ctypes.byref(stream)))
    capsule = x.__dlpack__(stream=stream.value)  # whose work that stream then waits for
    t = _Tensor.from_address(_pointer_of(capsule, b"dltensor"))
    shape = tuple(t.shape[: t.rank])
    kind = _KINDS.get(t.code, "")
    name = kind if kind[1:] and kind != "bf" else f"{kind}{t.bits}"
    if t.lanes != 1 or name not in kernels.NAMES.values():
        raise Error(
            f"tessera: argument {position} has DLPack's dtype ({t.code}, {t.bits}, {t.lanes}), which kernels cannot"
            " hold"
        )
    dense = not t.strides or 0 in shape or _dense(shape, t.strides[: t.rank], 1)
    return capsule, (t.data or 0) + t.byte_offset, name, shape, dense


def _by_interface(x, position, device):
    d = x.__cuda_array_interface__
    if d.get("mask") is not None:
        raise Error(f"tessera: argument {position} has a mask, which kernels do not know")
    dtype, shape, strides = np.dtype(d["typestr"]), tuple(d["shape"]), d.get("strides")
    if (stream := d.get("stream")) is not None:
        check(native.tessera_gpu_wait_for_stream(device.encode(), stream))
    dense = strides is None or 0 in shape or _dense(shape, strides, dtype.itemsize)
    return d, d["data"][0], kernels.NAMES.get(dtype.name, dtype.name), shape, dense


def call(text, path, device, arrays):
    """A kernel's outputs on the GPU, for arrays of which one or more lie there."""
    inputs, kept = (CGpuArray * max(len(arrays), 1))(), []
    for i, (c, x) in enumerate(zip(inputs, arrays)):
        if isinstance(x, GpuArray):
            if x.device != device:
                raise Error(f"tessera: argument {i} lies on {x.device}, and the kernel runs on {device}")
            c.own = x._own
            continue
        if is_there(x):
            find = _by_dlpack if hasattr(x, "__dlpack__") else _by_interface
            owner, address, name, shape, dense = find(x, i, device)
            if not dense:
                raise Error(
                    f"tessera: argument {i} is not dense and row-major, as arrays on a GPU have to be\n  note: copy it"
                    " first (x.contiguous(), cupy.ascontiguousarray(x))"
                )
            kept.append(owner)
            c.on_gpu = True
        else:
            a = kernels.host_array(x, i)
            kept.append(a)
            address, name, shape = a.ctypes.data, kernels.NAMES.get(a.dtype.name, a.dtype.name), a.shape
        kept.append(kernels.describe(c.array, name, shape, address))
    handle = ctypes.c_void_p()
    check(
        native.tessera_gpu_run_text(
            text, len(text), os.fsencode(path), device.encode(), inputs, len(arrays), ctypes.byref(handle)
        )
    )
    try:
        found = []
        for i in range(native.tessera_gpu_outputs_count(handle)):
            c = CGpuArray()
            native.tessera_gpu_output(handle, i, ctypes.byref(c))
            found.append(GpuArray(c, device))
        return found
    finally:
        native.tessera_gpu_outputs_free(handle)
