"""Refs that kernels make themselves, hand to functions, and Refs of random keys, against interpret=True."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

import tessera
from support import DEVICES

f32, i32 = jnp.float32, jnp.int32
X = jnp.arange(15, dtype=f32).reshape(3, 5) - 7
KEYS = jax.random.split(jax.random.key(3), 4)


def made(x_ref, o_ref):
    r, total = jax.new_ref(x_ref[...] * 2), jax.new_ref(jnp.zeros(5))
    empty = jax.empty_ref(jax.ShapeDtypeStruct((5,), f32))
    r[0] += 1.0
    r[:, 1] = jnp.zeros(3)

    def turn(i, c):
        total[...] += x_ref[i]
        q = jax.new_ref(c)
        q[...] += 1
        return q[...]

    c = lax.fori_loop(0, 3, turn, 0)

    @pl.when(x_ref[0, 0] < 0)
    def _():
        empty[...] = total[...] + c

    o_ref[...] = jax.freeze(r) + empty[...]


def scoped(x_ref, o_ref):
    def turn(i, c):
        def body(a_ref, *, b_ref):
            a_ref[...] = x_ref[i]
            b_ref[...] = a_ref[...] * 2
            o_ref[i] = b_ref[...]
            return a_ref[0]

        return c + pl.run_scoped(body, pltpu.VMEM((5,), f32), b_ref=pltpu.VMEM((5,), f32))

    o_ref[0, 0] = lax.fori_loop(0, 3, turn, 0.0)


def stateful(x_ref, o_ref):
    def f(refs):
        a_ref, b_ref = refs
        a_ref[...] += 1
        b_ref[1:] = a_ref[1:] * 2

    a, b = pl.run_state(f)((x_ref[...], x_ref[...]))
    o_ref[...] = a + b


def functions(x_ref, o_ref):
    double = jax.jit(lambda x, o, k: o.__setitem__(Ellipsis, x[...] * k))
    row = jax.jit(lambda r: r[1] + 1)
    inside = jax.jit(lambda i: x_ref[i] * 3)
    o_ref[...] = jnp.broadcast_to(row(x_ref), (3, 5))
    double(x_ref.at[0], o_ref.at[pl.ds(1, 1)].at[0], 2.0)

    def turn(i, c):
        double(x_ref.at[i], o_ref.at[2 - i], i + 1.0)
        return c

    lax.fori_loop(0, 2, turn, 0)
    o_ref[0] += jax.checkpoint(jnp.sin)(inside(2)) + lax.cond(x_ref[0, 0] > 0, lambda: x_ref[0], lambda: -x_ref[1])


def uniform(key, n=5):
    return jax.random.uniform(key, (n,))


def keys(k_ref, o_ref):
    draw = jax.jit(lambda k, o: o.__setitem__(Ellipsis, uniform(k)))
    mine, view = jax.new_ref(k_ref[1]), k_ref.at[pl.ds(1, 3)]
    lax.fori_loop(0, 2, lambda i, c: (o_ref.__setitem__(i, uniform(k_ref[i])), c)[1], 0)
    draw(k_ref[2], o_ref.at[2])
    o_ref[3] = uniform(mine[...]) + uniform(view[2])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("kernel", "x"), [(made, X), (scoped, X), (stateful, X), (functions, X), (keys, KEYS)])
def test_refs(device, kernel, x):
    def f(interpret):
        return pl.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct((len(x), 5), f32), interpret=interpret)(x)

    with tessera.on(device):
        np.testing.assert_allclose(f(False), f(True), rtol=1e-6)


@pytest.mark.parametrize("device", DEVICES)
def test_keys_in_blocks_and_in_results(device):
    def kernel(k_ref, o_ref, n_ref):
        o_ref[0], n_ref[0] = uniform(k_ref[0]), jax.random.fold_in(k_ref[0], pl.program_id(0))

    one = pl.BlockSpec((1,), lambda i: (3 - i,))
    with tessera.on(device):
        got, new = pl.pallas_call(
            kernel,
            out_shape=[jax.ShapeDtypeStruct((4, 5), f32), jax.ShapeDtypeStruct((4,), KEYS.dtype)],
            grid=(4,),
            in_specs=[one],
            out_specs=[pl.BlockSpec((1, 5), lambda i: (i, 0)), one],
        )(KEYS)
    np.testing.assert_array_equal(got, jax.vmap(uniform)(KEYS)[::-1])
    assert (new == jax.vmap(jax.random.fold_in)(KEYS, 3 - jnp.arange(4))).all()


def test_copies_that_add_are_refused():
    def kernel(x_ref, o_ref, sem):
        pltpu.make_async_copy(x_ref, o_ref, sem).start(add=True)

    with tessera.on("interpreter"), pytest.raises(
        tessera.Error,
        match=r"^kernel: dma_start: copies that add to their target cannot be imported yet\n  at .*test_refs.py:\d+",
    ):
        pl.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct((3, 5), f32), scratch_shapes=[pltpu.SemaphoreType.DMA])(X)
