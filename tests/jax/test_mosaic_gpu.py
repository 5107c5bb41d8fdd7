"""plgpu.kernel: kernels whose programs have several threads, and those of jax.experimental.pallas.ops.gpu for Hopper,
on the interpreter; on Vulkan those of one thread. What comes out is compared with NumPy: JAX's own interpreter of such
kernels waits for ever on two cores."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl
from support import DEVICES

import tessera

pytest.importorskip("absl", reason="jax.experimental.pallas.mosaic_gpu needs absl")
from jax.experimental.pallas import mosaic_gpu as plgpu  # noqa: E402

f16, f32 = jnp.float16, jnp.float32
TILES = (plgpu.TilingTransform((8, 64)), plgpu.SwizzleTransform(128))


@pytest.fixture(params=DEVICES)
def device(request):
    with tessera.on(request.param):
        yield request.param


@pytest.fixture
def interpreter():
    with tessera.on("interpreter"):
        yield


def random(*shapes, dtype=f32):
    rng = np.random.default_rng(len(shapes) + sum(shapes[0]))
    return [jnp.asarray(rng.standard_normal(s), dtype) for s in shapes]


def wide(*arrays):
    return [np.asarray(a, np.float64) for a in arrays]


def kernel(body, shape, dtype=f32, scratch=(), **params):
    return jax.jit(plgpu.kernel(body, out_type=jax.ShapeDtypeStruct(shape, dtype), scratch_types=scratch, **params))


def test_copies_and_a_barrier(device):
    def body(x, o, tile, full):
        rows = pl.ds(lax.axis_index("i") * 64, 64)
        plgpu.copy_gmem_to_smem(x.at[rows], tile, full)
        plgpu.barrier_wait(full)
        tile[...] = tile[...] * 2.0
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(tile, o.at[rows])
        plgpu.wait_smem_to_gmem(0)

    (x,) = random((150, 32))  # the last rows hang over
    double = kernel(body, (150, 32), scratch=[plgpu.SMEM((64, 32), f32), plgpu.Barrier()], grid=(3,), grid_names=("i",))
    np.testing.assert_array_equal(double(x), 2 * x)


def test_groups_predicates_and_reductions(device):
    def body(x, o, s, tile, full):
        i = lax.axis_index("i")
        plgpu.copy_gmem_to_smem(x.at[pl.ds(i * 64, 64)], tile, full)
        plgpu.barrier_wait(full)
        plgpu.copy_smem_to_gmem(tile, o, predicate=i == 1, commit_group=False)
        plgpu.copy_smem_to_gmem(tile, s.at[pl.ds(i * 64, 64)], commit_group=False)
        plgpu.commit_smem_to_gmem_group()
        plgpu.wait_smem_to_gmem(0, wait_read_only=True)

    (x,) = random((128, 32))
    out = (jax.ShapeDtypeStruct((64, 32), f32), jax.ShapeDtypeStruct((128, 32), f32))
    o, s = jax.jit(
        plgpu.kernel(
            body, out_type=out, scratch_types=[plgpu.SMEM((64, 32), f32), plgpu.Barrier()], grid=(2,), grid_names=("i",)
        )
    )(x)
    np.testing.assert_array_equal(o, x[64:])
    np.testing.assert_array_equal(s, x)


def ring(x, o, tiles, full, free):
    thread = lax.axis_index("wg")

    @pl.when(thread == 0)
    def _():
        @pl.loop(0, 8)
        def _(i):
            slot = lax.rem(i, 2)

            @pl.when(i >= 2)
            def _():
                plgpu.barrier_wait(free.at[slot])

            plgpu.copy_gmem_to_smem(x.at[pl.ds(i * 64, 64)], tiles.at[slot], full.at[slot])

    @pl.when(thread == 1)
    def _():
        def step(i, total):
            slot = lax.rem(i, 2)
            plgpu.barrier_wait(full.at[slot])
            total = total + tiles[slot]
            plgpu.barrier_arrive(free.at[slot])
            return total

        o[...] = lax.fori_loop(0, 8, step, jnp.zeros((64, 64), f32))


RING = dict(
    scratch=[plgpu.SMEM((2, 64, 64), f32), plgpu.Barrier(num_barriers=2), plgpu.Barrier(num_barriers=2)],
    num_threads=2,
    thread_name="wg",
)


def test_threads(interpreter):
    (x,) = random((512, 64))
    np.testing.assert_allclose(
        kernel(ring, (64, 64), **RING)(x), wide(x)[0].reshape(8, 64, 64).sum(0), rtol=1e-5, atol=1e-5
    )


def test_threads_need_barriers_that_vulkan_lacks():
    with tessera.on("vulkan"), pytest.raises(tessera.Error) as e:
        kernel(ring, (64, 64), **RING)(random((512, 64))[0])
    assert str(e.value).startswith(
        "ring: its 2 threads wait for each other at scratch_types[1], a barrier that is no barrier of a workgroup\n"
        "  at "
    )


def test_product_in_tiles(device):
    def body(a, b, o, sa, sb, so, full):
        rows, columns = (pl.ds(lax.axis_index(axis) * 64, 64) for axis in "mn")

        def sums(acc):
            @pl.loop(0, 4)
            def _(i):
                plgpu.copy_gmem_to_smem(a.at[rows, pl.ds(i * 64, 64)], sa, full)
                plgpu.copy_gmem_to_smem(b.at[pl.ds(i * 64, 64), columns], sb, full)
                plgpu.barrier_wait(full)
                plgpu.wgmma(acc, sa, sb)
                plgpu.wgmma_wait(0)

            return acc[...]

        so[...] = pl.run_scoped(sums, plgpu.ACC((64, 64), f32)).astype(f16)
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(so, o.at[rows, columns])
        plgpu.wait_smem_to_gmem(0)

    a, b = random((128, 256), (256, 128), dtype=f16)
    tile = plgpu.SMEM((64, 64), f16, transforms=TILES)
    scratch = dict(sa=tile, sb=tile, so=tile, full=plgpu.Barrier(num_arrivals=2))
    got = kernel(body, (128, 128), f16, scratch, grid=(2, 2), grid_names=("m", "n"))(a, b)
    np.testing.assert_allclose(got, np.matmul(*wide(a, b)), rtol=2e-3, atol=2e-2)


def test_transposed_operand_and_an_accumulator_that_begins_with_values(device):
    def body(a, b, c, o, sa, sb, full):
        plgpu.copy_gmem_to_smem(a, sa, full)
        plgpu.copy_gmem_to_smem(b, sb.at[1], full)
        plgpu.barrier_wait(full)
        bias = c[...] * 2.0

        def sums(acc):
            plgpu.wgmma(acc, sa, plgpu.transpose_ref(sb.at[1], (1, 0)))

        o[...] = pl.run_state(sums)(plgpu.ACC.init(bias))

    a, b = random((64, 64), (64, 64), dtype=f16)
    (c,) = random((64, 64))
    scratch = [
        plgpu.SMEM((64, 64), f16, transforms=TILES),
        plgpu.SMEM((2, 64, 64), f16, transforms=TILES),
        plgpu.Barrier(num_arrivals=2),
    ]
    a64, b64, c64 = wide(a, b, c)
    np.testing.assert_allclose(
        kernel(body, (64, 64), scratch=scratch)(a, b, c), a64 @ b64.T + 2 * c64, rtol=1e-4, atol=1e-4
    )


def test_left_operand_that_is_a_value(device):
    def body(a, b, o, sb, full):
        plgpu.copy_gmem_to_smem(b, sb, full)
        plgpu.barrier_wait(full)
        value = plgpu.layout_cast(a[...] * 2.0, plgpu.Layout.WGMMA).astype(f16)

        def sums(acc):
            plgpu.wgmma(acc, value, sb)

        o[...] = pl.run_state(sums)(plgpu.ACC.init(jnp.zeros((64, 64), f32)))

    a, b = random((64, 64), (64, 64), dtype=f16)
    got = kernel(body, (64, 64), scratch=[plgpu.SMEM((64, 64), f16, transforms=TILES), plgpu.Barrier()])(a, b)
    np.testing.assert_allclose(got, 2 * np.matmul(*wide(a, b)), rtol=1e-4, atol=1e-4)


def test_nd_loop(device):
    def body(x, o):
        @plgpu.nd_loop((3, 5), collective_axes="i")
        def _(info):
            a, b = info.index
            o[a, b] = x[a, b] * 3.0 + b

    (x,) = random((3, 5, 128))
    got = kernel(body, (3, 5, 128), grid=(4,), grid_names=("i",))(x)
    np.testing.assert_allclose(got, 3 * x + np.arange(5, dtype=np.float32)[:, None], rtol=1e-6, atol=1e-6)


def test_emit_pipeline(device):
    def body(x, y, o):
        def step(_, xs, ys, os):
            os[...] = xs[...] * 2.0 + ys[...]

        spec = plgpu.BlockSpec((32, 64), lambda i, j: (i, j))
        plgpu.emit_pipeline(step, grid=(4, 2), in_specs=[spec, spec], out_specs=[spec], max_concurrent_steps=2)(x, y, o)

    x, y = random((128, 128), (128, 128))
    np.testing.assert_allclose(kernel(body, (128, 128))(x, y), 2 * x + y, rtol=1e-6, atol=1e-6)


def test_emit_pipeline_warp_specialized(interpreter):
    def body(x, o):
        def step(_, xs, os):
            os[...] = xs[...] + 1.0

        spec = plgpu.BlockSpec((64, 64), lambda i: (i, 0))
        plgpu.emit_pipeline_warp_specialized(
            step,
            grid=(4,),
            in_specs=[spec],
            out_specs=[spec],
            max_concurrent_steps=2,
            num_compute_wgs=1,
            memory_registers=40,
            wg_axis="wg",
        )(x, o)

    (x,) = random((256, 64))
    np.testing.assert_array_equal(kernel(body, (256, 64), num_threads=2, thread_name="wg")(x), x + 1)


def test_windows_of_windows(device):
    """Their starts add up before anything is compared with the array's edges: the inner window may leave the outer
    one."""

    def body(x, o, p, tile, full):
        i = lax.axis_index("i")  # 0, which JAX does not know when it looks at static windows
        plgpu.copy_gmem_to_smem(x.at[pl.ds(40 + i, 30)].at[pl.ds(16 + i, 32)], tile, full)
        plgpu.barrier_wait(full)
        o[...] = tile[...]
        p[...] = x[pl.ds(8, 16)] + x.at[pl.ds(4 + i, 12)].at[pl.ds(4 + i, 16)][...]

    (x,) = random((70, 32))
    out = (jax.ShapeDtypeStruct((32, 32), f32), jax.ShapeDtypeStruct((16, 32), f32))
    o, p = jax.jit(
        plgpu.kernel(
            body, out_type=out, scratch_types=[plgpu.SMEM((32, 32), f32), plgpu.Barrier()], grid=(1,), grid_names=("i",)
        )
    )(x)
    np.testing.assert_array_equal(o, np.pad(x[56:], ((0, 18), (0, 0))))
    np.testing.assert_array_equal(p, 2 * x[8:24])


def test_stores_to_accumulators_and_reductions_of_integers(device):
    def body(x, n, o, m, counts, full):
        def sums(acc):
            acc[...] = x[...] * 3.0
            return acc[...]

        o[...] = pl.run_scoped(sums, plgpu.ACC((64, 64), f32))
        plgpu.copy_gmem_to_smem(n, counts, full)
        plgpu.barrier_wait(full)
        m[...] = jnp.zeros((64,), jnp.int32)
        plgpu.copy_smem_to_gmem(counts, m, reduction_op="smin")
        plgpu.wait_smem_to_gmem(0)

    (x,) = random((64, 64))
    n = jnp.arange(64, dtype=jnp.int32) - 20
    out = (jax.ShapeDtypeStruct((64, 64), f32), jax.ShapeDtypeStruct((64,), jnp.int32))
    o, m = jax.jit(plgpu.kernel(body, out_type=out, scratch_types=[plgpu.SMEM((64,), jnp.int32), plgpu.Barrier()]))(
        x, n
    )
    np.testing.assert_allclose(o, 3 * x, rtol=1e-6)
    np.testing.assert_array_equal(m, np.minimum(n, 0))


def test_pallas_call_that_multiplies_by_wgmma(device):
    """What JAX makes of such a call on a GPU: a program per point of the parallel axes, a pipeline over the others."""

    def product(a_ref, b_ref, o_ref, acc):
        plgpu.wgmma(acc, a_ref, b_ref)
        plgpu.wgmma_wait(0)

        @pl.when(pl.program_id(2) == 2)
        def _():
            o_ref[...] = acc[...].astype(f16) + pl.program_id(1)

    spec = [
        plgpu.BlockSpec((64, 64), at, transforms=TILES)
        for at in (lambda m, n, k: (m, k), lambda m, n, k: (k, n), lambda m, n, k: (m, n))
    ]
    call = pl.pallas_call(
        product,
        out_shape=jax.ShapeDtypeStruct((128, 128), f16),
        grid=(2, 2, 3),
        in_specs=spec[:2],
        out_specs=spec[2],
        scratch_shapes=[plgpu.ACC((64, 64), f32)],
        compiler_params=plgpu.CompilerParams(dimension_semantics=["parallel", "parallel", "sequential"]),
    )
    a, b = random((128, 192), (192, 128), dtype=f16)
    want = np.matmul(*wide(a, b)) + np.repeat([0, 1], 64)
    np.testing.assert_allclose(jax.jit(call)(a, b), want, rtol=2e-3, atol=2e-2)


def test_pallas_call_with_barriers(device):
    def kernel(x_ref, o_ref, tile, full):
        i = pl.program_id(0)
        plgpu.copy_gmem_to_smem(x_ref.at[pl.ds(i * 64, 64)], tile, full)
        plgpu.barrier_wait(full)
        o_ref[...] = tile[...] + i

    (x,) = random((128, 32))
    call = pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct((128, 32), f32),
        grid=(2,),
        in_specs=[pl.BlockSpec(memory_space=plgpu.GMEM)],
        out_specs=plgpu.BlockSpec((64, 32), lambda i: (i, 0)),
        scratch_shapes=[plgpu.SMEM((64, 32), f32), plgpu.Barrier()],
        compiler_params=plgpu.CompilerParams(),
    )
    np.testing.assert_array_equal(jax.jit(call)(x), x + np.repeat(np.float32([0, 1]), 64)[:, None])


def test_what_is_refused(interpreter):
    def refused(body, **params):
        with pytest.raises(tessera.Error) as e:
            kernel(body, (64, 64), **params)(jnp.zeros((64, 64), f32))
        return [line for line in str(e.value).splitlines() if not line.startswith("  at ")]

    def print_layout(x, o):
        plgpu.print_layout("x {}", x[...])

    assert refused(print_layout) == ["print_layout: print_layout: is not supported"]

    def stores(x, o):
        def state(s):
            s[...] = x[...]

        o[...] = pl.run_state(state)(x[...])

    assert refused(stores)[0].startswith("stores: swap: stores to what run_state holds beside an accumulator")

    def nothing(x, o):
        o[...] = x[...]

    sequential = plgpu.CompilerParams(dimension_semantics=["sequential"])
    assert (
        refused(nothing, grid=(1,), grid_names=("i",), compiler_params=sequential)[0]
        == "nothing: dimension_semantics has 'sequential', but the programs of plgpu.kernel run at once"
    )
    assert (
        refused(nothing, grid=(1,), grid_names=("i",), num_threads=1, thread_name="i")[0]
        == "nothing: two axes have the same name"
    )

    @jax.jit
    def written(x):
        def state(ref):
            @pl.core_map(plgpu.Mesh(grid=(1,), grid_names=("i",)))
            def _():
                ref[...] = ref[...] * 2.0

        return pl.run_state(state)(x)

    with pytest.raises(tessera.Error) as e:
        written(jnp.zeros((64, 64), f32))
    assert ": a kernel of mosaic_gpu has Refs as arguments, which is not supported\n" in str(e.value)

    def scoped(x, o):
        pl.run_scoped(lambda tile: None, plgpu.SMEM((8,), f32), collective_axes="zzz")

    assert (
        refused(scoped, num_threads=1, thread_name="t")[0]
        == "scoped: run_scoped: collective_axes may only be thread_name"
    )

    def vmapped(x, o):
        o[...] = x[...]

    with pytest.raises(tessera.Error) as e:
        jax.vmap(kernel(vmapped, (8,)))(jnp.zeros((3, 8), f32))
    assert str(e.value).splitlines()[0].endswith(": vmap of a kernel of mosaic_gpu is not supported")


@pytest.fixture
def hopper(monkeypatch, interpreter):
    """The wheel's kernels ask which CUDA there is and how many multiprocessors."""
    from jax.experimental.pallas.ops.gpu import attention_mgpu, hopper_matmul_mgpu

    monkeypatch.setattr(attention_mgpu, "cuda_versions", types.SimpleNamespace(cuda_runtime_get_version=lambda: 13000))
    monkeypatch.setattr(hopper_matmul_mgpu, "get_num_sms", lambda: 3)
    return types.SimpleNamespace(attention=attention_mgpu, matmul=hopper_matmul_mgpu)


