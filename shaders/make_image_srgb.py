#!/usr/bin/env python3
"""Writes image_srgb.glsl: where sRGB's 8-bit numbers begin, as floats.

Number k + 1 begins at the least f32 x with 255 encode(x) >= k + 1/2, and encode is IEC 61966-2-1's: 12.92 x up to 0.0031308, above it
1.055 x^(1/2.4) - 0.055. Its inverse is evaluated with 60 digits. Run it in this folder; it takes no arguments.
"""
import decimal
import struct

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
lines = [", ".join(f"0x{s:08x}u" for s in steps[i:i + 8]) for i in range(0, 255, 8)]
with open("image_srgb.glsl", "w") as f:
    f.write("// Where sRGB's numbers 1 to 255 begin: the bits of the least f32 that each is nearest to. Written by make_image_srgb.py.\n")
    f.write("const uint kSrgb[255] = uint[](\n  " + ",\n  ".join(lines) + ");\n")
