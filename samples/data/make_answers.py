#!/usr/bin/env python3
"""Makes samples/data/*.npy, the answers that the samples check themselves against: run by hand, in an environment with
JAX and SciPy.

    JAX_PLATFORMS=cpu python samples/data/make_answers.py

The tutorial's kernels run as JAX's own Pallas kernels, interpreted, on the same inputs as the samples make but in
float64, so that the answers have no rounding errors of their own. Each file is a float64 vector: the result's shape,
500 sampled entries, the sums of all rows.
"""
import functools
import pathlib
import struct
import zlib

import jax

jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from scipy import ndimage

HERE = pathlib.Path(__file__).parent
SAMPLED = 500


def hashed(seed, i):
    """32 well mixed bits per (seed, position), as in samples/support/sample.cpp."""
    u = np.uint32
    x = i.astype(u) * u(0x9E3779B1) + u(seed * 0x85EBCA77 % 2**32)
    for _ in range(2):
        x ^= x >> u(16)
        x *= u(0x2C1B3C6D)
        x ^= x >> u(13)
    return x ^ (x >> u(16))


def random(shape, seed, scale=1.0):
    n = int(np.prod(shape))
    u = (hashed(seed, np.arange(n, dtype=np.uint32)) >> np.uint32(8)).astype(np.float64) / 8388608 - 1
    return jnp.asarray((scale * u).reshape(shape))


def sampled(size):
    return hashed(0x7E55E7A, np.arange(SAMPLED, dtype=np.uint32)).astype(np.int64) % size


def save(name, result, compared=None):
    """Entries that are not `compared` are stored as NaN, which the samples skip."""
    result = np.asarray(result).astype(np.float64)
    rows = result.reshape(-1, result.shape[-1]).sum(axis=1)
    entries = np.where(True if compared is None else compared, result, np.nan).ravel()[sampled(result.size)]
    np.save(HERE / f"{name}.npy", np.concatenate([result.shape, entries, rows]))
    print(f"{name}: {result.shape}, entries from {result.min():.4g} to {result.max():.4g}")


def add_vectors(x, y):
    def kernel(x_ref, y_ref, o_ref):
        o_ref[...] = x_ref[...] + y_ref[...]

    return pl.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype), interpret=True)(x, y)


def iota(size):
    def kernel(o_ref):
        i = pl.program_id(0)
        o_ref[i] = i

    return pl.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct((size,), jnp.int32), grid=(size,), interpret=True)()


