// Transcendental functions of f32 and narrower floats, in double: without branches, tables or calls, so that loops over
// arrays become vector code, and in IEEE arithmetic alone, so that one element gives the same bits as many, on every
// machine. Relative errors are below 2^-45, so a result that is rounded to f32 once is the nearest float except in
// about one case of a million. The C library's functions, which f64 uses, cost a call per element. Arguments are floats
// (or narrower) converted to double: never subnormal.
#pragma once
#include <bit>
#include <cstdint>
#include <limits>

namespace tessera::narrow {

#define TESSERA_NARROW [[gnu::always_inline]] inline double

/// 2^n for an integer n, |n| < 1000, that stands in the low bits of n + kShift.
inline constexpr double kShift = 6755399441055744.0;  // 1.5 * 2^52: adding it rounds to an integer
TESSERA_NARROW
power_of_two(double shifted) { return std::bit_cast<double>((std::bit_cast<uint64_t>(shifted) + 1023) << 52); }
// e^r for |r| <= ln(2) / 2, by the Taylor series: the first term left out is below 2^-47.
TESSERA_NARROW
exp_near_zero(double r) {
  double p = 1.0 / 39916800;
  p = p * r + 1.0 / 3628800;
  p = p * r + 1.0 / 362880;
  p = p * r + 1.0 / 40320;
  p = p * r + 1.0 / 5040;
  p = p * r + 1.0 / 720;
  p = p * r + 1.0 / 120;
  p = p * r + 1.0 / 24;
  p = p * r + 1.0 / 6;
  p = p * r + 0.5;
  p = p * r + 1.0;
  return p * r + 1.0;
}
// Beyond these every float is infinity or zero. A NaN stays.
TESSERA_NARROW
between(double x, double low, double high) {
  x = x > high ? high : x;
  return x < low ? low : x;
}

TESSERA_NARROW
exp(double x) {
  // their sum is ln 2; the first has 32 bits
  constexpr double kLog2E = 1.4426950408889634, kLn2High = 0.693147180369123816490,
                   kLn2Low = 1.90821492927058770002e-10;
  x = between(x, -160, 160);
  const double shifted = x * kLog2E + kShift, n = shifted - kShift;
  return exp_near_zero((x - n * kLn2High) - n * kLn2Low) * power_of_two(shifted);
}
TESSERA_NARROW
exp2(double x) {
  x = between(x, -220, 220);
  const double shifted = x + kShift, n = shifted - kShift;
  return exp_near_zero((x - n) * 0.69314718055994531) * power_of_two(shifted);
}
TESSERA_NARROW
magnitude(double x) { return std::bit_cast<double>(std::bit_cast<uint64_t>(x) & 0x7fffffffffffffffu); }
TESSERA_NARROW
logistic(double x) {
  const double e = exp(-magnitude(x));  // of a negative number only: no overflow, and accurate in both tails
  return (x < 0 ? e : 1.0) / (1.0 + e);
}
TESSERA_NARROW
tanh(double x) {
  const double a = magnitude(x), square = x * x;
  const double near = x * (1.0 + square * (-1.0 / 3 + square * (2.0 / 15)));  // where 1 - 2 / (e^2x + 1) cancels
  const double far = 1.0 - 2.0 / (exp(2.0 * a) + 1.0);
  const double signed_far =
      std::bit_cast<double>(std::bit_cast<uint64_t>(far) | (std::bit_cast<uint64_t>(x) & 0x8000000000000000u));
  return a < 0.00390625 ? near : signed_far;
}

struct Split {
  double exponent, log;
};  // x = 2^exponent m, log = ln m, 0.7 < m < 1.42
[[gnu::always_inline]] inline Split split(double x) {
  // of sqrt(1/2), from where mantissas are counted
  const uint64_t bits = std::bit_cast<uint64_t>(x), half = 0x3fe6a09e667f3bcdu;
  const uint64_t from = bits - half;
  const double m = std::bit_cast<double>(bits - (from & 0xfff0000000000000u));
  // The exponent as a double, by way of its bits: vector units have no conversion of 64-bit integers.
  const double exponent =
      std::bit_cast<double>(((from + 0x4000000000000000u) >> 52) | 0x4330000000000000u) - (4503599627370496.0 + 1024);
  const double s = (m - 1.0) / (m + 1.0), square = s * s;  // ln m = 2 artanh s, |s| < 0.172
  double p = 1.0 / 19;
  p = p * square + 1.0 / 17;
  p = p * square + 1.0 / 15;
  p = p * square + 1.0 / 13;
  p = p * square + 1.0 / 11;
  p = p * square + 1.0 / 9;
  p = p * square + 1.0 / 7;
  p = p * square + 1.0 / 5;
  p = p * square + 1.0 / 3;
  return {exponent, 2.0 * s + 2.0 * s * square * p};
}
// A logarithm's value where the argument is 0, negative, infinite or NaN.
TESSERA_NARROW
with_poles(double x, double y) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  y = x == kInf ? kInf : y;
  y = x == 0 ? -kInf : y;
  return x < 0 || x != x ? std::numeric_limits<double>::quiet_NaN() : y;
}
TESSERA_NARROW
log(double x) {
  const Split s = split(x);
  return with_poles(x, s.exponent * 0.69314718055994531 + s.log);
}
TESSERA_NARROW
log2(double x) {
  const Split s = split(x);
  return with_poles(x, s.exponent + s.log * 1.4426950408889634);
}

#undef TESSERA_NARROW

// y[i] = f(x[i]), rounded once. y may be x. (narrow_math.cpp)
void exp_array(const float* x, float* y, int64_t n);
void exp2_array(const float* x, float* y, int64_t n);
void logistic_array(const float* x, float* y, int64_t n);
void tanh_array(const float* x, float* y, int64_t n);
void log_array(const float* x, float* y, int64_t n);
void log2_array(const float* x, float* y, int64_t n);

}  // namespace tessera::narrow
