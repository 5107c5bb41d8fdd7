"""Pallas kernels as people write them, under jit, grad, vmap and scan, on the interpreter and on Vulkan, compared with
interpret=True."""

import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tessera
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas import triton as pltriton
from jax.experimental.pallas.ops.gpu import attention, rms_norm, softmax
from support import DEVICES, TIR

f32 = jnp.float32


def normal(*shape, dtype=f32):
    return jnp.asarray(np.random.default_rng(sum(shape)).standard_normal(shape), dtype)


def whole(*shape, dtype=f32):
    return jnp.asarray(np.random.default_rng(sum(shape)).integers(-4, 5, shape), dtype)


def add(interpret=False):
    def add_blocks(x_ref, y_ref, o_ref):
        o_ref[...] = x_ref[...] + y_ref[...]

    spec = pl.BlockSpec((8,), lambda i: (i,))
    return pl.pallas_call(
        add_blocks,
        out_shape=jax.ShapeDtypeStruct((19,), f32),
        grid=(3,),
        in_specs=[spec, spec],
        out_specs=spec,
        interpret=interpret,
    )


def matmul(interpret=False):
    def kernel(a_ref, b_ref, o_ref, acc_ref):
        @pl.when(pl.program_id(2) == 0)
        def _():
            acc_ref[...] = jnp.zeros_like(acc_ref)

        acc_ref[...] += a_ref[...] @ b_ref[...]

        @pl.when(pl.program_id(2) == pl.num_programs(2) - 1)
        def _():
            o_ref[...] = acc_ref[...]

    def call(a, b):
        (m, k), n = a.shape, b.shape[1]
        return pl.pallas_call(
            kernel,
            out_shape=jax.ShapeDtypeStruct((m, n), f32),
            grid=(m // 16, n // 16, k // 16),
            scratch_shapes=[pltpu.VMEM((16, 16), f32)],
            in_specs=[pl.BlockSpec((16, 16), lambda i, j, k: (i, k)), pl.BlockSpec((16, 16), lambda i, j, k: (k, j))],
            out_specs=pl.BlockSpec((16, 16), lambda i, j, k: (i, j)),
            interpret=interpret,
        )(a, b)

    return call


def square_plus(interpret=False):
    def kernel(x_ref, o_ref):
        x = x_ref[...]
        o_ref[...] = x * x + 3 * x

    spec = pl.BlockSpec((4,), lambda i: (i,))
    return pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct((8,), f32),
        grid=(2,),
        in_specs=[spec],
        out_specs=spec,
        interpret=interpret,
    )


def same(got, want, tolerance=0.0):
    for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert g.dtype == w.dtype
        np.testing.assert_allclose(np.asarray(g, np.float64), np.asarray(w, np.float64), rtol=tolerance, atol=tolerance)


@pytest.fixture(params=DEVICES)
def device(request):
    with tessera.on(request.param):
        yield request.param


def test_eager_and_jit(device):
    x, y = whole(19), normal(19)
    same(add()(x, y), x + y)
    same(jax.jit(lambda x, y: add()(x * 2, y) - 1)(x, y), (x * 2 + y) - 1, 1e-6)


def test_scratch_and_k_axis(device):
    a, b = whole(32, 48), whole(48, 16)
    same(jax.jit(matmul())(a, b), a @ b)


def test_tangents_and_vmap(device):
    x, t = whole(8), whole(8)
    same(jax.jvp(square_plus(), (x,), (t,)), jax.jvp(square_plus(True), (x,), (t,)))
    xs = whole(3, 2, 8)
    same(jax.jit(jax.vmap(jax.vmap(square_plus())))(xs), xs * xs + 3 * xs)


def test_inside_scan(device):
    def turn(x, _):
        return square_plus()(x) * 0.125, x.sum()

    def wanted(x, _):
        return (x * x + 3 * x) * 0.125, x.sum()

    same(
        jax.jit(lambda x: lax.scan(turn, x, None, length=4))(whole(8)), lax.scan(wanted, whole(8), None, length=4), 1e-6
    )


def test_prefetch_and_dynamic_grid(device):
    def kernel(rows_ref, x_ref, o_ref):
        o_ref[...] = x_ref[...] * 2 + pl.num_programs(0)

    def call(n, rows, x):
        spec = pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=(n,),
            in_specs=[pl.BlockSpec((None, 4), lambda i, rows: (rows[i], 0))],
            out_specs=pl.BlockSpec((None, 4), lambda i, rows: (i, 0)),
        )
        return pl.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct((3, 4), jnp.int32), grid_spec=spec)(rows, x)

    rows, x = jnp.asarray([2, 0, 1], jnp.int32), whole(3, 4, dtype=jnp.int32)
    for n in (3, 2):
        same(jax.jit(call)(jnp.asarray(n, jnp.int32), rows, x)[:n], x[rows][:n] * 2 + n)


