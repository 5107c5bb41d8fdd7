#include "codegen/expand/native.h"

#include "codegen/expand/common.h"

namespace tessera::expand::native {
namespace {

// (log(1 + f) - f) / f^2 on [sqrt(1/2) - 1, sqrt(2) - 1]; error relative to the logarithm: 2^-24.8. Without the
// division of log.cpp, whose error is a little smaller.
const Table kLog{{-0x1.fffffap-2, 0x1.5556f4p-2, -0x1.00049ap-2, 0x1.98d2cp-3, -0x1.535d3p-3, 0x1.318526p-3,
                  -0x1.2504ap-3, 0x1.65c77ep-4},
                 {}};

// (tanh(x) / x - 1) / x^2 in x^2, on |x| <= 0.55; error relative to tanh: 2^-24.6.
const Table kTanh{{-0x1.555452p-2, 0x1.10cef6p-3, -0x1.af7cc6p-5, 0x1.0d502p-6}, {}};

constexpr double kLog2E = 0x1.71547652b82fep+0;

bool is_ptx(V x) { return !x.fn->target.chip.empty(); }
V device_exp2(V x) { return x.fn->apply(Prim::exp2, x.reg, {x}); }

/// Between the two, which are finite; of NaN anything that whole() can take.
V bounded(V x, double low, double high) {
  if (!x.fn->target.rte32) x = select(is_nan(x), 0.0, x);
  return x.fn->apply(Prim::clamp_number, x.reg, {x, literal(x, low), literal(x, high)});
}

V with_nan(V x, V r) {
  const V number = x.fn->target.preserve32 ? eq(x, x) : ~is_nan(x);
  return select(number, r, nan(x));
}

struct Whole {
  V number, power;  // a whole number n, and 2^n, for |n| below 127
};

/// The whole number next to x * factor, |x * factor| below 127.
Whole whole(V x, double factor) {
  if (!x.fn->target.rte32) {
    const V n = round_even(x * factor);
    return {n, power_of_two(integer_of(n), x.reg)};
  }
  // From 1.5 * 2^23 on a float's last bit counts ones: adding rounds, and the last bits are n and the exponent's bias.
  const V by = literal(x, factor), ones = literal(x, 0x1.8p23 + 127), shifted = fma(x, by, ones), n = shifted - ones;
  return {n, floating(bits(shifted) << 23)};
}

/// x - n * step * ln 2, for |n| up to 2^8: ln 2 in two parts, the first with so few bits that its product is exact.
V without_ln2(V x, V n, double step) {
  const V rest = fma(n, literal(x, step * -0x1.62e4p-1), x);
  return fma(n, literal(x, step * -0x1.7f7d1cp-20), rest);
}

struct Fraction {
  V e, f;  // x = 2^e (1 + f), 1 + f from [sqrt(1/2), sqrt(2)); e a whole float
};

/// Of a positive x; by integers, so that subnormals are right where the device flushes them.
Fraction fraction(V x) {
  const V b = bits(x), subnormal = b < 0x800000;
  const V c = select(subnormal, bits(float_from_uint(b, x.reg)), b);  // the value times 2^149 there
  const V above = c - 0x3f3504f3, e = float_from_sint(sar(above, 23), x.reg), none = literal(x, 0.0);
  const V m = floating(c - (above & 0xff800000u));
  return {e + select(subnormal, -149.0, none), m - 1.0};
}

/// r where x is positive and finite; -inf at 0, inf at inf, NaN below 0 and for NaN.
V with_poles(V x, V r) {
  const V b = bits(x), infinite = eq(b, 0x7f800000), zero = eq(magnitude_bits(x), 0);
  const V undefined = nan(x), pole = -infinity(x), other = select(infinite, x, undefined);
  const V special = select(zero, pole, other);
  return select((b - 1) < 0x7f7fffff, r, special);
}

}  // namespace

// In both e^x and 2^x the power is of two equal factors, which reach where neither the one factor nor the result is a
// normal number.
V exp(V x) {
  if (const V own = x.fn->power_of_e(x); own.fn) return own;
  const V b = bounded(x, -104, 89);  // 0 and infinity there
  const Whole half = whole(b, kLog2E / 2);
  const V r = device_exp2(without_ln2(b, half.number, 2) * kLog2E);
  return with_nan(x, (r * half.power) * half.power);
}

V exp2(V x) {
  // NVIDIA's own is within 2 ulp everywhere (PTX ISA, "ex2"); subnormal results are flushed, as devices may.
  if (is_ptx(x)) return device_exp2(x);
  const V b = bounded(x, -151, 129);
  const Whole half = whole(b, 0.5);
  const V r = device_exp2(fma(half.number, literal(x, -2.0), b));
  return with_nan(x, (r * half.power) * half.power);
}

V exp_ordinary(V x) {
  if (const V own = x.fn->power_of_e(x); own.fn) return own;
  const Whole k = whole(x, kLog2E);
  return device_exp2(without_ln2(x, k.number, 1) * kLog2E) * k.power;
}

/// e^x / (1 + e^x) for negative x, 1 / (1 + e^-x) else.
V logistic(V x) {
  if (is_ptx(x)) return 1.0 / (native::exp(-x) + 1.0);  // of infinity 0
  const V e = native::exp(-abs(x)), below = e + 1.0;
  return select(x < 0.0, e, 1.0) / below;
}

V log(V x) {
  const Fraction d = fraction(x);
  const V square = d.f * d.f, q = polynomial(d.f, kLog), low = d.e * 0x1.7f7d1cp-20;
  const V rest = fma(square, q, low) + d.f, high = literal(x, 0x1.62e4p-1);
  return with_poles(x, fma(d.e, high, rest));
}

V log2(V x) {
  const Fraction d = fraction(x);
  const V square = d.f * d.f, natural = fma(square, polynomial(d.f, kLog), d.f);
  return with_poles(x, fma(natural, literal(x, kLog2E), d.e));
}

// What the device makes of other numbers than positive ones is not looked at.
V sqrt(V x) {
  if (x.fn->roots_are_total()) return x.fn->apply(Prim::sqrt, x.reg, {x});
  const V b = bits(x), ordinary = (b - 1) < 0x7f7fffff, r = x.fn->apply(Prim::sqrt, x.reg, {x});
  const V zero = eq(magnitude_bits(x), 0), keeps = zero | eq(b, 0x7f800000), undefined = nan(x);
  return select(ordinary, r, select(keeps, x, undefined));
}

V rsqrt(V x) {
  if (x.fn->roots_are_total()) return x.fn->apply(Prim::rsqrt, x.reg, {x});
  const V b = bits(x), ordinary = (b - 1) < 0x7f7fffff, r = x.fn->apply(Prim::rsqrt, x.reg, {x});
  const V zero = eq(magnitude_bits(x), 0), pole = floating(b | 0x7f800000), undefined = nan(x);
  const V not_zero = select(eq(b, 0x7f800000), 0.0, undefined), special = select(zero, pole, not_zero);
  return select(ordinary, r, special);
}

V sqrt_of_square(V x) {
  if (x.fn->roots_are_total()) return native::sqrt(x);
  const V ordinary = (bits(x) - 1) < 0x7f7fffff, r = x.fn->apply(Prim::sqrt, x.reg, {x});
  return select(ordinary, r, x);  // zeros, infinity and NaN are their own
}

V rsqrt_of_positive(V x) {
  if (x.fn->roots_are_total()) return native::rsqrt(x);
  // What a number's bits are below infinity's: of infinity 0, of a NaN, which has more, the bits of another NaN.
  const V b = bits(x), r = x.fn->apply(Prim::rsqrt, x.reg, {x}), of_special = floating(0x7f800000 - b);
  return select(b < 0x7f800000, r, of_special);
}

/// 1 - 2 / (e^2|x| + 1), where what exp2 may be off is lost in the difference: the more, the larger x is. Near 0 a
/// polynomial.
V tanh(V x) {
  const V a = abs(x), close = literal(x, 0.55), factor = literal(x, 2 * kLog2E), square = x * x;
  const V finite = is_ptx(x) ? a : bounded(a, 0, 9.1), power = device_exp2(finite * factor);  // tanh is 1 there
  const V part = 1.0 / (power + 1.0), minus_two = literal(x, -2.0), one = literal(x, 1.0);
  const V large = fma(part, minus_two, one), q = polynomial(square, kTanh), small = fma(q * square, x, x);
  const V side = bits(x) & 0x80000000u;
  const auto sided = [&](V y) { return floating(bits(y) | side); };  // small is 0 of -0
  if (!x.fn->target.preserve32) return with_nan(x, sided(select(a < close, small, large)));
  return sided(select(x.fn->apply(Prim::unordered_lt, Reg::boolean, {a, close}), small, large));
}

}  // namespace tessera::expand::native
