// sqrt, rsqrt and the remainder of floats.
#include "codegen/spirv/expand.h"
#include "codegen/spirv/expand_common.h"

namespace tessera::spirv {
namespace {

V positive_finite(V x) {
  const Layout l = layout(x.reg);
  return (bits(x) - 1) < l.infinity - 1;
}

}  // namespace

V sqrt(V x) {
  const V ordinary = positive_finite(x), a = select(ordinary, x, 1.0);
  V s = x.fn->glsl(GLSLstd450Sqrt, x.reg, {a});
  // For f64 Vulkan promises no more than f32's precision: two steps of Heron's method make that 2^-53.
  if (x.reg == Reg::f64)
    for (int i = 0; i < 2; ++i) s = (s + a / s) * 0.5;
  const V below = ne(sign_bit(x), 0) & ne(magnitude_bits(x), 0);
  return select(ordinary, s, select(below, nan(x), x));
}

V rsqrt(V x) {
  const V ordinary = positive_finite(x), a = select(ordinary, x, 1.0);
  V s = x.fn->glsl(GLSLstd450InverseSqrt, x.reg, {a});
  if (x.reg == Reg::f64)
    for (int i = 0; i < 2; ++i) s = s + (s * 0.5) * (1.0 - (a * s) * s);
  const V zero = eq(magnitude_bits(x), 0), inf = eq(bits(x), Literal(layout(x.reg).infinity));
  const V special = select(zero, copy_sign(infinity(x), x), select(inf, literal(x, 0.0), select(is_nan(x), x, nan(x))));
  return select(ordinary, s, special);
}

/// Long division of the significands, some bits at a time: exact for every exponent difference.
V float_rem(V x, V y) {
  const Layout l = layout(x.reg);
  const int chunk = static_cast<int>(width(x.reg)) - l.mantissa - 1;
  const V ax = magnitude_bits(x), ay = magnitude_bits(y);
  const auto significand = [&](V b) { return (b & l.fraction) | select(b > l.fraction, literal(b, l.fraction + 1), literal(b, 0)); };
  const auto exponent = [&](V b) {
    const V e = b >> l.mantissa;
    return select(eq(e, 0), 1, e);
  };
  const V ex = exponent(ax), ey = exponent(ay), my = significand(ay);
  const V divisor = select(eq(my, 0), 1, my);
  const V divides = (ax >= ay) & (ay < l.infinity) & (ax < l.infinity) & ne(ay, 0);
  const V n = select(divides, ex - ey, 0);
  const V r = x.fn->while_loop(
      {umod(significand(ax), divisor), n}, [](const std::vector<V>& s) { return ne(s[1], 0); },
      [&](const std::vector<V>& s) {
        const V step = select(s[1] < chunk, s[1], chunk);
        return std::vector<V>{umod(s[0] << step, divisor), s[1] - step};
      })[0];
  // Back to a float: up by as many bits as the significand lacks, or as the exponent allows.
  const V lacking = to_uint(l.mantissa - highest_bit(r), r.reg), allowed = ey - 1;
  const V up = select(lacking < allowed, lacking, allowed);
  const V packed = select(eq(r, 0), 0, ((allowed - up) << l.mantissa) + (r << up));
  const V result = floating(packed | sign_bit(x));
  const V invalid = (ax >= l.infinity) | (ay > l.infinity) | eq(ay, 0);
  return select(invalid, nan(x), select(divides, result, x));
}

}  // namespace tessera::spirv
