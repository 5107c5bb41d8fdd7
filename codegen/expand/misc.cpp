// sqrt, rsqrt and the remainder of floats.
#include <algorithm>

#include "codegen/expand/common.h"
#include "codegen/expand/expand.h"
#include "codegen/expand/native.h"

namespace tessera::expand {
namespace {

V positive_finite(V x) {
  const Layout l = layout(x.reg);
  return (bits(x) - 1) < l.infinity - 1;
}

}  // namespace

V sqrt(V x) {
  if (native::applies(x)) return native::sqrt(x);
  const V ordinary = positive_finite(x), a = select(ordinary, x, 1.0);
  V s = x.fn->apply(Prim::sqrt, x.reg, {a});
  // For f64 Vulkan promises no more than f32's precision: two steps of Heron's method make that 2^-53.
  if (x.reg == Reg::f64)
    for (int i = 0; i < 2; ++i) s = (s + a / s) * 0.5;
  const V nonzero = ne(magnitude_bits(x), 0), below = ne(sign_bit(x), 0) & nonzero;
  return select(ordinary, s, select(below, nan(x), x));
}

V rsqrt(V x) {
  if (native::applies(x)) return native::rsqrt(x);
  const V ordinary = positive_finite(x), a = select(ordinary, x, 1.0);
  V s = x.fn->apply(Prim::rsqrt, x.reg, {a});
  if (x.reg == Reg::f64)
    for (int i = 0; i < 2; ++i) {
      const V lacking = 1.0 - (a * s) * s;
      s = s + (s * 0.5) * lacking;
    }
  const V zero = eq(magnitude_bits(x), 0), inf = eq(bits(x), Literal(layout(x.reg).infinity));
  const V undefined = nan(x), other = select(inf, 0.0, undefined), special = select(zero, infinity(x), other);
  const V plus = literal(bits(x), 0), sign = select(zero, sign_bit(x), plus);
  return floating(bits(select(ordinary, s, special)) | sign);
}

namespace {

// a * b * 2^-w modulo the odd m of w bits, as a number up to a * b * 2^-w + m (Montgomery's reduction). `inverse`: of m
// modulo 2^w.
V reduced_product(V a, V b, V m, V inverse) {
  const DType word = a.reg == Reg::u64 ? DType::u64 : DType::u32;
  const V multiple = mulhi(word, (a * b) * inverse, m);
  return (mulhi(word, a, b) + m) - multiple;
}

// r * 2^n modulo the odd m, for r < m and n up to `most`. Squarings and shifts double the exponent of a power of two
// and add a digit to it: from 2^-1, in Montgomery's sense, k of them reach any n with n + 2^k = sum of digit[i] * 2^i.
// Powers stay below 2m as long as the digits are at most `digit`, the first, of a power below m, two more.
V times_power_of_two(V r, V n, V m, int most) {
  const int w = static_cast<int>(width(m.reg)), digit = w - layout(float_of(m.reg)).mantissa - 3;
  int k = 1;
  const auto reach = [&] { return (digit + 2) * (1 << (k - 1)) + digit * ((1 << (k - 1)) - 1) - (1 << k); };
  while (reach() < most) ++k;
  V inverse = (m * 3) ^ 2;  // of the lowest five bits; a step doubles them
  for (int bits = 5; bits < w; bits *= 2) inverse = inverse * (2 - m * inverse);
  V power = umod(literal(m, uint64_t{1} << (w - 1)), m), left = n + (1 << k);
  int most_left = most + (1 << k);
  for (int i = k - 1; i >= 0; --i) {
    const int largest = i == k - 1 ? digit + 2 : digit;
    V d = i ? left >> i : left;
    if (most_left >> i > largest) d = select(d > largest, largest, d);
    if (i) left = left - (d << i);
    most_left = std::max(most_left - (largest << i), (1 << i) - 1);
    power = reduced_product(power << d, power, m, inverse);
  }
  const V product = reduced_product(power, r, m, inverse);
  const V less = product - m;
  return select(product < m, product, less);
}

}  // namespace

/// The significands' remainder, by integers and without a loop: drivers may count those, and their compilers unroll
/// them. With x = mx * 2^n and y = my in units of y's last place it is (mx * 2^n) mod my, or, what they share of powers
/// of two taken out, (mx * 2^n) mod m for n = 0 or an odd m.
V float_rem(DType t, V x, V y) {
  const Layout l = layout(x.reg);
  const FloatFormat f = float_format(t);
  const V ax = magnitude_bits(x), ay = magnitude_bits(y);
  const auto significand = [&](V b) {
    const V none = literal(b, 0), one = literal(b, l.fraction + 1), leading = select(b > l.fraction, one, none);
    return (b & l.fraction) | leading;
  };
  const auto exponent = [&](V b) {
    const V e = b >> l.mantissa;
    return select(eq(e, 0), 1, e);
  };
  const V ex = exponent(ax), ey = exponent(ay), sy = significand(ay), my = select(eq(ay, 0), 1, sy);
  const V nonzero = ne(ay, 0), x_finite = ax < l.infinity, y_finite = ay < l.infinity;
  const V divides = (ax >= ay) & y_finite & x_finite & nonzero;
  const V apart = select(divides, ex - ey, 0), twos = to_uint(highest_bit(my & -my), my.reg);
  const V shared = select(apart < twos, apart, twos), n = apart - shared, m = my >> shared;
  V r = umod(significand(ax), m);
  // Of a narrow float the last bits here are 0, and its subnormals normal: fewer powers are left.
  const int greatest = static_cast<int>(f.greatest >> f.mantissa) + f.least_exponent - 1,
            least = std::max(f.least_exponent - f.mantissa, 1 - l.bias);
  const int most = greatest - least - (l.mantissa - f.mantissa);
  if (most > 0)
    r = x.fn->if_else(
        ne(n, 0), [&] { return std::vector<V>{times_power_of_two(r, n, m, most)}; },
        [&] { return std::vector<V>{r}; })[0];
  r = r << shared;
  // Back to a float: up by as many bits as the significand lacks, or as the exponent allows.
  const V lacking = to_uint(l.mantissa - highest_bit(r), r.reg), allowed = ey - 1;
  const V up = select(lacking < allowed, lacking, allowed);
  const V digits = r << up, number = ((allowed - up) << l.mantissa) + digits, packed = select(eq(r, 0), 0, number);
  const V by_zero = eq(ay, 0), by_nan = ay > l.infinity, invalid = (ax >= l.infinity) | by_nan | by_zero;
  const V rest = select(divides, packed, ax), magnitude = select(invalid, bits(nan(x)), rest), zero = literal(ax, 0);
  return floating(magnitude | select(invalid, zero, sign_bit(x)));
}

}  // namespace tessera::expand
