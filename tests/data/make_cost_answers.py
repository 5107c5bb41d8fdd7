"""Writes cost_estimates.txt: what jax.experimental.pallas.estimate_cost says of the functions that cost_test.cpp has as
kernels of one program over whole arrays. One line per function: name, flops, transcendentals, bytes accessed. Needs jax
0.10; the tests only read."""

import os

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl


def arrays(*shapes, dtype=jnp.float32):
    return [jax.ShapeDtypeStruct(s, dtype) for s in shapes]


FUNCTIONS = {
    "add": (lambda x, y: x + y, arrays((8, 128), (8, 128))),
    "polynomial": (lambda x: ((x * x) + x) * x - x, arrays((1000,))),
    "clamped": (lambda x, y: jnp.maximum(jnp.minimum(x, y), -x) / y, arrays((7, 33), (7, 33), dtype=jnp.bfloat16)),
    "rounded": (lambda x: jnp.floor(x) + jnp.ceil(x) + lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN), arrays((64,))),
    "bits": (lambda x, y: (x & y) | (x ^ ~y), arrays((16, 16), (16, 16), dtype=jnp.int32)),
    "transcendentals": (
        lambda x: jnp.exp(x) * jnp.sin(x) + jnp.sqrt(x) - lax.logistic(x) * jnp.tanh(x),
        arrays((32, 8)),
    ),
    "matmul": (lambda x, y: lax.dot(x, y), arrays((64, 32), (32, 48))),
    "matmul_activation": (lambda x, y: jnp.exp(lax.dot(x, y) * 2), arrays((64, 32), (32, 48), dtype=jnp.float16)),
    "batched": (lambda x, y: lax.dot_general(x, y, (((2,), (1,)), ((0,), (0,)))), arrays((4, 8, 16), (4, 16, 24))),
}

if __name__ == "__main__":
    with open(os.path.join(os.path.dirname(__file__), "cost_estimates.txt"), "w") as out:
        for name, (function, shapes) in FUNCTIONS.items():
            cost = pl.estimate_cost(function, *shapes)
            out.write(f"{name} {cost.flops} {cost.transcendentals} {cost.bytes_accessed}\n")
