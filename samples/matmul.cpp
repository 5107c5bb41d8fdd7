// The tutorial's matrix product: four programs, each of which multiplies a 512 x 1024 block by a 1024 x 512 block. Such
// blocks are far larger than a workgroup; Tessera splits every program over many.
#include <tessera/tessera.hpp>

#include "samples/support/sample.h"

namespace ts = tessera;
using ts::Ref, ts::Value, ts::all;

ts::Array matmul(const ts::Array& x, const ts::Array& y) {
  const int64_t m = x.shape()[0], k = x.shape()[1], n = y.shape()[1];
  return ts::pallas_call([](Ref x_ref, Ref y_ref, Ref z_ref) { z_ref[all] = ts::dot(x_ref[all], y_ref[all]); },
                         {.out_shape = {{{m, n}, x.dtype()}},
                          .grid = {2, 2},
                          .in_specs = {{{m / 2, k}, [](Value i, Value) { return ts::Indices{i, 0}; }},
                                       {{k, n / 2}, [](Value, Value j) { return ts::Indices{0, j}; }}},
                          .out_specs = {{{m / 2, n / 2}, [](Value i, Value j) { return ts::Indices{i, j}; }}},
                          .name = "matmul"})(x, y);
}

int main() try {
  const ts::Array z = matmul(sample::random({1024, 1024}, 1), sample::random({1024, 1024}, 2));
  // Sums of 1024 products of numbers below 1: in f32, in whatever order, an error of more than 6 sqrt(1024) 2^-24 sum|x
  // y| = 0.003 is out of reach; errors in a row are independent, so those of its sum are sqrt(1024) times that.
  return sample::check("matmul", z, {.entries = 0.003, .row_sums = 0.1});
} catch (const std::exception& e) {
  return sample::fail("matmul", e);
}
