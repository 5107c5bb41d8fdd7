// Counts: a grid of 10,000 programs, each of which stores its own number. The device sees a few workgroups, not 10,000.
#include <tessera/tessera.hpp>

#include "samples/support/sample.h"

namespace ts = tessera;
using ts::Ref, ts::Value;

ts::Array iota(int64_t size) {
  return ts::pallas_call(
      [](Ref o) {
        Value i = ts::program_id(0);
        o[i] = i;
      },
      {.out_shape = {{{size}, ts::i32}}, .grid = size, .name = "iota"})();
}

int main() try {
  return sample::check("iota", iota(10'000), {.entries = 0, .row_sums = 0});  // integers are exact
} catch (const std::exception& e) {
  return sample::fail("iota", e);
}
