#!/usr/bin/env python3
"""Trains the network of upscale.h and writes its numbers to upscale_weights.h: run by hand, in an environment with
NumPy.

    OMP_NUM_THREADS=1 python samples/kernels/train_upscale.py [STEPS]

The pictures are made up: leaves (discs, bars) of random sizes that hide each other, flat, shaded, striped or grainy;
some are blurred. Such pictures have the edges and the spectrum of photographs (Lee, Mumford and Huang, 2001), and
nothing of those that tests/samples/upscale_test.cpp compares on. The small picture is the mean of 2 x 2 pixels. Seeds
are fixed: on one machine the numbers are the same each time. It takes a few minutes on one core of a CPU.
"""
import pathlib
import sys

import numpy as np

LAYERS = [(2, 1, 8), (1, 8, 8), (1, 8, 4)]  # radius of the taps, channels before, channels after
SLOPE = 0.1  # of what is below zero, after each layer but the last
CROP, BATCH = 40, 8  # of small pixels


def leaves(rng, size):
    """A picture of size x size pixels, each the mean of 2 x 2 samples."""
    n = 2 * size
    picture = np.full((n, n), rng.uniform(), np.float32)
    for _ in range(int(rng.integers(60, 400))):
        r = min(n / 2, 6 / np.sqrt(rng.uniform(0.0005, 1)))
        cy, cx = rng.uniform(-r, n + r, 2)
        y0, y1, x0, x1 = (int(np.clip(v, 0, n)) for v in (cy - 2 * r, cy + 2 * r, cx - 2 * r, cx + 2 * r))
        y, x = np.mgrid[y0:y1, x0:x1].astype(np.float32)
        turn = rng.uniform(0, 2 * np.pi)
        u = (np.cos(turn) * (x - cx) + np.sin(turn) * (y - cy)) / r
        v = (np.cos(turn) * (y - cy) - np.sin(turn) * (x - cx)) / r
        inside = u * u + v * v < 1 if rng.uniform() < 0.4 else (abs(u) < 1.4) & (abs(v) < rng.choice([0.06, 0.2, 0.7]))
        value, kind = rng.uniform() ** 1.2, rng.uniform()
        color = np.full_like(u, value)
        if kind < 0.4:
            color += rng.uniform(-0.4, 0.4) * u
        elif kind < 0.55:
            color += rng.uniform(0.05, 0.4) * np.sin(2 * np.pi * r * v / rng.uniform(7, 40) + rng.uniform(0, 6))
        elif kind < 0.65:
            color += rng.uniform(0.02, 0.1) * rng.standard_normal(u.shape).astype(np.float32)
        elif kind < 0.75:
            color += rng.uniform(0.05, 0.3) * np.sign(
                np.sin(r * u / rng.uniform(2, 8)) * np.sin(r * v / rng.uniform(2, 8))
            )
        picture[y0:y1, x0:x1] = np.where(inside, color, picture[y0:y1, x0:x1])
    picture = half(np.clip(picture, 0, 1))
    return blurred(picture, rng.uniform(0.6, 4)) if rng.uniform() < 0.4 else picture


def blurred(picture, sigma):
    taps = np.exp(-0.5 * (np.arange(-12, 13) / sigma) ** 2)
    taps = (taps / taps.sum()).astype(np.float32)
    for axis in (0, 1):
        padded = np.pad(picture, [(12, 12) if a == axis else (0, 0) for a in (0, 1)], "edge")
        picture = sum(w * np.take(padded, range(i, i + picture.shape[axis]), axis) for i, w in enumerate(taps))
    return picture


def half(p):
    return 0.25 * (p[0::2, 0::2] + p[1::2, 0::2] + p[0::2, 1::2] + p[1::2, 1::2])


CUBIC = (-0.0703125, 0.8671875, 0.2265625, -0.0234375)  # Catmull and Rom's at distances of 5/4, 1/4, 3/4 and 7/4


def interpolated(small):
    """The four pixels of each small one that has two neighbours on all sides, cubically: [..., 4], rows first."""
    out, (h, w) = [], small.shape[-2:]
    for dy in (-1, 1):
        for dx in (-1, 1):
            at = lambda i, j: small[..., 2 + i * dy : h - 2 + i * dy, 2 + j * dx : w - 2 + j * dx]
            out.append(sum(CUBIC[i + 1] * CUBIC[j + 1] * at(i, j) for i in range(-1, 3) for j in range(-1, 3)))
    return np.stack(out, -1)


def windows(x, radius):
    """[b, h, w, c] -> [b, h - 2 r, w - 2 r, taps * c]"""
    h, w = x.shape[1] - 2 * radius, x.shape[2] - 2 * radius
    return np.concatenate(
        [x[:, dy : dy + h, dx : dx + w] for dy in range(2 * radius + 1) for dx in range(2 * radius + 1)], -1
    )


