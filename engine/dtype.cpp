#include "engine/dtype.h"

#include <bit>
#include <cmath>

namespace tessera {
namespace {
constexpr std::string_view kNames[kNumDTypes] = {"bool", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f16", "bf16", "f32", "f64"};

// Rounds a finite or infinite double to a binary format with `mantissa` stored bits, exponent range [emin, emax] and returns its bits
// without the sign. Works in integers, so the result does not depend on the host's rounding mode.
uint16_t round_bits(double x, int mantissa, int exponent_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const uint16_t infinity = static_cast<uint16_t>(((1 << exponent_bits) - 1) << mantissa);
  if (std::isnan(x)) return static_cast<uint16_t>(infinity | (1 << (mantissa - 1)));
  if (std::isinf(x)) return infinity;
  if (x == 0) return 0;
  const uint64_t u = std::bit_cast<uint64_t>(x);
  int exponent = static_cast<int>((u >> 52) & 0x7ff) - 1023;
  uint64_t significand = u & ((uint64_t{1} << 52) - 1);
  if (exponent == -1023) exponent = -1022; else significand |= uint64_t{1} << 52;
  int shift = 52 - mantissa;
  int field = exponent + bias;
  if (field < 1) { shift += 1 - field; field = 1; }
  if (shift > 63) return 0;
  uint64_t kept = significand >> shift;
  const uint64_t rest = significand & ((uint64_t{1} << shift) - 1);
  const uint64_t half = uint64_t{1} << (shift - 1);
  if (rest > half || (rest == half && (kept & 1))) ++kept;
  // `kept` carries its implicit bit, so adding (field - 1) << mantissa gives the encoding, carries and subnormals included.
  const uint64_t encoded = (static_cast<uint64_t>(field - 1) << mantissa) + kept;
  return encoded >= infinity ? infinity : static_cast<uint16_t>(encoded);
}
uint16_t sign_bit(double x) { return std::signbit(x) ? 0x8000 : 0; }
}  // namespace

std::string_view name(DType t) { return kNames[static_cast<int>(t)]; }

std::optional<DType> dtype_from_name(std::string_view n) {
  for (int i = 0; i < kNumDTypes; ++i)
    if (kNames[i] == n) return static_cast<DType>(i);
  return std::nullopt;
}

uint16_t to_f16_bits(double x) { return static_cast<uint16_t>(round_bits(std::fabs(x), 10, 5) | sign_bit(x)); }
uint16_t to_bf16_bits(double x) { return static_cast<uint16_t>(round_bits(std::fabs(x), 7, 8) | sign_bit(x)); }

float from_f16_bits(uint16_t b) {
  const int exponent = (b >> 10) & 31, mantissa = b & 1023;
  float magnitude;
  if (exponent == 31) magnitude = mantissa ? std::bit_cast<float>(0x7fc00000u | static_cast<uint32_t>(mantissa) << 13) : INFINITY;
  else if (exponent == 0) magnitude = std::ldexp(static_cast<float>(mantissa), -24);
  else magnitude = std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25);
  return std::copysign(magnitude, b & 0x8000 ? -1.0f : 1.0f);
}
float from_bf16_bits(uint16_t b) { return std::bit_cast<float>(static_cast<uint32_t>(b) << 16); }

}  // namespace tessera