@pytest.mark.parametrize("added", [False, True])
def test_hopper_matmul(hopper, added):
    m = hopper.matmul
    a, b, c = random((256, 256), (256, 256), (256, 256), dtype=f16)
    config = m.TuningConfig(tile_m=64, tile_n=64, tile_k=64, max_concurrent_steps=2)
    got = jax.jit(lambda a, b, c: m.matmul(a, b, c if added else None, config))(a, b, c)
    a64, b64, c64 = wide(a, b, c)
    np.testing.assert_allclose(got, a64 @ b64 + added * c64, rtol=2e-3, atol=4e-2)


@pytest.mark.parametrize("causal", [False, True])
def test_hopper_attention(hopper, causal):
    q, k, v = random((1, 256, 2, 64), (1, 256, 2, 64), (1, 256, 2, 64), dtype=f16)
    config = hopper.attention.TuningConfig(block_q=64, block_kv=64, max_concurrent_steps=2, causal=causal)
    got = jax.jit(lambda q, k, v: hopper.attention.attention(q, k, v, config))(q, k, v)
    q64, k64, v64 = wide(q, k, v)
    scores = np.einsum("bqhd,bkhd->bhqk", q64, k64)
    if causal:
        scores = np.where(np.tril(np.ones(scores.shape[-2:], bool)), scores, -np.inf)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    np.testing.assert_allclose(
        got, np.einsum("bhqk,bkhd->bqhd", p / p.sum(-1, keepdims=True), v64), rtol=5e-3, atol=5e-3
    )


def test_export(hopper, tmp_path):
    m = hopper.matmul
    a, b = random((128, 128), (128, 128), dtype=f16)
    config = m.TuningConfig(tile_m=64, tile_n=64, tile_k=64, max_concurrent_steps=2)
    tessera.export(lambda a, b: m.matmul(a, b, None, config), a, b, path=str(tmp_path / "product"))
    got = tessera.load(str(tmp_path / "product"), device="interpreter")(np.asarray(a), np.asarray(b))
    np.testing.assert_allclose(got, np.matmul(*wide(a, b)), rtol=2e-3, atol=2e-2)
