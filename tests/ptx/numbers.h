// Floats of every format that PTX has, through double: exact results, or results rounded to odd, so that the one
// rounding that follows is right in every mode (a double has more than two bits more than any narrower format).
#pragma once
#include <bit>
#include <cstdint>

#include "engine/base/splitmix64.h"
#include "tests/ptx/syntax.h"

namespace tessera::ptx {

enum class Round : uint8_t { even, zero, down, up, away };  // away: to nearest, halves away from zero

/// Sign, exponent and mantissa of a format narrower than f64.
struct Format {
  uint32_t width, exponent, mantissa;
  int bias;
  bool has_infinity;
};
const Format& format_of(Type t);  // f16, bf16, f32, tf32, e4m3, e5m2

double widen(Type t, uint64_t bits);
/// `x` is exact or rounded to odd. NaN gives the canonical one. `finite`: what is too large becomes the largest number,
/// and so does infinity.
uint64_t narrow(Type t, double x, Round mode, bool finite = false);

/// Rounded to odd if inexact.
double odd_add(double a, double b);
double odd_mul_f32(double a, double b);        // of numbers with at most 26 bits: exact
double odd_fma(double a, double b, double c);  // a and b with at most 26 bits
double odd_div(double a, double b);
double odd_sqrt(double a);
/// To a whole number.
double round_whole(double x, Round mode);

/// f64 with a rounding mode.
enum class Op64 : uint8_t { add, sub, mul, fma, div, sqrt, rcp };
double op64(Op64 op, double a, double b, double c, Round mode);
/// A whole number to f64 or f32 in a mode.
uint64_t from_integer(Type t, uint64_t magnitude, bool negative, Round mode);

inline uint64_t mask_of(uint32_t width) { return width >= 64 ? ~uint64_t{0} : (uint64_t{1} << width) - 1; }
inline int64_t signed_of(uint64_t x, uint32_t width) { return static_cast<int64_t>(x << (64 - width)) >> (64 - width); }

using Random = SplitMix64;

}  // namespace tessera::ptx
