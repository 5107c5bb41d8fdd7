// The transcendental rows of the op table as range-reduced polynomials in f32 and f64, because Vulkan's own are too
// inaccurate, undefined for large arguments, or missing for f64. The table's rules hold: total on every input,
// infinities and NaN by bits, no reliance on a driver's assumptions. Each function takes and returns an f32 or f64
// register; the origin of the coefficients stands at each table in this folder's sources.
#pragma once
#include "codegen/expand/sink.h"
#include "engine/base/dtype.h"

namespace tessera::expand {

V sqrt(V x);
V rsqrt(V x);
V exp(V x);
V exp2(V x);
V log(V x);
V log2(V x);
V pow(V x, V y);
V sin(V x);
V cos(V x);
V tanh(V x);
V erf(V x);
V logistic(V x);
V expm1(V x);
V log1p(V x);
V cbrt(V x);
V tan(V x);
V asin(V x);
V acos(V x);
V atan(V x);
V atan2(V y, V x);
V sinh(V x);
V cosh(V x);
V asinh(V x);
V acosh(V x);
V atanh(V x);
V erf_inv(V x);
/// C's fmod of numbers of dtype t: the exact remainder with the sign of x; NaN for y = 0 or infinite x.
V float_rem(DType t, V x, V y);

// bits.cpp: rows that depend on the dtype's own width. mulhi and the counts may leave the dtype's sign extension to
// normalize() (convert.h).
V mulhi(DType t, V a, V b);
V count_leading_zeros(DType t, V a);
V population_count(DType t, V a);
V nextafter(DType t, V from, V to);

}  // namespace tessera::expand
