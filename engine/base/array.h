// Array: a dense row-major array in host memory, with value semantics (copies share storage until written). Shapes are
// in elements. Device arrays are runtime/'s; .npy files are npy.h's.
#pragma once
#include <cstddef>
#include <cstring>
#include <iosfwd>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

#include "engine/base/dtype.h"
#include "engine/base/error.h"
#include "engine/base/extent.h"

namespace tessera {

/// The C++ type that stores one element; floats narrower than f32 and 4-bit integers are stored as these wrappers of
/// their bits.
struct half_t {
  uint16_t bits = 0;
  half_t() = default;
  explicit half_t(float x) : bits(to_f16_bits(x)) {}
  operator float() const { return from_f16_bits(bits); }
};
struct bfloat16_t {
  uint16_t bits = 0;
  bfloat16_t() = default;
  explicit bfloat16_t(float x) : bits(to_bf16_bits(x)) {}
  operator float() const { return from_bf16_bits(bits); }
};

struct float8_e4m3fn_t {
  uint8_t bits = 0;
  float8_e4m3fn_t() = default;
  explicit float8_e4m3fn_t(float x) : bits(to_f8e4m3fn_bits(x)) {}
  operator float() const { return from_f8e4m3fn_bits(bits); }
};
struct float8_e5m2_t {
  uint8_t bits = 0;
  float8_e5m2_t() = default;
  explicit float8_e5m2_t(float x) : bits(to_f8e5m2_bits(x)) {}
  operator float() const { return from_f8e5m2_bits(bits); }
};
struct int4_t {
  uint8_t bits = 0;
  int4_t() = default;
  explicit int4_t(int x) : bits(static_cast<uint8_t>(x & 15)) {}
  operator int() const { return ((bits & 15) ^ 8) - 8; }
};
struct uint4_t {
  uint8_t bits = 0;
  uint4_t() = default;
  explicit uint4_t(int x) : bits(static_cast<uint8_t>(x & 15)) {}
  operator int() const { return bits & 15; }
};

template <class T> constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, bool>) return DType::boolean;
  else if constexpr (std::is_same_v<T, half_t>) return DType::f16;
  else if constexpr (std::is_same_v<T, bfloat16_t>) return DType::bf16;
  else if constexpr (std::is_same_v<T, float8_e4m3fn_t>) return DType::f8e4m3fn;
  else if constexpr (std::is_same_v<T, float8_e5m2_t>) return DType::f8e5m2;
  else if constexpr (std::is_same_v<T, int4_t>) return DType::i4;
  else if constexpr (std::is_same_v<T, uint4_t>) return DType::u4;
  else if constexpr (std::is_same_v<T, float>) return DType::f32;
  else if constexpr (std::is_same_v<T, double>) return DType::f64;
  else {
    static_assert(std::is_integral_v<T>,
                  "an Array holds bool, integers, int4_t, uint4_t, float8_e4m3fn_t, float8_e5m2_t, half_t, bfloat16_t, "
                  "float or double");
    constexpr int log2 = sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : 3;
    return static_cast<DType>(static_cast<int>(std::is_signed_v<T> ? DType::i8 : DType::u8) + log2);
  }
}

/// Shape and dtype of an array; dims may be run-time sizes (ts::dim).
struct ShapeDtype {
  std::vector<Extent> shape;
  DType dtype = DType::f32;
};

class Array {
 public:
  Array() : Array(Shape{0}, DType::f32) {}
  /// Zero-filled.
  Array(Shape shape, DType dtype);
  /// Copies row-major `data`; SpecError if its length is not the product of `shape`.
  template <class T> Array(Shape shape, const std::vector<T>& data) : Array(std::move(shape), dtype_of<T>()) {
    if (static_cast<int64_t>(data.size()) != size())
      throw SpecError("Array: shape " + to_string(shape_) + " has " + std::to_string(size()) +
                      " elements but the data has " + std::to_string(data.size()));
    std::byte* out = bytes();
    for (size_t i = 0; i < data.size(); ++i) {
      const T v = data[i];
      std::memcpy(out + i * sizeof(T), &v, sizeof(T));
    }
  }

  const Shape& shape() const { return shape_; }
  DType dtype() const { return dtype_; }
  int64_t size() const { return num_elements(shape_); }
  int64_t nbytes() const { return size() * size_bytes(dtype_); }
  const std::byte* bytes() const { return storage().data(); }
  std::byte* bytes();  ///< makes the storage this Array's own first

  /// Elements in row-major order; SpecError if T is not the dtype's C++ type.
  template <class T> std::span<const T> data() const {
    check(dtype_of<T>());
    return {reinterpret_cast<const T*>(bytes()), static_cast<size_t>(size())};
  }
  template <class T> std::span<T> data() {
    check(dtype_of<T>());
    return {reinterpret_cast<T*>(bytes()), static_cast<size_t>(size())};
  }
  /// Element by row-major position as double (64-bit integers may round).
  double at(int64_t i) const;
  /// The bits of element i, zero-extended, and their replacement (of an i4 or u4 the lower four of the byte).
  uint64_t element_bits(int64_t i) const;
  void set_element_bits(int64_t i, uint64_t bits);

  /// This array as an argument of one call, which may keep its memory: call(donate(x)). The output that is aliased to
  /// it takes the memory instead of a copy. x keeps shape and dtype; every later use of its elements throws SpecError.
  friend Array donate(Array& x);
  /// For interpreters: made by donate(); the same storage as an array of its own, which whoever was given the donated
  /// one no longer looks at.
  bool donated() const { return donated_; }
  Array take() const;

 private:
  void check(DType wanted) const;
  const std::vector<std::byte>& storage() const {
    if (!data_ || (donated_ && data_->empty() && size() > 0)) gone();
    return *data_;
  }
  [[noreturn]] void gone() const;
  Shape shape_;
  DType dtype_;
  std::shared_ptr<std::vector<std::byte>> data_;  // null: donated away
  bool donated_ = false;
};
Array donate(Array& x);

/// "f32[2, 3] [[1 2 3] [4 5 6]]", with ... beyond a few elements per dim, as NumPy abbreviates.
std::ostream& operator<<(std::ostream& out, const Array& a);

}  // namespace tessera
