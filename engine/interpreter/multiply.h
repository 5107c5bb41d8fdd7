// c = a b for dense row-major matrices, where a dot spends its time. There are several implementations, and the best
// one that this machine has is chosen at run time: OpenBLAS for floats if it is installed and knows the CPU, else loops
// of our own, compiled for several instruction sets. Each gives the same result from run to run; they differ in the
// rounding of float sums. dot.h permutes and converts operands.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

namespace tessera::interpreter {

/// T is float, double, uint8_t, uint16_t, uint32_t or uint64_t (integers wrap).
template <class T> using Multiply = void (*)(int64_t m, int64_t n, int64_t k, const T* a, const T* b, T* c);

template <class T> struct MultiplyCode {
  std::string_view name;  // "OpenBLAS for SkylakeX", "AVX-512", "AVX2", "portable"
  Multiply<T> run;
};
/// Those that this machine can run, the one to use first.
template <class T> const std::vector<MultiplyCode<T>>& multiply_codes();

}  // namespace tessera::interpreter
