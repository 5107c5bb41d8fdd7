#include "engine/interpreter/multiply.h"

#include <algorithm>
#include <limits>
#include <string>
#include <type_traits>

#include "engine/base/platform.h"

namespace tessera::interpreter {
namespace {
#define TESSERA_INLINE [[gnu::always_inline]] inline  // into functions compiled for other instruction sets

// Columns of b are packed into panels as wide as a register tile; each element of c is summed over k in order, in
// registers, so the blocking does not show in the result. kBytes is the width of the CPU's vectors; kRows x kVectors of
// them must fit its registers.
template <class T, int kBytes, int kRows, int kVectors> TESSERA_INLINE void multiply_tiles(int64_t m, int64_t n,
                                                                                           int64_t k, const T* a,
                                                                                           const T* b, T* c) {
  typedef T Vector __attribute__((vector_size(kBytes)));
  typedef T Unaligned __attribute__((vector_size(kBytes), aligned(alignof(T)), may_alias));
  constexpr int64_t kLanes = kBytes / static_cast<int64_t>(sizeof(T)), kColumns = kLanes * kVectors;
  if (m * n * k < 512 || k == 0) {  // not worth packing
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        // narrow unsigned types would be promoted to int
        using Wide = std::conditional_t<std::is_integral_v<T>, uint64_t, T>;
        Wide sum{0};
        for (int64_t p = 0; p < k; ++p) sum += Wide{a[i * k + p]} * Wide{b[p * n + j]};
        c[i * n + j] = static_cast<T>(sum);
      }
    return;
  }
  std::vector<T> panel(static_cast<size_t>(k * kColumns));
  T tile[kRows * kColumns];
  for (int64_t j = 0; j < n; j += kColumns) {
    const int64_t columns = std::min(kColumns, n - j);
    for (int64_t p = 0; p < k; ++p) std::copy_n(b + p * n + j, columns, panel.data() + p * kColumns);
    for (int64_t i = 0; i < m; i += kRows) {
      const int64_t rows = std::min<int64_t>(kRows, m - i);
      // rows beyond the last repeat it; like columns beyond the last, they are not copied from the tile
      const T* source[kRows];
      for (int64_t r = 0; r < kRows; ++r) source[r] = a + (i + std::min(r, rows - 1)) * k;
      Vector sum[kRows][kVectors] = {};
      const T* row = panel.data();
      for (int64_t p = 0; p < k; ++p, row += kColumns) {
#pragma GCC unroll 8
        for (int64_t r = 0; r < kRows; ++r)
#pragma GCC unroll 8
          for (int64_t v = 0; v < kVectors; ++v)
            sum[r][v] += source[r][p] * *reinterpret_cast<const Unaligned*>(row + v * kLanes);
      }
      const bool whole = rows == kRows && columns == kColumns;
      T* to = whole ? c + i * n + j : tile;
      const int64_t pitch = whole ? n : kColumns;
#pragma GCC unroll 8
      for (int64_t r = 0; r < kRows; ++r)
#pragma GCC unroll 8
        for (int64_t v = 0; v < kVectors; ++v) *reinterpret_cast<Unaligned*>(to + r * pitch + v * kLanes) = sum[r][v];
      if (!whole)
        for (int64_t r = 0; r < rows; ++r) std::copy_n(tile + r * kColumns, columns, c + (i + r) * n + j);
    }
  }
}

template <class T> void portable(int64_t m, int64_t n, int64_t k, const T* a, const T* b, T* c) {
  multiply_tiles<T, 16, 4, 3>(m, n, k, a, b, c);
}
// Windows keeps stacks aligned to 16 bytes only, and g++ spills vectors of 32 and 64 there all the same.
#if defined(__x86_64__) && !defined(_WIN32)
#define TESSERA_WIDE_VECTORS
#endif
#ifdef TESSERA_WIDE_VECTORS
template <class T> [[gnu::target("avx2,fma")]] void avx2(int64_t m, int64_t n, int64_t k, const T* a, const T* b,
                                                         T* c) {
  multiply_tiles<T, 32, 4, 3>(m, n, k, a, b, c);
}
template <class T> [[gnu::target("avx512f,avx512bw,avx512dq,fma")]] void avx512(int64_t m, int64_t n, int64_t k,
                                                                                const T* a, const T* b, T* c) {
  multiply_tiles<T, 64, 8, 3>(m, n, k, a, b, c);
}
#endif

// OpenBLAS, opened at the first product, so that programs start without it. `core` is the name of the CPU that its code
// is for.
template <class T> using Gemm = void (*)(int order, int transpose_a, int transpose_b, int m, int n, int k, T alpha,
                                         const T* a, int lda, const T* b, int ldb, T beta, T* c, int ldc);
struct OpenBlas {
  std::string core;
  Gemm<float> sgemm = nullptr;
  Gemm<double> dgemm = nullptr;

