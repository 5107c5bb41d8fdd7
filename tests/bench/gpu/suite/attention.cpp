#include <tessera/tessera.hpp>

#include "samples/kernels/flash_attention.h"
#include "tests/bench/gpu/suite/suite.h"

namespace tessera::gpu_suite {
namespace {

struct Attention {
  int64_t batch, length, heads, d;
  DType dtype;
  bool causal;
  std::string flags() const { return causal ? " -DCAUSAL" : ""; }
  std::vector<std::pair<std::string, int64_t>> sizes() const {
    return {{"BATCH", batch}, {"LENGTH", length}, {"HEADS", heads}, {"D", d}};
  }
};

/// Without matrix instructions; `rows` of an invocation: more reuse, or more invocations.
Shader plain_attention(const Attention& a, int64_t rows, int64_t keys) {
  const int64_t local = 1024 / rows;
  return {.file = "flash",
          .defines = macros(a.sizes()) + " " +
                     macros({{"KIND", kind(a.dtype)}, {"ROWS", rows}, {"LOCAL", local}, {"KEYS", keys}}) + a.flags(),
          .groups = a.batch * a.heads * (a.length / 64),
          .local = static_cast<int32_t>(local),
          .inner = "fma " + std::to_string(rows * keys / 4 * local),
          .note = std::to_string(rows) + " rows of an invocation, " + std::to_string(keys) +
                  " keys at a time; the loops over d and keys are innermost"};
}

Shader attention_by_matrices(const Attention& a, int64_t f, int64_t block, int64_t waves, int64_t wave) {
  return {.file = "flash_matrix",
          .defines = macros(a.sizes()) + " " + macros({{"FM", f}, {"BLOCK", block}, {"WAVES", waves}, {"WAVE", wave}}) +
                     a.flags(),
          .device_class = "matrix",
          .groups = a.batch * a.heads * (a.length / (waves * f)),
          .local = static_cast<int32_t>(waves * wave),
          .inner = "fma " + std::to_string(2 * waves * f * block * a.d),
          .note = "matrices of " + std::to_string(f) + "x" + std::to_string(f) + "x" + std::to_string(f)};
}

Case flash(const Attention& a, Sizes sizes) {
  const kernels::Type t({a.batch, a.length, a.heads, a.d}, a.dtype);
  const PallasCall call = kernels::flash_attention(t, t, t, {.causal = a.causal});
  Case c{std::string("flash_") + (a.causal ? "causal_" : "") + short_name(a.dtype) + "_d" + std::to_string(a.d) + "_" +
             std::to_string(a.length),
         call.trace(),
         {},
         a.dtype == f32 ? 1e-5 : 4e-3,
         (a.causal ? 2.0 : 4.0) * static_cast<double>(a.batch * a.heads * a.length * a.length * a.d)};
  // Blocks of 64 keys take 48 KiB of shared memory where a row has 256 bytes, which lavapipe and some chips do not
  // have.
  const bool large = a.d * size_bytes(a.dtype) > 128;
  for (const int64_t keys : {64, 32}) {
    if (keys == 64 ? large && sizes == Sizes::small : !large) continue;
    if (a.d == 64) c.shaders.push_back(plain_attention(a, 8, keys));
    c.shaders.push_back(plain_attention(a, 4, keys));
  }
  if (a.dtype == f16 && sizes == Sizes::full) {
    c.shaders.push_back(attention_by_matrices(a, 16, a.d == 64 ? 64 : 32, 4, 32));
    if (a.d == 64) c.shaders.push_back(attention_by_matrices(a, 16, 32, 4, 32));
  } else if (a.dtype == f16) {
    c.shaders.push_back(attention_by_matrices(a, 8, a.d == 64 ? 16 : 8, 4, 8));
  }
  return c;
}

}  // namespace

void attention(std::vector<Case>& cases, Sizes sizes) {
  const bool full = sizes == Sizes::full;
  const int64_t length = full ? 4096 : 128, heads = full ? 16 : 2;
  for (const bool causal : {false, true}) {
    cases.push_back(flash({1, length, heads, 64, f32, causal}, sizes));
    for (const int64_t d : {64, 128}) cases.push_back(flash({1, length, heads, d, f16, causal}, sizes));
  }
}

}  // namespace tessera::gpu_suite
