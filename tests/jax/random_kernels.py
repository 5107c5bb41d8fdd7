"""Random Pallas kernels, by seed: each a program in text, run by JAX's interpret=True and by Tessera.

    python tests/jax/random_kernels.py --seed 7 --count 1000 --device vulkan

It says of each that differs its seed, and prints it, shrunk.

What a kernel computes is known to the last bit or within a bound: the generator knows of every value how large it is,
of which number it is a multiple (sums and products of those that fit a dtype are exact) and, where an op rounds, how
far two right evaluations may be apart. Only exact values are compared, rounded or made integers. Elements that depend
on unspecified memory are found by running JAX with other contents there, and are not compared.
"""

import argparse
import math
import sys
import textwrap
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax._src.pallas import primitives as pallas_primitives
from jax._src.state.primitives import ref_addupdate, ref_swap
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas import triton as plgpu

import tessera
from random_program import generate, int_range


def data(i, shape, dtype, wide):
    r = np.random.default_rng((i, *shape))
    if dtype == "bool":
        return jnp.asarray(r.integers(0, 2, shape), bool)
    if "float" in dtype:
        return jnp.asarray(r.integers(-16, 17, shape) / 2, dtype)
    low, high = int_range(dtype) if wide else (0 if dtype.startswith("u") else -8, 7 if dtype.endswith("4") else 8)
    return jnp.asarray(r.integers(low, high, shape, endpoint=True), dtype)


def made(text, **options):
    scope = {
        "jax": jax,
        "jnp": jnp,
        "lax": lax,
        "pl": pl,
        "pltpu": pltpu,
        "plgpu": plgpu,
        "ref_addupdate": ref_addupdate,
        "ref_swap": ref_swap,
    }
    exec(text, scope)
    return scope["make"](data, **options)


_unspecified = pallas_primitives.uninitialized_value
_FILLS = [None, 90, -90, 3]
_MORE = [1, 4, 5, 6, 7]  # where those make a difference


def _number(fill, shape, dtype):
    """One number everywhere, or small ones: each element of Refs has its own."""
    if fill is None:
        with jax.ensure_compile_time_eval():
            return np.asarray(_unspecified(shape, dtype))
    low = 0 if jnp.issubdtype(dtype, jnp.unsignedinteger) or dtype == jnp.bool_ else -9
    some = (
        np.full(shape, max(fill, low))
        if abs(fill) > 10
        else np.random.default_rng(fill).integers(low, 2 if dtype == jnp.bool_ else 10, shape)
    )
    return some > 0 if dtype == jnp.bool_ else some


class _Filled:
    """Unspecified memory whose contents are asked for while a compiled program runs: one compilation serves all
    fills."""

    def __init__(self):
        self.fill, self.made = None, {}

    def __call__(self, shape, dtype):
        if not any(jnp.issubdtype(dtype, t) for t in (jnp.floating, jnp.integer, jnp.bool_)):
            return _unspecified(shape, dtype)
        key = tuple(shape), jnp.dtype(dtype)
        wire = (
            jnp.float32
            if jnp.issubdtype(dtype, jnp.floating) and key[1].itemsize < 4
            else jnp.int8 if key[1].name in ("int4", "uint4") else dtype
        )
        for fill in [None, *_FILLS, *_MORE]:  # nothing of JAX runs inside a callback
            self.made[fill, key] = _number(fill, shape, dtype).astype(dtype).astype(wire)
        value = jax.pure_callback(
            lambda: self.made[self.fill, key], jax.ShapeDtypeStruct(shape, wire), vmap_method="broadcast_all"
        )
        return value.astype(dtype)


class Refused(Exception):
    """JAX's own interpreter does not take the program."""


