"""Kernels on an NVIDIA GPU through NVIDIA's own driver, in processes that have the libcuda of tests/support/cuda: it
runs PTX on an emulator, and its memory is the host's. TESSERA_FAKE_CUDA is the folder that holds it."""

import os
import subprocess
import sys
import textwrap

import pytest

_LIBRARY = os.environ.get("TESSERA_FAKE_CUDA", "")
_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

pytestmark = pytest.mark.skipif(
    not os.path.exists(os.path.join(_LIBRARY, "libcuda.so.1")), reason="TESSERA_FAKE_CUDA names no libcuda"
)

_BEFORE = """
    import ctypes
    import os

    import numpy as np
    import tessera

    add = os.path.join(os.environ["ROOT"], "tests", "tir", "add.tir")
    cuda = ctypes.CDLL("libcuda.so.1")

    def says(f):
        try:
            f()
        except Exception as error:
            return str(error)
"""

_JAX = """
    import jax
    import jax.numpy as jnp
    from jax.experimental import pallas as pl

    def twice(x_ref, o_ref):
        o_ref[...] = x_ref[...] * 2 + pl.program_id(0)

    def f(x):
        block = pl.BlockSpec((4, 8), lambda i: (i, 0))
        return pl.pallas_call(twice, out_shape=jax.ShapeDtypeStruct((12, 8), jnp.float32), grid=(3,), in_specs=[block],
                              out_specs=block)(x)

    x = jnp.arange(96, dtype=jnp.float32).reshape(12, 8)
    wanted = np.asarray(x) * 2 + np.repeat(np.arange(3), 4)[:, None]
"""

# arrays as another library has them on the GPU
_THEIRS = """
    class Theirs:
        def __init__(self, a, strides=None, stream=None):
            self.address = ctypes.c_uint64()
            assert cuda.cuMemAlloc_v2(ctypes.byref(self.address), ctypes.c_size_t(a.nbytes)) == 0
            ctypes.memmove(self.address.value, a.ctypes.data, a.nbytes)
            self.__cuda_array_interface__ = {
                "shape": a.shape, "typestr": a.dtype.str, "data": (self.address.value, False), "version": 3,
                "strides": strides, "stream": stream,
            }
"""


_COPY = """tir 1
kernel @copy
grid (i: 2)
in DTYPE[16] block (8) map (%0) { yield %0 }
out DTYPE[16] block (8) map (%1) { yield %1 }
body (%2: ref<vmem, DTYPE[8]>, %3: ref<vmem, DTYPE[8]>) {
  %4 = load %2[0:8] : DTYPE[8]
  store %3[0:8], %4
}
"""


def _run(code, **environment):
    code = "".join(textwrap.dedent(part) for part in (code if isinstance(code, tuple) else (code,)))
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": _LIBRARY + ":" + os.environ.get("LD_LIBRARY_PATH", ""),
        "ROOT": _ROOT,
        "JAX_PLATFORMS": "cpu",
        "FAKE_CUDA_UNWRITTEN": "1",  # memory that a test writes, behind that driver's back
        **environment,
    }
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_pallas_call_under_jit():
    _run(
        (
            _BEFORE,
            _JAX,
            """
    before = tessera.stats()
    with tessera.on("cuda:0"):
        np.testing.assert_array_equal(jax.jit(f)(x), wanted)
        np.testing.assert_array_equal(jax.jit(lambda x: jax.vmap(f)(jnp.stack([x, x])))(x)[1], wanted)
    after = tessera.stats()
    assert after["calls"] == before["calls"] + 2
    assert after["bytes_copied"] == before["bytes_copied"] + 6 * x.nbytes
    tessera.install("cuda")
    np.testing.assert_array_equal(jax.jit(f)(x + 0), wanted)
    tessera.uninstall()
    call = pl.pallas_call(twice, out_shape=jax.ShapeDtypeStruct((12, 8), jnp.float32), grid=(1,),
                          compiler_params=tessera.CompilerParams("cuda:0"))
    np.testing.assert_array_equal(jax.jit(call)(x), np.asarray(x) * 2)
    assert [d for d in tessera.devices() if d["device"].startswith("cuda")] == [
        {"device": "cuda:0", "name": "A GPU that is none", "kind": "GPU", "driver": "CUDA 12.4", "lacks": ""}
    ]
""",
        )
    )


