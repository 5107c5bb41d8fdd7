"""What kernels of public repositories do and the other files do not: a Toeplitz matrix by a strided rotation, walks
along lists of positions in scalar memory, products of 32-bit integers by their bytes, and the best k by rounds of
maxima. On every device, against interpret=True."""

import functools

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


def toeplitz(x_ref, o_ref, *, rows):
    """Row r of the negacyclic Toeplitz matrix of a vector: rotated by r, what comes round the end negated. Made `rows`
    at a time, the later ones by rotating the first."""
    n = o_ref.shape[-1]
    part = pltpu.roll(jnp.broadcast_to(x_ref[...], (rows, n)), 0, 1, stride=1, stride_axis=0)
    r = lax.broadcasted_iota(i32, (rows, n), 0)
    c = lax.broadcasted_iota(i32, (rows, n), 1)
    parts = []
    for _ in range(n // rows):
        parts.append(jnp.where(r > c, -part, part))
        part, r = pltpu.roll(part, rows, 1), r + rows
    o_ref[...] = lax.concatenate(parts, 0)


def walk(child_ref, sibling_ref, guess_ref, says_ref, path_ref, count_ref, taken_ref):
    """Along a tree of guesses: from each accepted node to the first of its children that is what the node says; the
    places of scalar memory that are read depend on what was read before."""
    b = pl.program_id(0)
    path_ref[b, 0] = 0

    def down(level, carry):
        node, n, alive = carry

        def across(c):
            at, _ = c
            same = guess_ref[b, at] == says_ref[b, node]
            return jnp.where(same, at, sibling_ref[b, at]), same

        at, found = lax.while_loop(
            lambda c: (c[0] != -1) & ~c[1], across, (jnp.where(alive, child_ref[b, node], -1), False)
        )
        accepted = alive & found

        @pl.when(accepted)
        def _():
            path_ref[b, n] = at
            taken_ref[b, node] = guess_ref[b, at]

        return jnp.where(accepted, at, node), n + accepted.astype(i32), accepted

    node, n, _ = lax.fori_loop(1, path_ref.shape[1], down, (0, 1, True))
    taken_ref[b, node] = says_ref[b, node]
    count_ref[b] = n - 1


def product_by_bytes(x_ref, y_ref, o_ref):
    """The low 32 bits of a product of matrices of u32, by products of their bytes in bf16."""
    total = jnp.zeros(o_ref.shape, i32)
    for i in range(4):
        x = lax.shift_right_logical(x_ref[...], 8 * i) & 0xFF
        for j in range(4 - i):
            y = lax.shift_right_logical(y_ref[...], 8 * j) & 0xFF
            p = lax.dot(x.astype(jnp.bfloat16), y.astype(jnp.bfloat16), preferred_element_type=f32)
            total += p.astype(i32) << (8 * (i + j))
    o_ref[...] = total


def best(x_ref, bias_ref, weights_ref, places_ref, *, k):
    """Places of the k best by score + bias, the first of equals first, and their scores' parts of the sum."""
    scores = jax.nn.sigmoid(x_ref[...])
    left = scores + bias_ref[...]
    column = lax.broadcasted_iota(i32, left.shape, 1)
    weights, places = [], []
    for _ in range(k):
        most = left.max(axis=1, keepdims=True)
        place = jnp.where(left == most, column, left.shape[1]).min(axis=1, keepdims=True)
        chosen = column == place
        weights.append(jnp.where(chosen, scores, 0.0).sum(axis=1, keepdims=True))
        places.append(place)
        left = jnp.where(chosen, -jnp.inf, left)
    w = jnp.concatenate(weights, 1)
    weights_ref[...] = w / w.sum(axis=1, keepdims=True)
    places_ref[...] = jnp.concatenate(places, 1)


def shaped(*shape, dtype=f32):
    return jax.ShapeDtypeStruct(shape, dtype)


def numbers(low, high, *shape, dtype=i32):
    return jnp.asarray(np.random.default_rng(sum(shape)).integers(low, high, shape), dtype)


SMEM = pl.BlockSpec(memory_space=pltpu.SMEM)
# the second tree ends after two guesses, the third's are all wrong
TREES = (
    jnp.asarray([[1, 2, -1, 4, 5, -1], [4, 2, 3, -1, 5, -1], [1, -1, 3, -1, -1, -1]], i32),
    jnp.asarray([[-1, 3, -1, -1, -1, -1], [-1, -1, -1, -1, 1, -1], [-1, 2, -1, 4, 5, -1]], i32),
    jnp.asarray([[0, 1, 2, 3, 4, 5], [7, 8, 9, 10, 11, 12], [3, 3, 4, 4, 5, 5]], i32),
    jnp.asarray([[3, 8, 8, 4, 5, 9], [11, 9, 9, 9, 12, 9], [6, 6, 6, 6, 6, 6]], i32),
)


def call(kernel, out, *args, **kwargs):
    return kernel, out, args, kwargs


CASES = {
    "toeplitz": call(functools.partial(toeplitz, rows=8), shaped(24, 24, dtype=i32), numbers(-9, 9, 1, 24)),
    "toeplitz of f32": call(functools.partial(toeplitz, rows=16), shaped(16, 16), numbers(-9, 9, 1, 16, dtype=f32)),
    "walk": call(
        walk,
        (shaped(3, 4, dtype=i32), shaped(3, dtype=i32), shaped(3, 6, dtype=i32)),
        *TREES,
        jnp.full((3, 4), -1, i32),
        jnp.full((3, 6), -1, i32),
        grid=(3,),
        in_specs=[SMEM] * 6,
        out_specs=[SMEM] * 3,
        input_output_aliases={4: 0, 5: 2},
    ),
    "product by bytes": call(
        product_by_bytes,
        shaped(6, 10, dtype=i32),
        numbers(-(2**31), 2**31 - 1, 6, 37),
        numbers(-(2**31), 2**31 - 1, 37, 10),
    ),
    "best": call(
        functools.partial(best, k=5),
        (shaped(12, 5), shaped(12, 5, dtype=i32)),
        numbers(-3, 3, 12, 40, dtype=f32),
        numbers(0, 2, 1, 40, dtype=f32),
        grid=(3,),
        in_specs=[pl.BlockSpec((4, 40), lambda i: (i, 0)), pl.BlockSpec((1, 40), lambda i: (0, 0))],
        out_specs=[pl.BlockSpec((4, 5), lambda i: (i, 0))] * 2,
    ),
}


def walk_of_six(*refs):
    """The kernel `walk` without the two inputs that its outputs are made of."""
    walk(*refs[:4], *refs[6:])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", CASES)
def test_idiom(name, device):
    kernel, out, args, kwargs = CASES[name]
    kernel = walk_of_six if kernel is walk else kernel
    want = jax.tree.leaves(pl.pallas_call(kernel, out, interpret=True, **kwargs)(*args))
    with tessera.on(device):
        got = jax.tree.leaves(jax.jit(pl.pallas_call(kernel, out, **kwargs))(*args))
    for g, w in zip(got, want, strict=True):
        if w.dtype == f32:
            np.testing.assert_allclose(g, w, rtol=2e-6)
        else:
            np.testing.assert_array_equal(g, w)
    if name == "product by bytes":
        x, y = (np.asarray(a).astype(np.int64) for a in args)
        np.testing.assert_array_equal(got[0], (x.astype(object) @ y % 2**32).astype(np.uint32).view(np.int32))
    if name == "walk":
        np.testing.assert_array_equal(got[1], [3, 2, 0])
