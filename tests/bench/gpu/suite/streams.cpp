#include <tessera/tessera.hpp>

#include "tests/bench/gpu/suite/suite.h"

namespace tessera::gpu_suite {
namespace {

/// o = a x + y over n elements, in the dtype itself.
Case axpy(int64_t n, DType t) {
  const int64_t block = 4096;
  const BlockSpec part{{block}, [](Value i) { return Indices{i}; }};
  const PallasCall call = pallas_call([](Ref a, Ref x, Ref y, Ref o) { o[all] = a[0] * x[all] + y[all]; },
                                      {.out_shape = {{{n}, t}},
                                       .grid = cdiv(n, block),
                                       .in_specs = {no_block_spec, part, part},
                                       .out_specs = part,
                                       .name = "axpy"});
  const int64_t each = 2 * 16 / size_bytes(t);
  const Shader shader{.file = "stream",
                      .defines = macros({{"KIND", kind(t)}, {"COUNT", n}}),
                      .groups = cdiv(n, 256 * each),
                      .inner = "bytes " + std::to_string(3 * 256 * 2 * 16)};
  return {"axpy_" + short_name(t) + "_" + std::to_string(n),
          call.trace({{{1}, t}, {{n}, t}, {{n}, t}}),
          {shader},
          // a multiply-add may be fused
          t == f32   ? 1e-6
          : t == f16 ? 1e-3
                     : 8e-3};
}

/// o = x transposed, a tile to a program.
Case transposed(int64_t m, int64_t n, DType t) {
  const int64_t tile = 64;
  const PallasCall call = pallas_call([](Ref x, Ref o) { o[all] = transpose(x[all]); },
                                      {.out_shape = {{{n, m}, t}},
                                       .grid = {cdiv(m, tile), cdiv(n, tile)},
                                       .in_specs = {{{tile, tile}, [](Value i, Value j) { return Indices{i, j}; }}},
                                       .out_specs = {{{tile, tile}, [](Value i, Value j) { return Indices{j, i}; }}},
                                       .name = "transpose"});
  const int64_t vec = 16 / size_bytes(t), pieces = tile / vec;
  const bool whole = m % tile == 0 && n % tile == 0;
  Shader shader{.file = whole ? "transpose" : "transpose_any",
                .defines = macros({{"KIND", kind(t)}, {"M", m}, {"N", n}}),
                .groups = cdiv(m, tile) * cdiv(n, tile),
                .local = whole ? static_cast<int32_t>(pieces * pieces) : 256,
                .inner = "bytes " + std::to_string(2 * tile * tile * size_bytes(t))};
  return {"transpose_" + short_name(t) + "_" + std::to_string(m) + "x" + std::to_string(n),
          call.trace({{{m, n}, t}}),
          {shader},
          0};
}

}  // namespace

void streams(std::vector<Case>& cases, Sizes sizes) {
  const bool full = sizes == Sizes::full;
  for (const DType t : {f32, f16, bf16}) {
    cases.push_back(axpy(full ? 1 << 24 : 8192, t));
    if (t == f32 || !full) cases.push_back(axpy(full ? 1'000'003 : 5003, t));
  }
  for (const DType t : {f32, f16}) {
    cases.push_back(full ? transposed(4096, 4096, t) : transposed(128, 192, t));
    if (t == f32 || !full) cases.push_back(full ? transposed(1000, 777, t) : transposed(100, 77, t));
  }
}

}  // namespace tessera::gpu_suite
