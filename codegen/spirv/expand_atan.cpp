// The inverse trigonometric functions. atan and atan2 fold the angle into [-pi/8, pi/8] with one division, asin and
// acos halve it near 1.
#include "codegen/spirv/expand.h"
#include "codegen/spirv/expand_common.h"

namespace tessera::spirv {
namespace {

// (atan(x) / x - 1) / z in z = x^2 on [0, 0.17158]; error relative to x: 2^-28.6 and 2^-58.1.
const Table kAtan{{-0x1.55554ap-2, 0x1.9991aep-3, -0x1.23b6ccp-3, 0x1.b2032ep-4, -0x1.f25b7ap-5},
                  {-0x1.5555555555554p-2, 0x1.999999999965bp-3, -0x1.2492492475daep-3, 0x1.c71c71b77b989p-4,
                   -0x1.745d14c0385adp-4, 0x1.3b136eb8688f7p-4, -0x1.110c7a695c0d5p-4, 0x1.e1728e7b96174p-5,
                   -0x1.ab80f17d3d2e5p-5, 0x1.70fac8ccc173ep-5, -0x1.1256300fc83f6p-5, 0x1.f260d8c2e40f7p-7}};

// (asin(x) / x - 1) / z in z = x^2 on [0, 0.25]; error relative to x: 2^-27.4 and 2^-58.4.
const Table kAsin{
    {0x1.5555cap-3, 0x1.330150p-4, 0x1.748c50p-5, 0x1.8ba32cp-6, 0x1.59da16p-5},
    {0x1.5555555555578p-3, 0x1.333333332df80p-4, 0x1.6db6db722602cp-5, 0x1.f1c71a8dc559ep-6, 0x1.6e8bdfa64b849p-6,
     0x1.1c49e2bcd11abp-6, 0x1.ca20cdfd8d3e9p-7, 0x1.757b7a5d51c54p-7, 0x1.6173f25398f57p-7, 0x1.e2bea79a9d69cp-9,
     0x1.6492a42f7a9a8p-6, -0x1.59546dea6bfb7p-6, 0x1.0bb05ae4fa31ep-5}};

/// v + n pi/4 for n from 0 to 4. The upper part of pi/4 has so few bits that n times it is exact.
V plus_eighths(V v, V n) {
  const V high = pick(v, 0x1.921fap-1, 0x1.921fb54442d00p-1), low = pick(v, 0x1.54442ep-21, 0x1.8469898cc5170p-49);
  return n * high + (n * low + v);
}

/// The angle in [0, pi] between (x, y) and the axis of x, for y >= 0 and, unless it is to be mirrored, x >= 0. Garbage
/// for NaN.
V angle(V y, V x, V mirrored) {
  const V swapped = y > x, larger = select(swapped, y, x), smaller = select(swapped, x, y);
  // Division is sure of its result only while the divisor is neither huge nor zero.
  const V infinite = is_inf(larger), zero = eq(larger, 0.0), huge = larger > pick(x, 0x1p120, 0x1p1000);
  const V shrink = select(huge, literal(x, 0x1p-8), literal(x, 1.0));
  const V a = select(infinite, select(is_inf(smaller), literal(x, 1.0), literal(x, 0.0)), smaller * shrink);
  const V b = select(infinite | zero, 1.0, larger * shrink);
  const V steep = a > b * 0x1.a827999fcef32p-2;  // tan(pi/8): then from pi/4, by the difference of tangents
  const V q = select(steep, a - b, a) / select(steep, a + b, b), z = q * q;
  const V r = fma(q * z, polynomial(z, kAtan), q);
  // r, pi/4 + r; swapped: pi/2 less that; mirrored: pi less that.
  V n = select(steep, literal(x, 1.0), literal(x, 0.0));
  n = select(swapped, 2.0 - n, n);
  n = select(mirrored, 4.0 - n, n);
  return plus_eighths(select(swapped ^ mirrored, -r, r), n);
}

struct Arc {
  V near_one;  // |x| > 1/2: p = asin(sqrt((1 - |x|) / 2)), so that asin|x| = pi/2 - 2 p
  V p;         // else asin|x|
};

Arc arc(V a) {
  const V near_one = a > 0.5, z = select(near_one, (1.0 - a) * 0.5, a * a), s = select(near_one, sqrt(z), a);
  return {near_one, fma(s * z, polynomial(z, kAsin), s)};
}

}  // namespace

V atan(V x) {
  const V r = angle(abs(x), literal(x, 1.0), x.fn->boolean(false));
  return copy_sign(select(is_nan(x), x, r), x);
}

V atan2(V y, V x) {
  const V r = angle(abs(y), abs(x), ne(sign_bit(x), 0));
  return select(is_nan(x) | is_nan(y), nan(x), copy_sign(r, y));
}

V asin(V x) {
  const V a = abs(x);
  const Arc c = arc(a);
  const V r = select(c.near_one, plus_eighths(c.p * -2.0, literal(x, 2.0)), c.p);
  return select(magnitude_bits(x) <= layout(x.reg).one, copy_sign(r, x), nan(x));
}

V acos(V x) {
  const Arc c = arc(abs(x));
  const V negative = ne(sign_bit(x), 0), p = select(c.near_one, c.p * 2.0, c.p);
  // Near 1: p or pi - p; else pi/2 - p or pi/2 + p.
  const V n = select(c.near_one, select(negative, literal(x, 4.0), literal(x, 0.0)), literal(x, 2.0));
  const V r = plus_eighths(select(negative ^ c.near_one, p, -p), n);
  return select(magnitude_bits(x) <= layout(x.reg).one, r, nan(x));
}

}  // namespace tessera::spirv