def matmul(x, y, activation=lambda z: z):
    def kernel(x_ref, y_ref, z_ref):
        z_ref[...] = activation(x_ref[...] @ y_ref[...])

    m, k, n = *x.shape, y.shape[1]
    return pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct((m, n), x.dtype),
        grid=(2, 2),
        in_specs=[pl.BlockSpec((m // 2, k), lambda i, j: (i, 0)), pl.BlockSpec((k, n // 2), lambda i, j: (0, j))],
        out_specs=pl.BlockSpec((m // 2, n // 2), lambda i, j: (i, j)),
        interpret=True,
    )(x, y)


def matmul_scratch(x, y, bm, bn, bk):
    def kernel(a, b, o, total):
        @pl.when(pl.program_id(2) == 0)
        def _():
            total[...] = jnp.zeros_like(total)

        total[...] += a[...] @ b[...]

        @pl.when(pl.program_id(2) == pl.num_programs(2) - 1)
        def _():
            o[...] = total[...]

    m, k, n = *x.shape, y.shape[1]
    return pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct((m, n), x.dtype),
        grid=(pl.cdiv(m, bm), pl.cdiv(n, bn), k // bk),
        in_specs=[pl.BlockSpec((bm, bk), lambda i, j, p: (i, p)), pl.BlockSpec((bk, bn), lambda i, j, p: (p, j))],
        out_specs=pl.BlockSpec((bm, bn), lambda i, j, p: (i, j)),
        scratch_shapes=[pltpu.VMEM((bm, bn), x.dtype)],
        interpret=True,
    )(x, y)


def softmax(x):
    def kernel(x_ref, o_ref):
        o_ref[...] = jax.nn.softmax(x_ref[...], axis=1)

    spec = pl.BlockSpec((8, x.shape[1]), lambda i: (i, 0))
    return pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        grid=(pl.cdiv(x.shape[0], 8),),
        in_specs=[spec],
        out_specs=spec,
        interpret=True,
    )(x)


def read_png(path):
    """A picture that the samples wrote (8 bits, RGB, not interlaced), as [3, h, w] from 0 to 1."""
    data, at, packed = path.read_bytes(), 8, b""
    while at < len(data):
        (length,), kind = struct.unpack(">I", data[at : at + 4]), data[at + 4 : at + 8]
        chunk = data[at + 8 : at + 8 + length]
        if kind == b"IHDR":
            w, h, bits, colour, _, _, interlaced = struct.unpack(">IIBBBBB", chunk)
            assert (bits, colour, interlaced) == (8, 2, 0)
        elif kind == b"IDAT":
            packed += chunk
        at += 12 + length
    raw, rows = np.frombuffer(zlib.decompress(packed), np.uint8).reshape(h, 1 + 3 * w), np.zeros(
        (h + 1, 3 * w + 3), np.int64
    )
    for y in range(h):  # undo the filter of each row; rows[y] is the row above, with three zeros at the left
        kind, line = raw[y, 0], raw[y, 1:].astype(np.int64)
        for x in range(3 * w):
            left, up, corner = rows[y + 1, x], rows[y, x + 3], rows[y, x]
            p = left + up - corner
            paeth = min((abs(p - left), 0, left), (abs(p - up), 1, up), (abs(p - corner), 2, corner))[2]
            rows[y + 1, x + 3] = (line[x] + (0, left, up, (left + up) // 2, paeth)[kind]) & 255
    return np.moveaxis(rows[1:, 3:].reshape(h, w, 3), 2, 0).astype(np.float32).astype(np.float64) / 255


def blur(picture, radius):
    d = np.arange(-radius, radius + 1)
    bell = np.exp(-(d**2) / (2 * (radius / 3) ** 2))
    weights = bell / bell.sum()
    for axis in (1, 2):
        picture = ndimage.correlate1d(picture, weights, axis=axis, mode="nearest")
    return picture


def power_iteration(a, iterations):
    v = jnp.ones(a.shape[0])
    for _ in range(iterations):
        v = a @ v
        v = v / jnp.sqrt(jnp.sum(v * v))
    return v


def mandelbrot(w=640, h=480, iterations=200, dtype=np.float64, nudge=0.0):
    f, total = dtype, np.zeros((3, h, w))
    for dy in (0.25, 0.75):
        for dx in (0.25, 0.75):
            x = np.arange(w, dtype=f)[None, :] + f(dx) - f(w / 2) + np.zeros((h, 1), f)
            y = np.arange(h, dtype=f)[:, None] + f(dy) - f(h / 2) + np.zeros((1, w), f)
            cr, ci = x * f(3.2 / w) - f(0.7) + f(nudge), y * f(3.2 / w) - f(nudge)
            zr, zi, steps = np.zeros_like(cr), np.zeros_like(cr), np.zeros_like(cr)
            for _ in range(iterations):
                inside = zr * zr + zi * zi < 256
                zr, zi = np.where(inside, zr * zr - zi * zi + cr, zr), np.where(inside, 2 * zr * zi + ci, zi)
                steps += inside
            distance = zr * zr + zi * zi
            smooth = steps - np.log2(np.log2(np.maximum(distance, 256)) / 8)
            wave = 0.5 + 0.5 * np.cos(
                2 * np.pi * (np.log2(np.maximum(smooth, 1)) / 4 + np.arange(3)[:, None, None] * 0.1)
            )
            total += np.where(distance < 256, 0, wave)
    return total / 4


if __name__ == "__main__":
    square = (1024, 1024)
    save("add_vectors", add_vectors(random((100_003,), 1), random((100_003,), 2)))
    save("iota", iota(10_000))
    save("jit", power_iteration(1 + random((512, 512), 1), 10))
    save("matmul", matmul(random(square, 1), random(square, 2)))
    save(
        "matmul_activation",
        matmul(random(square, 1), random(square, 2, 0.125), functools.partial(jax.nn.gelu, approximate=True)),
    )
    save("matmul_vmap", jax.vmap(matmul)(random((4, *square), 1), random((4, *square), 2)))
    save("matmul_scratch", matmul_scratch(random((500, 960), 1), random((960, 700), 2), 128, 128, 96))
    save("softmax", softmax(random((1021, 1000), 1, 8)))
    # Near the set's edge a rounding moves a colour by any amount: pixels that a nudge of some f32 roundings moves are
    # not compared.
    picture, others = mandelbrot(), [
        mandelbrot(dtype=np.float32),
        mandelbrot(nudge=1e-6),
        mandelbrot(nudge=-1e-6),
        mandelbrot(nudge=3e-7),
    ]
    moved = np.max([np.abs(o - picture) for o in others], axis=0)
    save("mandelbrot", picture, moved < 1e-3)
    print(
        f"  not compared: {(moved >= 1e-3).mean():.2%}; row sums move by"
        f" {max(np.abs((o - picture).sum(axis=2)).max() for o in others):.2f}"
    )
    if (HERE.parent / "mandelbrot.png").exists():  # drawn by the sample
        save("blur", blur(read_png(HERE.parent / "mandelbrot.png"), 18))
