// The loops over arrays of f32: once for any machine, and once more for x86's vectors of 32 bytes, chosen when the
// program runs.
#include "engine/ir/narrow_math.h"

#if defined(__x86_64__) && defined(__GNUC__) && \
    !defined(_WIN32)  // there g++ spills wide vectors to stacks that are not aligned for them
#define TESSERA_AVX2 1
#endif
#if defined(__clang__)  // x and y are the same array or two: no iteration reads an element that another writes
#define TESSERA_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define TESSERA_INDEPENDENT _Pragma("GCC ivdep")
#endif

namespace tessera::narrow {
namespace {

#ifdef TESSERA_AVX2
const bool has_avx2 = [] {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx2") != 0;
}();
#endif

}  // namespace

#ifdef TESSERA_AVX2
#define TESSERA_LOOP(f)                                                                      \
  namespace {                                                                                \
  [[gnu::target("avx2")]] void f##_avx2(const float* x, float* y, int64_t n) {               \
    TESSERA_INDEPENDENT                                                                      \
    for (int64_t i = 0; i < n; ++i) y[i] = static_cast<float>(f(static_cast<double>(x[i]))); \
  }                                                                                          \
  }                                                                                          \
  void f##_array(const float* x, float* y, int64_t n) {                                      \
    if (has_avx2) return f##_avx2(x, y, n);                                                  \
    TESSERA_INDEPENDENT                                                                      \
    for (int64_t i = 0; i < n; ++i) y[i] = static_cast<float>(f(static_cast<double>(x[i]))); \
  }
#else
#define TESSERA_LOOP(f)                                                                      \
  void f##_array(const float* x, float* y, int64_t n) {                                      \
    TESSERA_INDEPENDENT                                                                      \
    for (int64_t i = 0; i < n; ++i) y[i] = static_cast<float>(f(static_cast<double>(x[i]))); \
  }
#endif
TESSERA_LOOP(exp)
TESSERA_LOOP(exp2)
TESSERA_LOOP(logistic)
TESSERA_LOOP(tanh)
TESSERA_LOOP(log)
TESSERA_LOOP(log2)

}  // namespace tessera::narrow
