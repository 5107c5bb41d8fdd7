// Softmax over the rows of a matrix, eight rows to a program. The last block hangs over the edge: what it reads there
// is unspecified, what it writes there is dropped.
#include <tessera/tessera.hpp>

#include "samples/support/sample.h"

namespace ts = tessera;
using ts::Ref, ts::Value, ts::all;

ts::Array softmax(const ts::Array& x) {
  const int64_t rows = x.shape()[0], columns = x.shape()[1];
  const ts::BlockSpec eight_rows{{8, columns}, [](Value i) { return ts::Indices{i, 0}; }};
  return ts::pallas_call(
      [](Ref x_ref, Ref o_ref) {
        Value row = x_ref[all];  // [8, columns]
        Value e = ts::exp(row - ts::max(row, {.axis = 1, .keepdims = true}));
        o_ref[all] = e / ts::sum(e, {.axis = 1, .keepdims = true});
      },
      {.out_shape = {{{rows, columns}, x.dtype()}},
       .grid = ts::cdiv(rows, 8),
       .in_specs = eight_rows,
       .out_specs = eight_rows,
       .name = "softmax"})(x);
}

int main() try {
  const ts::Array o = softmax(sample::random({1021, 1000}, 1, 8));
  // Vulkan's exp(-d) is good to 3 + 2 d units in the last place, where d = 0 weighs most; the sum of 1000 terms adds
  // some tens of units. So a relative error of 60 * 2^-23 = 7e-6 is out of reach, for entries of at most 0.022 and sums
  // of a row of 1.
  return sample::check("softmax", o, {.entries = 1.6e-7, .row_sums = 7e-6});
} catch (const std::exception& e) {
  return sample::fail("softmax", e);
}
