#include "engine/front/normal.h"

#include "engine/front/ops.h"

namespace tessera::random {
namespace {
using Coefficients = std::vector<double>;  // the highest power's first

// M. Giles, "Approximating the erfinv function" (GPU Computing Gems, 2011), whose coefficients XLA has: erfinv(x) / x
// with w = -log(1 - x^2), in w - 2.5 below 5, else in sqrt(w) - 3.
const Coefficients kSingleNear{2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
                               -0.00125372503, -0.00417768164, 0.246640727,    1.50140941};
const Coefficients kSingleFar{-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
                              -0.0076224613,   0.00943887047,  1.00167406,    2.83297682};
// In double precision: in w - 3.125 below 6.25, sqrt(w) - 3.25 below 16, else in sqrt(w) - 5.
const Coefficients kDoubleNear{
    -3.6444120640178196921e-21, -1.685059138182016589e-19,  1.2858480715256400167e-18,  1.115787767802518096e-17,
    -1.333171662854620906e-16,  2.0972767875968561637e-17,  6.6376381343583238325e-15,  -4.0545662729752068639e-14,
    -8.1519341976054721522e-14, 2.6335093153082322977e-12,  -1.2975133253453532498e-11, -5.4154120542946279317e-11,
    1.051212273321532285e-09,   -4.1126339803469836976e-09, -2.9070369957882005086e-08, 4.2347877827932403518e-07,
    -1.3654692000834678645e-06, -1.3882523362786468719e-05, 0.0001867342080340571352,   -0.00074070253416626697512,
    -0.0060336708714301490533,  0.24015818242558961693,     1.6536545626831027356};
const Coefficients kDoubleFar{
    2.2137376921775787049e-09,  9.0756561938885390979e-08, -2.7517406297064545428e-07, 1.8239629214389227755e-08,
    1.5027403968909827627e-06,  -4.013867526981545969e-06, 2.9234449089955446044e-06,  1.2475304481671778723e-05,
    -4.7318229009055733981e-05, 6.8284851459573175448e-05, 2.4031110387097893999e-05,  -0.0003550375203628474796,
    0.00095328937973738049703,  -0.0016882755560235047313, 0.0024914420961078508066,   -0.0037512085075692412107,
    0.005370914553590063617,    1.0052589676941592334,     3.0838856104922207635};
const Coefficients kDoubleFarther{-2.7109920616438573243e-11, -2.5556418169965252055e-10, 1.5076572693500548083e-09,
                                  -3.7894654401267369937e-09, 7.6157012080783393804e-09,  -1.4960026627149240478e-08,
                                  2.9147953450901080826e-08,  -6.7711997758452339498e-08, 2.2900482228026654717e-07,
                                  -9.9298272942317002539e-07, 4.5260625972231537039e-06,  -1.9681778105531670567e-05,
                                  7.5995277030017761139e-05,  -0.00021503011930044477347, -0.00013871931833623122026,
                                  1.0103004648645343977,      4.8499064014085844221};
// log(1 + y) near 0 is y - y^2 / 2 + y^3 P(y) / Q(y): the Cephes library's, which is meant for y above sqrt(1/2) - 1.
// XLA has it down to 1 - sqrt(2), where it is tens of units off in f64; in f32 that does not show.
const Coefficients kP{4.5270000862445199635215e-5, 4.9854102823193375972212e-1, 6.5787325942061044846969e0,
                      2.9911919328553073277375e1,  6.0949667980987787057556e1,  5.7112963590585538103336e1,
                      2.0039553499201281259648e1};
const Coefficients kQ{1,
                      1.5062909083469192043167e1,
                      8.3047565967967209469434e1,
                      2.2176239823732856465394e2,
                      3.0909872225312059774938e2,
                      2.1642788614495947685003e2,
                      6.0118660497603843919306e1};

Value constant(Emit& e, const Value& like, double v) {
  return e.wrap(e.builder().constant_float(like.dtype(), v, like.shape()));
}
Value polynomial(Emit& e, const Value& x, const Coefficients& of) {
  Value sum = constant(e, x, of[0]);
  for (size_t i = 1; i < of.size(); ++i) {
    const Value next = constant(e, x, of[i]);
    sum = sum * x + next;
  }
  return sum;
}
}  // namespace

Value erf_inv_of_jax(Emit& e, const Value& x) {
  const Value y = -(x * x);
  if (x.dtype() == f32) {
    const Value w = -log1p(y);
    const Value far = polynomial(e, sqrt(w) - 3, kSingleFar), near = polynomial(e, w - 2.5, kSingleNear);
    return x * where(w < 5, near, far);
  }
  const Value square = y * y, q = polynomial(e, y, kQ), ratio = polynomial(e, y, kP) / q, tail = square * y * ratio;
  const Value general = log(y + 1), small = y + (square * -0.5 + tail);
  const Value w = -where(y > -0x1.a827999fcef32p-2, small, general), root = sqrt(w);
  const Value farther = polynomial(e, root - 5, kDoubleFarther), far = polynomial(e, root - 3.25, kDoubleFar);
  const Value beyond = where(w < 16, far, farther), near = polynomial(e, w - 3.125, kDoubleNear);
  return x * where(w < 6.25, near, beyond);
}

}  // namespace tessera::random
