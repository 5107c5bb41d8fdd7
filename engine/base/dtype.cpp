#include "engine/base/dtype.h"

#include <bit>
#include <cmath>

namespace tessera {
namespace {
constexpr std::string_view kNames[kNumDTypes] = {"bool", "i4",  "i8",       "i16",    "i32", "i64",  "u4",  "u8", "u16",
                                                 "u32",  "u64", "f8e4m3fn", "f8e5m2", "f16", "bf16", "f32", "f64"};
}  // namespace

std::string_view name(DType t) { return kNames[static_cast<int>(t)]; }

std::optional<DType> dtype_from_name(std::string_view n) {
  for (int i = 0; i < kNumDTypes; ++i)
    if (kNames[i] == n) return static_cast<DType>(i);
  return std::nullopt;
}

// Works in integers, so the result does not depend on the host's rounding mode.
uint16_t to_narrow_bits(DType t, double x) {
  const FloatFormat f = float_format(t);
  const auto sign = static_cast<uint16_t>(std::signbit(x) ? f.sign : 0);
  const uint64_t beyond = f.has_infinity ? f.greatest + 1 : f.nan;
  if (std::isnan(x)) return static_cast<uint16_t>(sign | f.nan);
  if (std::isinf(x)) return static_cast<uint16_t>(sign | beyond);
  if (x == 0) return sign;
  const uint64_t u = std::bit_cast<uint64_t>(x);
  int exponent = static_cast<int>((u >> 52) & 0x7ff) - 1023;
  uint64_t significand = u & ((uint64_t{1} << 52) - 1);
  if (exponent == -1023) exponent = -1022;
  else significand |= uint64_t{1} << 52;
  int shift = 52 - f.mantissa;
  int field = exponent - f.least_exponent + 1;
  if (field < 1) {
    shift += 1 - field;
    field = 1;
  }
  if (shift > 63) return sign;
  uint64_t kept = significand >> shift;
  const uint64_t rest = significand & ((uint64_t{1} << shift) - 1);
  const uint64_t half = uint64_t{1} << (shift - 1);
  if (rest > half || (rest == half && (kept & 1))) ++kept;
  // `kept` carries its implicit bit, so adding (field - 1) << mantissa gives the encoding, carries and subnormals
  // included.
  const uint64_t encoded = (static_cast<uint64_t>(field - 1) << f.mantissa) + kept;
  return static_cast<uint16_t>(sign | (encoded > f.greatest ? beyond : encoded));
}

float from_f16_bits(uint16_t b) {
  const int exponent = (b >> 10) & 31, mantissa = b & 1023;
  float magnitude;
  if (exponent == 31)
    magnitude = mantissa ? std::bit_cast<float>(0x7fc00000u | static_cast<uint32_t>(mantissa) << 13) : INFINITY;
  else if (exponent == 0) magnitude = std::ldexp(static_cast<float>(mantissa), -24);
  else magnitude = std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25);
  return std::copysign(magnitude, b & 0x8000 ? -1.0f : 1.0f);
}
float from_bf16_bits(uint16_t b) { return std::bit_cast<float>(static_cast<uint32_t>(b) << 16); }
float from_f8e4m3fn_bits(uint8_t b) {
  const int exponent = (b >> 3) & 15, mantissa = b & 7;
  const float magnitude = (b & 0x7f) == 0x7f ? std::bit_cast<float>(0x7fc00000u)
                          : exponent         ? std::ldexp(static_cast<float>(mantissa + 8), exponent - 10)
                                             : std::ldexp(static_cast<float>(mantissa), -9);
  return std::copysign(magnitude, b & 0x80 ? -1.0f : 1.0f);
}
float from_f8e5m2_bits(uint8_t b) { return from_f16_bits(static_cast<uint16_t>(b << 8)); }

}  // namespace tessera
