#include <tessera/tessera.hpp>

#include "samples/kernels/n_body.h"
#include "tests/bench/gpu/suite/suite.h"

namespace tessera::gpu_suite {
namespace {

/// o = the counts so far plus how often each byte is in x, by atomics on memory.
Case histogram(int64_t n) {
  const int64_t block = 4096;
  const PallasCall call =
      pallas_call([](Ref x, Ref, Ref o) { atomic_add(o, {cast(x[all], i32)}, full({block}, 1, i32)); },
                  {.out_shape = {{{256}, i32}},
                   .grid = cdiv(n, block),
                   .in_specs = {{{block}, [](Value i) { return Indices{i}; }}, no_block_spec},
                   .out_specs = no_block_spec,
                   .input_output_aliases = {{1, 0}},
                   .name = "histogram"});
  const int64_t pieces = n / 16, each = n >= 1 << 20 ? 16 : 2;
  return {"histogram_u8_" + std::to_string(n),
          call.trace({{{n}, u8}, {{256}, i32}}),
          {{.file = "histogram",
            .defines = macros({{"COUNT", n}, {"EACH", each}}),
            .groups = cdiv(pieces, 256 * each),
            .inner = "bytes " + std::to_string(256 * 16)}},
          0};
}

Case n_body(int64_t n) {
  const int64_t each = n >= 65536 ? 2 : 1, local = n >= 1024 ? 256 : 64;
  return {"n_body_" + std::to_string(n),
          kernels::n_body_step(n, 0.05).trace({{{4, n}, f32}, {{4, n}, f32}, {{3, n}, f32}, {{2}, f32}}),
          {{.file = "n_body",
            .defines = macros({{"COUNT", n}, {"EACH", each}, {"LOCAL", local}}) + " -DSOFTENING=0.05",
            .groups = cdiv(n, local * each),
            .local = static_cast<int32_t>(local),
            .inner = "pair " + std::to_string(local * each)}},
          1e-4,
          20 * static_cast<double>(n) * static_cast<double>(n)};  // 20 for a pair of bodies, as is usual
}

}  // namespace

void particles(std::vector<Case>& cases, Sizes sizes) {
  const bool full = sizes == Sizes::full;
  cases.push_back(histogram(full ? 1 << 24 : 1 << 15));
  if (full) cases.push_back(histogram(1 << 20));
  cases.push_back(n_body(full ? 16384 : 320));
  if (full) cases.push_back(n_body(65536));
}

}  // namespace tessera::gpu_suite
