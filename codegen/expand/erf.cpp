// erf by a polynomial near 0 and through its logarithm's beyond; erf_inv by polynomials in w = -log(1 - x^2), or its
// root in the tails.
#include "codegen/expand/common.h"
#include "codegen/expand/expand.h"

namespace tessera::expand {
namespace {

// erf(x) / x in x^2 on [0, 0.81]; relative error 2^-23.6 and 2^-56.0.
const Table kErfSmall{{0x1.20dd74p+0, -0x1.8126fap-2, 0x1.ce1dd2p-4, -0x1.b6bee4p-6, 0x1.4876cap-8, -0x1.3f4f7p-11},
                      {0x1.20dd750429b6dp+0, -0x1.812746b0379e2p-2, 0x1.ce2f21a0427e1p-4, -0x1.b82ce31271dd2p-6,
                       0x1.565bcd0a31bb8p-8, -0x1.c02db3140c11ap-11, 0x1.f9a30627e8913p-14, -0x1.f4cf59382cb1bp-17,
                       0x1.b9b75e74d348ep-20, -0x1.5d83602428197p-23, 0x1.e29e55fe51dfep-27, -0x1.d24b6cb4ac45ep-31}};

// -log(1 - erf(x)) on [0.9, 3.95] and [0.9, 5.95]; error in erf, relative: 2^-25.9 and 2^-57.9.
const Table kErfLarge{
    {0x1.5d180ap-13, 0x1.20b75p+0, 0x1.4621bep-1, 0x1.aa72fep-4, -0x1.6d9c8cp-6, 0x1.91cc4p-9, -0x1.9fb16ep-13},
    {-0x1.f7b63c8b6f3d0p-29, 0x1.20dd7647f0e4cp+0,   0x1.45f2f1e7d104bp-1,   0x1.a4f8073e84da7p-4,
     -0x1.398efe56ddbfdp-6,  -0x1.878138c923396p-13, 0x1.b233526fe78fep-10,  -0x1.1875ee83bbbb3p-11,
     -0x1.258a92dbfd860p-15, 0x1.f143b26f93d1bp-14,  -0x1.1f5f070bb3582p-14, 0x1.afe143c3e2430p-16,
     -0x1.e5f633a4c04c6p-18, 0x1.a9168a2969eb6p-20,  -0x1.22538cce01584p-22, 0x1.312dd89cb5da0p-25,
     -0x1.ddeaa1b1a1654p-29, 0x1.06c1a2afa608ep-32,  -0x1.6a0bb00a07030p-37, 0x1.d62f3d4222c84p-43}};
constexpr double kErfSplit = 0.9;

// erf_inv(x) / x in w - c for w on [0, 5], c = 2.5 (f64: [0, 5.5], 2.75); relative error 2^-23.1 and 2^-54.3.
const Table kInverseNear{
    {0x1.805c5ep+0, 0x1.f91ec6p-3, -0x1.11ca4ep-8, -0x1.48a6e4p-10, 0x1.ca7124p-13, -0x1.270fd6p-18, -0x1.d9a272p-19,
     0x1.711290p-22, 0x1.ea3720p-26},
    {0x1.9012fadec7b65p+0,   0x1.f4636c3f24c99p-3,   -0x1.4a09a72652b40p-8,  -0x1.10420d7de6e83p-10,
     0x1.b671990ba0042p-13,  -0x1.3e4c92e08e421p-17, -0x1.58c87fa8f4329p-19, 0x1.03488dc36afcfp-21,
     -0x1.1a69c4cc4484ep-27, -0x1.1cad1de68c66ep-27, 0x1.322d4e04e5b42p-30,  0x1.2589a11631bf5p-35,
     -0x1.c327182aa378dp-36, 0x1.40cf1d3eea45ap-39,  0x1.16199c171656ep-42,  -0x1.4d1b10fe1cc64p-44,
     0x1.f9aa78e4db683p-49,  0x1.46f2c4534635dp-50,  -0x1.c2aa119b3cce4p-53, -0x1.9794bd710d7ccp-58,
     0x1.29a0274845575p-58,  -0x1.7f4fd4195e7d7p-64, -0x1.79e100fc98638p-65}};
// The same in sqrt(w) - 3 for sqrt(w) on [2.2, 4] (f64: [2.3, 3.65]); relative error 2^-22.9 and 2^-53.5.
const Table kInverseFar{{0x1.6a9efcp+1, 0x1.006daep+0, 0x1.35528ap-7, -0x1.f30086p-8, 0x1.77980ep-8, -0x1.e56092p-9,
                         0x1.68de1ap-10, 0x1.129e2cp-13, -0x1.de3b82p-13},
                        {0x1.6a9efbd66eae6p+1, 0x1.006dca7a9c223p+0, 0x1.3582c8114da15p-7, -0x1.f4f1c6f0844e6p-8,
                         0x1.7495888ddd3c4p-8, -0x1.d2754fe54c484p-9, 0x1.84f3edb90873fp-10, -0x1.3842f985c16f7p-13,
                         -0x1.28e0ae99b2ce6p-12, 0x1.aeff00be3f5c0p-13, -0x1.85ba4c6a8201ap-15, -0x1.7f94c321dff32p-16,
                         0x1.6feb649af969fp-16, -0x1.91955111e493ap-18, -0x1.b8f7dc9ba0f01p-20, 0x1.174e7e57b4b31p-19,
                         -0x1.5de62f58f50f0p-21, -0x1.88d72f69b50c6p-23, 0x1.62fcf07967bafp-23}};
// And in sqrt(w) - 4.75 for sqrt(w) on [3.5, 6.01], which only f64 reaches; relative error 2^-52.6.
const Table kInverseFarther{
    {}, {0x1.263a980ea57ddp+2,   0x1.02a49dbf7fedep+0,   0x1.c875581321e13p-15,  -0x1.3fb3827490e04p-12,
         0x1.ba51186e1d5cdp-14,  -0x1.d60ce95d98e1ep-16, 0x1.c76ad7ad172e7p-18,  -0x1.c453e24714817p-20,
         0x1.1895d1bd25dc3p-21,  -0x1.f2a387189e7b0p-23, 0x1.0cf897e958d5ap-23,  -0x1.1a5c0721722c9p-24,
         0x1.005f8ee539dd0p-25,  -0x1.715031c73846ep-27, 0x1.77ce1af8486f8p-29,  -0x1.55c579d9b9379p-32,
         -0x1.e8cc2f182cbabp-33, 0x1.f417bdaf68941p-33,  -0x1.4eb0e6ca5835dp-34, -0x1.625ee9be22d7ep-38,
         0x1.942a997b1e502p-38}};

}  // namespace

V erf(V x) {
  const V a = abs(x), most = pick(x, 3.95, 5.95);  // erf is 1 there
  const V small = a < kErfSplit, near = select(small, a, 0.0), far = select(a < most, a, most);
  const V low = near * polynomial(near * near, kErfSmall);
  const V high = 1.0 - exp_ordinary(-polynomial(far, kErfLarge));
  const V r = select(small, low, high);
  return copy_sign(select(is_nan(x), x, r), x);
}

V erf_inv(V x) {
  const V a = abs(x), inside = magnitude_bits(x) < layout(x.reg).one, b = select(inside, a, 0.0);
  const V above = b + 1.0, w = -log((1.0 - b) * above), root = sqrt(w);
  const V near = w < pick(x, 5.0, 5.4);
  V far = polynomial(root - 3.0, kInverseFar);
  if (x.reg == Reg::f64) {
    const V farther = polynomial(root - 4.75, kInverseFarther);
    far = select(root < 3.6, far, farther);
  }
  const V r = b * select(near, polynomial(w - pick(x, 2.5, 2.75), kInverseNear), far);
  const V undefined = nan(x), pole = infinity(x);
  const V outside = select(eq(magnitude_bits(x), Literal(layout(x.reg).one)), pole, undefined);
  const V all = select(inside, r, outside);
  return copy_sign(select(is_nan(x), x, all), x);
}

}  // namespace tessera::expand