def test_prints_checks_and_aliases():
    out = _run(
        (
            _BEFORE,
            _JAX,
            """
    def says_it(x_ref, o_ref):
        pl.debug_print("x {}", x_ref[0])
        o_ref[...] = x_ref[...] + 1

    tessera.install("cuda:0")
    call = pl.pallas_call(says_it, out_shape=jax.ShapeDtypeStruct((3,), jnp.int32), input_output_aliases={0: 0})
    y = jnp.arange(3) + 5
    print(jax.jit(call)(y), y)
""",
        )
    )
    assert out == "x 5\n[6 7 8] [5 6 7]\n"


def test_names_of_devices():
    _run(
        (
            _BEFORE,
            """
    a = np.arange(20, dtype=np.float32)
    before = tessera.stats()["bytes_copied"]
    np.testing.assert_array_equal(tessera.load(add)(a, a), a + a)  # TESSERA_DEVICE says where
    assert tessera.stats()["bytes_copied"] == before + 3 * a.nbytes
    np.testing.assert_array_equal(tessera.load(add, "cuda")(a, a), a + a)
    np.testing.assert_array_equal(tessera.load(add, "interpreter")(a, a), a + a)
    assert says(lambda: tessera.load(add, "cuda:1")(a, a)).startswith("device cuda:1 is none of NVIDIA's devices:")
    for bad in ("cuda:x", "cuda:", "cuda:-1", "cudas"):
        assert says(lambda: tessera.load(add, bad)) == (
            f'tessera: the device "{bad}" is not known\\n'
            '  note: "interpreter", "vulkan", "vulkan:INDEX-OR-NAME" and "cuda:INDEX" are'
        )
""",
        ),
        TESSERA_DEVICE="cuda:0",
    )


def test_a_lost_device():
    _run(
        (
            _BEFORE,
            _JAX,
            """
    g = jax.jit(f)
    with tessera.on("cuda:0"):
        np.testing.assert_array_equal(g(x), wanted)
        cuda.fake_cuda_fail(b"cuStreamSynchronize", 0, 719)
        said = says(lambda: np.asarray(g(x)))
        cuda.fake_cuda_fail(None, 0, 0)
        assert ("cuStreamSynchronize on cuda:0: CUDA_ERROR_LAUNCH_FAILED (error 719 of the fake); it was running twice"
                "\\n  at <string>:") in said, said
        assert said.endswith("  note: the call's results are lost; the next call starts on a new device"), said
        np.testing.assert_array_equal(g(x), wanted)
""",
        )
    )


