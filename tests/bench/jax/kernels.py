"""Pallas kernels from JAX on Tessera against JAX's own interpreter (interpret=True), in one run: milliseconds of each,
and how many times faster Tessera is. On the interpreter device this should be 5 in the geometric mean and nowhere below
0.7; on lavapipe it is what it is: Mesa's driver for the CPU is no GPU.

    python tests/bench/jax/kernels.py [--repeats N] [DEVICE ...]      # "interpreter" and "vulkan" if none is named
"""

import math
import os
import statistics
import sys
import time

os.environ["JAX_PLATFORMS"] = "cpu"
import jax
import jax.numpy as jnp
import numpy as np
import tessera
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas.ops.gpu import attention, softmax

REPEATS, N, B = 7, 1024, 128
f32 = jnp.float32


def shape(*s):
    return jax.ShapeDtypeStruct(s, f32)


def add(interpret):
    def kernel(x, y, o):
        o[...] = x[...] + y[...]

    block = pl.BlockSpec((B, B), lambda i, j: (i, j))
    return pl.pallas_call(
        kernel,
        out_shape=shape(N, N),
        grid=(N // B, N // B),
        in_specs=[block, block],
        out_specs=block,
        interpret=interpret,
    )


def matmul_large(interpret):
    def kernel(x, y, o):
        o[...] = x[...] @ y[...]

    return pl.pallas_call(
        kernel,
        out_shape=shape(N, N),
        grid=(2, 2),
        in_specs=[pl.BlockSpec((512, N), lambda i, j: (i, 0)), pl.BlockSpec((N, 512), lambda i, j: (0, j))],
        out_specs=pl.BlockSpec((512, 512), lambda i, j: (i, j)),
        interpret=interpret,
    )


def matmul_blocks(interpret):
    def kernel(x, y, o, acc):
        @pl.when(pl.program_id(2) == 0)
        def _():
            acc[...] = jnp.zeros_like(acc)

        acc[...] += x[...] @ y[...]

        @pl.when(pl.program_id(2) == pl.num_programs(2) - 1)
        def _():
            o[...] = acc[...]

    return pl.pallas_call(
        kernel,
        out_shape=shape(N, N),
        grid=(N // B,) * 3,
        scratch_shapes=[pltpu.VMEM((B, B), f32)],
        in_specs=[pl.BlockSpec((B, B), lambda i, j, k: (i, k)), pl.BlockSpec((B, B), lambda i, j, k: (k, j))],
        out_specs=pl.BlockSpec((B, B), lambda i, j, k: (i, j)),
        interpret=interpret,
    )


def mha(interpret):
    return lambda q, k, v: attention.mha(
        q,
        k,
        v,
        segment_ids=None,
        causal=False,
        block_sizes=attention.BlockSizes(block_q=128, block_k=128),
        interpret=interpret,
    )


CASES = {
    "add (1024, 1024)": (add, [(N, N)] * 2),
    "matmul (512, 1024)": (matmul_large, [(N, N)] * 2),
    "matmul 128-blocks": (matmul_blocks, [(N, N)] * 2),
    "softmax (2048, 512)": (lambda interpret: lambda x: softmax.softmax(x, interpret=interpret), [(2048, 512)]),
    "mha (1, 1024, 4, 64)": (mha, [(1, N, 4, 64)] * 3),
}


def ready(make, interpret, args):
    f = jax.jit(make(interpret))
    return f, np.asarray(f(*args))


def milliseconds(f, args):
    start = time.perf_counter()
    f(*args).block_until_ready()
    return (time.perf_counter() - start) * 1e3


args = sys.argv[1:]
if args[:1] == ["--repeats"]:
    REPEATS, args = int(args[1]), args[2:]
failed = False
for device in args or ["interpreter", "vulkan"]:
    print(f"{device}: min, median, max ms of {REPEATS}; JAX {jax.__version__} with interpret=True beside it")
    ratios = []
    for name, (make, shapes) in CASES.items():
        rng = np.random.default_rng(0)
        arrays = [jnp.asarray(rng.standard_normal(s), f32) for s in shapes]
        with tessera.on(device):
            try:
                ours, got = ready(make, False, arrays)
            except jax.errors.JaxRuntimeError as error:
                print(f"  {name:22} cannot run here: {str(error).splitlines()[0]}")
                failed |= device == "interpreter"
                continue
            theirs, wanted = ready(make, True, arrays)
            np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-3)
            times = [], []
            for _ in range(REPEATS):
                times[0].append(milliseconds(ours, arrays))
                times[1].append(milliseconds(theirs, arrays))
        row = " | ".join(f"{min(t):8.2f} {statistics.median(t):8.2f} {max(t):8.2f}" for t in times)
        ratios.append(statistics.median(times[1]) / statistics.median(times[0]))
        print(f"  {name:22} {row} | {ratios[-1]:6.2f} x", flush=True)
    mean = math.exp(statistics.fmean(map(math.log, ratios)))
    print(f"  geometric mean {mean:.2f} x, least {min(ratios):.2f} x", flush=True)
    failed |= device == "interpreter" and (mean < 5 or min(ratios) < 0.7)
sys.exit(failed)
