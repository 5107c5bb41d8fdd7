// Value: a tile value while a kernel is being traced, and the operators on it. A kernel lambda runs once; its
// computations with Values are recorded as IR. Operand is what every op takes: a Value, a read of a Ref (x[all]) or a
// number, with the user's line. A Value is no array: it cannot be printed, compared in an `if` or kept after its
// kernel's trace. Read next: ref.h (reading and writing memory), ops.h (the other ops), control.h (loops and branches).
#pragma once
#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/extent.h"
#include "engine/base/scalar.h"
#include "engine/ir/kernel.h"

namespace tessera {

class Operand;
class RefItem;
class Results;

/// The dtype in which two Values of different dtypes meet, by JAX's promotion lattice (jnp.promote_types with 64-bit
/// types enabled): bool < ints < floats, i8 + u8 = i16, i64 + u64 = f64, f16 + bf16 = f32, any int + f16 = f16. Nothing
/// where JAX refuses: 8-bit floats meet bool and integers of 8 bits and more only, 4-bit integers bool only.
std::optional<DType> promote_types(DType a, DType b);

/// A dense array of static shape and dtype, known by name only: its elements exist when the kernel runs.
class Value {
 public:
  const Shape& shape() const { return type_.shape; }
  DType dtype() const { return type_.dtype; }
  int rank() const { return static_cast<int>(type_.shape.size()); }

  /// Inside of a kernel, the value of a run-time size, i32: Value h = ts::dim("h"); ts::cdiv(ts::dim("h"), 2) too.
  template <std::same_as<Extent> T>
  Value(const T& size, Loc l = Loc::here()) : Value(of_size(size, l)) {}  // NOLINT: implicit on purpose

  // Not inline: a program compiles Tessera's headers faster.
  Value(const Value& v);
  Value(Value&& v) noexcept;
  Value& operator=(const Value& v);
  Value& operator=(Value&& v) noexcept;
  ~Value();

  /// `if (v < 3)` would ask for an element's value while tracing, which there is none of: use where(), when() or
  /// cond().
  explicit operator bool() const = delete;

  Value& operator+=(Operand b);
  Value& operator-=(Operand b);
  Value& operator*=(Operand b);
  Value& operator/=(Operand b);
  Value& operator%=(Operand b);
  Value& operator&=(Operand b);
  Value& operator|=(Operand b);
  Value& operator^=(Operand b);
  Value& operator<<=(Operand b);
  Value& operator>>=(Operand b);

 private:
  friend class Trace;
  static Value of_size(const Extent& size, Loc l);
  Value(uint64_t trace, ir::RegionId region, ir::Value id, ir::Type type)
      : trace_(trace), region_(region), id_(id), type_(std::move(type)) {}
  uint64_t trace_;       // serial number of the Trace it belongs to
  ir::RegionId region_;  // where it was made: usable there and in regions inside
  ir::Value id_;
  ir::Type type_;
};

/// What an op takes. A number has no dtype of its own and adopts the other side's (JAX's weak types): float Values keep
/// their dtype, an integer Value meets a floating number in f32, a bool Value meets an integer in i32; alone, numbers
/// are f32, i32 or bool. A number that the dtype cannot hold is a TraceError. The last parameter of each constructor is
/// the user's line; leave it out.
class Operand {
 public:
  using Number = std::variant<bool, int64_t, uint64_t, double>;

  Operand();                                     ///< absent, for optional operands (masks)
  Operand(const Value& v, Loc l = Loc::here());  // NOLINT: implicit on purpose, as the next two
  Operand(RefItem&& read, Loc l = Loc::here());  // NOLINT
  template <std::same_as<Extent> T>
  Operand(const T& size, Loc l = Loc::here()) : Operand(Value(size, l), l) {}  // NOLINT: a run-time size
  // NOLINT: of a call inside jit that has one result
  Operand(const Results& one, Loc l = Loc::here());
  template <class T>
  // NOLINT
    requires std::is_arithmetic_v<T>
  Operand(T number, Loc l = Loc::here()) : Operand(Number(widened(number)), l) {}
  Operand(const Operand& o);
  Operand(Operand&& o) noexcept;
  Operand& operator=(const Operand& o);
  Operand& operator=(Operand&& o) noexcept;
  ~Operand();

