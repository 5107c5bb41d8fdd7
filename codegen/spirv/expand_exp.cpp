// exp, exp2, logistic, tanh, erf: all through e^x = 2^k e^r with |r| <= ln 2 / 2.
#include "codegen/spirv/expand.h"
#include "codegen/spirv/expand_common.h"

namespace tessera::spirv {
namespace {

// (e^r - 1 - r) / r^2 on |r| <= 0.34693; error relative to r: 2^-25.9 and 2^-60.5.
const Table kExp{
    {0x1.00000p-1, 0x1.5554aep-3, 0x1.555484p-5, 0x1.122886p-7, 0x1.6d9b2ep-10},
    {0x1.0000000000000p-1, 0x1.5555555555559p-3, 0x1.555555555555bp-5, 0x1.111111110f67bp-7, 0x1.6c16c16c14323p-10, 0x1.a01a01affc55ep-13,
     0x1.a01a01b11ce94p-16, 0x1.71ddf81314962p-19, 0x1.27e4c4b5f4ce6p-22, 0x1.af5f395cb685dp-26, 0x1.1f96e79e943dcp-29}};

// erf(x) / x in x^2 on [0, 0.81]; relative error 2^-23.6 and 2^-56.0.
const Table kErfSmall{{0x1.20dd74p+0, -0x1.8126fap-2, 0x1.ce1dd2p-4, -0x1.b6bee4p-6, 0x1.4876cap-8, -0x1.3f4f7p-11},
                      {0x1.20dd750429b6dp+0, -0x1.812746b0379e2p-2, 0x1.ce2f21a0427e1p-4, -0x1.b82ce31271dd2p-6, 0x1.565bcd0a31bb8p-8,
                       -0x1.c02db3140c11ap-11, 0x1.f9a30627e8913p-14, -0x1.f4cf59382cb1bp-17, 0x1.b9b75e74d348ep-20, -0x1.5d83602428197p-23,
                       0x1.e29e55fe51dfep-27, -0x1.d24b6cb4ac45ep-31}};

// -log(1 - erf(x)) on [0.9, 3.95] and [0.9, 5.95]; error in erf, relative: 2^-25.9 and 2^-57.9.
const Table kErfLarge{
    {0x1.5d180ap-13, 0x1.20b75p+0, 0x1.4621bep-1, 0x1.aa72fep-4, -0x1.6d9c8cp-6, 0x1.91cc4p-9, -0x1.9fb16ep-13},
    {-0x1.f7b63c8b6f3d0p-29, 0x1.20dd7647f0e4cp+0,   0x1.45f2f1e7d104bp-1,   0x1.a4f8073e84da7p-4,   -0x1.398efe56ddbfdp-6,
     -0x1.878138c923396p-13, 0x1.b233526fe78fep-10,  -0x1.1875ee83bbbb3p-11, -0x1.258a92dbfd860p-15, 0x1.f143b26f93d1bp-14,
     -0x1.1f5f070bb3582p-14, 0x1.afe143c3e2430p-16,  -0x1.e5f633a4c04c6p-18, 0x1.a9168a2969eb6p-20,  -0x1.22538cce01584p-22,
     0x1.312dd89cb5da0p-25,  -0x1.ddeaa1b1a1654p-29, 0x1.06c1a2afa608ep-32,  -0x1.6a0bb00a07030p-37, 0x1.d62f3d4222c84p-43}};
constexpr double kErfSplit = 0.9;

struct Reduced {
  V k, r;  // x = k ln 2 + r; k a whole float
};

/// ln 2 in two parts, the first with so few bits that its product with k is exact.
Reduced reduce(V x) {
  const V k = round_even(x * 0x1.71547652b82fep+0);
  const V high = pick(x, 0x1.62e4p-1, 0x1.62e42fee00000p-1), low = pick(x, 0x1.7f7d1cp-20, 0x1.a39ef35793c76p-33);
  return {k, (x - k * high) - k * low};
}

}  // namespace

V expm1_reduced(V r) { return fma(r * r, polynomial(r, kExp), r); }

V scale(V v, V k) {
  const V half = sar(k, 1);
  return (v * power_of_two(half, v.reg)) * power_of_two(k - half, v.reg);
}

V exp_ordinary(V x) {
  const Reduced d = reduce(x);
  return scale(expm1_reduced(d.r) + 1.0, integer_of(d.k));
}

V exp(V x) {
  const V ordinary = (x < pick(x.reg, 89, 710)) & (x > pick(x.reg, -104, -746));  // beyond: infinity, 0; false for NaN
  const V r = exp_ordinary(select(ordinary, x, 0.0));
  return select(ordinary, r, select(is_nan(x), x, select(x > 0.0, infinity(x), literal(x, 0.0))));
}

V exp2(V x) {
  const V ordinary = (x < pick(x.reg, 128, 1024)) & (x > pick(x.reg, -151, -1076));
  const V safe = select(ordinary, x, 0.0), k = round_even(safe);
  const V r = scale(expm1_reduced((safe - k) * 0x1.62e42fefa39efp-1) + 1.0, integer_of(k));
  return select(ordinary, r, select(is_nan(x), x, select(x > 0.0, infinity(x), literal(x, 0.0))));
}

/// e^x / (1 + e^x) for negative x, 1 / (1 + e^-x) else: nothing overflows.
V logistic(V x) {
  const V e = exp(-abs(x));
  return select(x < 0.0, e, 1.0) / (e + 1.0);
}

/// t / (t + 2) with t = e^(2|x|) - 1, which keeps its relative accuracy at 0.
V tanh(V x) {
  const V a = abs(x), cap = pick(x, 9.1, 20.0);  // tanh is 1 there
  const Reduced d = reduce(select(a < cap, a, cap) * 2.0);
  const V power = power_of_two(integer_of(d.k), x.reg);
  const V t = fma(power, expm1_reduced(d.r), power - 1.0);
  return select(is_nan(x), x, copy_sign(t / (t + 2.0), x));
}

V erf(V x) {
  const V a = abs(x), most = pick(x, 3.95, 5.95);  // erf is 1 there
  const V small = a < kErfSplit, near = select(small, a, 0.0), far = select(a < most, a, most);
  const V low = near * polynomial(near * near, kErfSmall);
  const V high = 1.0 - exp_ordinary(-polynomial(far, kErfLarge));
  return select(is_nan(x), x, copy_sign(select(small, low, high), x));
}

}  // namespace tessera::spirv
