// Adds two vectors: the first kernel of the Pallas tutorial. Without a BlockSpec a Ref is the whole array, whatever its
// size.
#include <tessera/tessera.hpp>

#include "samples/support/sample.h"

namespace ts = tessera;
using ts::Ref, ts::all;

ts::Array add_vectors(const ts::Array& x, const ts::Array& y) {
  return ts::pallas_call([](Ref x_ref, Ref y_ref, Ref o_ref) { o_ref[all] = x_ref[all] + y_ref[all]; },
                         {.out_shape = {{{x.shape()[0]}, x.dtype()}}, .name = "add_vectors"})(x, y);
}

int main() try {
  const int64_t n = 100'003;
  const ts::Array z = add_vectors(sample::random({n}, 1), sample::random({n}, 2));
  // One sum of two f32 numbers, rounded once: the same everywhere, but a device may flush subnormal numbers to zero.
  return sample::check("add_vectors", z, {.entries = 1.2e-38, .row_sums = 1e-9});
} catch (const std::exception& e) {
  return sample::fail("add_vectors", e);
}
