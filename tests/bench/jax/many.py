"""Small Pallas kernels from JAX on Tessera against JAX's own interpreter (interpret=True): the random kernels of
tests/jax, under jit, in turns. Prints for each device the geometric mean of its times over JAX's (the least of each
kernel), and the kernels that are slowest beside JAX's.

    python tests/bench/jax/many.py [--kernels N] [--seed N] [--show N] [DEVICE ...]

Without arguments: 60 kernels from seed 1 on, and the devices "interpreter" and "vulkan".
"""

import argparse
import math
import os
import pathlib
import statistics
import sys
import time

os.environ["JAX_PLATFORMS"] = "cpu"
sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "jax"))
import jax
import tessera
import random_kernels

TURNS, SECONDS = 7, 0.002


def ready(text, device):
    call, args = random_kernels.made(text, **({} if device else {"interpret": True}))
    f = jax.jit(call)
    if not device:
        jax.block_until_ready(f(*args))
        return f, args
    with tessera.on(device):
        f = f.lower(*args).compile()
    jax.block_until_ready(f(*args))
    return f, args


def microseconds(f, args):
    """Of a call, over as many as take about SECONDS."""
    start, calls = time.perf_counter(), 0
    while calls == 0 or time.perf_counter() - start < SECONDS:
        jax.block_until_ready(f(*args))
        calls += 1
    return (time.perf_counter() - start) / calls * 1e6


parser = argparse.ArgumentParser()
parser.add_argument("--kernels", type=int, default=60)
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--show", type=int, default=5)
parser.add_argument("devices", nargs="*", default=["interpreter", "vulkan"])
options = parser.parse_args()
devices = options.devices or ["interpreter", "vulkan"]
rows = []
for seed in range(options.seed, options.seed + options.kernels):
    head, tail, _ = random_kernels.generate(seed)
    try:
        ways = [ready(head + tail, d) for d in (None, *devices)]
    except Exception as error:  # what JAX or a device refuses is compared elsewhere
        print(f"seed {seed}: {str(error).splitlines()[0][:100]}", flush=True)
        continue
    times = [[] for _ in ways]
    for _ in range(TURNS):
        for way, ts in zip(ways, times):
            ts.append(microseconds(*way))
    rows.append((seed, [min(ts) for ts in times]))
for i, device in enumerate(devices, 1):
    ratios = sorted(((t[i] / t[0], seed, t) for seed, t in rows), reverse=True)
    print(
        f"{device}: {math.exp(statistics.fmean(math.log(r) for r, _, _ in ratios)):.2f} of JAX's time in the geometric"
        f" mean of {len(ratios)} kernels; medians {statistics.median(t[i] for _, t in rows):.1f} and"
        f" {statistics.median(t[0] for _, t in rows):.1f} us"
    )
    for ratio, seed, t in ratios[: options.show]:
        print(f"  seed {seed}: {ratio:.2f}, {t[i]:.1f} us and JAX {t[0]:.1f}")
