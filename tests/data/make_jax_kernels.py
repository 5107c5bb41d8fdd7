"""Writes jax/: NAME.json, a Pallas kernel as the Python package exports it for the importer (engine/jax), with the
arrays that it was called with (NAME.inI.npy; the sizes of a dynamic grid among them, first) and
pallas_call(interpret=True)'s answers (NAME.outI.npy), NumPy's for plgpu.kernel. Made with JAX 0.10.2. Run by hand, in
an environment with jax and absl-py; the tests only read what it wrote:

    JAX_PLATFORMS=cpu python tests/data/make_jax_kernels.py [NAME ...]
"""

import functools
import os
import sys
import types

os.environ.setdefault("JAX_PLATFORMS", "cpu")
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas import triton as pltriton
from jax.experimental.pallas.ops.gpu import attention, attention_mgpu, hopper_matmul_mgpu, layer_norm, rms_norm, softmax
from jax._src.pallas import mpmd, pallas_call as pallas_call_module
from jax._src.state.primitives import ref_addupdate, ref_swap

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
package = sys.modules["tessera"] = types.ModuleType("tessera")  # without the native library
package.__path__ = [os.path.join(ROOT, "runtime/python/tessera")]
from tessera import jaxpr

f32, f16, bf16, i32, i8, u32, u8 = jnp.float32, jnp.float16, jnp.bfloat16, jnp.int32, jnp.int8, jnp.uint32, jnp.uint8
rng = np.random.default_rng(8)


def whole(*shape, low=-4, high=5, dtype=f32):
    """Whole numbers, whose sums and products are exact."""
    return jnp.asarray(rng.integers(low, high, shape), dtype)


def normal(*shape, dtype=f32):
    return jnp.asarray(rng.standard_normal(shape), dtype)


def call(kernel, out, **kwargs):
    out = [jax.ShapeDtypeStruct(s, t) for s, t in out]
    return pl.pallas_call(kernel, out_shape=out, **kwargs)


CASES = {}


def case(f):
    CASES[f.__name__] = f


def calls_of(fn, args):
    """(params, operands, answers) of every pallas_call that fn makes, run on the way by JAX's interpreter."""
    found = []

    def evaluate(j, consts, args):
        env = dict(zip([*j.constvars, *j.invars], [*consts, *args]))
        read = lambda v: v.val if isinstance(v, jax._src.core.Literal) else env[v]
        for eqn in j.eqns:
            values = [read(v) for v in eqn.invars]
            inner = eqn.params.get("jaxpr") if eqn.primitive.name == "jit" else eqn.params.get("call_jaxpr")
            if eqn.primitive.name == "pallas_call":
                out = eqn.primitive.bind(*values, **{**eqn.params, "interpret": True})
                found.append((eqn.params, values, out))
            elif inner is not None:
                out = evaluate(inner.jaxpr, inner.consts, values)
            else:
                out = eqn.primitive.bind(*values, **eqn.primitive.get_bind_params(eqn.params))
            env.update(zip(eqn.outvars, out if eqn.primitive.multiple_results else [out]))
        return [read(v) for v in j.outvars]

    closed = jax.make_jaxpr(fn)(*args)
    evaluate(closed.jaxpr, closed.consts, args)
    return found


# -- the kernels: each returns a function and its arguments


@case
def add_blocks():
    def kernel(x_ref, y_ref, o_ref):
        o_ref[...] = jax.nn.relu(x_ref[...] + y_ref[...]) * 2

    spec = pl.BlockSpec((8,), lambda i: (i,))
    return (
        call(
            kernel,
            [((19,), f32)],
            grid=(3,),
            in_specs=[spec, spec],
            out_specs=[spec],
            metadata={"model": "small"},
            cost_estimate=pl.CostEstimate(flops=38, transcendentals=0, bytes_accessed=228),
        ),
        whole(19),
        whole(19),
    )


@case
def no_grid():
    def kernel(x_ref, s_ref, o_ref):
        o_ref[...] = x_ref[...] * s_ref[0] + jnp.arange(5, dtype=f32)

    return call(kernel, [((3, 5), f32)]), whole(3, 5), whole(2)


