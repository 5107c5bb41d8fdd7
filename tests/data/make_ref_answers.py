"""Writes the stored answers in refs/: indices and views of Refs, which ref_test.cpp has as C++ kernels of the same
names. As make_answers.py: run by hand, in an environment with jax, ml_dtypes and mpmath.

    JAX_PLATFORMS=cpu python tests/data/make_ref_answers.py

Stores through views, and transposed Refs, have no rule in JAX's interpreter: there the answer is that of the same steps
on arrays.
"""

import make_answers
import jax
import jax.numpy as jnp
import numpy as np
from jax._src.pallas import primitives
from jax._src.state import primitives as state
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

f32, i32 = np.float32, np.int32
rng = np.random.default_rng(11)
ds = pl.ds


def save(name, inputs, outputs):
    for i, x in enumerate(inputs):
        make_answers.save("refs", f"{name}.in{i}", np.asarray(x))
    for i, y in enumerate(outputs):
        make_answers.save("refs", f"{name}.out{i}", np.asarray(y))


def case(name, kernel, shapes, *inputs):
    out = [jax.ShapeDtypeStruct(s, t) for s, t in shapes]
    save(name, inputs, pl.pallas_call(kernel, out_shape=out, interpret=True)(*inputs))


def loads(name, inputs, read):
    """read(*Refs) gives a list of arrays; each becomes an output."""
    shapes = []

    def probe(*refs):
        shapes.extend(jax.ShapeDtypeStruct(v.shape, v.dtype) for v in read(*refs[:-1]))
        refs[-1][0] = 0

    pl.pallas_call(probe, out_shape=jax.ShapeDtypeStruct((1,), i32), interpret=True)(*inputs)

    def kernel(*refs):
        for v, o in zip(read(*refs[: len(inputs)]), refs[len(inputs) :]):
            o[...] = v

    save(name, inputs, pl.pallas_call(kernel, out_shape=shapes, interpret=True)(*inputs))


