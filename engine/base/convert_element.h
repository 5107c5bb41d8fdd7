// Converts one element of any dtype to any other, as op convert does: truncating, saturating, rounding once. Header
// only, for the typed loops of ir/reference.cpp and for number.cpp. Of the two, only number.cpp is linked into programs
// that run kernels but never interpret them.
#pragma once
#include <bit>
#include <limits>
#include <type_traits>

#include "engine/base/element.h"

namespace tessera::reference {

template <class T> constexpr T lowest() { return std::numeric_limits<T>::lowest(); }
template <class T> constexpr int kBits = static_cast<int>(sizeof(T)) * 8;

template <DType t> using Memory = typename ElementOf<t>::Memory;
template <DType t> using Compute = typename ElementOf<t>::Compute;
template <DType t> Memory<t> element_of(uint64_t bits) {
  if constexpr (t == DType::f32) return std::bit_cast<float>(static_cast<uint32_t>(bits));
  else if constexpr (t == DType::f64) return std::bit_cast<double>(bits);
  else return static_cast<Memory<t>>(bits);
}
template <DType t> uint64_t bits_of_element(Memory<t> x) {
  if constexpr (t == DType::f32) return std::bit_cast<uint32_t>(x);
  else if constexpr (t == DType::f64) return std::bit_cast<uint64_t>(x);
  else if constexpr (is_int4(t)) return x & 15u;
  else return static_cast<std::make_unsigned_t<Memory<t>>>(x);
}

template <DType to, DType from> Memory<to> convert_element(Memory<from> m) {
  if constexpr (to == from) return m;
  else {
    using C = Compute<from>;
    // loops over bool are not vectorised
    const std::conditional_t<from == DType::boolean, int, C> x = ElementOf<from>::get(m);
    if constexpr (to == DType::boolean) return x != C{0};
    else if constexpr (is_float(to)) {
      // Wider types reach the narrow floats through f32, as in JAX on the CPU.
      if constexpr (to == DType::f64) return static_cast<double>(x);
      else return ElementOf<to>::put(static_cast<float>(x));
    } else if constexpr (is_float(from)) {
      using T = Compute<to>;
      // 2^(n-1) or 2^n
      constexpr C above = C{2} * static_cast<C>(T{1} << (bits(to) - 2)) * (is_signed_int(to) ? C{1} : C{2});
      constexpr int unused = kBits<T> - bits(to);
      if (x != x) return ElementOf<to>::put(T{0});
      if (x <= static_cast<C>(lowest<T>() >> unused)) return ElementOf<to>::put(lowest<T>() >> unused);
      if (x >= above) return ElementOf<to>::put(std::numeric_limits<T>::max() >> unused);
      return ElementOf<to>::put(static_cast<T>(x));
    } else return ElementOf<to>::put(static_cast<Compute<to>>(x));
  }
}

}  // namespace tessera::reference