@case
def matmul():
    def kernel(a_ref, b_ref, o_ref, acc_ref):
        @pl.when(pl.program_id(2) == 0)
        def _():
            acc_ref[...] = jnp.zeros_like(acc_ref)

        acc_ref[...] += jnp.dot(a_ref[...], b_ref[...], preferred_element_type=f32)

        @pl.when(pl.program_id(2) == pl.num_programs(2) - 1)
        def _():
            o_ref[...] = acc_ref[...].astype(bf16)

    return (
        call(
            kernel,
            [((16, 24), bf16)],
            grid=(2, 3, 2),
            scratch_shapes=[pltpu.VMEM((8, 8), f32)],
            in_specs=[pl.BlockSpec((8, 4), lambda i, j, k: (i, k)), pl.BlockSpec((4, 8), lambda i, j, k: (k, j))],
            out_specs=[pl.BlockSpec((8, 8), lambda i, j, k: (i, j))],
            compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel", "arbitrary")),
        ),
        whole(16, 8, dtype=bf16),
        whole(8, 24, dtype=bf16),
    )


@case
def masked_softmax():
    def kernel(x_ref, o_ref):
        row, columns = pl.program_id(0), jnp.arange(16)
        mask = columns < 13
        x = pltriton.load(x_ref.at[row, pl.ds(0, 16)], mask=mask, other=-jnp.inf)
        e = jnp.exp(x - jnp.max(x, axis=0))
        pltriton.store(o_ref.at[row, pl.ds(0, 16)], e / jnp.sum(e), mask=mask)

    return call(kernel, [((5, 13), f32)], grid=(5,), compiler_params=pltriton.CompilerParams(num_warps=1)), normal(
        5, 13
    )


@case
def scans():
    def kernel(x_ref, o_ref, rows_ref, last_ref):
        def turn(total, row):
            total = total + row
            return total, (total * 2, row > 1)

        total, (rows, large) = lax.scan(turn, jnp.zeros(3, f32), x_ref[...], reverse=True)
        o_ref[...] = total
        rows_ref[...] = rows + large
        last, _ = lax.scan(lambda c, b: (c ^ b, None), jnp.asarray(False), x_ref[:, 0] > 0)
        last_ref[...] = jnp.full((2,), last, i32)

    return call(kernel, [((3,), f32), ((5, 3), f32), ((2,), i32)]), whole(5, 3)


