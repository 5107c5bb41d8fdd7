#include "tests/ptx/numbers.h"

#include <cfenv>
#include <cmath>
#include <limits>

namespace tessera::ptx {

namespace {

constexpr Format kF32{32, 8, 23, 127, true}, kF16{16, 5, 10, 15, true}, kBf16{16, 8, 7, 127, true},
    kTf32{32, 8, 10, 127, true}, kE5m2{8, 5, 2, 15, true}, kE4m3{8, 4, 3, 7, false};

/// Whether 0 <= x < 2^64 goes up when it loses its lowest `n` bits.
bool goes_up(uint64_t x, int n, bool negative, Round mode) {
  if (n <= 0) return false;
  const uint64_t lost = n >= 64 ? x : x & mask_of(static_cast<uint32_t>(n));
  if (lost == 0) return false;
  if (mode == Round::zero) return false;
  if (mode == Round::down) return negative;
  if (mode == Round::up) return !negative;
  if (n > 64) return false;
  const uint64_t half = uint64_t{1} << (n - 1);
  if (lost != half) return lost > half;
  return mode == Round::away || (n < 64 && ((x >> n) & 1) != 0);
}

double to_odd(double s, double error) {
  if (error == 0 || !std::isfinite(s) || std::isnan(error)) return s;
  if (std::bit_cast<uint64_t>(s) & 1) return s;
  return std::nextafter(s,
                        error > 0 ? std::numeric_limits<double>::infinity() : -std::numeric_limits<double>::infinity());
}

}  // namespace

const Format& format_of(Type t) {
  switch (t) {
    case Type::f16:
    case Type::f16x2: return kF16;
    case Type::bf16:
    case Type::bf16x2: return kBf16;
    case Type::tf32: return kTf32;
    case Type::e4m3:
    case Type::e4m3x2: return kE4m3;
    case Type::e5m2:
    case Type::e5m2x2: return kE5m2;
    default: return kF32;
  }
}

double widen(Type t, uint64_t bits) {
  if (t == Type::f64) return std::bit_cast<double>(bits);
  if (t == Type::f32 || t == Type::f32x2) return std::bit_cast<float>(static_cast<uint32_t>(bits));
  if (t == Type::tf32)
    return std::bit_cast<float>(static_cast<uint32_t>(bits) & ~0x1fffu);  // the hardware reads no more
  const Format& f = format_of(t);
  const uint64_t m = bits & mask_of(f.mantissa), e = (bits >> f.mantissa) & mask_of(f.exponent);
  const bool negative = (bits >> (f.width - 1)) & 1;
  const uint64_t top = mask_of(f.exponent);
  double x = 0;
  if (e == top && f.has_infinity) {
    x = m ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity();
  } else if (e == top && m == mask_of(f.mantissa)) {
    x = std::numeric_limits<double>::quiet_NaN();
  } else if (e == 0) {
    x = std::ldexp(static_cast<double>(m), 1 - f.bias - static_cast<int>(f.mantissa));
  } else {
    x = std::ldexp(static_cast<double>(m | (uint64_t{1} << f.mantissa)),
                   static_cast<int>(e) - f.bias - static_cast<int>(f.mantissa));
  }
  return negative ? -x : x;
}

uint64_t narrow(Type t, double x, Round mode, bool finite) {
  if (t == Type::f64) return std::bit_cast<uint64_t>(x);
  const Format& f = format_of(t);
  const int m = static_cast<int>(f.mantissa);
  const int shift = t == Type::tf32 ? 13 : 0;  // tf32 lies in the upper bits of 32
  const uint64_t sign = std::signbit(x) ? uint64_t{1} << (f.width - 1) : 0;
  const uint64_t top = mask_of(f.exponent);
  if (std::isnan(x)) {
    if (t == Type::f32 || t == Type::f32x2 || t == Type::tf32) return 0x7fffffff;
    return mask_of(f.width - 1);  // 0x7fff, 0x7f
  }
  const uint64_t largest = f.has_infinity ? (top << m) - 1 : (top << m | mask_of(f.mantissa)) - 1;
  const uint64_t infinity = finite ? largest : f.has_infinity ? top << m : mask_of(f.width - 1);
  if (std::isinf(x)) return sign | infinity << shift;
  if (x == 0) return sign;
  int e = 0;
  const double fraction = std::frexp(std::fabs(x), &e);                        // [0.5, 1)
  const uint64_t whole = static_cast<uint64_t>(std::ldexp(fraction, 64 - 1));  // 63 bits, the top one set
  int exponent = e - 1 + f.bias;
  int lost = 62 - m;
  if (exponent <= 0) lost += 1 - exponent, exponent = 0;
  uint64_t kept = lost >= 64 ? 0 : whole >> lost;
  bool up = goes_up(whole, lost, sign != 0, mode);
  if (lost >= 64) up = (mode == Round::down && sign) || (mode == Round::up && !sign);
  kept += up;
  uint64_t bits =
      exponent == 0 ? kept : (static_cast<uint64_t>(exponent - 1) << m) + kept;  // a carry goes into the exponent
  if (bits > largest) {
    const bool to_largest = mode == Round::zero || (mode == Round::down && !sign) || (mode == Round::up && sign);
    bits = to_largest ? largest : infinity;
  }
  return sign | bits << shift;
}

double odd_add(double a, double b) {
  const double s = a + b;
  if (!std::isfinite(s)) return s;
  const double bb = s - a;
  return to_odd(s, (a - (s - bb)) + (b - bb));
}
double odd_mul_f32(double a, double b) { return a * b; }
double odd_fma(double a, double b, double c) { return odd_add(a * b, c); }
double odd_div(double a, double b) {
  const double q = a / b;
  if (!std::isfinite(q) || q == 0 || std::isinf(b)) return q;
  const double r = std::fma(-q, b, a);
  return to_odd(q, (r > 0) == (b > 0) ? std::fabs(r) : -std::fabs(r));
}
double odd_sqrt(double a) {
  const double q = std::sqrt(a);
  if (!std::isfinite(q) || q == 0) return q;
  return to_odd(q, std::fma(-q, q, a));
}

double round_whole(double x, Round mode) {
  if (!std::isfinite(x)) return x;
  double r = 0;
  switch (mode) {
    case Round::even: r = std::nearbyint(x); break;
    case Round::zero: r = std::trunc(x); break;
    case Round::down: r = std::floor(x); break;
    case Round::up: r = std::ceil(x); break;
    case Round::away: r = std::round(x); break;
  }
  return std::copysign(r, x);
}

double op64(Op64 op, double a, double b, double c, Round mode) {
  const int modes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD, FE_TONEAREST};
  const int before = std::fegetround();
  if (mode != Round::even) std::fesetround(modes[static_cast<int>(mode)]);
  volatile double x = a, y = b, z = c, r = 0;  // so that the compiler computes nothing before or after
  switch (op) {
    case Op64::add: r = x + y; break;
    case Op64::sub: r = x - y; break;
    case Op64::mul: r = x * y; break;
    case Op64::fma: r = std::fma(x, y, z); break;
    case Op64::div: r = x / y; break;
    case Op64::sqrt: r = std::sqrt(x); break;
    case Op64::rcp: r = 1.0 / x; break;
  }
  if (mode != Round::even) std::fesetround(before);
  return r;
}

uint64_t from_integer(Type t, uint64_t magnitude, bool negative, Round mode) {
  if (magnitude == 0) return 0;
  double odd = 0;
  const int bits = 64 - std::countl_zero(magnitude);
  if (t == Type::f64) {  // rounded here
    const int lost = bits - 53;
    if (lost > 0) {
      const uint64_t kept = (magnitude >> lost) + goes_up(magnitude, lost, negative, mode);
      odd = std::ldexp(static_cast<double>(kept), lost);
    } else {
      odd = static_cast<double>(magnitude);
    }
    return std::bit_cast<uint64_t>(negative ? -odd : odd);
  }
  if (bits > 53) {
    const int lost = bits - 53;
    uint64_t kept = magnitude >> lost;
    if (magnitude & mask_of(static_cast<uint32_t>(lost))) kept |= 1;
    odd = std::ldexp(static_cast<double>(kept), lost);
  } else {
    odd = static_cast<double>(magnitude);
  }
  return narrow(t, negative ? -odd : odd, mode);
}

}  // namespace tessera::ptx