def test_masks_of_gpu_kernels(device):
    def kernel(x_ref, o_ref):
        row, mask = pl.program_id(0), jnp.arange(16) < 13
        columns = pl.ds(row - row, 16)  # JAX refuses constants that lead past the end, whatever the mask says
        x = pltriton.load(x_ref.at[row, columns], mask=mask, other=-jnp.inf)
        e = jnp.exp(x - jnp.max(x, axis=0))
        pltriton.store(o_ref.at[row, columns], e / jnp.sum(e), mask=mask)

    call = pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct((5, 13), f32),
        grid=(5,),
        compiler_params=pltriton.CompilerParams(num_warps=1),
    )
    same(jax.jit(call)(normal(5, 13)), jax.nn.softmax(normal(5, 13)), 1e-6)


def test_kernels_of_the_library(device):
    x = normal(3, 50)
    same(softmax.softmax(x, num_warps=1), jax.nn.softmax(x), 1e-6)
    x, w, b = normal(2, 3, 40), normal(40), normal(40) + 1
    same(rms_norm.rms_norm(x, w, b), rms_norm.rms_norm_reference(x, w, b), 1e-5)
    q, k, v = (normal(1, 64, 2, 16) + i for i in range(3))
    blocks = attention.BlockSizes(block_q=32, block_k=32)
    got = attention.mha(q, k, v, segment_ids=None, causal=True, block_sizes=blocks)
    same(got, attention.mha_reference(q, k, v, segment_ids=None, causal=True), 2e-5)


def test_kernels_over_meshes(device):
    def double(x_ref, o_ref):
        i = lax.axis_index("core")
        o_ref[pl.ds(i * 2, 2), :] = x_ref[pl.ds(i * 2, 2), :] * 2

    x = whole(4, 3)
    call = pl.kernel(
        double, out_type=jax.ShapeDtypeStruct((4, 3), f32), mesh=pltpu.create_tensorcore_mesh("core", num_cores=2)
    )
    same(jax.jit(call)(x), x * 2)


def test_names_that_are_no_words(device):
    call = pl.pallas_call(
        lambda x_ref, o_ref: o_ref.__setitem__(..., x_ref[...] + 1), out_shape=jax.ShapeDtypeStruct((3,), f32)
    )
    same(call(whole(3)), whole(3) + 1)


def test_several_devices_of_the_platform(device):
    def double(x_ref, o_ref):
        o_ref[...] = x_ref[...] * 2

    call = lambda x: pl.pallas_call(double, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(x)
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("i",))
    assert mesh.size == 2
    spec = jax.sharding.PartitionSpec("i")
    f = jax.jit(jax.shard_map(call, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False))
    x = whole(4, 3)
    same(f(jax.device_put(x, jax.sharding.NamedSharding(mesh, spec))), x * 2)


def test_scopes_semaphores_and_copies(device):
    def scaled(x_ref, o_ref):
        def body(tile_ref, sem_ref):
            copy = pltpu.make_async_copy(x_ref.at[pl.ds(pl.program_id(0) * 4, 4)], tile_ref, sem_ref)
            copy.start()
            copy.wait()
            o_ref[...] = tile_ref[...] * 3

        pl.run_scoped(body, pltpu.VMEM((4, 6), f32), pltpu.SemaphoreType.DMA)

    call = pl.pallas_call(
        scaled,
        out_shape=jax.ShapeDtypeStruct((8, 6), f32),
        grid=(2,),
        in_specs=[pl.BlockSpec(memory_space=pl.ANY)],
        out_specs=pl.BlockSpec((4, 6), lambda i: (i, 0)),
    )
    same(jax.jit(call)(whole(8, 6)), whole(8, 6) * 3)


def test_pipelines_of_tpu_kernels(device):
    def doubled(x_ref, o_ref):
        def body(a_ref, b_ref):
            b_ref[...] = a_ref[...] * 2

        spec = pl.BlockSpec((4, 4), lambda i: (i, 0))
        pltpu.emit_pipeline(body, grid=(4,), in_specs=[spec], out_specs=[spec])(x_ref, o_ref)

    anywhere = pl.BlockSpec(memory_space=pl.ANY)
    call = pl.pallas_call(
        doubled, out_shape=jax.ShapeDtypeStruct((16, 4), f32), in_specs=[anywhere], out_specs=anywhere
    )
    same(call(whole(16, 4)), whole(16, 4) * 2)


def test_outputs_of_many_dtypes(device):
    def kernel(x_ref, a_ref, b_ref, c_ref):
        x = x_ref[...]
        a_ref[...], b_ref[...], c_ref[...] = x.astype(jnp.bfloat16) * 2, jnp.argmax(x, axis=1).astype(jnp.int32), x > 0

    shapes = [
        jax.ShapeDtypeStruct((4, 6), jnp.bfloat16),
        jax.ShapeDtypeStruct((4,), jnp.int32),
        jax.ShapeDtypeStruct((4, 6), jnp.bool_),
    ]
    x = normal(4, 6)
    same(
        pl.pallas_call(kernel, out_shape=shapes)(x),
        [x.astype(jnp.bfloat16) * 2, jnp.argmax(x, axis=1).astype(jnp.int32), x > 0],
    )