def indices():
    x = rng.standard_normal(8).astype(f32)
    i = np.array([0, -1, -8, -9, 7, 8, 100, 3, 3], i32)
    v = np.arange(1, 10, dtype=f32)
    loads("gather", [x, i], lambda x, i: [x[i[...]], x[i[...].reshape(3, 3)]])

    def scatter(x, i, v, o):
        o[...] = x[...]
        o[i[...]] = v[...]

    case("scatter", scatter, [((8,), f32)], x, i, v)

    def swap(x, i, v, o, p):
        o[...] = x[...]
        p[...] = state.ref_swap(o, (i[...],), v[...])

    case("swap", swap, [((8,), f32), ((9,), f32)], x, i, v)

    def addupdate(i, v, o, p):
        o[...] = jnp.zeros(8, f32)
        state.ref_addupdate(o, (i[...],), v[...])
        state.ref_addupdate(o, (ds(i[4], 3),), v[:3])
        p[...] = jnp.zeros((3, 4), i32)
        state.ref_addupdate(
            p, (i[...].reshape(3, 3) % 3, slice(1, 3)), jnp.broadcast_to(v[...].astype(i32).reshape(3, 3, 1), (3, 3, 2))
        )

    case("addupdate", addupdate, [((8,), f32), ((3, 4), i32)], i, v)

    x = rng.standard_normal((2, 3, 4, 5)).astype(f32)
    i, j = np.array([0, 1, 1], i32), np.array([[0], [2]], i32)
    loads(
        "gather_shapes",
        [x, i, j],
        lambda x, i, j: [
            x[i[...]],
            x[i[...], j[...]],
            x[i[...], :, j[...]],
            x[:, i[...], j[...]],
            x[0, :, i[...]],
            x[:, 0, i[...]],
            x[0, 0:2, i[...], 1],
            x[..., j[...]],
            x[:, i[...], :, 0],
            x[i[...], ..., j[...]],
            x[:, i[...], 1::2, j[...]],
        ],
    )

    def scatter_shapes(i, j, v, w, o, p):
        o[...] = jnp.zeros((2, 3, 4, 5), f32)
        p[...] = jnp.zeros((2, 3, 4, 5), f32)
        o[i[...], :, j[...]] = v[...]
        p[:, 0, i[...], 1:5:2] = w[...]
        p[1, 1:3, j[...], i[...]] = jnp.ones((2, 3, 2), f32)

    case(
        "scatter_shapes",
        scatter_shapes,
        [((2, 3, 4, 5), f32)] * 2,
        i,
        j,
        rng.standard_normal((2, 3, 3, 5)).astype(f32),
        rng.standard_normal((2, 3, 2)).astype(f32),
    )

    x = rng.standard_normal((5, 8)).astype(f32)
    s, i = np.array([6, -2, 9, -20, 2], i32), np.array([0, 1, 9, -1], i32)
    loads(
        "gather_starts",
        [x, s, i],
        lambda x, s, i: [x[i[...], ds(s[k], 3)] for k in range(5)] + [x[i[...], s[k]] for k in range(5)],
    )

    def scatter_starts(s, i, v, *outs):
        for k in range(5):
            outs[k][...] = jnp.zeros((5, 8), f32)
            outs[k][i[...], ds(s[k], 3)] = v[...]
            outs[k][i[...], s[k]] = v[:, 0]

    case("scatter_starts", scatter_starts, [((5, 8), f32)] * 5, s, i, rng.standard_normal((4, 3)).astype(f32))

    s = np.array([6, -3, -20, 2, 100], i32)
    loads(
        "stepped_starts",
        [x, s],
        lambda x, s: [x[1:3, ds(s[k], 3, 2)] for k in range(5)]
        + [x[ds(s[k], 2), ::3] for k in range(5)]
        + [x[s[k], ::3] for k in range(5)],
    )

    def stepped_stores(s, v, *outs):
        for k in range(5):
            outs[k][...] = jnp.zeros((5, 8), f32)
            outs[k][ds(s[k], 2), ds(s[k], 3, 2)] = v[...]

    case("stepped_stores", stepped_stores, [((5, 8), f32)] * 5, s, rng.standard_normal((2, 3)).astype(f32))

    x = rng.standard_normal(8).astype(f32)
    n = np.array([0, 3, 200, 255, 7, 8, 130], np.int64)
    loads(
        "index_dtypes",
        [x, *[n.astype(t) for t in (np.int8, np.uint8, np.int16, np.uint32)], (n << 24).astype(np.uint32)],
        lambda x, *idx: [x[i[...]] for i in idx],
    )

    # Masks: of elements that are there.
    i, m = np.array([[0, 3, -1], [4, 7, 2]], i32), np.array([[True, False, True], [True, True, False]])
    loads("masked_gather", [x, i, m], lambda x, i, m: [primitives.load(x, (i[...],), mask=m[...], other=9)])

    def masked_scatter(x, i, m, o, p):
        o[...] = x[...]
        p[...] = jnp.where(
            m[...], primitives.swap(o, (i[...],), jnp.arange(6, dtype=f32).reshape(2, 3), mask=m[...]), -1
        )

    case("masked_scatter", masked_scatter, [((8,), f32), ((2, 3), f32)], x, i, m)


