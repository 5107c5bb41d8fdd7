// log, log2, log1p, pow and cbrt: x = 2^e m with m in [sqrt(1/2), sqrt(2)), and log m through s = (m - 1) / (m + 1).
#include "codegen/expand/common.h"
#include "codegen/expand/expand.h"
#include "codegen/expand/native.h"

namespace tessera::expand {
namespace {

// (2 atanh(s) / s - 2) / z in z = s^2 on [0, 0.02947]; error relative to 2 s: 2^-30.0 and 2^-59.1.
const Table kLog{{0x1.55557ap-1, 0x1.995e9ap-2, 0x1.31e686p-2},
                 {0x1.5555555555593p-1, 0x1.999999997fb31p-2, 0x1.2492494217acdp-2, 0x1.c71c51e7eb612p-3,
                  0x1.7466462f25162p-3, 0x1.39a0f4beb11c7p-3, 0x1.2f0d914625ffap-3}};

// ((2 atanh(s) / s - 2) / z - 2/3) / z on the same interval; error relative to 2 s: 2^-36.8 and 2^-65.7.
const Table kLogTail{{0x1.999a0p-2, 0x1.245278p-2, 0x1.dfa33cp-3},
                     {0x1.9999999999b33p-2, 0x1.2492492457803p-2, 0x1.c71c722de3732p-3, 0x1.745ce9b6c3988p-3,
                      0x1.3b1ef460c478cp-3, 0x1.0f7f20bd7093fp-3, 0x1.0e4a2f89e711bp-3}};

// The cube root of m on [0.7071, 1.4143], to start from; relative error 2^-16.7.
const Table kCbrt{{0x1.ce81c6p-2, 0x1.cf445ap-1, -0x1.123e1cp-1, 0x1.bc4980p-3, -0x1.358f42p-5},
                  {0x1.ce81c6p-2, 0x1.cf445ap-1, -0x1.123e1cp-1, 0x1.bc4980p-3, -0x1.358f42p-5}};

struct Parts {
  V e, m;  // both floats
};

/// By integer arithmetic, so that subnormals are right where the device flushes them. The sign of x is ignored.
Parts parts(V x) {
  const Layout l = layout(x.reg);
  const V b = magnitude_bits(x);
  const V subnormal = b <= l.fraction;
  const V c = select(subnormal, bits(float_from_uint(b, x.reg)), b);  // the value times 2^(bias - 1 + mantissa)
  const V sqrt_half = literal(b, width(x.reg) == 64 ? uint64_t{0x3fe6a09e667f3bcd} : uint64_t{0x3f3504f3});
  const V k = sar(c - sqrt_half, l.mantissa);
  const V e = float_from_sint(to_uint(k, Reg::u32), x.reg);
  const V shift = select(subnormal, -static_cast<double>(l.bias - 1 + l.mantissa), literal(x, 0.0));
  return {e + shift, floating(c - (k << l.mantissa))};
}

/// r where x is positive and finite; -inf at 0, inf at inf, NaN below 0 and for NaN.
V with_special_logs(V x, V r) {
  const Layout l = layout(x.reg);
  const V b = bits(x);
  const V infinite = eq(b, Literal(l.infinity)), keeps = (magnitude_bits(x) > l.infinity) | infinite;
  const V other = select(keeps, x, nan(x)), pole = -infinity(x);
  const V special = select(eq(magnitude_bits(x), 0), pole, other);
  return select((b - 1) < l.infinity - 1, r, special);
}

struct LogOfM {
  V f, half_square, rest;  // log m = f - (half_square - rest)
};

/// log(1 + f) for 1 + f from [sqrt(1/2), sqrt(2)).
LogOfM log_of_m(V f) {
  const V s = f / (f + 2.0), z = s * s;
  const V half_square = (f * f) * 0.5;
  return {f, half_square, s * (half_square + z * polynomial(z, kLog))};
}

/// e ln 2 + l.
V plus_ln2(V e, LogOfM l) {
  const V high = pick(e, 0x1.62e4p-1, 0x1.62e42fee00000p-1), low = pick(e, 0x1.7f7d1cp-20, 0x1.a39ef35793c76p-33);
  const V rest = (l.half_square - (l.rest + e * low)) - l.f;
  return e * high - rest;
}

// Pairs of floats whose sum is a number of twice the precision.
struct Pair {
  V hi, lo;
};

Pair quick_sum(V a, V b) {  // |a| >= |b|
  const V s = a + b;
  return {s, b - (s - a)};
}

/// a times b exactly, by halves of the significands: Vulkan's Fma need not be fused.
Pair product(V a, V b) {
  const uint64_t mask = width(a.reg) == 64 ? ~uint64_t{0x7ffffff} : 0xfffff000u;
  const V ah = floating(bits(a) & mask), al = a - ah, bh = floating(bits(b) & mask), bl = b - bh;
  const V p = a * b, last = al * bl, third = al * bh, second = ah * bl;
  return {p, (((ah * bh - p) + second) + third) + last};
}

Pair times(Pair a, Pair b) {
  const Pair p = product(a.hi, b.hi);
  const V cross = a.lo * b.hi;
  return quick_sum(p.hi, p.lo + (a.hi * b.lo + cross));
}

/// log2 of |x| for x neither 0 nor special.
Pair log2_pair(V x) {
  const Parts d = parts(x);
  const V f = d.m - 1.0, below = d.m + 1.0, below_lo = d.m - (below - 1.0);
  const V s = f / below;
  const Pair back = product(s, below);
  const V lost = s * below_lo;
  const Pair ratio = quick_sum(s, (((f - back.hi) - back.lo) - lost) / below);
  const Pair z = times(ratio, ratio);
  const V third = pick(x, 0x1.555556p-1, 0x1.5555555555555p-1),
          third_lo = pick(x, -0x1.555556p-26, 0x1.5555555555555p-55);
  Pair series = quick_sum(third, z.hi * polynomial(z.hi, kLogTail));
  series.lo = series.lo + third_lo;
  const Pair cubic = times(ratio, times(z, series));
  Pair log_m = quick_sum(ratio.hi * 2.0, cubic.hi);
  log_m.lo = log_m.lo + (ratio.lo * 2.0 + cubic.lo);
  const Pair log2_e{pick(x, 0x1.715476p+0, 0x1.71547652b82fep+0), pick(x, 0x1.4ae0cp-26, 0x1.777d0ffda0d24p-56)};
  const Pair w = times(log_m, log2_e);
  const Pair sum = quick_sum(d.e, w.hi);
  return {sum.hi, sum.lo + w.lo};
}

}  // namespace

V log(V x) {
  if (native::applies(x)) return native::log(x);
  const Parts d = parts(x);
  return with_special_logs(x, plus_ln2(d.e, log_of_m(d.m - 1.0)));
}

/// Through u = 1 + x, with what its rounding lost put back into the fraction.
V log1p(V x) {
  const V u = x + 1.0, of_one = 1.0 - (u - x), of_x = x - (u - 1.0), lost = select(x < 1.0, of_x, of_one);
  const Parts d = parts(u);
  const V k = select(d.e < 64.0, d.e, 64.0);  // beyond, what was lost is nothing
  const V put_back = lost * power_of_two(-integer_of(k), x.reg), fraction = (d.m - 1.0) + put_back;
  const V f = select(eq(d.e, 0.0), x, fraction);
  const V above = x > -1.0, finite = magnitude_bits(x) < layout(x.reg).infinity;
  const V undefined = nan(x), pole = infinity(x), not_above = select(eq(x, -1.0), pole, undefined);
  const V infinite = above & ~finite, special = select(is_nan(x) | infinite, x, not_above);
  const V r = plus_ln2(d.e, log_of_m(f));
  return copy_sign(select(above & finite, r, special), x);
}

V log2(V x) {
  if (native::applies(x)) return native::log2(x);
  const Parts d = parts(x);
  const LogOfM l = log_of_m(d.m - 1.0);
  return with_special_logs(x, d.e + (l.f - (l.half_square - l.rest)) * 0x1.71547652b82fep+0);
}

/// 2^(e/3) times the cube root of m: a polynomial, then Newton's steps, which double its correct digits.
V cbrt(V x) {
  const Parts d = parts(x);
  const V third = floor((d.e + 0.5) * (1.0 / 3)), rest = d.e - third * 3.0;  // e = 3 third + rest
  const auto by_rest = [&](double one, double two) {
    const V for_none = literal(x, 1.0), for_one = literal(x, one), up_to_one = select(eq(rest, 1.0), for_one, for_none);
    const V for_two = literal(x, two);
    return select(eq(rest, 2.0), for_two, up_to_one);
  };
  const V m = d.m * by_rest(2, 4);
  const V root_of_rest = by_rest(0x1.428a2f98d728bp+0, 0x1.965fea53d6e3dp+0);
  V y = polynomial(d.m, kCbrt) * root_of_rest;
  for (int i = 0; i < pick(x.reg, 1, 2); ++i) {
    const V slope = (y * y) * 3.0;
    y = y - ((y * y) * y - m) / slope;
  }
  const V ordinary = (magnitude_bits(x) - 1) < layout(x.reg).infinity - 1;
  return copy_sign(select(ordinary, y * power_of_two(integer_of(third), x.reg), x), x);
}

V pow(V x, V y) {
  const V limit =
      // |log2 x| >= 2^-53 or 2^-24 unless 0: beyond, the result is 0, 1 or inf
      literal(y, width(y.reg) == 64 ? 0x1p64 : 0x1p33);
  const V exponent = copy_sign(select(abs(y) > limit, limit, y), y);
  const Pair l = log2_pair(x), p = product(exponent, l.hi);
  const V tail = p.lo + exponent * l.lo;
  const V above = p.hi > pick(x.reg, -152, -1077), ordinary = (p.hi < pick(x.reg, 130, 1026)) & above;
  const V safe = select(ordinary, p.hi, 0.0), k = round_even(safe);
  const V rest = select(ordinary, tail, 0.0), fraction = (safe - k) + rest, n = integer_of(k);
  V r = scale(expm1_reduced(fraction * 0x1.62e42fefa39efp-1) + 1.0, n);
  const V zero = literal(x, 0.0), inf = infinity(x);
  r = select(ordinary, r, select(p.hi > 0.0, inf, zero));
  // by its bits, for a device may take a subnormal y for 0 (0 itself is the last line's)
  const V x_zero = eq(magnitude_bits(x), 0), x_inf = is_inf(x), up = eq(sign_bit(y), 0);
  r = select(x_zero, select(up, zero, inf), r);
  r = select(x_inf, select(up, inf, zero), r);
  // Odd integers keep the sign of x; from 2^24 (2^53) on every float is even.
  const V infinite = is_inf(y), whole = eq(trunc(y), y) | infinite, half = y * 0.5;
  const V finite = ~is_inf(y), odd = whole & ne(trunc(half), half) & finite;
  const V negative = ne(sign_bit(x), 0);
  const V plus = literal(bits(x), 0), sign = select(odd, sign_bit(x), plus);
  r = floating(bits(r) | sign);
  const V not_inf = ~x_inf, not_zero = ~x_zero, invalid = negative & ~whole & not_zero & not_inf;
  const V undefined = nan(x), nan_y = is_nan(y);
  r = select(invalid | is_nan(x) | nan_y, undefined, r);
  const V x_one = eq(bits(x), Literal(layout(x.reg).one));
  return select(eq(magnitude_bits(y), 0) | x_one, 1.0, r);
}

}  // namespace tessera::expand
