// Scalar: a number that a call passes to a kernel by value (ts::by_value in its in_specs). It takes the dtype of the
// argument. Read next: front/spec.h.
#pragma once
#include <cstdint>
#include <string>
#include <type_traits>
#include <variant>

#include "engine/base/dtype.h"

namespace tessera {

class Array;

/// A number as the widest of its kind: bool, int64_t, uint64_t or double.
template <class T>
  requires std::is_arithmetic_v<T>
constexpr auto widened(T x) {
  if constexpr (std::is_same_v<T, bool>) return x;
  else if constexpr (std::is_floating_point_v<T>) return static_cast<double>(x);
  else if constexpr (std::is_signed_v<T>) return static_cast<int64_t>(x);
  else return static_cast<uint64_t>(x);
}

/// A bool for bool arguments, an integer for integers (in their range) and floats, a floating number for floats, which
/// rounds to nearest even. Or one element of a dtype, for arguments of that dtype.
class Scalar {
 public:
  template <class T>
    requires std::is_arithmetic_v<T>
  Scalar(T x) : number_(widened(x)) {}  // NOLINT: implicit on purpose
  /// Of exactly this dtype; the lowest bits, as memory holds them.
  Scalar(DType dtype, uint64_t bits) : number_(Element{dtype, bits & (~uint64_t{0} >> (64 - tessera::bits(dtype)))}) {}
  /// The element of an array of rank 0; SpecError for other ranks.
  static Scalar of(const Array& array);

  /// That it has alone: bool, i32 or f32, or the element's.
  DType dtype() const;
  /// An array of rank 0; if it fits.
  Array array(DType t) const;
  /// Whether an argument of dtype t can take it.
  bool fits(DType t) const;
  /// What memory of dtype t would hold, zero-extended; if it fits.
  uint64_t bits(DType t) const;
  /// Why it does not fit: "the number is 300 but i8 holds -128 to 127".
  std::string misfit(DType t) const;

 private:
  struct Element {
    DType dtype;
    uint64_t bits;
  };
  using Number = std::variant<bool, int64_t, uint64_t, double, Element>;
  Number number_;
};

template <class T>
concept ScalarNumber = std::is_arithmetic_v<T> || std::is_same_v<T, Scalar>;

}  // namespace tessera
