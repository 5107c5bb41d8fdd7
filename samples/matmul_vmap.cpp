// The tutorial's matrix product over a batch of four: vmap gives the kernel a new grid axis, which the kernel does not
// see.
#include <tessera/tessera.hpp>

#include "samples/support/sample.h"

namespace ts = tessera;
using ts::Ref, ts::Value, ts::all;

int main() try {
  const int64_t m = 1024, k = 1024, n = 1024;
  const ts::PallasCall matmul =
      ts::pallas_call([](Ref x, Ref y, Ref z) { z[all] = ts::dot(x[all], y[all]); },
                      {.out_shape = {{{m, n}, ts::f32}},
                       .grid = {2, 2},
                       .in_specs = {{{m / 2, k}, [](Value i, Value) { return ts::Indices{i, 0}; }},
                                    {{k, n / 2}, [](Value, Value j) { return ts::Indices{0, j}; }}},
                       .out_specs = {{{m / 2, n / 2}, [](Value i, Value j) { return ts::Indices{i, j}; }}},
                       .name = "matmul_vmap"});

  const ts::Array z = ts::vmap(matmul)(sample::random({4, m, k}, 1), sample::random({4, k, n}, 2));
  return sample::check("matmul_vmap", z, {.entries = 0.003, .row_sums = 0.1});  // as in matmul.cpp
} catch (const std::exception& e) {
  return sample::fail("matmul_vmap", e);
}
