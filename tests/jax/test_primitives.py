"""What kernels may contain beside arithmetic: messages, checks, random numbers, packed words, elements at computed
positions, atomics, views, and calls of other shapes. Kernels are small: most of the time here is a driver's
compiler."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax._src.pallas import primitives as pallas_primitives
from jax.experimental import checkify
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas import triton as pltriton

import tessera
from support import DEVICES

f32, i32, u32, bf16 = jnp.float32, jnp.int32, jnp.uint32, jnp.bfloat16


@pytest.fixture(params=DEVICES)
def device(request):
    with tessera.on(request.param):
        yield request.param


def call(kernel, *outs, **kwargs):
    shapes = [jax.ShapeDtypeStruct(s, t) for s, t in outs]
    return pl.pallas_call(kernel, out_shape=shapes if len(shapes) > 1 else shapes[0], **kwargs)


def numbers(*shape, dtype=f32):
    return jnp.asarray(np.random.default_rng(sum(shape)).integers(-9, 9, shape), dtype)


def same(got, want):
    for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert g.dtype == w.dtype
        np.testing.assert_array_equal(g, w)


def test_prints(device, capsys):
    def kernel(x_ref, o_ref):
        pl.debug_print("at {}: {}", pl.program_id(0), x_ref[0])
        jax.debug.print("{name} {{is}} {x:.2f}", name="half", x=x_ref[1] / 2)

        @pl.when(pl.program_id(0) == 1)
        def _():
            pl.debug_print("all", x_ref[...])

        o_ref[...] = x_ref[...]

    x = jnp.asarray([3, 5], f32)
    same(call(kernel, ((2,), f32), grid=(2,), out_specs=pl.BlockSpec((2,), lambda i: (0,)))(x), x)
    assert capsys.readouterr().out == "at 0: 3.0\nhalf {is} 2.50\nat 1: 3.0\nhalf {is} 2.50\nall [3. 5.]\n"


def test_checks(device):
    def kernel(x_ref, o_ref):
        pl.debug_check(x_ref[0] > 0, "x must be positive")
        o_ref[...] = x_ref[...] * 2

    x = jnp.asarray([-1, 4], f32)
    same(call(kernel, ((2,), f32))(x), x * 2)  # not enabled
    with pl.enable_debug_checks():
        jax.clear_caches()
        with pytest.raises(jax.errors.JaxRuntimeError, match=r"kernel: .*x must be positive"):
            jax.block_until_ready(jax.jit(call(kernel, ((2,), f32)))(x))
        same(call(kernel, ((2,), f32))(-x + 9), (9 - x) * 2)


def test_what_is_refused(device):
    def calls_python(x_ref, o_ref):
        o_ref[...] = jax.pure_callback(lambda x: x, jax.ShapeDtypeStruct((2,), f32), x_ref[...])

    def checks(x_ref, o_ref):
        checkify.check(x_ref[0] > 0, "positive")
        o_ref[...] = x_ref[...]

    def assembles(x_ref, o_ref):
        o_ref[...] = pltriton.elementwise_inline_asm(
            "nop", args=[x_ref[...]], constraints="=r,r", pack=1, result_shape_dtypes=[jax.ShapeDtypeStruct((2,), f32)]
        )[0]

    for kernel, what in [
        (
            calls_python,
            "calls_python: pure_callback: kernels cannot call Python\n.*\n"
            "  note: pl.debug_print prints from inside a kernel",
        ),
        (assembles, "assembles: elementwise_inline_asm: assembly is one vendor's"),
        (
            checks,
            "check: a check must be made a result by jax.experimental.checkify.checkify, or be pl.debug_check\n  at ",
        ),
    ]:
        with pytest.raises(tessera.Error, match=what):
            call(kernel, ((2,), f32))(numbers(2))


def test_random_numbers_of_a_tpu(device):
    def kernel(seed_ref, o_ref, u_ref):
        pltpu.prng_seed(seed_ref[0], pl.program_id(0))
        o_ref[...] = pltpu.prng_random_bits((16, 16))
        u_ref[...] = pltpu.stateful_uniform((16, 16), f32)

    spec = pl.BlockSpec((None, 16, 16), lambda i: (i, 0, 0))
    f = call(
        kernel,
        ((2, 16, 16), i32),
        ((2, 16, 16), f32),
        grid=(2,),
        in_specs=[pl.BlockSpec(memory_space=pltpu.SMEM)],
        out_specs=[spec, spec],
    )
    bits, uniform = f(jnp.asarray([5], i32))
    same(f(jnp.asarray([5], i32)), [bits, uniform])
    assert len(np.unique(bits)) > 500 and len(np.unique(np.concatenate([bits, f(jnp.asarray([6], i32))[0]]))) > 1000
    assert 0 <= uniform.min() and uniform.max() < 1 and 0.4 < uniform.mean() < 0.6


def test_random_keys(device):
    def kernel(key_ref, o_ref):
        key = jax.random.fold_in(jax.random.wrap_key_data(key_ref[...]), pl.program_id(0))
        a, b = jax.random.split(key)
        o_ref[0], o_ref[1] = jax.random.bits(a, (5,), u32), jax.random.bits(b, (5,), u32)

    data = jnp.asarray([3, 8], u32)
    got = call(kernel, ((3, 2, 5), u32), grid=(3,), out_specs=pl.BlockSpec((None, 2, 5), lambda i: (i, 0, 0)))(data)
    keys = [jax.random.split(jax.random.fold_in(jax.random.wrap_key_data(data), i)) for i in range(3)]
    same(got, jnp.stack([jnp.stack([jax.random.bits(k, (5,), u32) for k in ks]) for ks in keys]))


def test_packed_words(device):
    def kernel(x_ref, y_ref, i_ref, w_ref, v_ref, b_ref, n_ref):
        words = pltpu.pack_elementwise([x_ref[...], y_ref[...]], packed_dtype=bf16)
        w_ref[...] = words
        v_ref[...] = pltpu.unpack_elementwise(words, index=1, packed_dtype=bf16, unpacked_dtype=f32)
        b_ref[...] = pltpu.bitcast(i_ref[...], jnp.int16)
        n_ref[...] = pltpu.einshape("(ab)c->a(cb)", i_ref[...], b=2)

    x, y, i = numbers(4, 6) / 3, numbers(4, 6) / 7, numbers(4, 6, dtype=i32) * 70001
    got = call(kernel, ((4, 6), u32), ((4, 6), f32), ((8, 6), jnp.int16), ((2, 12), i32))(x, y, i)
    halves = [lax.bitcast_convert_type(v.astype(bf16), jnp.uint16).astype(u32) for v in (x, y)]
    low, high = (i & 0xFFFF).astype(jnp.uint16).astype(jnp.int16), (i >> 16).astype(jnp.int16)
    same(
        got,
        [
            halves[0] | halves[1] << 16,
            y.astype(bf16).astype(f32),
            jnp.stack([low, high], 1).reshape(8, 6),
            i.reshape(2, 2, 6).transpose(0, 2, 1).reshape(2, 12),
        ],
    )


def test_elements_at_computed_positions(device):
    def kernel(at_ref, x_ref, o_ref, p_ref, q_ref):
        at, x = at_ref[...], x_ref[...]
        o_ref[...] = x.at[at * 2].get(mode="fill", fill_value=-7) + jnp.take_along_axis(
            x, at[:, None] + jnp.arange(4) % 2, axis=0
        )
        p_ref[...] = x.at[at * 3, 1].set(50 + jnp.arange(3)).at[:, at].add(100)
        q_ref[...] = jnp.zeros((6, 4), i32)
        q_ref[at, jnp.arange(3)] = x_ref[0, at] + jnp.sort(x_ref[:, 1])[at]

    at, x = jnp.asarray([4, 0, 2], i32), numbers(6, 4, dtype=i32)
    outs = ((3, 4), i32), ((6, 4), i32), ((6, 4), i32)
    same(call(kernel, *outs)(at, x), call(kernel, *outs, interpret=True)(at, x))


def test_windows_that_start_at_0_where_no_index_says(device):
    rows = lax.GatherDimensionNumbers(offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0,))
    added = lax.ScatterDimensionNumbers(
        update_window_dims=(1,), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,)
    )

    def kernel(x, i, o, p):
        o[...] = lax.gather(x[...], i[...], rows, (1, 4))
        p[...] = lax.scatter_add(x[...], i[...], jnp.ones((3, 4)), added)

    x, at = jnp.arange(30, dtype=jnp.float32).reshape(5, 6), jnp.asarray([[4], [0], [3]])
    o, p = call(kernel, ((3, 4), jnp.float32), ((5, 6), jnp.float32))(x, at)
    np.testing.assert_array_equal(o, x[at[:, 0], :4])
    np.testing.assert_array_equal(p, x.at[at[:, 0], :4].add(1))


def test_atomics(device):
    def kernel(x_ref, sum_ref, lock_ref):
        @pl.when(pl.program_id(0) == 0)
        def _():
            sum_ref[...], lock_ref[...] = jnp.zeros(4, i32), jnp.zeros((), i32)

        pltriton.atomic_add(sum_ref, (pl.ds(0, 4),), x_ref[...])
        pltriton.atomic_max(sum_ref, (pl.ds(0, 4),), x_ref[...], mask=jnp.arange(4) < 2)
        pltriton.atomic_cas(lock_ref, pl.program_id(0), pl.program_id(0) + 1)

    x = numbers(3, 4, dtype=i32) + 20
    f = call(
        kernel,
        ((4,), i32),
        ((), i32),
        grid=(3,),
        in_specs=[pl.BlockSpec((None, 4), lambda i: (i, 0))],
        out_specs=[pl.BlockSpec((4,), lambda i: (0,)), pl.BlockSpec((), lambda i: ())],
    )
    same(f(x), [x.sum(0), jnp.asarray(3, i32)])


def test_copies_between_views(device):
    def kernel(x_ref, o_ref, tile_ref, sem_ref):
        copy = pltpu.make_async_copy(x_ref.at[1].reshape(4, 6).at[pl.ds(1, 2)], tile_ref.at[:, pl.ds(0, 6)], sem_ref)
        copy.start()
        copy.wait()
        o_ref[...] = tile_ref[:, :6] + x_ref.bitcast(u32)[0, :2].astype(f32)

    anywhere = pl.BlockSpec(memory_space=pl.ANY)
    x = jnp.abs(numbers(2, 4, 6))
    got = call(
        kernel, ((2, 6), f32), in_specs=[anywhere], scratch_shapes=[pltpu.VMEM((2, 8), f32), pltpu.SemaphoreType.DMA]
    )(x)
    same(got, x[1, 1:3] + lax.bitcast_convert_type(x, u32)[0, :2].astype(f32))


def test_swaps_of_a_part(device):
    def kernel(x_ref, mask_ref, at_ref, o_ref, p_ref):
        o_ref[...] = x_ref[...] * 3
        p_ref[...] = pallas_primitives.swap(o_ref, (pl.ds(at_ref[0], 4),), x_ref[2:6], mask=mask_ref[...])

    x, mask = numbers(8), jnp.asarray([True, False, True, True])
    want = (x * 3).at[jnp.asarray([5, 7])].set(x[jnp.asarray([2, 4])]), jnp.asarray([x[5] * 3, x[3], x[7] * 3, x[5]])
    mask = mask & (jnp.arange(4) + 5 < 8)
    same(call(kernel, ((8,), f32), ((4,), f32))(x, mask, jnp.asarray([5], i32)), want)


def test_stores_to_prefetched_scalars(device):
    def kernel(count_ref, x_ref, o_ref):
        o_ref[...] = x_ref[...] + count_ref[0]
        count_ref[0] = count_ref[0] * 2

    spec = pl.BlockSpec((2,), lambda i, count: (i,))
    grid = pltpu.PrefetchScalarGridSpec(num_scalar_prefetch=1, grid=(3,), in_specs=[spec], out_specs=spec)
    count, x = jnp.asarray([5], i32), numbers(6, dtype=i32)
    same(call(kernel, ((6,), i32), grid_spec=grid)(count, x), x + jnp.asarray([5, 5, 10, 10, 20, 20], i32))
    same(count, jnp.asarray([5], i32))


@pytest.mark.parametrize("dtype", [jnp.int4, jnp.uint4])
def test_integers_of_four_bits(device, dtype):
    least = 1 if dtype == jnp.uint4 else -7

    def kernel(x_ref, o_ref, w_ref):
        o_ref[...], w_ref[...] = jnp.where(x_ref[...] == least, 2, x_ref[...]), x_ref[...].astype(i32) * 3

    x = jnp.asarray([3, 7, 1, 0, 5], i32).astype(dtype)
    x = x if dtype == jnp.uint4 else -x
    f = jax.jit(lambda x: call(kernel, ((5,), dtype), ((5,), i32))(x))
    same(f(x), [jnp.where(x == least, 2, x), x.astype(i32) * 3])


def test_aliases_and_kinds_of_blocks(device):
    def kernel(x_ref, y_ref, o_ref):
        o_ref[...] += x_ref[1:5] + x_ref[0:4] + y_ref[...]

    x, y, start = numbers(9), numbers(8), numbers(8) * 10
    f = call(
        lambda x_ref, y_ref, s_ref, o_ref: kernel(x_ref, y_ref, o_ref),
        ((8,), f32),
        grid=(2,),
        input_output_aliases={2: 0},
        in_specs=[
            pl.BlockSpec((pl.Element(5),), lambda i: (i * 4,)),
            pl.BlockSpec((4,), lambda i: (i,), pipeline_mode=pl.Buffered(2)),
            pl.BlockSpec((4,), lambda i: (i,)),
        ],
        out_specs=pl.BlockSpec((4,), lambda i: (i,)),
    )
    for g in (f, jax.jit(f), jax.jit(f, donate_argnums=2)):
        same(g(x, y, start + 0), start + x[1:] + x[:-1] + y)


@pytest.mark.parametrize(
    "index",
    [lambda i: pl.ds(i * 5, 5), lambda i: pl.ds(4, i + 1), lambda i: pl.ds(3, 8), lambda i: pl.ds(20 - i * 3, i + 2)],
)
def test_blocks_that_are_slices_of_a_constant_start_or_size(device, index):
    """JAX's interpreter refuses them, and its jaxpr of an index map returns only what is not constant."""

    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...] * 2

    x, y = numbers(24, 3), numbers(2, 3, 24)
    f = call(
        kernel,
        ((24, 3), f32),
        grid=(3,),
        in_specs=[pl.BlockSpec((pl.BoundedSlice(8), 3), lambda i: (index(i), 0))],
        out_specs=pl.BlockSpec((8, 3), lambda i: (i, 0)),
    )
    g = call(
        kernel,
        ((3, 24), f32),
        grid=(3,),
        in_specs=[pl.BlockSpec((3, 8), lambda i: (0, i))],
        out_specs=pl.BlockSpec((3, pl.BoundedSlice(8)), lambda i: (0, index(i))),
        input_output_aliases={0: 0},
    )
    got, stored = jax.jit(f)(x), jax.vmap(g)(y)
    for i in range(3):
        start, size = index(i).start, min(index(i).size, 24 - index(i).start)
        same(got[i * 8 : i * 8 + size], x[start : start + size] * 2)
    if index(0).start != index(1).start:  # no two programs store to one place
        for i in range(3):
            start, size = index(i).start, min(index(i).size, 24 - index(i).start)
            if all(
                start + size <= index(j).start or index(j).start + index(j).size <= start for j in range(3) if j != i
            ):
                same(stored[:, :, start : start + size], y[:, :, i * 8 : i * 8 + size] * 2)
    with pytest.raises(
        tessera.Error,
        match=r"kernel: args\[0\]: the index map returns a slice with the stride 2, but a block has each element\n"
        r"  at .*test_primitives.py:\d+\n"
        r"  note: pl.ds\(start, size\)",
    ):
        call(
            kernel, ((8,), f32), grid=(1,), in_specs=[pl.BlockSpec((pl.BoundedSlice(8),), lambda i: (pl.ds(0, 8, 2),))]
        )(numbers(8))


def test_kernels_without_a_grid_of_their_own(device):
    mesh = pltpu.create_tensorcore_mesh("core", num_cores=2)

    @jax.jit
    def f(x):
        y = jnp.zeros_like(x)

        def inner(refs):
            x_ref, y_ref = refs

            @pl.core_map(mesh)
            def _():
                rows = pl.ds(lax.axis_index("core") * 2, 2)
                pltpu.sync_copy(x_ref.at[rows], y_ref.at[rows])

        return pl.run_state(inner)((x, y))[1]

    x = numbers(4, 3)
    same(f(x), x)