def test_a_module_is_imported_once_and_threads_may_call(device):
    def times_seven(x_ref, o_ref):
        o_ref[...] = x_ref[...] * 7

    call = jax.jit(pl.pallas_call(times_seven, out_shape=jax.ShapeDtypeStruct((6,), f32)))
    before = tessera.stats()
    same(call(whole(6)), whole(6) * 7)
    jax.clear_caches()
    same(call(whole(6)), whole(6) * 7)
    after = tessera.stats()
    assert after["modules"] == before["modules"] + 1
    assert after["calls"] == before["calls"] + 2
    assert after["bytes_copied"] == before["bytes_copied"]

    wrong = []

    def many():
        with tessera.on(device):
            for i in range(10):
                if not np.array_equal(call(whole(6) + i), (whole(6) + i) * 7):
                    wrong.append(i)

    threads = [threading.Thread(target=many) for _ in range(3)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not wrong


def test_install_uninstall_and_on():
    x, y = whole(19), whole(19)
    f = jax.jit(add())
    with pytest.raises(ValueError, match="Only interpret mode is supported on CPU backend"):
        f(x, y)
    tessera.install("interpreter")
    try:
        calls = tessera.stats()["calls"]
        same(f(x, y), x + y)
        with tessera.on("vulkan"):
            same(f(x, y), x + y)
        same(f(x, y), x + y)
        same(jax.jit(add(interpret=True))(x, y), x + y)  # JAX's own, as asked
        assert tessera.stats()["calls"] == calls + 3
    finally:
        tessera.uninstall()
    with pytest.raises(ValueError, match="Only interpret mode is supported on CPU backend"):
        f(x, y)


def unsupported(interpret=False):
    def top(x_ref, o_ref):
        o_ref[...] = lax.linalg.cholesky(x_ref[...])

    return pl.pallas_call(top, out_shape=jax.ShapeDtypeStruct((3, 3), f32), interpret=interpret)


def line_of(text):
    with open(__file__) as f:
        return next(i for i, line in enumerate(f, 1) if text in line)


def test_errors_name_the_line(device):
    line = line_of("o_ref[...] = lax.linalg.cholesky" + "(x_ref[...])")
    with pytest.raises(tessera.Error) as error:
        unsupported()(jnp.eye(3))
    assert (
        str(error.value)
        == f"top: the primitive cholesky of JAX cannot be imported\n  at {__file__}:{line}\n  note: write it with other"
        " operations, or leave such calls to JAX's interpreter: tessera.install(fallback=True)"
    )


def test_fallback(device):
    fallbacks = tessera.stats()["fallbacks"]
    with tessera.on(device, fallback=True):
        with pytest.warns(UserWarning, match="JAX's interpreter runs what Tessera cannot: top: the primitive cholesky"):
            same(unsupported()(jnp.eye(3) * 4), jnp.eye(3) * 2, 1e-6)
    assert tessera.stats()["fallbacks"] == fallbacks + 1


def test_an_unknown_device():
    with pytest.raises(tessera.Error, match='the device "toaster" is not known'), tessera.on("toaster"):
        add()(whole(19), whole(19))


@pytest.mark.parametrize("where", DEVICES)
def test_a_kernel_without_jax(where, tmp_path):
    (tmp_path / "double.tir").write_text(TIR)
    double = tessera.load(tmp_path / "double.tir", where)
    x = np.arange(8, dtype=np.float32)
    np.testing.assert_array_equal(double(x), 2 * x)
    with pytest.raises(tessera.Error, match="double: "):
        double(x[:4])
    with pytest.raises(tessera.Error, match="argument 0 has the dtype complex64, which kernels cannot hold"):
        double(x.astype(np.complex64))


def test_branches_in_index_maps(device):
    """An index map only computes: of its branches all are computed, with the positions that the others read, and one is
    chosen."""

    def branches(i, where_ref):
        inner = lax.cond(i == 2, lambda: i - 2, lambda: where_ref[i] * 1)
        return (
            lax.switch(i, [lambda: 3, lambda: where_ref[i - 1], lambda: inner, lambda: jnp.int32(0) + where_ref[7]]),
            0,
        )

    def body(where_ref, x_ref, o_ref):
        o_ref[...] = x_ref[...] * 2

    def call(interpret=False):
        return pl.pallas_call(
            body,
            out_shape=jax.ShapeDtypeStruct((8, 3), f32),
            interpret=interpret,
            grid_spec=pltpu.PrefetchScalarGridSpec(
                num_scalar_prefetch=1,
                grid=(4,),
                in_specs=[pl.BlockSpec((2, 3), branches)],
                out_specs=pl.BlockSpec((2, 3), lambda i, _: (lax.cond(i > 1, lambda: i - 2, lambda: i + 2), 0)),
            ),
        )

    args = jnp.asarray([2, 1, 3, 0, 0, 0, 0, 1]), whole(8, 3)
    same(jax.jit(call())(*args), call(interpret=True)(*args))
    batched = jax.vmap(call(), in_axes=(None, 0))(args[0], jnp.stack([args[1], args[1] + 1]))
    same(batched[1], call(interpret=True)(args[0], args[1] + 1))
