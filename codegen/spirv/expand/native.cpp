#include "codegen/spirv/expand/native.h"

#include "codegen/spirv/expand/common.h"

namespace tessera::spirv::native {
namespace {

constexpr double kLog2E = 0x1.71547652b82fep+0;

V device_exp2(V x) { return x.fn->glsl(GLSLstd450Exp2, x.reg, {x}); }

/// Between the two, which are finite; of NaN anything that whole() can take.
V bounded(V x, double low, double high) {
  if (!x.fn->target.rte32) x = select(is_nan(x), 0.0, x);
  return x.fn->glsl(GLSLstd450NClamp, x.reg, {x, literal(x, low), literal(x, high)});
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
  // From 1.5 * 2^23 on a float's last bit counts ones: adding rounds, and the last bits are n.
  const V by = literal(x, factor), ones = literal(x, 0x1.8p23), shifted = fma(x, by, ones), n = shifted - ones;
  return {n, floating((bits(shifted) << 23) + 0x3f800000)};
}

/// x - n * step * ln 2, for |n| up to 2^8: ln 2 in two parts, the first with so few bits that its product is exact.
V without_ln2(V x, V n, double step) {
  const V rest = fma(n, literal(x, step * -0x1.62e4p-1), x);
  return fma(n, literal(x, step * -0x1.7f7d1cp-20), rest);
}

}  // namespace

// In both e^x and 2^x the power is of two equal factors, which reach where neither the one factor nor the result is a
// normal number.
V exp(V x) {
  const V b = bounded(x, -104, 89);  // 0 and infinity there
  const Whole half = whole(b, kLog2E / 2);
  const V r = device_exp2(without_ln2(b, half.number, 2) * kLog2E);
  return with_nan(x, (r * half.power) * half.power);
}

V exp2(V x) {
  const V b = bounded(x, -151, 129);
  const Whole half = whole(b, 0.5);
  const V r = device_exp2(fma(half.number, literal(x, -2.0), b));
  return with_nan(x, (r * half.power) * half.power);
}

V exp_ordinary(V x) {
  const Whole k = whole(x, kLog2E);
  return device_exp2(without_ln2(x, k.number, 1) * kLog2E) * k.power;
}

/// e^x / (1 + e^x) for negative x, 1 / (1 + e^-x) else.
V logistic(V x) {
  const V e = native::exp(-abs(x)), below = e + 1.0;
  return select(x < 0.0, e, 1.0) / below;
}

/// t / (t + 2) with t = e^(2|x|) - 1, by a polynomial: near 0 exp2 would lose what t has.
V tanh(V x) {
  const V twice = bounded(abs(x), 0, 9.1) * 2.0;  // tanh is 1 there
  const Whole k = whole(twice, kLog2E);
  const V p = expm1_reduced(without_ln2(twice, k.number, 1)), rest = k.power - 1.0;
  const V t = fma(k.power, p, rest), r = t / (t + 2.0);
  return with_nan(x, copy_sign(r, x));
}

}  // namespace tessera::spirv::native