def answers(text, simplified=True):
    """What JAX's interpreter gives, and where that depends on nothing unspecified.

    XLA's simplifier makes one dynamic_slice of two, and forgets where the inner one was clamped; but without it XLA
    aborts on some programs.
    """
    runs, memory = [], _Filled()
    call, args = made(text, interpret=True)
    call = jax.jit(call, compiler_options=None if simplified else {"xla_disable_hlo_passes": "algsimp"})

    def run(fill):
        memory.fill, pallas_primitives.uninitialized_value = fill, memory
        try:
            runs.append([np.asarray(a) for a in call(*args)])
        except Exception as error:
            raise Refused(error) from None
        finally:
            pallas_primitives.uninitialized_value = _unspecified

    def known():
        return [
            np.logical_and.reduce([outs[0].astype(np.float64) == o.astype(np.float64) for o in outs])
            for outs in zip(*runs)
        ]

    for fill in _FILLS:
        run(fill)
    if not all(k.all() for k in known()):
        for fill in _MORE:
            run(fill)
    return runs[0], known()


def difference(text, errors, device, want=None):
    """None, or in words where Tessera's answer is another than JAX's."""
    try:
        call, args = made(text)
        with tessera.on(device):
            got = [np.asarray(a) for a in call(*args)]
    except Exception as error:
        return f"{type(error).__name__}: {error}"

    def compared(want, known):
        for i, (g, w, k, e) in enumerate(zip(got, want, known, errors)):
            a, b = g.astype(np.float64), w.astype(np.float64)
            with np.errstate(invalid="ignore"):
                wrong = k & (a != b) & ~(np.abs(a - b) <= e)
            if wrong.any():
                at = tuple(int(x) for x in np.argwhere(wrong)[0])
                return (
                    f"output {i} at {at} is {g[at]}, JAX has {w[at]} (within {e}); {int(wrong.sum())} of"
                    f" {int(k.sum())} elements differ"
                )
        return None

    return compared(*(want or answers(text))) and compared(*answers(text, simplified=False))


def shrink(head, tail, errors, device):
    """Fewer lines of the kernel that still differ."""
    first, *lines = head.splitlines()
    kernel, lines = lines[0], lines[1:]

    def fails(lines):
        text = "\n".join([first, kernel, *lines, "        pass", tail])
        try:
            return difference(text, errors, device) is not None
        except (Refused, SyntaxError):
            return False

    size = max(len(lines) // 2, 1)
    while size:
        i = 0
        while i < len(lines):
            less = lines[:i] + lines[i + size :]
            if fails(less):
                lines = less
            else:
                i += size
        size //= 2
    return "\n".join([first, kernel, *lines, "        pass", tail])


def check(seed, device, want, smaller=False):
    """None, or what is wrong, with the program."""
    head, tail, errors = generate(seed)
    what = difference(head + tail, errors, device, want)
    if what is None:
        return None
    text = shrink(head, tail, errors, device) if smaller else head + tail
    return f"seed {seed} on {device}: {what}\n{textwrap.indent(text, '  ')}"


def main():
    p = argparse.ArgumentParser(description="Random Pallas kernels against JAX's interpret=True")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--count", type=int, default=300)
    p.add_argument("--seconds", type=float, default=math.inf, help="stop after so long")
    p.add_argument("--device", action="append")
    p.add_argument("--print", action="store_true", help="only print the programs")
    p.add_argument("--no-shrink", action="store_true")
    o = p.parse_args()
    refused, wrong, tried, end = 0, 0, 0, time.monotonic() + o.seconds
    for seed in range(o.seed, o.seed + o.count):
        if time.monotonic() > end:
            break
        if o.print:
            print("".join(generate(seed)[:2]))
            continue
        tried += 1
        head, tail, _ = generate(seed)
        try:
            want = answers(head + tail)
        except Refused as error:
            refused += 1
            print(f"seed {seed}: refused: {type(error.args[0]).__name__}: {str(error)[:200]}", flush=True)
            continue
        differs = [
            what
            for device in o.device or ["interpreter", "vulkan"]
            if (what := check(seed, device, want, not o.no_shrink))
        ]
        wrong += bool(differs)
        for what in differs:
            print(what, flush=True)
    print(f"{tried} kernels, {refused} refused by JAX")
    print(f"{tried - refused - wrong} passed, {wrong} failed")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
