"""The kernels of this folder in JAX's Pallas with interpret=True, for main.cpp: reads the name of a kernel per line,
runs it once, and answers with the milliseconds that it took and a weighted sum of its output. Each kernel is compiled,
and run once, before it is timed."""

import os
import sys
import time

os.environ["JAX_PLATFORMS"] = "cpu"
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

N, B = 1024, 128


def f32(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def ramp(*shape):  # what main.cpp fills its inputs with
    i = np.arange(np.prod(shape))
    return jnp.asarray(((i * 7919 % 2001 - 1000) / 1000).astype(np.float32).reshape(shape))


def add(x, y, o):
    o[...] = x[...] + y[...]


def matmul(x, y, o, acc):
    @pl.when(pl.program_id(2) == 0)
    def _():
        acc[...] = jnp.zeros((B, B), jnp.float32)

    acc[...] += jnp.dot(x[...], y[...], preferred_element_type=jnp.float32)

    @pl.when(pl.program_id(2) == N // B - 1)
    def _():
        o[...] = acc[...]


def softmax(x, o):
    e = jnp.exp(x[...] - jnp.max(x[...], axis=1, keepdims=True))
    o[...] = e / jnp.sum(e, axis=1, keepdims=True)


block = pl.BlockSpec((B, B), lambda i, j: (i, j))
rows = pl.BlockSpec((64, 512), lambda i: (i, 0))
KERNELS = {
    "add_1024": (
        pl.pallas_call(
            add, out_shape=f32(N, N), grid=(N // B, N // B), in_specs=[block, block], out_specs=block, interpret=True
        ),
        [(N, N), (N, N)],
    ),
    "matmul_1024": (
        pl.pallas_call(
            matmul,
            out_shape=f32(N, N),
            grid=(N // B, N // B, N // B),
            in_specs=[pl.BlockSpec((B, B), lambda i, j, k: (i, k)), pl.BlockSpec((B, B), lambda i, j, k: (k, j))],
            out_specs=pl.BlockSpec((B, B), lambda i, j, k: (i, j)),
            scratch_shapes=[pltpu.VMEM((B, B), jnp.float32)],
            interpret=True,
        ),
        [(N, N), (N, N)],
    ),
    "softmax_2048x512": (
        pl.pallas_call(softmax, out_shape=f32(2048, 512), grid=(32,), in_specs=[rows], out_specs=rows, interpret=True),
        [(2048, 512)],
    ),
}

print("JAX " + jax.__version__, flush=True)
ready = {}
for line in sys.stdin:
    name = line.strip()
    if name not in ready:
        call, shapes = KERNELS[name]
        call, arrays = jax.jit(call), [ramp(*s) for s in shapes]
        call(*arrays).block_until_ready()
        ready[name] = call, arrays
    call, arrays = ready[name]
    start = time.perf_counter()
    out = call(*arrays).block_until_ready()
    ms = (time.perf_counter() - start) * 1e3
    weights = np.arange(out.size) * 31 % 97
    print(ms, float(np.asarray(out, np.float64).ravel() @ weights), flush=True)
