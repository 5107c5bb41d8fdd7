"""Kernels as .tir text, on NumPy arrays."""

import ctypes

import numpy as np

from tessera._native_library import CArray, check, native

_NAMES = {"bool": "bool", "float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64", "float8_e4m3fn": "f8e4m3fn", "float8_e5m2": "f8e5m2"}
_NAMES.update({f"{k}int{n}": f"{k or 'i'}{n}" for k in ("", "u") for n in (4, 8, 16, 32, 64)})
_ML_DTYPES = ("bf16", "f8e4m3fn", "f8e5m2", "i4", "u4")  # which NumPy itself lacks
_DTYPES = {v: k for k, v in _NAMES.items()}


def _dtype(name):
    if name in _ML_DTYPES:
        import ml_dtypes
        return np.dtype(getattr(ml_dtypes, _DTYPES[name]))
    return np.dtype(_DTYPES[name])


class Kernel:
    """Called with one array per input; returns the output, or a tuple of several."""

    def __init__(self, text, device):
        self.text, self.device = text.encode(), device.encode()

    def __call__(self, *arrays):
        arrays = [np.ascontiguousarray(a).reshape(np.shape(a)) for a in arrays]  # ascontiguousarray makes scalars vectors
        shapes = [(ctypes.c_int64 * max(a.ndim, 1))(*a.shape) for a in arrays]
        inputs = (CArray * max(len(arrays), 1))()
        for c, a, s in zip(inputs, arrays, shapes):
            c.dtype, c.rank, c.shape, c.data = _NAMES.get(a.dtype.name, a.dtype.name).encode(), a.ndim, s, a.ctypes.data
        handle = ctypes.c_void_p()
        check(native.tessera_run_text(self.text, len(self.text), self.device, inputs, len(arrays), ctypes.byref(handle)))
        try:
            return self._results(handle)
        finally:
            native.tessera_outputs_free(handle)

    @staticmethod
    def _results(handle):
        results = []
        for i in range(native.tessera_outputs_count(handle)):
            c = CArray()
            native.tessera_output(handle, i, ctypes.byref(c))
            dtype, shape = _dtype(c.dtype.decode()), tuple(c.shape[: c.rank])
            size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
            results.append(np.frombuffer(ctypes.string_at(c.data, size) if size else b"", dtype).reshape(shape).copy())
        return results[0] if len(results) == 1 else tuple(results)


def load(path, device="vulkan"):
    """The kernel in a .tir file, to be called with NumPy arrays (or what NumPy makes arrays of)."""
    with open(path) as f:
        return Kernel(f.read(), device)
