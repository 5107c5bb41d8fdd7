"""Writes graph/: a function with kernels as tessera.export writes it, with arguments (inI.npy) and JAX's answers
(outI.npy), for the C++ side to load. Run by hand, in an environment with the package tessera; the tests only read what
it wrote:

    JAX_PLATFORMS=cpu python tests/data/make_graph.py
"""

import os

import jax
import jax.numpy as jnp
import numpy as np
import tessera
from jax.experimental import pallas as pl

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "graph")


def normalise(x_ref, o_ref, sum_ref):
    e = jnp.exp(x_ref[...] - jnp.max(x_ref[...], axis=1, keepdims=True))
    sum_ref[...] = jnp.sum(e, axis=1)
    o_ref[...] = (e / jnp.sum(e, axis=1, keepdims=True)).astype(jnp.bfloat16)


def function(x, y):
    """Two calls of one kernel with JAX's own operations between and after them, and a constant."""
    rows = pl.BlockSpec((2, 8), lambda i: (i, 0))
    softmax = pl.pallas_call(
        normalise,
        out_shape=[jax.ShapeDtypeStruct((6, 8), jnp.bfloat16), jax.ShapeDtypeStruct((6,), jnp.float32)],
        grid=(3,),
        in_specs=[rows],
        out_specs=[rows, pl.BlockSpec((2,), lambda i: (i,))],
    )
    a, s = softmax(x)
    b = jax.jit(lambda a, y: a.astype(jnp.float32) @ y + np.arange(8, dtype=np.float32))(a, y)
    return softmax(b)[0], s


if __name__ == "__main__":
    rng = np.random.default_rng(3)
    x, y = rng.standard_normal((6, 8), dtype=np.float32), rng.standard_normal((8, 8), dtype=np.float32)
    tessera.export(function, x, y, path=FOLDER)
    text = os.path.join(FOLDER, "graph.txt")
    for file in os.listdir(FOLDER):  # no path of one machine in what is stored
        if file.endswith(".tir"):
            with open(os.path.join(FOLDER, file)) as f:
                lines = f.read().replace(os.path.dirname(os.path.dirname(os.path.dirname(FOLDER))) + "/", "")
            with open(os.path.join(FOLDER, file), "w") as f:
                f.write(lines)
    with tessera.on("interpreter"):
        answers = function(x, y)
    for name, arrays in (("in", (x, y)), ("out", answers)):
        for i, a in enumerate(arrays):
            np.save(os.path.join(FOLDER, f"{name}{i}.npy"), np.asarray(a))
