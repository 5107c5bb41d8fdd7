#!/usr/bin/env python3
"""Writes image_srgb.glsl: sRGB's 8-bit number that a float is nearest to.

Number k + 1 begins at the least f32 x with 255 encode(x) >= k + 1/2, and encode is IEC 61966-2-1's: 12.92 x up to
0.0031308, above it 1.055 x^(1/2.4) - 0.055. Its inverse is evaluated with 60 digits. The number is searched bit by bit,
and what it is compared with is selected by the bits before: drivers for CPUs make a copy of a constant array in each
invocation. Run it in this folder; it takes no arguments.
"""
import decimal
import struct
import textwrap

decimal.getcontext().prec = 60
D = decimal.Decimal


def linear(v):
    return v / D("12.92") if v <= D("12.92") * D("0.0031308") else ((v + D("0.055")) / D("1.055")) ** D("2.4")


def bits_from(x):
    """Of the least f32 that is not below x."""
    b = struct.unpack("<I", struct.pack("<f", float(x)))[0]
    number = lambda b: D(struct.unpack("<f", struct.pack("<I", b))[0])
    while number(b) < x:
        b += 1
    while number(b - 1) >= x:
        b -= 1
    return b


steps = [bits_from(linear((D(k) + D("0.5")) / 255)) for k in range(255)]


def select(bit, wanted, base):
    """What bit `wanted` is compared with, by the bits from `bit` on, where those before it make `base`."""
    if bit == wanted:
        return f"0x{steps[base + (128 >> wanted) - 1]:08x}u"
    return f"mix({select(bit + 1, wanted, base)}, {select(bit + 1, wanted, base + (128 >> bit))}, b{bit})"


def wrapped(text):
    return textwrap.wrap(text, 120, initial_indent="  ", subsequent_indent="    ", break_long_words=False)


lines = []
for i in range(8):
    lines += wrapped(f"bool b{i} = f >= {select(0, i, 0)};")
lines += wrapped("return " + " | ".join(f"uint(b{i}) << {7 - i}" for i in range(8)) + ";")
about = """
Written by make_image_srgb.py: sRGB's number from 0 to 255 that the bits of a float, not negative and no NaN, are
nearest to.
"""
with open("image_srgb.glsl", "w") as f:
    f.write("".join(f"// {line}\n" for line in about.strip().split("\n")))
    f.write("uint srgb(uint f) {\n" + "\n".join(lines) + "\n}\n")
