// Shared by this folder's sources: coefficient tables for both widths, polynomials, powers of two.
// Every table is the polynomial of its degree with the least greatest error (Remez exchange in 240-bit arithmetic),
// each coefficient then rounded to its width; the comment gives the function, the interval, and the error of the
// rounded polynomial in exact arithmetic.
#pragma once
#include <initializer_list>
#include <vector>

#include "codegen/expand/sink.h"

namespace tessera::expand {

/// Coefficients from the constant term up, for f32 and for f64.
struct Table {
  std::vector<double> f32, f64;
  const std::vector<double>& of(Reg r) const { return width(r) == 64 ? f64 : f32; }
};

inline V polynomial(V x, const Table& t) {
  const std::vector<double>& c = t.of(x.reg);
  V r = literal(x, c.back());
  for (size_t i = c.size() - 1; i-- > 0;) r = fma(r, x, literal(x, c[i]));
  return r;
}

/// A number in the width of `like`.
inline V pick(V like, double f32, double f64) { return literal(like, width(like.reg) == 64 ? f64 : f32); }
inline int pick(Reg r, int f32, int f64) { return width(r) == 64 ? f64 : f32; }

/// 2^n as a float for an integer n (u32, signed) whose power is a normal number.
inline V power_of_two(V n, Reg r) {
  const Layout l = layout(r);
  return floating(to_uint(n + l.bias, uint_of(r)) << l.mantissa);
}

/// The integer (u32, signed) that float x holds; |x| < 2^31.
inline V integer_of(V x) { return sint_from_float(x, Reg::u32); }

/// e^r - 1 = r + r^2 Q(r) for |r| <= ln 2 / 2.
V expm1_reduced(V r);
/// e^x for x where neither it nor x is special: |x| below some 700 (f64) or 87 (f32).
V exp_ordinary(V x);
/// e^x / 2, which is finite for somewhat larger x than e^x.
V half_exp(V x);
/// v * 2^k, rounding once more below the normal range; |k| at most twice the bias.
V scale(V v, V k);

}  // namespace tessera::expand
