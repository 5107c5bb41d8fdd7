// exp, exp2, expm1, logistic, tanh: all through e^x = 2^k e^r with |r| <= ln 2 / 2.
#include "codegen/expand/common.h"
#include "codegen/expand/expand.h"
#include "codegen/expand/native.h"

namespace tessera::expand {
namespace {

// (e^r - 1 - r) / r^2 on |r| <= 0.34693; error relative to r: 2^-25.9 and 2^-60.5.
const Table kExp{{0x1.00000p-1, 0x1.5554aep-3, 0x1.555484p-5, 0x1.122886p-7, 0x1.6d9b2ep-10},
                 {0x1.0000000000000p-1, 0x1.5555555555559p-3, 0x1.555555555555bp-5, 0x1.111111110f67bp-7,
                  0x1.6c16c16c14323p-10, 0x1.a01a01affc55ep-13, 0x1.a01a01b11ce94p-16, 0x1.71ddf81314962p-19,
                  0x1.27e4c4b5f4ce6p-22, 0x1.af5f395cb685dp-26, 0x1.1f96e79e943dcp-29}};

struct Reduced {
  V k, r;  // x = k ln 2 + r; k a whole float
};

/// ln 2 in two parts, the first with so few bits that its product with k is exact.
Reduced reduce(V x) {
  const V k = round_even(x * 0x1.71547652b82fep+0);
  const V high = pick(x, 0x1.62e4p-1, 0x1.62e42fee00000p-1), low = pick(x, 0x1.7f7d1cp-20, 0x1.a39ef35793c76p-33);
  const V lower = k * low;
  return {k, (x - k * high) - lower};
}

}  // namespace

V expm1_reduced(V r) {
  const V p = polynomial(r, kExp);
  return fma(r * r, p, r);
}

V scale(V v, V k) {
  const V half = sar(k, 1), other_half = power_of_two(k - half, v.reg);
  return (v * power_of_two(half, v.reg)) * other_half;
}

V exp_ordinary(V x) {
  if (native::applies(x)) return native::exp_ordinary(x);
  const Reduced d = reduce(x);
  const V k = integer_of(d.k);
  return scale(expm1_reduced(d.r) + 1.0, k);
}

V half_exp(V x) {
  const Reduced d = reduce(x);
  const V k = integer_of(d.k) - 1;
  return scale(expm1_reduced(d.r) + 1.0, k);
}

namespace {

/// r where x is ordinary; else infinity, 0 or NaN.
V with_special_powers(V x, V ordinary, V r) {
  const V zero = literal(x, 0.0), inf = infinity(x), beyond = select(x > 0.0, inf, zero);
  return select(ordinary, r, select(is_nan(x), x, beyond));
}

}  // namespace

V exp(V x) {
  if (native::applies(x)) return native::exp(x);
  // Beyond: infinity, 0; false for NaN.
  const V above = x > pick(x.reg, -104, -746), ordinary = (x < pick(x.reg, 89, 710)) & above;
  return with_special_powers(x, ordinary, exp_ordinary(select(ordinary, x, 0.0)));
}

V exp2(V x) {
  if (native::applies(x)) return native::exp2(x);
  const V above = x > pick(x.reg, -151, -1076), ordinary = (x < pick(x.reg, 128, 1024)) & above;
  const V safe = select(ordinary, x, 0.0), k = round_even(safe), n = integer_of(k);
  const V r = scale(expm1_reduced((safe - k) * 0x1.62e42fefa39efp-1) + 1.0, n);
  return with_special_powers(x, ordinary, r);
}

/// 2^k (e^r - 1) + (2^k - 1), at half its size so that 2^k may overflow.
V expm1(V x) {
  const V least = pick(x, -20.0, -40.0);  // -1 there
  const V finite = x < pick(x, 89, 710);
  const V other = select(finite, least, literal(x, 0.0)), safe = select(finite & (x > least), x, other);
  const Reduced d = reduce(safe);
  const V p = expm1_reduced(d.r), half = power_of_two(integer_of(d.k) - 1, x.reg);
  const V scaled = fma(half, p, half - 0.5) * 2.0, r = select(eq(d.k, 0.0), p, scaled);
  const V all = select(finite, r, infinity(x));
  return copy_sign(select(is_nan(x), x, all), x);
}

/// e^x / (1 + e^x) for negative x, 1 / (1 + e^-x) else: nothing overflows.
V logistic(V x) {
  if (native::applies(x)) return native::logistic(x);
  const V e = exp(-abs(x)), below = e + 1.0;
  return select(x < 0.0, e, 1.0) / below;
}

/// t / (t + 2) with t = e^(2|x|) - 1, which keeps its relative accuracy at 0.
V tanh(V x) {
  if (native::applies(x)) return native::tanh(x);
  const V a = abs(x), cap = pick(x, 9.1, 20.0);  // tanh is 1 there
  const Reduced d = reduce(select(a < cap, a, cap) * 2.0);
  const V power = power_of_two(integer_of(d.k), x.reg);
  const V rest = power - 1.0, t = fma(power, expm1_reduced(d.r), rest), r = t / (t + 2.0);
  return copy_sign(select(is_nan(x), x, r), x);
}

}  // namespace tessera::expand
