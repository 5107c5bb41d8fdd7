"""Dtypes that kernels load, store, move and convert but do not compute with, and what else the Python package does
around a kernel: subnormal numbers, prints before results, warnings, sizes, exported functions, and copies from one of
several Refs."""

import warnings

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas import triton as plgpu

import tessera
from support import DEVICES, python

f32, i32 = jnp.float32, jnp.int32
FLOATS = ["float4_e2m1fn", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fnuz", "float8_e5m2fnuz"]
ALL = [*FLOATS, "float8_e8m0fnu", "int2", "uint2"]


@pytest.fixture(params=DEVICES)
def device(request):
    with tessera.on(request.param):
        yield request.param


def call(kernel, *outs, **kwargs):
    return pl.pallas_call(kernel, out_shape=[jax.ShapeDtypeStruct(s, t) for s, t in outs], **kwargs)


def same(got, want):
    for g, w in zip(got, want, strict=True):
        assert g.dtype == w.dtype
        np.testing.assert_array_equal(np.asarray(g.astype(f32)), np.asarray(w.astype(f32)))
        np.testing.assert_array_equal(np.signbit(g.astype(f32)), np.signbit(w.astype(f32)))


@pytest.mark.parametrize("name", ALL)
def test_narrow_dtypes_are_kept(device, name):
    t = getattr(jnp, name)

    def kernel(x_ref, m_ref, o_ref, p_ref, q_ref, scratch_ref):
        x = x_ref[...]
        scratch_ref[...] = jnp.where(m_ref[...], x, x[::-1])
        o_ref[...] = scratch_ref[...].T
        p_ref[...] = scratch_ref[...].astype(f32) * 2
        q_ref[1:3] = plgpu.load(x_ref.at[pl.ds(1, 2)])
        q_ref[0] = lax.fori_loop(0, 3, lambda i, c: jnp.where(m_ref[0, 0], c, x[i]), x[2])

    values = (
        np.arange(4)
        if name == "uint2"
        else np.arange(-2, 2) if name == "int2" else 2.0 ** np.arange(-3, 3) if "e8m0" in name else np.arange(-4, 5) / 2
    )
    x = jnp.asarray(np.resize(values, (3, 5))).astype(t)
    m = jnp.asarray(np.arange(15).reshape(3, 5) % 3 == 1)
    f = call(kernel, ((5, 3), t), ((3, 5), f32), ((3, 5), t), scratch_shapes=[pltpu.VMEM((3, 5), t)])
    same(
        f(x, m),
        call(kernel, ((5, 3), t), ((3, 5), f32), ((3, 5), t), scratch_shapes=[pltpu.VMEM((3, 5), t)], interpret=True)(
            x, m
        ),
    )


@pytest.mark.parametrize(
    "left, right, out",
    [
        ("bfloat16", "float8_e4m3fn", "float32"),
        ("float8_e5m2", "bfloat16", "float32"),
        ("float16", "float8_e4m3fn", "float16"),
        ("int4", "bfloat16", "float32"),
        ("float8_e5m2", "uint4", "float32"),
        ("int4", "int8", "int32"),
        ("int32", "bfloat16", "float32"),
        ("bfloat16", "int16", "float32"),
        ("int8", "float8_e5m2", "bfloat16"),
        ("int32", "float16", "float32"),
        ("uint32", "int32", "int32"),
        ("int32", "uint32", "uint32"),
        ("uint8", "int8", "int8"),
        ("int4", "uint32", "uint32"),
    ],
)
def test_products_of_two_dtypes(device, left, right, out):
    def kernel(a_ref, b_ref, o_ref):
        o_ref[...] = lax.dot(a_ref[...], b_ref[...], preferred_element_type=getattr(jnp, out))

    rng = np.random.default_rng(0)
    # Integers that the other dtype does not hold, and few enough bits in all for sums without rounding.
    wide = {
        t: (
            2048
            if t in ("int32", "int16") and "float" in left + right
            else 120 if t == "int8" else 1 << 31 if "32" in t else 8
        )
        for t in (left, right)
    }
    a, b = (
        jnp.asarray(rng.integers(0 if t[0] == "u" else -wide[t], wide[t], s)).astype(t)
        for t, s in ((left, (3, 5)), (right, (5, 4)))
    )
    same(
        call(kernel, ((3, 4), getattr(jnp, out)))(a, b), call(kernel, ((3, 4), getattr(jnp, out)), interpret=True)(a, b)
    )


@pytest.mark.parametrize("name", [*FLOATS, "int2", "uint2"])
def test_conversions_to_narrow_dtypes(device, name):
    t = getattr(jnp, name)

    def kernel(x_ref, n_ref, o_ref, p_ref, q_ref, back_ref):
        o_ref[...] = x_ref[...].astype(t)
        back_ref[...] = x_ref[...].astype(t).astype(f32)
        p_ref[...] = n_ref[...].astype(t)
        q_ref[...] = x_ref[...].astype(jnp.bfloat16).astype(t)

    grid = np.concatenate(
        [np.outer(2.0 ** np.arange(-22, 18), 1 + np.arange(64) / 64).ravel(), [0, np.inf, 1e-30, 3e38]]
    )
    x = np.concatenate([grid, -grid, [np.nan], np.random.default_rng(2).standard_normal(200) * 20]).astype(np.float32)
    if "int" in name:  # XLA leaves open what becomes of what is out of range
        x = np.asarray([-1.5, -0.5, 0, 0.4, 1, 1.9] if name == "int2" else [0, 0.9, 1.5, 3], np.float32)
    n = jnp.arange(-40, 40, dtype=i32)
    outs = ((len(x),), t), ((80,), t), ((len(x),), t), ((len(x),), f32)
    same(call(kernel, *outs)(x, n), call(kernel, *outs, interpret=True)(x, n))


def test_narrow_dtypes_are_not_computed_with(device):
    def adds(x_ref, o_ref):
        o_ref[...] = x_ref[...] + x_ref[...]

    def casts(x_ref, o_ref):
        o_ref[...] = lax.bitcast_convert_type(x_ref[...], jnp.uint8).astype(x_ref.dtype)

    x = jnp.ones(4, jnp.float8_e4m3fnuz)
    for kernel in (adds, casts):
        with pytest.raises(
            tessera.Error,
            match="kernels load, store, move and convert float8_e4m3fnuz, but do not compute with it\n  at .*\n"
            "  note: x.astype",
        ):
            call(kernel, ((4,), x.dtype))(x)


def test_subnormal_numbers_are_not_zeros(device):
    def kernel(x_ref, o_ref):
        o_ref[...] = (x_ref[...] == 0).astype(i32)

    bits = jnp.asarray([0, 1, 0x8001, 0x8000, 5], jnp.uint16)
    np.testing.assert_array_equal(
        call(kernel, ((5,), i32))(lax.bitcast_convert_type(bits, jnp.bfloat16))[0], [1, 0, 0, 1, 0]
    )


def test_kernels_that_only_print(device, capsys):
    def kernel(x_ref, *o_ref):
        pl.debug_print("here is {}", x_ref[0])

    # Since 0.12 JAX removes a call without a result, here as under interpret=True.
    for outs in [[((4,), f32)], []][: 1 if jax.__version_info__ >= (0, 12) else 2]:
        jax.block_until_ready(jax.jit(call(kernel, *outs))(jnp.arange(4.0) + 7))
        jax.effects_barrier()
        assert capsys.readouterr().out == "here is 7.0\n"


def test_prints_without_a_stdout():
    assert (
        python(
            """
import sys
import jax, jax.numpy as jnp, tessera
from jax.experimental import pallas as pl
def kernel(x_ref, o_ref):
    o_ref[...] = x_ref[...] * 2
    pl.debug_print("one {}", x_ref[0])
sys.stdout = None
with tessera.on("interpreter"):
    f = jax.jit(pl.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct((4,), jnp.float32)))
    assert f(jnp.ones(4)).sum() == 8
""",
            JAX_PLATFORMS="cpu",
        )
        == ("", "")
    )


def test_sums_that_start_from_nothing(device):
    def adds(x_ref, o_ref):
        o_ref[...] += x_ref[...]

    def starts(x_ref, o_ref):
        @pl.when(pl.program_id(0) == 0)
        def _():
            o_ref[...] = jnp.zeros(4)

        o_ref[...] += x_ref[...]

    def chooses(x_ref, o_ref):
        o_ref[...] = jnp.where(pl.program_id(0) == 0, 0, o_ref[...]) + x_ref[...]

    specs = dict(
        grid=(2,), in_specs=[pl.BlockSpec((4,), lambda i: (i,))], out_specs=[pl.BlockSpec((4,), lambda i: (0,))]
    )
    x = jnp.arange(8.0)
    with pytest.warns(
        UserWarning,
        match="adds: output 0 is read before anything is stored there: what it holds then is unspecified\n"
        "  at .*test_narrow.py",
    ):
        call(adds, ((4,), f32), **specs)(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        same(call(starts, ((4,), f32), **specs)(x), [x[:4] + x[4:]])
        same(call(chooses, ((4,), f32), **specs)(x), [x[:4] + x[4:]])
        same(
            call(
                lambda x_ref, s_ref, o_ref: adds(x_ref, o_ref),
                ((4,), f32),
                input_output_aliases={1: 0},
                grid=(2,),
                in_specs=[*specs["in_specs"], pl.BlockSpec((4,), lambda i: (0,))],
                out_specs=specs["out_specs"],
            )(x, jnp.zeros(4)),
            [x[:4] + x[4:]],
        )


@pytest.mark.parametrize("shape", [(2**34,), (2**31,), (2**21, 2**20)])
def test_arrays_that_are_too_large(device, shape):
    spec = pl.BlockSpec((8,) * len(shape), lambda: (0,) * len(shape))
    array = jax.ShapeDtypeStruct(shape, f32)

    def copies(x_ref, o_ref):
        o_ref[...] = x_ref[...]

    with pytest.raises(
        tessera.Error,
        match=r"copies: a value has the shape \(.*\): dims have at most 2147483647 elements, arrays 1099511627776\n"
        r"  at .*test_narrow.py:\d+\n  note: reshape",
    ):
        jax.jit(pl.pallas_call(copies, out_shape=array, in_specs=[spec], out_specs=spec)).lower(array)


def test_exported_functions(device):
    f = jax.jit(call(lambda x_ref, o_ref: o_ref.__setitem__(..., x_ref[...] * 2), ((8,), f32)))
    exported = jax.export.export(f)(jax.ShapeDtypeStruct((8,), f32))
    x = jnp.arange(8.0)
    same(exported.call(x), [x * 2])


def test_functions_that_are_exported_for_several_platforms(device):
    x = jnp.arange(1024.0).reshape(8, 128)
    f = jax.jit(call(lambda x_ref, o_ref: o_ref.__setitem__(..., x_ref[...] * 2), ((8, 128), f32)))
    exported = jax.export.export(f, platforms=("cpu", "tpu"))(x)  # what runs on a TPU is JAX's own
    calls = tessera.stats()["calls"]
    same(exported.call(x), [x * 2])
    assert tessera.stats()["calls"] == calls + 1


def test_exported_functions_of_symbolic_sizes(device):
    (n,) = jax.export.symbolic_shape("n")
    row = pl.BlockSpec((1, 8), lambda i: (i, 0))

    def doubles(x):
        def kernel(x_ref, o_ref):
            o_ref[...] = x_ref[...] * 2

        return pl.pallas_call(
            kernel, out_shape=jax.ShapeDtypeStruct(x.shape, f32), grid=x.shape[:1], in_specs=[row], out_specs=row
        )(x)

    with pytest.raises(
        tessera.Error,
        match=r"kernel: a value has the shape \(n, 8\): sizes must be known when the call is traced\n"
        r"  at .*test_narrow.py:\d+\n"
        r"  note: export the function once per size \(jax.export without symbolic shapes\)",
    ):
        jax.export.export(jax.jit(doubles))(jax.ShapeDtypeStruct((n, 8), f32))


def test_exported_functions_in_other_processes(device, tmp_path):
    pytest.importorskip("flatbuffers")  # which serialize() needs
    f = jax.jit(call(lambda x_ref, o_ref: o_ref.__setitem__(..., x_ref[...] * 2), ((8,), f32)))
    exported = jax.export.export(f)(jax.ShapeDtypeStruct((8,), f32))
    (tmp_path / "f").write_bytes(exported.serialize())
    same(jax.export.deserialize(bytearray((tmp_path / "f").read_bytes())).call(jnp.arange(8.0)), [jnp.arange(8.0) * 2])
    out, _ = python(
        f"""
import jax.export, jax.numpy as jnp, pathlib, tessera
with tessera.on("interpreter"):
    f = jax.export.deserialize(bytearray(pathlib.Path({str(tmp_path / "f")!r}).read_bytes()))
    print(f.call(jnp.arange(8.0))[0].tolist(), tessera.stats()["calls"])
""",
        JAX_PLATFORMS="cpu",
    )
    assert out == "[0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0] 1\n"


@pytest.mark.parametrize("which", [0, 1, 2])
def test_copies_from_one_of_several_refs(device, which):
    def kernel(n_ref, x_ref, y_ref, o_ref, sem_ref):
        source = pl.select_ref(n_ref[0], x_ref.at[pl.ds(n_ref[1], 4)], y_ref, x_ref.at[pl.ds(0, 4)])
        copy = pltpu.make_async_copy(source, o_ref.at[pl.ds(1, 4)], sem_ref)
        o_ref[...] = jnp.zeros(6)
        copy.start()
        copy.wait()

    anywhere = pl.BlockSpec(memory_space=pl.ANY)
    x, y = jnp.arange(8.0) + 1, jnp.arange(4.0) + 30
    got = call(
        kernel,
        ((6,), f32),
        in_specs=[pl.BlockSpec(memory_space=pltpu.SMEM), anywhere, anywhere],
        scratch_shapes=[pltpu.SemaphoreType.DMA],
    )(jnp.asarray([which, 2], i32), x, y)
    same(got, [jnp.zeros(6).at[1:5].set([x[2:6], y, x[:4]][which])])


def test_copies_of_a_size_that_comes_at_run_time(device):
    def kernel(n_ref, x_ref, o_ref, tile_ref, sem_ref):
        i = pl.program_id(0)
        n = jnp.minimum(n_ref[0] - i * 4, 4)

        @pl.when(i == 0)
        def _():
            o_ref[...] = jnp.zeros((3, 12))

        for source, target in (
            (x_ref.at[:, pl.ds(i * 4, n)], tile_ref.at[:, pl.ds(0, n)]),
            (tile_ref.at[:, pl.ds(0, n)], o_ref.at[:, pl.ds(i * 4, n)]),
        ):
            copy = pltpu.make_async_copy(source, target, sem_ref)
            copy.start()
            copy.wait()

    x = jnp.arange(30.0).reshape(3, 10) + 1
    f = call(
        kernel,
        ((3, 12), f32),
        grid=(3,),
        in_specs=[pl.BlockSpec(memory_space=pltpu.SMEM), pl.BlockSpec(memory_space=pl.ANY)],
        out_specs=[pl.BlockSpec((3, 12), lambda i: (0, 0))],
        scratch_shapes=[pltpu.VMEM((3, 4), f32), pltpu.SemaphoreType.DMA],
    )
    for n in (10, 9, 4, 1):
        same(f(jnp.asarray([n], i32), x), [jnp.zeros((3, 12)).at[:, :n].set(x[:, :n])])


def test_copies_of_one_row_of_merged_dims(device):
    def kernel(n_ref, x_ref, o_ref, tile_ref, sem_ref):
        rows, out = x_ref.reshape(12, 1, 5), o_ref.reshape(12, 5)
        for source, target in ((rows.at[pl.ds(n_ref[0], 1)], tile_ref), (tile_ref.at[0], out.at[pl.ds(n_ref[1], 1)])):
            copy = pltpu.make_async_copy(source, target, sem_ref)
            copy.start()
            copy.wait()

    x = jnp.arange(60.0).reshape(3, 4, 1, 5) + 1
    f = call(
        kernel,
        ((3, 4, 5), f32),
        in_specs=[pl.BlockSpec(memory_space=pltpu.SMEM), pl.BlockSpec(memory_space=pl.ANY)],
        out_specs=[pl.BlockSpec(memory_space=pl.ANY)],
        scratch_shapes=[pltpu.VMEM((1, 1, 5), f32), pltpu.SemaphoreType.DMA],
    )
    for n, m in ((0, 0), (7, 2), (11, 11)):
        got = f(jnp.asarray([n, m], i32), x)[0]
        np.testing.assert_array_equal(got.reshape(12, 5)[m], x.reshape(12, 5)[n])
