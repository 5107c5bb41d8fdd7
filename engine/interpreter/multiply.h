// c = a b for dense row-major matrices: where the time of a dot goes. There are several codes for it, and the best one
// that this machine has is chosen at run time: OpenBLAS for floats if it is there and knows the CPU, else loops of our
// own, compiled for several instruction sets. Each is the same from run to run; they differ in the rounding of float
// sums. Permuting and converting operands is dot.h's.
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
