// The tutorial's matrix product with an activation function fused into it: the kernel is an ordinary C++ lambda, so it
// may call another.
#include <tessera/tessera.hpp>

#include "samples/support/sample.h"

namespace ts = tessera;
using ts::Ref, ts::Value, ts::all;

/// The Gaussian error linear unit by its usual approximation.
Value gelu(Value x) { return 0.5 * x * (1 + ts::tanh(0.7978845608 * (x + 0.044715 * x * x * x))); }

template <class Activation> ts::Array matmul(const ts::Array& x, const ts::Array& y, Activation activation) {
  const int64_t m = x.shape()[0], k = x.shape()[1], n = y.shape()[1];
  return ts::pallas_call(
      [=](Ref x_ref, Ref y_ref, Ref z_ref) { z_ref[all] = activation(ts::dot(x_ref[all], y_ref[all])); },
      {.out_shape = {{{m, n}, x.dtype()}},
       .grid = {2, 2},
       .in_specs = {{{m / 2, k}, [](Value i, Value) { return ts::Indices{i, 0}; }},
                    {{k, n / 2}, [](Value, Value j) { return ts::Indices{0, j}; }}},
       .out_specs = {{{m / 2, n / 2}, [](Value i, Value j) { return ts::Indices{i, j}; }}},
       .name = "matmul_activation"})(x, y);
}

int main() try {
  const ts::Array x = sample::random({1024, 1024}, 1), y = sample::random({1024, 1024}, 2, 0.125);
  // The product errs by at most 0.003 / 8 (see matmul.cpp), gelu's slope is at most 1.13, and the errors of a row's
  // 1024 entries are independent.
  return sample::check("matmul_activation", matmul(x, y, gelu), {.entries = 4.5e-4, .row_sums = 0.015});
} catch (const std::exception& e) {
  return sample::fail("matmul_activation", e);
}