def test_arrays_on_the_gpu_in_place():
    _run(
        (
            _BEFORE,
            _THEIRS,
            """
    a = np.arange(20, dtype=np.float32)
    k = tessera.load(add, "cuda:0")
    np.testing.assert_array_equal(k(a, a), a + a)
    held = ctypes.c_void_p()
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(held), 0) == 0 and cuda.cuCtxPushCurrent_v2(held) == 0
    x, y = Theirs(a), Theirs(np.ones_like(a), stream=1)
    before = tessera.stats()["bytes_copied"]
    z = k(x, y)
    assert tessera.stats()["bytes_copied"] == before
    assert type(z).__name__ == "GpuArray" and z.shape == (20,) and z.dtype == np.float32 and z.device == "cuda:0"
    assert repr(z) == "GpuArray(f32[20] on cuda:0)"
    np.testing.assert_array_equal(np.asarray(z), a + 1)
    # ours again, beside one of the host
    w = k(z, a)
    np.testing.assert_array_equal(np.asarray(w), 2 * a + 1)
    # as other libraries see it; the memory of this driver is the host's
    d = w.__cuda_array_interface__
    assert (d["shape"], d["typestr"], d["strides"], d["stream"]) == ((20,), "<f4", None, None)
    np.testing.assert_array_equal(np.frombuffer((ctypes.c_byte * 80).from_address(d["data"][0]), np.float32), 2 * a + 1)
    assert w.__dlpack_device__() == (2, 0)

    class Speaks:  # DLPack alone
        def __init__(self, array):
            self.array, self.streams = array, []
        def __dlpack_device__(self):
            return self.array.__dlpack_device__()
        def __dlpack__(self, stream):
            self.streams.append(stream)
            return self.array.__dlpack__(stream=stream)

    s = Speaks(w)
    np.testing.assert_array_equal(np.asarray(k(s, s)), 4 * a + 2)
    assert s.streams[0] not in (0, 1, 2) and s.streams[0] == s.streams[1]
    del z, w, s

    # what cannot be
    e = "tessera: argument 1 is not dense and row-major, as arrays on a GPU have to be\\n  note: copy it first"
    assert says(lambda: k(x, Theirs(a, strides=(8,)))).startswith(e)
    assert says(lambda: k(x, Theirs(np.arange(20, dtype=np.complex64)))) == (
        "tessera: argument 1 has the dtype complex64, which kernels cannot hold")
    y.__cuda_array_interface__["data"] = (y.address.value + 4, False)
    assert "is no multiple of 16\\n  note: copy it" in says(lambda: k(x, y))
    assert says(lambda: tessera.load(add, "interpreter")(x, x)) == (
        "tessera: argument 0 is a Theirs on another device than the CPU: copy it to the host first")
    assert says(lambda: k(x)).startswith("add: ")
    Theirs.__dlpack_device__, Theirs.__dlpack__ = lambda self: (2, 3), None
    assert says(lambda: k(x, a)) == "tessera: argument 0 lies on cuda:3, and the kernel runs on cuda:0"
""",
        )
    )


def test_a_device_that_a_call_on_its_arrays_loses():
    _run(
        (
            _BEFORE,
            """
    from tessera import gpu

    a = np.arange(20, dtype=np.float32)
    k = tessera.load(add, "cuda:0")
    there = gpu.call(k.text, k.path, "cuda:0", [a, a])[0]
    cuda.fake_cuda_fail(b"cuStreamSynchronize", 0, 700)
    said = says(lambda: np.asarray(there))
    cuda.fake_cuda_fail(None, 0, 0)
    assert said == (
        "cuStreamSynchronize on cuda:0: CUDA_ERROR_ILLEGAL_ADDRESS (error 700 of the fake); it was running add\\n"
        f"  at {add}:2\\n  note: the call's results are lost; the next call starts on a new device"), said
    assert says(lambda: np.asarray(there)).startswith("the device cuda:0 was lost in an earlier call: ")
    assert says(lambda: k(there, a)).startswith("add: argument 0 is of another CudaDevice")
    np.testing.assert_array_equal(k(a, a), a + a)
""",
        )
    )


def test_dtypes_of_arrays_on_the_gpu(tmp_path):
    _run(
        (
            _BEFORE,
            """
    import ml_dtypes

    for name, dtype in (("bf16", ml_dtypes.bfloat16), ("f16", np.float16), ("i8", np.int8), ("u32", np.uint32),
                        ("f64", np.float64), ("bool", np.bool_), ("f8e5m2", ml_dtypes.float8_e5m2)):
        text = open(add).read()
        file = os.path.join(os.environ["FOLDER"], name + ".tir")
        with open(file, "w") as f:
            f.write(os.environ["KERNEL"].replace("DTYPE", name))
        k = tessera.load(file, "cuda:0")
        a = np.arange(16).astype(dtype)
        np.testing.assert_array_equal(k(a), a)
        from tessera import gpu
        there = gpu.call(k.text, k.path, "cuda:0", [a])[0]
        assert there.dtype == a.dtype
        again = k(there)
        class Speaks:
            def __dlpack_device__(self):
                return 2, 0
            def __dlpack__(self, stream):
                return again.__dlpack__(stream=stream)
        np.testing.assert_array_equal(np.asarray(k(Speaks())), a)
        if a.dtype.kind == "V":
            assert not hasattr(there, "__cuda_array_interface__")
        else:
            assert there.__cuda_array_interface__["typestr"] == a.dtype.str
""",
        ),
        FOLDER=str(tmp_path),
        KERNEL=_COPY,
    )