  bool absent() const { return !value_ && !number_; }
  const std::optional<Value>& value() const { return value_; }
  const std::optional<Number>& number() const { return number_; }
  Loc loc() const { return loc_; }
  /// The same operand as of another line.
  Operand at(Loc l) const;

 private:
  Operand(Number number, Loc l);
  std::optional<Value> value_;
  std::optional<Number> number_;
  Loc loc_;
};

/// What a call inside of jit has made (engine/call/jit.h). A single result is a Value: `Value y = matmul(a, b);`,
/// `matmul(a, b) + 1`.
class Results {
 public:
  Results(std::vector<Value> values, std::string name) : values_(std::move(values)), name_(std::move(name)) {}
  /// TraceError if there are several.
  operator Value() const;  // NOLINT: implicit on purpose
  size_t size() const { return values_.size(); }
  const Value& operator[](size_t i) const;
  auto begin() const { return values_.begin(); }
  auto end() const { return values_.end(); }
  const std::vector<Value>& values() const { return values_; }

 private:
  std::vector<Value> values_;
  std::string name_;  // of what was called
};

// Shapes meet by NumPy's rules (counted from the last dim, equal or 1), dtypes by promote_types. bool + is "or", bool *
// is "and".
Value operator+(Operand a, Operand b);
Value operator-(Operand a, Operand b);
Value operator*(Operand a, Operand b);
/// A run-time size and a floating number, in a kernel: of two sizes these are sizes.
template <std::same_as<Extent> E, std::floating_point T> Value operator+(const E& a, T b) { return Operand(a) + b; }
template <std::same_as<Extent> E, std::floating_point T> Value operator+(T a, const E& b) { return a + Operand(b); }
template <std::same_as<Extent> E, std::floating_point T> Value operator-(const E& a, T b) { return Operand(a) - b; }
template <std::same_as<Extent> E, std::floating_point T> Value operator-(T a, const E& b) { return a - Operand(b); }
template <std::same_as<Extent> E, std::floating_point T> Value operator*(const E& a, T b) { return Operand(a) * b; }
template <std::same_as<Extent> E, std::floating_point T> Value operator*(T a, const E& b) { return a * Operand(b); }
Value operator/(Operand a, Operand b);  ///< integers truncate, as in C++ and lax.div; x / 0 is -1
Value operator%(Operand a, Operand b);  ///< the sign of a, as in C++ and lax.rem; x % 0 is x for integers
Value operator-(Operand a);
Value operator==(Operand a, Operand b);
Value operator!=(Operand a, Operand b);
Value operator<(Operand a, Operand b);
Value operator<=(Operand a, Operand b);
Value operator>(Operand a, Operand b);
Value operator>=(Operand a, Operand b);
Value operator&(Operand a, Operand b);
Value operator|(Operand a, Operand b);
Value operator^(Operand a, Operand b);
Value operator~(Operand a);
Value operator<<(Operand a, Operand b);
Value operator>>(Operand a, Operand b);  ///< fills the sign bit of signed dtypes, zeros for unsigned ones

// Logic on truth values (other dtypes count as x != 0), both sides always computed. Spelled per left side, because an
// overload that converts both sides would be ambiguous with the built-in && on the deleted operator bool.
Value operator&&(const Value& a, Operand b);
Value operator&&(const Value& a, bool b);
Value operator&&(bool a, const Value& b);
Value operator&&(RefItem&& a, Operand b);
Value operator||(const Value& a, Operand b);
Value operator||(const Value& a, bool b);
Value operator||(bool a, const Value& b);
Value operator||(RefItem&& a, Operand b);
Value operator!(const Value& a);
Value operator!(RefItem&& a);

}  // namespace tessera
