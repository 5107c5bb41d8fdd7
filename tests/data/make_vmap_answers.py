"""Writes the stored answers in vmap/: pallas_calls under jax.vmap whose kernels store to what they were given, which
vmap_memory_test.cpp has in C++ under the same names. As make_answers.py: run by hand, in an environment with jax,
ml_dtypes and mpmath.

    JAX_PLATFORMS=cpu python tests/data/make_vmap_answers.py
"""

import make_answers
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

f32, i32 = np.float32, np.int32
rng = np.random.default_rng(23)


def case(name, f, *inputs):
    outputs = f(*inputs)
    for i, x in enumerate(inputs):
        make_answers.save("vmap", f"{name}.in{i}", np.asarray(x))
    for i, y in enumerate(outputs if isinstance(outputs, (list, tuple)) else [outputs]):
        make_answers.save("vmap", f"{name}.out{i}", np.asarray(y))


def aliases():
    # Blocks 2 and 0 of four: what no program visits keeps the input's contents.
    def some(x, y, o):
        o[...] = x[...] + 10 * y[...]

    blocks = pl.BlockSpec((2, 3), lambda i: (2 - 2 * i, 0))
    some = pl.pallas_call(
        some,
        out_shape=jax.ShapeDtypeStruct((8, 3), i32),
        grid=2,
        in_specs=[blocks, pl.BlockSpec((1, 3), lambda i: (i, 0))],
        out_specs=blocks,
        input_output_aliases={0: 0},
        interpret=True,
    )
    x, y = rng.integers(0, 10, (8, 3)).astype(i32), rng.integers(0, 10, (4, 2, 3)).astype(i32)
    case("alias_unbatched", jax.vmap(some, (None, 0)), x, y)
    case("alias_out_axis", jax.vmap(some, (None, 1), 2), x, np.moveaxis(y, 0, 1))
    x = rng.integers(0, 10, (8, 4, 3)).astype(i32)
    case("alias_moved", jax.vmap(some, (1, 0)), x, y)
    case("alias_moved_back", jax.vmap(some, (1, 0), -1), x, y)
    case("alias_only", jax.vmap(some, (1, None)), x, y[0])
    z = rng.integers(0, 10, (5, 2, 4, 3)).astype(i32)
    case(
        "alias_nested",
        jax.vmap(jax.vmap(some, (None, 1)), (0, 0)),
        np.stack([x[:, n] for n in range(4)] + [x[:, 0] + 1]),
        z,
    )
    case("alias_nested_unbatched", jax.vmap(jax.vmap(some, (None, 1), 1), (None, 0), 2), x[:, 0], z)
    case(
        "alias_nested_moved",
        jax.vmap(jax.vmap(some, (2, 1), 0), (1, 0), 1),
        rng.integers(0, 10, (8, 5, 3, 4)).astype(i32),
        z,
    )

    # Two outputs, aliased the other way round.
    def two(a, b, s, o, p):
        o[...] = a[...] + s[...]
        p[...] = b[...] * s[...]

    two = pl.pallas_call(
        two,
        out_shape=[jax.ShapeDtypeStruct((3,), f32), jax.ShapeDtypeStruct((2, 3), f32)],
        input_output_aliases={1: 1, 0: 0},
        interpret=True,
    )
    s = rng.standard_normal((5, 1)).astype(f32)
    case(
        "alias_two",
        jax.vmap(two, (None, 2, 0), (1, 0)),
        rng.standard_normal(3).astype(f32),
        rng.standard_normal((2, 3, 5)).astype(f32),
        s,
    )


def atomics():
    # A histogram by programs, on top of what is there.
    def count(x, h, o, old):
        old[0] = triton.atomic_add(o, (x[0],), jnp.int32(1))

    count = pl.pallas_call(
        count,
        out_shape=[jax.ShapeDtypeStruct((5,), i32), jax.ShapeDtypeStruct((7,), i32)],
        grid=7,
        in_specs=[pl.BlockSpec((1,), lambda i: (i,)), pl.BlockSpec()],
        out_specs=[pl.BlockSpec(), pl.BlockSpec((1,), lambda i: (i,))],
        input_output_aliases={1: 0},
        interpret=True,
    )
    x, h = rng.integers(0, 5, (3, 7)).astype(i32), rng.integers(0, 50, (3, 5)).astype(i32)
    case("histogram", jax.vmap(count), x, h)
    case("histogram_unbatched", jax.vmap(count, (0, None)), x, h[0])
    case("histogram_of_one", jax.vmap(count, (None, 1)), x[0], h.T)

    # The same by one index array; positions apart, as JAX's interpreter would lose others.
    def scatter(i, v, h, o, old):
        old[...] = triton.atomic_max(o, (i[...],), v[...])

    scatter = pl.pallas_call(
        scatter,
        out_shape=[jax.ShapeDtypeStruct((6,), i32), jax.ShapeDtypeStruct((4,), i32)],
        input_output_aliases={2: 0},
        interpret=True,
    )
    i = np.stack([rng.permutation(6)[:4] for _ in range(3)]).astype(i32)
    v, h = rng.integers(0, 99, (3, 4)).astype(i32), rng.integers(0, 99, (6, 3)).astype(i32)
    case("scatter_batched", jax.vmap(scatter, (0, 0, 1)), i, v, h)
    case("scatter_unbatched", jax.vmap(scatter, (0, None, None)), i, v[0], h[:, 0])
    case("scatter_one_index", jax.vmap(scatter, (None, 0, None), (1, 0)), i[1], v, h[:, 1])


if __name__ == "__main__":
    aliases()
    atomics()
