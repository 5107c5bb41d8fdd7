// A matrix product in steps along k: the third grid axis walks over k while the sum stays in scratch. The other two
// axes run at once, which Tessera proves by itself. Blocks need not divide m and n: what hangs over is never written.
#include <tessera/tessera.hpp>

#include "samples/support/sample.h"

namespace ts = tessera;
using ts::Ref, ts::Value, ts::all;

int main() try {
  const int64_t m = 500, n = 700, k = 960, bm = 128, bn = 128, bk = 96;
  const ts::PallasCall matmul = ts::pallas_call(
      [=](Ref a, Ref b, Ref o, Ref sum) {
        ts::when(ts::program_id(2) == 0, [&] { sum[all] = ts::zeros({bm, bn}); });
        sum[all] += ts::dot(a[all], b[all]);
        ts::when(ts::program_id(2) == k / bk - 1, [&] { o[all] = sum[all]; });
      },
      {.out_shape = {{{m, n}, ts::f32}},
       .grid = {ts::cdiv(m, bm), ts::cdiv(n, bn), k / bk},
       .in_specs = {{{bm, bk}, [](Value i, Value, Value p) { return ts::Indices{i, p}; }},
                    {{bk, bn}, [](Value, Value j, Value p) { return ts::Indices{p, j}; }}},
       .out_specs = {{{bm, bn}, [](Value i, Value j, Value) { return ts::Indices{i, j}; }}},
       .scratch_shapes = {ts::VMEM({bm, bn}, ts::f32)},
       .name = "matmul_scratch"});

  const ts::Array z = matmul(sample::random({m, k}, 1), sample::random({k, n}, 2));
  // as in matmul.cpp, with 960 products and 700 columns
  return sample::check("matmul_scratch", z, {.entries = 0.003, .row_sums = 0.08});
} catch (const std::exception& e) {
  return sample::fail("matmul_scratch", e);
}
