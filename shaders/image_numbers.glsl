// Numbers of image_read.comp and image_write.comp in integer code, so that they are the same on every device: floats as
// the bits of an f32, rounded to nearest even.

// Of an f32 from 0 to 65536, as a float of 5 bits of exponent and `mantissa` of mantissa. What rounds to 65536 becomes
// infinity.
uint small_float(uint f, int mantissa) {
  int shift = 23 - mantissa;
  uint bits = f - (112u << 23);
  if (f < 0x38800000u) {  // subnormal
    shift = min(136 - mantissa - int(f >> 23), 31);
    bits = (f & 0x7fffffu) | 0x800000u;
  }
  uint kept = bits >> shift, rest = bits & ((1u << shift) - 1u), half_way = 1u << (shift - 1);
  if (rest > half_way || (rest == half_way && (kept & 1u) != 0u)) ++kept;
  return kept;
}
uint to_half(uint f) {
  uint sign = f >> 16 & 0x8000u, a = f & 0x7fffffffu;
  if (a > 0x7f800000u) return sign | 0x7e00u;
  return sign | (a >= 0x47800000u ? 0x7c00u : small_float(a, 10));
}
uint from_half(uint h) {
  uint sign = (h & 0x8000u) << 16, a = h & 0x7fffu;
  if (a >= 0x7c00u) return sign | 0x7f800000u | (a & 0x3ffu) << 13;
  if (a >= 0x400u) return sign | ((a << 13) + (112u << 23));
  return sign | floatBitsToUint(float(a) * (1.0 / 16777216.0));  // subnormal: exact
}