def views():
    x = rng.standard_normal((6, 8)).astype(f32)
    s, i = np.array([2, -1, 7, 0], i32), np.array([3, 0, 2], i32)
    loads(
        "views",
        [x, s, i],
        lambda x, s, i: [
            x.at[1:5].at[ds(s[0], 2), ::2][...],
            x.at[1:5].at[ds(s[1], 2), ::2][...],
            x.at[ds(s[2], 4)].at[ds(s[1], 2)][0],
            x.at[s[1]][2:5],
            x.at[s[2], 2:8].at[1:5:2][ds(s[0], 1)],
            x.at[2:6, 0:6].at[i[...]][:, 1:3],
            x.at[i[...]][1:3],
            x.at[i[...], ds(s[0], 4)][0:2, 1],
            x.at[:, i[...]].at[1:4][..., 2],
            x.at[i[...]][...][:, 0],
            x.at[::2].at[1:][:, ds(s[0], 3)],
            x.at[2:5][i[...]],
            x.at[2:5][i[...], i[...]],
        ],
    )
    loads(
        "reshaped",
        [x, s, i],
        lambda x, s, i: [
            x.reshape(48)[5:20:3],
            x.reshape(3, 16)[:, 3:9],
            x.reshape(12, 4)[ds(s[0], 3), 1],
            x.reshape(2, 3, 2, 4)[1],
            x.reshape(48)[ds(s[0], 10)],
            x.at[2].reshape(2, 4)[...],
            x.reshape(4, 12)[i[...]],
            x.at[:, 0:4].reshape(24)[::5],
            x.at[ds(s[2], 4)].reshape(2, 16)[1],
            x.reshape(48)[s[2]],
            x.reshape(1, 6, 1, 8)[0, 1:3, 0],
            x.reshape(2, 24)[:, 8:16],
            x.reshape(48)[8:32],
            x.at[1:5, ::2].reshape(2, 8)[...],
            x.reshape(6, 2, 4)[:, s[0], 1:3],
            x.reshape(16, 3)[ds(s[2], 4)],
            x.reshape(6, 2, 2, 2)[1:4, :, 1],
            x.at[:, 3].reshape(2, 3)[1],
            x.reshape(24, 2).reshape(4, 12).at[1:3].reshape(24)[s[2]],
            x.reshape(48)[i[...]],
            x.at[i[...]].reshape(24)[4:20],
            x.reshape(3, 2, 8)[:, s[3], ::3],
        ],
    )
    y = rng.integers(-(2**15), 2**15, (4, 6)).astype(np.int16)
    loads(
        "bitcast",
        [x, y, s, i],
        lambda x, y, s, i: [
            x.bitcast(i32)[...],
            x.at[1:3].bitcast(jnp.uint32)[1, ds(s[0], 2)],
            x.bitcast(jnp.int16)[...],
            x.bitcast(jnp.int16)[3],
            x.bitcast(jnp.int16)[ds(s[2], 4), 2:5],
            x.bitcast(jnp.uint8)[1::4, 0:2],
            x.bitcast(jnp.int16)[i[...]],
            y.bitcast(i32)[...],
            y.bitcast(i32)[s[1], 1:3],
            y.bitcast(f32).bitcast(i32)[1:],
            x.bitcast(jnp.int16).at[3:9].bitcast(i32)[1:, 0:3],
            y.bitcast(jnp.uint8)[s[2]],
            x.bitcast(jnp.bfloat16).reshape(96)[10:30:7].astype(f32),
        ],
    )

    # The same steps on arrays.
    save(
        "transposed",
        [x, s, i],
        [
            x.T[1:3],
            x.T.reshape(48)[4:9],
            x[1:5].T[2:4, ::2],
            x.reshape(2, 3, 8).transpose(2, 0, 1)[3],
            x.reshape(2, 3, 8).transpose(2, 0, 1)[i],
            x.T[i, 1:4],
            x.T[2:5, i],
            x.reshape(2, 3, 8).transpose(1, 2, 0).reshape(3, 16)[:, 2:6],
        ],
    )