  OpenBlas() {
    const bool shared = platform::is_open(platform::kOpenBlas);  // with the program, which may have set its threads
    void* library = platform::open_library(platform::kOpenBlas);
    if (!library) return;
    const auto get_corename = reinterpret_cast<const char* (*)()>(platform::symbol(library, "openblas_get_corename"));
    const auto set_threads = reinterpret_cast<void (*)(int)>(platform::symbol(library, "openblas_set_num_threads"));
    if (!get_corename || !set_threads) return;
    if (!shared) set_threads(1);  // blocks are too small for more, and it is the caller's to use its cores
    core = get_corename();
    sgemm = reinterpret_cast<Gemm<float>>(platform::symbol(library, "cblas_sgemm"));
    dgemm = reinterpret_cast<Gemm<double>>(platform::symbol(library, "cblas_dgemm"));
  }
};
const OpenBlas& open_blas() {
  static const OpenBlas library;
  return library;
}

template <class T> Gemm<T> gemm() {
  if constexpr (std::is_same_v<T, float>) return open_blas().sgemm;
  else if constexpr (std::is_same_v<T, double>) return open_blas().dgemm;
  else return nullptr;
}
template <class T> void by_library(int64_t m, int64_t n, int64_t k, const T* a, const T* b, T* c) {
  if (std::max({m, n, k}) > std::numeric_limits<int>::max() || k == 0) return portable(m, n, k, a, b, c);
  const int columns = static_cast<int>(n), inner = static_cast<int>(k);
  constexpr int kRowMajor = 101, kNoTranspose = 111;
  gemm<T>()(kRowMajor, kNoTranspose, kNoTranspose, static_cast<int>(m), columns, inner, T{1}, a, inner, b, columns,
            T{0}, c, columns);
}

template <class T> std::vector<MultiplyCode<T>> find_codes() {
  std::vector<MultiplyCode<T>> codes;
#ifdef TESSERA_WIDE_VECTORS
  __builtin_cpu_init();
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (has_avx2 && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq"))
    codes.push_back({"AVX-512", avx512<T>});
  if (has_avx2) codes.push_back({"AVX2", avx2<T>});
#endif
  codes.push_back({"portable", portable<T>});
  if (gemm<T>()) {
    static const std::string name = "OpenBLAS for " + open_blas().core;
    // An OpenBLAS older than the CPU may take it for a Prescott, which is slower than any loop of ours.
    codes.insert(open_blas().core == "Prescott" ? codes.end() : codes.begin(), {name, by_library<T>});
  }
  return codes;
}
}  // namespace

template <class T> const std::vector<MultiplyCode<T>>& multiply_codes() {
  static const std::vector<MultiplyCode<T>> codes = find_codes<T>();
  return codes;
}
template const std::vector<MultiplyCode<float>>& multiply_codes();
template const std::vector<MultiplyCode<double>>& multiply_codes();
template const std::vector<MultiplyCode<uint8_t>>& multiply_codes();
template const std::vector<MultiplyCode<uint16_t>>& multiply_codes();
template const std::vector<MultiplyCode<uint32_t>>& multiply_codes();
template const std::vector<MultiplyCode<uint64_t>>& multiply_codes();

}  // namespace tessera::interpreter
