"""What kernels can say only since JAX 0.11 or 0.12, and what says so where they cannot be run. Nothing here runs with
JAX 0.10."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from support import DEVICES

import tessera

pytestmark = pytest.mark.skipif(not hasattr(lax, "log2"), reason="this JAX has none of it")
f32, i32 = jnp.float32, jnp.int32


@pytest.fixture(params=DEVICES)
def device(request):
    with tessera.on(request.param):
        yield request.param


def call(kernel, out, **params):
    shape, dtype = out
    return pl.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct(shape, dtype), **params)


def whole(*shape, dtype=f32):
    return (jnp.arange(np.prod(shape), dtype=i32).reshape(shape) * 7 % 23 - 9).astype(dtype)


def test_elementwise(device):
    def kernel(x_ref, o_ref, d_ref):
        o_ref[...] = lax.log2(x_ref[...])
        d_ref[...] = lax.one_minus_square(x_ref[...])

    x = jnp.linspace(0.01, 40, 37, dtype=f32)
    got = pl.pallas_call(kernel, out_shape=[jax.ShapeDtypeStruct((37,), f32)] * 2)(x)
    np.testing.assert_allclose(got[0], np.log2(np.asarray(x, np.float64)), rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(got[1], (1 - x) * (1 + x), rtol=3e-7)

    def integers(x_ref, o_ref):
        o_ref[...] = lax.one_minus_square(x_ref[...])

    np.testing.assert_array_equal(
        call(integers, ((3, 5), i32))(whole(3, 5, dtype=i32)), 1 - whole(3, 5, dtype=i32) ** 2
    )


@pytest.mark.parametrize("dim", [-1, -2, 2])
@pytest.mark.parametrize("source, target", [(i32, jnp.int16), (jnp.int16, i32), (jnp.uint8, f32), (f32, i32)])
def test_bitcast_along_a_dim(device, dim, source, target):
    def kernel(x_ref, o_ref):
        o_ref[...] = pltpu.bitcast(x_ref[...], target, dim=dim)

    x = whole(2, 4, 8, dtype=source)
    want = jax.jit(lambda x: pltpu.bitcast(x, target, dim=dim))(x)
    np.testing.assert_array_equal(call(kernel, (want.shape, target))(x).view(jnp.uint8), want.view(jnp.uint8))


def test_views_that_are_hints(device):
    def kernel(x_ref, o_ref, scratch):
        scratch[...] = pltpu.annotate(x_ref, no_store=True)[...] * 2
        o_ref[...] = pltpu.annotate(scratch.at[pl.ds(1, 4)], no_bank_conflict=True)[...]
        o_ref.at[0].memory_space_cast(pltpu.VMEM)[...] = x_ref[0]

    x = whole(8, 3)
    got = call(kernel, ((4, 3), f32), scratch_shapes=[pltpu.VMEM((8, 3), f32)])(x)
    np.testing.assert_array_equal(got, jnp.concatenate([x[:1], x[2:5] * 2]))


def test_which_memory(device):
    def kernel(x_ref, o_ref):
        o_ref[0] = pltpu.has_memory_space(x_ref, pltpu.HBM).astype(i32)
        o_ref[1] = pltpu.has_memory_space(x_ref, pltpu.SMEM).astype(i32)

    got = call(kernel, ((2,), i32), in_specs=[pl.BlockSpec(memory_space=pl.ANY)])(whole(8))
    np.testing.assert_array_equal(got, [1, 0])


def test_calls_with_wishes(device):
    from jax._src.program_order import program_order
    from jax._src.xla_metadata import xla_metadata_call

    def kernel(x_ref, o_ref):
        tagged = xla_metadata_call(lambda x: jnp.sin(x) + 1, tag="t")
        o_ref[...] = program_order(lambda x: tagged(x) * 2, enforce=False)(x_ref[...])

    np.testing.assert_allclose(call(kernel, ((9,), f32))(whole(9)), (jnp.sin(whole(9)) + 1) * 2, rtol=1e-6)


def test_copies_with_other_semaphores_are_refused(device):
    def without(x_ref, o_ref):
        pltpu.make_async_copy(x_ref, o_ref).start()

    def two(x_ref, o_ref, a, b):
        pltpu.make_async_copy(x_ref, o_ref, a, src_sem=b).start()

    for kernel, scratch in [(without, []), (two, [pltpu.SemaphoreType.DMA] * 2)]:
        with pytest.raises(
            tessera.Error,
            match=(
                "dma_start: copies without a semaphore, or with another one for their source, are not supported: "
                "give make_async_copy one semaphore\n  at .*test_newer.py:"
            ),
        ):
            call(kernel, ((8,), f32), scratch_shapes=scratch)(whole(8))


def test_views_of_other_devices_are_refused(device):
    plgpu = pytest.importorskip("jax.experimental.pallas.mosaic_gpu")  # which needs absl-py

    def kernel(x_ref, o_ref):
        o_ref[...] = plgpu.remote_ref(x_ref, 1)[...]

    with pytest.raises(tessera.Error, match="get: a view by PeerMemRef is not supported\n  at .*test_newer.py:"):
        call(kernel, ((8,), f32))(whole(8))


def test_pipelines_as_one_primitive_are_refused(device):
    def kernel(x_ref, o_ref):
        def body(x, o):
            o[...] = x[...] + 1

        spec = pl.BlockSpec((4,), lambda i: (i,))
        pltpu.emit_pipeline(body, grid=(2,), in_specs=[spec], out_specs=[spec])(x_ref, o_ref)

    f = call(
        kernel, ((8,), f32), in_specs=[pl.BlockSpec(memory_space=pl.ANY)], out_specs=pl.BlockSpec(memory_space=pl.ANY)
    )
    np.testing.assert_array_equal(f(whole(8)), whole(8) + 1)
    jax.config.update("jax_use_emit_pipeline_primitive", True)
    try:
        with pytest.raises(
            tessera.Error,
            match=(
                "kernel: emit_pipeline: pipelines are read as the loops that JAX makes of them, not as one primitive\n"
                "  at .*test_newer.py:.*\n  note: leave JAX's option jax_use_emit_pipeline_primitive off"
            ),
        ):
            f(whole(8))
    finally:
        jax.config.update("jax_use_emit_pipeline_primitive", False)


def test_names_of_axes_under_vmap(device):
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...] + lax.axis_index("rows")

    f = pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct((6,), i32),
        grid=(("rows", 3),),
        in_specs=[pl.BlockSpec((2,), lambda i: (i,))],
        out_specs=pl.BlockSpec((2,), lambda i: (i,)),
    )
    x = whole(4, 6, dtype=i32)
    np.testing.assert_array_equal(jax.vmap(f)(x), x + jnp.repeat(jnp.arange(3), 2))
