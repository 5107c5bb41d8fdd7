// The inverse trigonometric functions. atan and atan2 fold the angle into [-pi/8, pi/8] with one division, asin and
// acos halve it near 1.
#include "codegen/expand/common.h"
#include "codegen/expand/expand.h"

namespace tessera::expand {
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
  const V rest = n * low + v;
  return n * high + rest;
}

/// The angle in [0, pi] between (x, y) and the axis of x, for y >= 0 and, unless it is to be mirrored, x >= 0. Garbage
/// for NaN.
V angle(V y, V x, V mirrored) {
  const V swapped = y > x, larger = select(swapped, y, x), smaller = select(swapped, x, y);
  // Division is sure of its result only while the divisor is neither huge nor zero.
  const V infinite = is_inf(larger), zero = eq(larger, 0.0), huge = larger > pick(x, 0x1p120, 0x1p1000);
  const V shrink = select(huge, 0x1p-8, literal(x, 1.0)), none = literal(x, 0.0);
  const V shrunk = smaller * shrink, a = select(infinite, select(is_inf(smaller), 1.0, none), shrunk);
  const V divisor = larger * shrink, b = select(infinite | zero, 1.0, divisor);
  const V steep = a > b * 0x1.a827999fcef32p-2;  // tan(pi/8): then from pi/4, by the difference of tangents
  const V below = select(steep, a + b, b), q = select(steep, a - b, a) / below, z = q * q;
  const V p = polynomial(z, kAtan), r = fma(q * z, p, q);
  // r, pi/4 + r; swapped: pi/2 less that; mirrored: pi less that.
  V n = select(steep, 1.0, none);
  n = select(swapped, 2.0 - n, n);
  n = select(mirrored, 4.0 - n, n);
  const V negated = -r;
  return plus_eighths(select(swapped ^ mirrored, negated, r), n);
}

struct Arc {
  V near_one;  // |x| > 1/2: p = asin(sqrt((1 - |x|) / 2)), so that asin|x| = pi/2 - 2 p
  V p;         // else asin|x|
};

Arc arc(V a) {
  const V near_one = a > 0.5, square = a * a, z = select(near_one, (1.0 - a) * 0.5, square);
  const V s = select(near_one, sqrt(z), a), p = polynomial(z, kAsin);
  return {near_one, fma(s * z, p, s)};
}

}  // namespace

V atan(V x) {
  const V mirrored = x.fn->boolean(false), one = literal(x, 1.0), r = angle(abs(x), one, mirrored);
  return copy_sign(select(is_nan(x), x, r), x);
}

V atan2(V y, V x) {
  const V mirrored = ne(sign_bit(x), 0), beside = abs(x), r = copy_sign(angle(abs(y), beside, mirrored), y);
  const V undefined = nan(x), nan_y = is_nan(y);
  return select(is_nan(x) | nan_y, undefined, r);
}

V asin(V x) {
  const V a = abs(x);
  const Arc c = arc(a);
  const V two = literal(x, 2.0), r = select(c.near_one, plus_eighths(c.p * -2.0, two), c.p);
  const V undefined = nan(x), inside = copy_sign(r, x);
  return select(magnitude_bits(x) <= layout(x.reg).one, inside, undefined);
}

V acos(V x) {
  const Arc c = arc(abs(x));
  const V negative = ne(sign_bit(x), 0), p = select(c.near_one, c.p * 2.0, c.p);
  // Near 1: p or pi - p; else pi/2 - p or pi/2 + p.
  const V two = literal(x, 2.0), n = select(c.near_one, select(negative, 4.0, literal(x, 0.0)), two);
  const V negated = -p, r = plus_eighths(select(negative ^ c.near_one, p, negated), n);
  const V undefined = nan(x);
  return select(magnitude_bits(x) <= layout(x.reg).one, r, undefined);
}

}  // namespace tessera::expand