@case
def loops():
    def kernel(n_ref, x_ref, o_ref, steps_ref):
        n = n_ref[pl.program_id(0)]
        steps = lax.while_loop(
            lambda s: s[0] > 1,
            lambda s: (lax.cond(s[0] % 2 == 0, lambda n: n // 2, lambda n: 3 * n + 1, s[0]), s[1] + 1),
            (n, 0),
        )[1]
        steps_ref[pl.program_id(0)] = steps
        # its end is known only at run time
        total = lax.fori_loop(0, n % 5, lambda i, t: t + x_ref[i], jnp.zeros(4, f32))
        total = lax.fori_loop(0, 3, lambda i, t: t * 2 + x_ref[i + 1], total)
        o_ref[pl.program_id(0), :] = lax.switch(n % 4, [lambda t: t, lambda t: -t, lambda t: t * t], total)

    return call(kernel, [((6, 4), f32), ((6,), i32)], grid=(6,)), jnp.asarray([1, 2, 7, 11, 6, 27], i32), whole(5, 4)


@case
def slices():
    def kernel(at_ref, x_ref, o_ref, p_ref):
        o_ref[...] = jnp.zeros((5, 3), i32)
        o_ref[pl.ds(at_ref[0], 2), :] = x_ref[pl.ds(at_ref[1], 2), 1:4] + 1  # starts that wrap or are clamped
        o_ref[2, pl.ds(at_ref[2], 1)] = x_ref[5, pl.ds(3, 1)]
        o_ref[3:, 1:] = x_ref[0:6:3, 2:6:2]
        o_ref[0, 0] = x_ref[at_ref[3], at_ref[4]]
        p_ref[...] = x_ref[at_ref[3], :][None, :] + x_ref[:, at_ref[4]][:, None]

    return call(kernel, [((5, 3), i32), ((6, 6), i32)]), jnp.asarray([-3, 9, 1, -2, 3], i32), whole(6, 6, dtype=i32)


@case
def prefetch():
    def kernel(rows_ref, scale_ref, x_ref, o_ref):
        o_ref[...] = x_ref[...] * scale_ref[1] + rows_ref[pl.program_id(0)]

    spec = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=2,
        grid=(6,),
        in_specs=[pl.BlockSpec((None, 5), lambda i, rows, scale: (rows[i] * 2 - rows[i], 0))],
        out_specs=[pl.BlockSpec((None, 5), lambda i, rows, scale: (i, 0))],
    )
    return (
        call(kernel, [((6, 5), i32)], grid_spec=spec),
        jnp.asarray([2, 0, 3, 2, 9, 1], i32),
        jnp.asarray([3, 10], i32),
        whole(4, 5, dtype=i32),
    )


@case
def statistics():
    def kernel(x_ref, s_ref, p_ref, m_ref, a_ref, b_ref, any_ref, c_ref):
        x = x_ref[...]
        s_ref[...] = jnp.sum(x, axis=1)
        p_ref[...] = jnp.prod(x, axis=(0, 2), keepdims=False)
        m_ref[0], m_ref[1] = jnp.max(x), jnp.min(x, axis=(0, 1, 2))
        a_ref[...] = jnp.argmax(x, axis=2).astype(i32)
        b_ref[...] = lax.argmin(x, 0, jnp.int32)
        any_ref[0], any_ref[1] = jnp.any(x > 3), jnp.all(x > -5)
        c_ref[0], c_ref[1], c_ref[2] = (
            jnp.cumsum(x, axis=2),
            lax.cummax(x, axis=1, reverse=True),
            lax.cumprod(x, axis=0),
        )

    return call(
        kernel,
        [((3, 5), f32), ((4,), f32), ((2,), f32), ((3, 4), i32), ((4, 5), i32), ((2,), jnp.bool_), ((3, 3, 4, 5), f32)],
    ), whole(3, 4, 5, high=4)


@case
def integers():
    def kernel(x_ref, y_ref, u_ref, o_ref, b_ref, v_ref, n_ref):
        x, y, u = x_ref[...], y_ref[...], u_ref[...]
        o_ref[0], o_ref[1], o_ref[2], o_ref[3] = (
            lax.div(x, y),
            lax.rem(x, y),
            x * y - x,
            jnp.abs(x) + jnp.sign(y) - lax.neg(x),
        )
        o_ref[4], o_ref[5], o_ref[6] = x & y, x | y, ~(x ^ y)
        b_ref[0], b_ref[1], b_ref[2] = (
            lax.shift_left(x, y),
            lax.shift_right_arithmetic(x, y),
            lax.shift_right_logical(x, y),
        )
        b_ref[3], b_ref[4], b_ref[5] = lax.population_count(x), lax.clz(x), lax.integer_pow(x, 3)
        v_ref[0], v_ref[1] = lax.shift_right_arithmetic(u, u32(3)), lax.clamp(u32(9), u, u32(1 << 31))
        n_ref[0], n_ref[1] = x.astype(i8), y.astype(i8) + jnp.sum(x.astype(i8), dtype=i8) + lax.dot_general(
            x.astype(i8), y.astype(i8), (((0,), (0,)), ((), ()))
        )

    i = np.iinfo(np.int32)
    x = jnp.asarray([0, 1, -1, i.min, i.max, 7, -7, 100], i32)
    return (
        call(kernel, [((7, 8), i32), ((6, 8), i32), ((2, 8), u32), ((2, 8), i8)]),
        x,
        x[::-1] // 3 + 1,
        lax.bitcast_convert_type(x, u32),
    )


@case
def floats():
    def kernel(x_ref, y_ref, o_ref, p_ref, b_ref, e_ref):
        x, y = x_ref[...], y_ref[...]
        for k, f in enumerate(
            [
                jnp.exp,
                jnp.exp2,
                jnp.expm1,
                jnp.sin,
                jnp.cos,
                jnp.tan,
                jnp.tanh,
                jnp.sinh,
                jnp.cosh,
                jnp.arctan,
                jnp.arcsinh,
                lax.erf,
                lax.logistic,
                jnp.cbrt,
            ]
        ):
            o_ref[k] = f(x)
        for k, f in enumerate([jnp.log, jnp.log1p, jnp.sqrt, lax.rsqrt, jnp.arccosh, lambda v: 1 / v]):
            p_ref[k] = f(1 + y)
        p_ref[6], p_ref[7], p_ref[8] = jnp.arcsin(y / 4), jnp.arccos(y / 4), jnp.arctanh(y / 4)
        p_ref[9], p_ref[10], p_ref[11] = lax.erf_inv(y / 4), lax.pow(y, x), lax.atan2(x, y)
        b_ref[0], b_ref[1], b_ref[2], b_ref[3] = x < y, lax.ge(x, y), jnp.isfinite(x / (y - y)), jnp.isnan(x)
        e_ref[0], e_ref[1], e_ref[2], e_ref[3] = jnp.floor(x), jnp.ceil(x), lax.round(x), jnp.round(x)
        e_ref[4], e_ref[5], e_ref[6] = lax.nextafter(x, y), lax.reduce_precision(x, 5, 4), jnp.where(x > y, x, -y)
        e_ref[7], e_ref[8], e_ref[9] = (
            lax.integer_pow(x, -2),
            lax.square(x),
            lax.bitcast_convert_type(lax.bitcast_convert_type(x, i32) ^ 1, f32),
        )
        e_ref[10], e_ref[11] = lax.clamp(-1.0, x, 1.0), jnp.sign(x) * jnp.abs(y) % 2

    return (
        call(kernel, [((14, 9), f32), ((12, 9), f32), ((4, 9), jnp.bool_), ((12, 9), f32)]),
        normal(9),
        jnp.asarray(rng.uniform(0.1, 3.9, 9), f32),
    )


@case
def shapes():
    def kernel(x_ref, y_ref, o_ref, p_ref, q_ref, r_ref):
        x, y = x_ref[...], y_ref[...]
        o_ref[...] = jnp.concatenate([x.T, jnp.flip(y, 1), x.reshape(3, 2)], axis=1) + x[0, :][:, None]
        p_ref[...] = lax.pad(x, i8(7), [(1, 0, 1), (-1, 2, 0)])
        a, b = jnp.unstack(jnp.stack([x, x * 2], axis=1), axis=1)
        q_ref[...] = jnp.tile(a - b, (2, 1)) + lax.slice(
            jnp.broadcast_to(x[:1, None, 1:2], (1, 8, 3)), (0, 0, 0), (1, 8, 3), (1, 2, 1)
        ).reshape(4, 3)
        r_ref[...] = lax.broadcasted_iota(i8, (2, 3, 2), 1) * lax.broadcast_in_dim(y[0], (2, 3, 2), (2,)) + sum(
            s.sum(dtype=i8) for s in jnp.split(y, [1, 2], axis=0)
        )

    return (
        call(kernel, [((3, 6), i8), ((4, 4), i8), ((4, 3), i8), ((2, 3, 2), i8)]),
        whole(2, 3, dtype=i8),
        whole(3, 2, dtype=i8),
    )


@case
def dots():
    def kernel(x_ref, y_ref, z_ref, o_ref, p_ref, q_ref, r_ref):
        x, y, z = x_ref[...], y_ref[...], z_ref[...]
        o_ref[...] = lax.dot_general(x, y, (((1,), (1,)), ((), ())), preferred_element_type=f32)
        p_ref[...] = lax.dot_general(z, z * 2, (((0,), (0,)), ((2,), (2,))))
        q_ref[...] = lax.dot_general(
            x[0].astype(i8), y[1].astype(i8), (((0,), (0,)), ((), ())), preferred_element_type=i32
        )[None]
        r_ref[...] = lax.dot_general(x[0], y[0], (((), ()), ((), ())), preferred_element_type=f32)

    return (
        call(kernel, [((3, 5), f32), ((4, 3, 3), f32), ((1,), i32), ((6, 6), f32)]),
        whole(3, 6, dtype=f16),
        whole(5, 6, dtype=f16),
        whole(2, 3, 4),
    )


@case
def swaps():
    def kernel(x_ref, o_ref, p_ref, acc_ref):
        acc_ref[...] = x_ref[...]
        before = ref_swap(acc_ref, (slice(0, 2),), x_ref[1:3] * 10)
        ref_addupdate(acc_ref, (2, slice(None)), x_ref[0] + 0.5)
        o_ref[...] = acc_ref[...]
        p_ref[...] = before
        p_ref[0] += before[1]

    return call(kernel, [((3, 4), f32), ((2, 4), f32)], scratch_shapes=[pltpu.VMEM((3, 4), f32)]), whole(3, 4)


def _row_sums(x_ref, s_ref, o_ref):
    o_ref[...] = x_ref[...] * s_ref[0] + pl.program_id(0) * 100 + pl.num_programs(0)


@case
def vmapped():
    f = call(
        _row_sums,
        [((6,), f32)],
        grid=(2,),
        in_specs=[pl.BlockSpec((3,), lambda i: (i,)), pl.BlockSpec((1,), lambda i: (0,))],
        out_specs=[pl.BlockSpec((3,), lambda i: (i,))],
    )
    return jax.vmap(jax.vmap(f, (0, None)), (1, 0)), whole(4, 2, 6), whole(2, 1)


@case
def scopes():
    def kernel(x_ref, o_ref, sems_ref):
        row = pl.program_id(0) * 2  # JAX's interpreter knows it outside only

        def body(tile_ref, sem_ref):
            copy = pltpu.make_async_copy(x_ref.at[pl.ds(row, 2)], tile_ref, sems_ref.at[1])
            copy.start()
            pl.semaphore_signal(sem_ref, 3)
            copy.wait()
            pl.semaphore_wait(sem_ref, 1)
            o_ref[...] = tile_ref[...] * 2 + pl.semaphore_read(sem_ref)
            pl.semaphore_wait(sem_ref, 2)
            return jnp.sum(tile_ref[...])

        total = pl.run_scoped(body, pltpu.VMEM((2, 3), f32), pltpu.SemaphoreType.REGULAR)
        o_ref[...] += total

    return call(
        kernel,
        [((6, 3), f32)],
        grid=(3,),
        in_specs=[pl.BlockSpec(memory_space=pl.ANY)],
        out_specs=[pl.BlockSpec((2, 3), lambda i: (i, 0))],
        scratch_shapes=[pltpu.SemaphoreType.DMA((2,))],
    ), whole(6, 3)


@case
def tangents():
    def kernel(x_ref, o_ref):
        x = x_ref[...]
        o_ref[...] = lax.fori_loop(0, 3, lambda i, y: jnp.where(x > 0, y * x, y - x), x * x + 3 * x)

    f = call(
        kernel,
        [((8,), f32)],
        grid=(2,),
        in_specs=[pl.BlockSpec((4,), lambda i: (i,))],
        out_specs=[pl.BlockSpec((4,), lambda i: (i,))],
    )
    return lambda x, t: jax.jvp(f, (x,), (t,)), whole(8), whole(8)


@case
def dynamic_grid():
    def kernel(x_ref, o_ref):
        @pl.when((pl.program_id(0) == 0) & (pl.program_id(1) == 0))
        def _():
            o_ref[...] = jnp.zeros(3, f32)

        o_ref[...] += x_ref[...] * pl.num_programs(0)

    return (
        lambda n, x: call(
            kernel,
            [((3,), f32)],
            grid=(n, 2),
            in_specs=[pl.BlockSpec((None, 3), lambda i, j: (i, 0))],
            out_specs=[pl.BlockSpec((3,), lambda i, j: (0,))],
        )(x),
        jnp.asarray(3, i32),
        whole(5, 3),
    )


@case
def library_softmax():
    return functools.partial(softmax.softmax, num_warps=1), normal(3, 6)


@case
def library_rms_norm():
    return functools.partial(rms_norm.rms_norm, num_warps=1, num_stages=1), normal(2, 1, 5), normal(5), normal(5)


@case
def library_layer_norm():
    return functools.partial(layer_norm.layer_norm, num_warps=1, num_stages=1), normal(2, 1, 5), normal(5), normal(5)


@case
def arrays():
    def kernel(at_ref, x_ref, o_ref, p_ref, q_ref, r_ref):
        at = at_ref[...]
        o_ref[...] = x_ref[at, 1:4]
        p_ref[...] = jnp.zeros((6, 4), i32)
        p_ref[at, jnp.arange(3)] = x_ref[0, at] * 10
        view = x_ref.at[pl.ds(1, 4)].reshape(2, 2, 4)
        q_ref[...] = view[1] + x_ref.bitcast(u32)[at_ref[1]].astype(i32)
        r_ref[0] = jnp.sort(x_ref[:, 1])
        r_ref[1] = lax.dynamic_update_slice(
            x_ref[:, 2], lax.dynamic_slice(x_ref[:, 3], (at_ref[0],), (3,)), (at_ref[2],)
        )

    return (
        call(kernel, [((3, 3), i32), ((6, 4), i32), ((2, 4), i32), ((2, 6), i32)]),
        jnp.asarray([4, 0, 2], i32),
        whole(6, 4, dtype=i32),
    )


@case
def gathers():
    def kernel(at_ref, x_ref, o_ref, p_ref, q_ref, r_ref, s_ref):
        at, x = at_ref[...], x_ref[...]
        o_ref[...] = x[at, 1:4] + x.at[at, 2].get(mode="clip")[:, None]
        p_ref[...] = x.at[at * 2].get(mode="fill", fill_value=-7) + jnp.take_along_axis(
            x, at[:, None] + jnp.arange(4) % 2, axis=0
        )
        q_ref[...] = x.at[at * 3, 1].set(50 + jnp.arange(3)).at[:, at].add(100).at[at - 3].max(3)
        starts = jnp.stack([at, at - 1], axis=1)
        windows = lax.GatherDimensionNumbers(offset_dims=(0, 2), collapsed_slice_dims=(), start_index_map=(0, 1))
        r_ref[...] = lax.gather(x, starts, windows, (2, 3), mode="clip") + lax.gather(
            x, starts, windows, (2, 3), mode="fill", fill_value=9
        )
        updates = lax.ScatterDimensionNumbers(
            update_window_dims=(1, 2), inserted_window_dims=(), scatter_dims_to_operand_dims=(0, 1)
        )
        s_ref[...] = lax.scatter_add(x, starts, jnp.ones((3, 2, 3), i32), updates, mode="drop")

    return (
        call(kernel, [((3, 3), i32), ((3, 4), i32), ((6, 4), i32), ((2, 3, 3), i32), ((6, 4), i32)]),
        jnp.asarray([4, 0, 2], i32),
        whole(6, 4, dtype=i32),
    )


@case
def keys():
    def kernel(key_ref, bits_ref, o_ref):
        key = jax.random.fold_in(jax.random.wrap_key_data(key_ref[...]), pl.program_id(0))
        a, b = jax.random.split(key)
        bits_ref[...] = jax.random.bits(a, (2, 3), u32) ^ jax.random.key_data(jax.random.key(5))[1]
        o_ref[...] = jax.random.uniform(b, (4,)) + jax.random.normal(jax.random.fold_in(b, 3), (4,))

    return call(
        kernel,
        [((3, 2, 3), u32), ((3, 4), f32)],
        grid=(3,),
        in_specs=[pl.BlockSpec((2,), lambda i: (0,))],
        out_specs=[pl.BlockSpec((None, 2, 3), lambda i: (i, 0, 0)), pl.BlockSpec((None, 4), lambda i: (i, 0))],
    ), jnp.asarray([3, 1 << 31], u32)


@case
def names_of_dims():
    def kernel(x_ref, o_ref, p_ref):
        o_ref[...] = pltpu.einshape("a(bc)->b(ca)", x_ref[...], b=2)
        p_ref[...] = pltpu.bitcast(pltpu.bitcast(x_ref[...], jnp.int16) + 1, i32)

    return call(kernel, [((2, 12), i32), ((4, 6), i32)]), whole(4, 6, dtype=i32)


@case
def atomics():
    def kernel(x_ref, o_ref, old_ref):
        @pl.when(pl.program_id(0) == 0)
        def _():
            o_ref[...] = jnp.zeros(4, i32)

        old_ref[...] = pltriton.atomic_add(o_ref, (pl.ds(0, 4),), x_ref[...])
        pltriton.atomic_max(o_ref, (pl.ds(1, 2),), x_ref[1:3])

    return call(
        kernel,
        [((4,), i32), ((3, 4), i32)],
        grid=(3,),
        in_specs=[pl.BlockSpec((None, 4), lambda i: (i, 0))],
        out_specs=[pl.BlockSpec((4,), lambda i: (0,)), pl.BlockSpec((None, 4), lambda i: (i, 0))],
    ), whole(3, 4, dtype=i32)


@case
def refs_of_its_own():
    def kernel(x_ref, o_ref, p_ref):
        r = jax.new_ref(x_ref[...] * 2)
        total = jax.new_ref(jnp.zeros((), i32))

        def turn(i, c):
            q = jax.new_ref(c)
            q[...] += x_ref[i, 0]
            total[...] += q[...]
            r[i] = r[i] + total[...]
            return q[...]

        last = lax.fori_loop(0, 3, turn, 1)

        def state(refs):
            a, b = refs
            a[...] += b[0]
            b[...] = a[1, 1:]

        a, b = pl.run_state(state)((x_ref[...], x_ref[2, 1:]))
        o_ref[...], p_ref[...] = jax.freeze(r) + last, a * jnp.sum(b)

    return call(kernel, [((3, 2), i32), ((3, 2), i32)]), whole(3, 2, dtype=i32)


@case
def tables():
    weights, names = np.asarray([3, -1, 4, 1, -5], np.float32), np.asarray([[1, 2], [3, 5]], np.int8)

    def kernel(x_ref, o_ref, p_ref):
        o_ref[...] = jax.jit(lambda x: x * weights + np.full(5, 7, np.float32))(x_ref[0]) + pl.program_id(0)
        p_ref[...] = lax.fori_loop(0, 2, lambda i, s: s + jax.jit(lambda: jnp.asarray(names))()[i], jnp.zeros(2, i8))

    return call(
        kernel,
        [((2, 5), f32), ((2,), i8)],
        grid=(2,),
        in_specs=[pl.BlockSpec((1, 5), lambda i: (i, 0))],
        out_specs=[pl.BlockSpec((None, 5), lambda i: (i, 0)), pl.BlockSpec((2,), lambda i: (0,))],
    ), whole(2, 5)


@case
def windows_that_leave_their_ref():
    def kernel(s_ref, x_ref, o_ref, p_ref, q_ref):
        s = s_ref[pl.program_id(0)]
        p_ref[...], q_ref[...] = x_ref[...], x_ref[...]
        pltriton.store(p_ref.at[pl.ds(s, 4)], 100 + jnp.arange(4, dtype=f32))
        pltriton.store(q_ref.at[s], x_ref[0] + 50)
        o_ref[0] = pltriton.load(x_ref.at[pl.ds(s, 4)])
        o_ref[1] = pltriton.load(x_ref.at[jnp.arange(4) * 3 + s], mask=jnp.arange(4) != 1, other=-7.0)

    starts = jnp.asarray([-(2**31), -15, -5, -4, -1, 0, 3, 6, 7, 9, 10, 11, 2**31 - 4, 2**31 - 1], i32)
    row = lambda *s: pl.BlockSpec((None, *s), lambda i: (i, *(0 for _ in s)))
    n = len(starts)
    return (
        call(
            kernel,
            [((n, 2, 4), f32), ((n, 10), f32), ((n, 10), f32)],
            grid=(n,),
            in_specs=[pl.BlockSpec(memory_space=pltpu.SMEM), pl.BlockSpec((10,), lambda i: (0,))],
            out_specs=[row(2, 4), row(10), row(10)],
        ),
        starts,
        whole(10),
    )


@case
def library_attention():
    q, k, v = (normal(1, 32, 2, 16, dtype=f16) for _ in range(3))
    return (
        functools.partial(
            attention.mha, segment_ids=None, causal=True, block_sizes=attention.BlockSizes(block_q=16, block_k=16)
        ),
        q,
        k,
        v,
    )


def params_of_threads(fn, args):
    """Of the one plgpu.kernel that fn makes: the params of the pallas_call that JAX's rule for the CPU makes of it."""
    found = []

    def walk(j):
        for eqn in j.eqns:
            if eqn.primitive.name == "mpmd_map":
                rule = types.SimpleNamespace(avals_in=[v.aval for v in eqn.invars])
                mpmd._mpmd_map_fallback_lowering(rule, *eqn.invars, **eqn.params)
            for sub in jax._src.core.jaxprs_in_params(eqn.params):
                walk(sub)

    before = pallas_call_module._pallas_call_lowering
    pallas_call_module._pallas_call_lowering = lambda ctx, *nodes, interpret, **params: found.append(params)
    try:
        walk(jax.make_jaxpr(fn)(*args).jaxpr)
    finally:
        pallas_call_module._pallas_call_lowering = before
    return found[0]


# What answers: by name, since JAX cannot run these here.
ANSWERS = {}


@case
def library_hopper_matmul():
    hopper_matmul_mgpu.get_num_sms = lambda: 3
    config = hopper_matmul_mgpu.TuningConfig(tile_m=64, tile_n=64, tile_k=64, max_concurrent_steps=2)
    a, b = whole(128, 128, dtype=f16), whole(128, 128, dtype=f16)
    ANSWERS["library_hopper_matmul"] = lambda a, b: [
        (np.asarray(a, np.float64) @ np.asarray(b, np.float64)).astype(np.float16)
    ]
    return lambda a, b: hopper_matmul_mgpu.matmul(a, b, None, config), a, b


@case
def library_hopper_attention():
    attention_mgpu.cuda_versions = types.SimpleNamespace(cuda_runtime_get_version=lambda: 13000)
    config = attention_mgpu.TuningConfig(block_q=64, block_kv=64, max_concurrent_steps=2, causal=True)

    def answer(q, k, v):
        q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
        scores = np.einsum("bqhd,bkhd->bhqk", q, k)
        scores = np.where(np.tril(np.ones(scores.shape[-2:], bool)), scores, -np.inf)
        p = np.exp(scores - scores.max(-1, keepdims=True))
        return [np.einsum("bhqk,bkhd->bqhd", p / p.sum(-1, keepdims=True), v).astype(np.float16)]

    ANSWERS["library_hopper_attention"] = answer
    q, k, v = (normal(1, 128, 1, 64, dtype=f16) for _ in range(3))
    return lambda q, k, v: attention_mgpu.attention(q, k, v, config), q, k, v


def main(names):
    folder = os.path.join(HERE, "jax")
    os.makedirs(folder, exist_ok=True)
    for name in names or CASES:
        fn, *args = CASES[name]()
        if name in ANSWERS:
            more, params, operands = [], params_of_threads(fn, args), args
            answers = ANSWERS[name](*args)
        else:
            (params, operands, answers), *more = calls_of(fn, args)
        assert not more, f"{name} makes {1 + len(more)} calls"
        tables = []
        library = os.path.dirname(os.path.dirname(jax.__file__)) + "/"
        text = jaxpr.export(**params, strip=ROOT + "/", tables=tables).replace(library.removeprefix(ROOT + "/"), "")
        with open(os.path.join(folder, name + ".json"), "w") as out:
            out.write(text.replace(library, ""))
        for kind, arrays in [("in", [*operands, *tables]), ("out", answers)]:
            for i, x in enumerate(arrays):
                np.save(os.path.join(folder, f"{name}.{kind}{i}.npy"), np.asarray(x, order="C"))


if __name__ == "__main__":
    main(sys.argv[1:])
