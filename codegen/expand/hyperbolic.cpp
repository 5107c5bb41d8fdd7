// sinh and cosh through e^x / 2, their inverses through log(1 + t).
#include "codegen/expand/common.h"
#include "codegen/expand/expand.h"

namespace tessera::expand {
namespace {

// (sinh(x) / x - 1) / z in z = x^2 on [0, 1]; error relative to x: 2^-27.1 and 2^-56.3.
const Table kSinh{{0x1.555556p-3, 0x1.111136p-7, 0x1.9ffe12p-13, 0x1.7a2672p-19},
                  {0x1.5555555555556p-3, 0x1.11111111110a1p-7, 0x1.a01a01a0291fdp-13, 0x1.71de3a45f70b4p-19,
                   0x1.ae6467669e987p-26, 0x1.611a3a182f531p-33, 0x1.b4cf7b2c1247ep-41}};

struct Halves {
  V growing, decaying;  // e^a / 2 and e^-a / 2
};

/// For a >= 0 (not NaN). The growing half overflows only where sinh and cosh do.
Halves half_exponentials(V a) {
  const V cap = pick(a, 90.0, 711.0), e = half_exp(select(a < cap, a, cap));
  // beyond, the other half is nothing, and a division by large numbers is not to be trusted
  const V bounded = select(e < 0x1p60, e, 0x1p60);
  return {e, 0.25 / bounded};
}

/// log(1 + t) for t from [0, inf]; with `doubled`, log(2 t) for t so large that the 1 is nothing.
V log1p_or_double(V t, V doubled) {
  const V ln2 = select(doubled, 0x1.62e42fefa39efp-1, literal(t, 0.0));
  return log1p(t) + ln2;
}

}  // namespace

V sinh(V x) {
  const V a = abs(x), small = a < 1.0, near = select(small, a, 0.0), z = near * near;
  const Halves h = half_exponentials(a);
  const V far = h.growing - h.decaying, p = polynomial(z, kSinh), r = select(small, fma(near * z, p, near), far);
  return copy_sign(select(is_nan(x), x, r), x);
}

V cosh(V x) {
  const Halves h = half_exponentials(abs(x));
  const V r = h.growing + h.decaying;
  return select(is_nan(x), x, r);
}

/// log(a + sqrt(a^2 + 1)) = log(1 + (a + a^2 / (1 + sqrt(a^2 + 1)))).
V asinh(V x) {
  const V a = abs(x), large = a > pick(x, 0x1p28, 0x1p54), b = select(large, 1.0, a), square = b * b;
  const V t = b + square / (sqrt(square + 1.0) + 1.0);
  const V r = log1p_or_double(select(large, a, t), large);
  return copy_sign(select(is_nan(x), x, r), x);
}

/// log(x + sqrt(x^2 - 1)) with x = 1 + t: log(1 + (t + sqrt(t (t + 2)))).
V acosh(V x) {
  const V large = x > pick(x, 0x1p28, 0x1p54), t = select(large, 1.0, x - 1.0);
  const V r = log1p_or_double(select(large, x, t + sqrt(t * (t + 2.0))), large);
  const V undefined = nan(x), outside = select(is_nan(x), x, undefined), number = ~is_nan(x);
  return select((x >= 1.0) & number, r, outside);
}

/// log((1 + a) / (1 - a)) / 2 = log(1 + 2 a / (1 - a)) / 2.
V atanh(V x) {
  const V a = abs(x), inside = magnitude_bits(x) < layout(x.reg).one, b = select(inside, a, 0.0), q = b / (1.0 - b);
  // For small a the quotient's error would count in full: 2 a + 2 a q is the same.
  const V sum = b + b * q, r = log1p(select(b < 0.5, sum, q) * 2.0) * 0.5;
  const V undefined = nan(x), pole = infinity(x);
  const V outside = select(eq(magnitude_bits(x), Literal(layout(x.reg).one)), pole, undefined);
  const V all = select(inside, r, outside);
  return copy_sign(select(is_nan(x), x, all), x);
}

}  // namespace tessera::expand
