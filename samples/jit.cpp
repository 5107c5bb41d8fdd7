// The direction that a matrix stretches most, by power iteration: a function of arrays under jit. What it computes
// between the calls of a kernel becomes kernels too, the loop is part of the graph, and a call of the function is one
// submission.
#include <tessera/tessera.hpp>

#include "samples/support/sample.h"

namespace ts = tessera;
using ts::Ref, ts::Tensor, ts::Value, ts::all;

constexpr int64_t n = 512, rows = 64;

int main() try {
  const auto product = ts::pallas_call(
      [](Ref a, Ref v, Ref o) { o[all] = ts::sum(a[all] * v[all], {.axis = 1}); },
      {.out_shape = {{{n}, ts::f32}},
       .grid = {n / rows},
       .in_specs = {{{rows, n}, [](Value i) { return ts::Indices{i, 0}; }}, {{n}, [](Value) { return 0; }}},
       .out_specs = {{{rows}, [](Value i) { return i; }}},
       .name = "jit"});
  const auto direction = ts::jit([=](Tensor a) {
    const Tensor positive = a + 1.0f;
    return ts::fori_loop(0, 10, ts::full({n}, 1.0f), [&](Value, Value v) {
      const Tensor w = product(positive, v);
      return w * ts::rsqrt(ts::sum(w * w));
    });
  });
  // A sum of 512 products errs by at most 512 * 2^-24 of it, and the entries are about 1/22; what the loop starts from
  // is forgotten.
  return sample::check("jit", direction(sample::random({n, n}, 1)), {.entries = 1.5e-6, .row_sums = 7e-4});
} catch (const std::exception& e) {
  return sample::fail("jit", e);
}
