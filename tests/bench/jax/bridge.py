"""What a call from JAX costs beside its kernel: a cached add of 8 elements under jit, on DEVICE (vulkan by default),
against an FFI call that does nothing plus a submission of nothing that is waited for. Both are called in turn, so that
the machine's moods meet both alike.

    python tests/bench/jax/bridge.py [DEVICE]

It takes the installed package tessera; tests/bench/run bridge finds a Python that has it.
"""

import os
import statistics
import sys
import time

os.environ["JAX_PLATFORMS"] = "cpu"
import jax
import jax.numpy as jnp
import tessera
from jax.experimental import pallas as pl
from tessera._native_library import check, native

DEVICE = sys.argv[1] if len(sys.argv) > 1 else "vulkan"
TURNS, CALLS = 15, 200


def add(x_ref, y_ref, o_ref):
    o_ref[...] = x_ref[...] + y_ref[...]


def seconds(f):
    start = time.perf_counter()
    f()
    return (time.perf_counter() - start) / CALLS


def calls_of(f, *args):
    def run():
        for _ in range(CALLS):
            f(*args).block_until_ready()

    return run


jax.ffi.register_ffi_target("tessera_nothing", jax.ffi.pycapsule(native.tessera_nothing), platform="cpu")
out = jax.ShapeDtypeStruct((8,), jnp.float32)
x = jnp.arange(8.0)
empty = jax.jit(lambda x, y: jax.ffi.ffi_call("tessera_nothing", out)(x, y))
with tessera.on(DEVICE):
    ours = jax.jit(pl.pallas_call(add, out_shape=out))
    assert (ours(x, x) == 2 * x).all()
    ways = {
        "a Pallas kernel": calls_of(ours, x, x),
        "an empty FFI call": calls_of(empty, x, x),
        "an empty submission": lambda: check(native.tessera_submit_nothing(DEVICE.encode(), CALLS)),
    }
    times = {name: [] for name in ways}
    for turn in range(TURNS + 1):
        for name, run in ways.items():
            t = seconds(run) * 1e6
            if turn:  # the first one warms up
                times[name].append(t)
for name, ts in times.items():
    print(f"{name:22} {min(ts):8.1f} {statistics.median(ts):8.1f} {max(ts):8.1f}  us (min, median, max)")
median = {name: statistics.median(ts) for name, ts in times.items()}
ratio = median["a Pallas kernel"] / (median["an empty FFI call"] + median["an empty submission"])
print(f"ratio {ratio:.2f} (at most 3)")
sys.exit(ratio > 3)