def stores():
    v = np.arange(1, 49, dtype=f32)

    def take(*shape):
        return v[: int(np.prod(shape))].reshape(shape)

    def fresh():
        return np.zeros((6, 8), f32)

    i = np.array([3, 0, 2], i32)
    s = np.array([2, -1, 7], i32)
    outs = []

    def out(f):
        o = fresh()
        f(o)
        outs.append(o)

    def assign(view, index, value):
        view[index] = value

    out(lambda o: assign(o[1:5][1:3, ::2], ..., take(2, 4)))
    out(lambda o: assign(o[1:5], slice(2, 4), take(2, 8)))  # ds(s[2], 2): clamped into the view
    out(lambda o: assign(o.reshape(3, 16), np.s_[:, 3:9], take(3, 6)))
    out(lambda o: assign(o.reshape(48), np.s_[5:20:3], take(5)))
    out(lambda o: assign(o.reshape(48), np.s_[2:12], take(10)))  # ds(s[0], 10)
    out(lambda o: assign(o.T, np.s_[1:3], take(2, 6)))
    out(lambda o: assign(o.reshape(2, 3, 8).transpose(2, 0, 1), np.s_[i], take(3, 2, 3)))
    out(lambda o: assign(o.reshape(4, 12), i, take(3, 12)))
    # rows 3 and 5 of the bitcast Ref
    out(lambda o: assign(o.view(np.int16).reshape(6, 8, 2)[:, :, 1], np.s_[1:3], take(2, 8).astype(np.int16)))
    out(
        lambda o: assign(
            o[1:3].view(np.int16).reshape(2, 8, 2).transpose(0, 2, 1), ..., take(4, 8).astype(np.int16).reshape(2, 2, 8)
        )
    )

    def gathered(o):
        for k, row in enumerate(i):
            o[row, 2:4] = take(3, 2)[k]

    out(gathered)

    def dropped(o):  # x.at[1:5][i]: 3, 0, 2 are there; of -1 and 7 the latter is not
        o[1 + 2], o[1 + 3] = take(3, 8)[0], take(3, 8)[1]

    out(dropped)

    def masked(o):  # positions 2, 3, 4, 5 of a view of 4 rows: two are there, one of those is masked out
        o[1 + 2] = take(4, 8)[0]

    out(masked)

    def added(o):
        np.add.at(o[1:5], np.array([1, 1, 3]), take(3, 8))

    out(added)
    o = np.zeros((4, 4), np.int16)
    o.reshape(2, 2, 4)[1] = np.array([70000, -3, 5, 1 << 30], i32).reshape(4).view(np.int16).reshape(4, 2).T
    outs.append(o)
    save("view_stores", [v, s, i], outs)


def atomics():
    x = rng.integers(-50, 50, 8).astype(i32)
    i = np.array([7, 2, -5, 9, -20, 0, 100], i32)
    v = rng.integers(-60, 60, 7).astype(i32)
    kinds = [triton.atomic_add, triton.atomic_max, triton.atomic_min]

    # No two positions are one: what is outside finds what the nearest element held.
    def apart(x, i, v, *outs):
        for k, atomic in enumerate(kinds):
            outs[k][...] = x[...]
            outs[3 + k][...] = atomic(outs[k], (i[...],), v[...])

    case("atomics_apart", apart, [((8,), i32)] * 3 + [((7,), i32)] * 3, x, i, v)

    y = rng.standard_normal((4, 5)).astype(f32)
    r, c, w = np.array([[0, 3], [-1, 9]], i32), np.array([4, -3], i32), rng.standard_normal((2, 2)).astype(f32)

    def planes(y, r, c, w, *outs):
        for k, atomic in enumerate(kinds):
            outs[k][...] = y[...]
            outs[3 + k][...] = atomic(outs[k], (r[...], jnp.broadcast_to(c[...], (2, 2))), w[...])

    case("atomics_planes", planes, [((4, 5), f32)] * 3 + [((2, 2), f32)] * 3, y, r, c, w)

    # JAX's interpreter keeps one of the values for one element, its compilers all: those of the elements one after
    # another.
    i = np.array([3, 0, 3, -5, 3, 7, 0, -1, 3, 1], i32)
    v = rng.integers(-60, 60, 10).astype(i32)

    def in_turn(x, i, v, *outs):
        for k, atomic in enumerate(kinds):
            outs[k][...] = x[...]

            def step(n, _):
                at = i[n]
                outs[3 + k][n] = atomic(outs[k], (jnp.where(at < 0, at + 8, at),), v[n])

            jax.lax.fori_loop(0, 10, step, None)

    case("atomics_in_turn", in_turn, [((8,), i32)] * 3 + [((10,), i32)] * 3, x, i, v)


if __name__ == "__main__":
    indices()
    views()
    stores()
    atomics()