def forward(x, weights):
    kept = []
    for i, ((radius, _, _), (w, b)) in enumerate(zip(LAYERS, weights)):
        taps = windows(x, radius)
        sums = taps @ w + b
        kept.append((taps, sums))
        x = np.maximum(sums, SLOPE * sums) if i + 1 < len(LAYERS) else sums
    return x, kept


def backward(g, weights, kept):
    grads = []
    for i in reversed(range(len(LAYERS))):
        radius, before, _ = LAYERS[i]
        taps, sums = kept[i]
        if i + 1 < len(LAYERS):
            g = g * np.where(sums > 0, np.float32(1), np.float32(SLOPE))
        flat = g.reshape(-1, g.shape[-1])
        grads.insert(0, (taps.reshape(-1, taps.shape[-1]).T @ flat, flat.sum(0)))
        if i == 0:
            return grads
        gt, h, w = g @ weights[i][0].T, g.shape[1], g.shape[2]
        side = 2 * radius + 1
        g = np.zeros((g.shape[0], h + 2 * radius, w + 2 * radius, before), np.float32)
        for t in range(side * side):
            g[:, t // side : t // side + h, t % side : t % side + w] += gt[..., t * before : (t + 1) * before]


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 16000
    rng = np.random.default_rng(2016)
    large = np.stack([leaves(rng, 192) for _ in range(80)])
    small = np.stack([half(p) for p in large])
    weights = [
        (
            rng.standard_normal(((2 * r + 1) ** 2 * a, b)).astype(np.float32)
            * np.float32(np.sqrt(2 / ((2 * r + 1) ** 2 * a))),
            np.zeros(b, np.float32),
        )
        for r, a, b in LAYERS
    ]
    weights[-1] = (weights[-1][0] * np.float32(0.1), weights[-1][1])
    state = [[[np.zeros_like(p), np.zeros_like(p)] for p in layer] for layer in weights]
    margin = sum(r for r, _, _ in LAYERS)
    error, plain, kept = 0.0, 0.0, 0.0
    for step in range(1, steps + 1):
        x, y = [], []
        for _ in range(BATCH):
            p, (i, j) = rng.integers(len(small)), rng.integers(0, small.shape[1] - CROP + 1, 2)
            x.append(small[p, i : i + CROP, j : j + CROP])
            y.append(large[p, 2 * i : 2 * (i + CROP), 2 * j : 2 * (j + CROP)])
            if rng.uniform() < 0.5:
                x[-1], y[-1] = x[-1].T, y[-1].T
            turns = rng.integers(4)
            x[-1], y[-1] = np.rot90(x[-1], turns), np.rot90(y[-1], turns)
        x, y = np.stack(x), np.stack(y)
        wanted = np.stack([y[:, a::2, b::2] for a in (0, 1) for b in (0, 1)], -1)[
            :, margin : CROP - margin, margin : CROP - margin
        ]
        wanted = wanted - interpolated(x)[:, margin - 2 : CROP - margin - 2, margin - 2 : CROP - margin - 2]
        got, seen = forward(x[..., None], weights)
        off = got - wanted
        error, plain, kept = error + np.mean(off**2), plain + np.mean(wanted**2), kept + 1
        grads = backward((2 / off.size * off).astype(np.float32), weights, seen)
        rate = 2e-3 * 0.5 * (1 + np.cos(np.pi * step / steps)) + 1e-5
        for layer, layer_grads, layer_state in zip(weights, grads, state):
            for p, g, (m, v) in zip(layer, layer_grads, layer_state):
                m += 0.1 * (g - m)
                v += 0.001 * (g * g - v)
                p -= (rate * m / (1 - 0.9**step) / (np.sqrt(v / (1 - 0.999**step)) + 1e-8)).astype(np.float32)
        if step % 500 == 0:
            print(
                f"{step}: {-10 * np.log10(error / kept):.2f} dB, interpolated {-10 * np.log10(plain / kept):.2f} dB",
                flush=True,
            )
            error = plain = kept = 0.0
    path = pathlib.Path(__file__).parent / "upscale_weights.h"
    with open(path, "w") as f:
        f.write(
            "// The numbers of upscale.h's network, in units of 1 / 4096. train_upscale.py writes this file; it is not"
            " edited.\n"
        )
        f.write("// Weights are [taps * channels before, channels after], taps row by row. Read next: upscale.h.\n")
        f.write("#pragma once\n#include <cstdint>\n\nnamespace tessera::kernels::upscale {\n// clang-format off\n")
        for i, (w, b) in enumerate(weights):
            for name, values in (("Weights", w), ("Bias", b)):
                numbers = np.clip(np.rint(values * 4096), -32768, 32767).astype(int).ravel()
                f.write(f"inline constexpr int16_t k{name}{i + 1}[{len(numbers)}] = {{\n")
                for k in range(0, len(numbers), 18):
                    f.write("    " + " ".join(f"{n}," for n in numbers[k : k + 18]) + "\n")
                f.write("};\n")
        f.write("// clang-format on\n}  // namespace tessera::kernels::upscale\n")


if __name__ == "__main__":
    main()
