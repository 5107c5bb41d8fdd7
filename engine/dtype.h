// Element types, and the bit-exact conversions between float, f16 and bf16.
// Every dtype is stored in memory with size_bytes() bytes per element; a bool is one byte, 0 or 1.
// Read next: engine/ir/kernel.h for the types of values, engine/reference.h for arithmetic on them.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

namespace tessera {

enum class DType : uint8_t { boolean, i8, i16, i32, i64, u8, u16, u32, u64, f16, bf16, f32, f64 };

inline constexpr DType boolean = DType::boolean;
inline constexpr DType i8 = DType::i8, i16 = DType::i16, i32 = DType::i32, i64 = DType::i64;
inline constexpr DType u8 = DType::u8, u16 = DType::u16, u32 = DType::u32, u64 = DType::u64;
inline constexpr DType f16 = DType::f16, bf16 = DType::bf16, f32 = DType::f32, f64 = DType::f64;
inline constexpr int kNumDTypes = 13;

constexpr bool is_float(DType t) { return t >= DType::f16; }
constexpr bool is_signed_int(DType t) { return t >= DType::i8 && t <= DType::i64; }
constexpr bool is_unsigned_int(DType t) { return t >= DType::u8 && t <= DType::u64; }
constexpr bool is_int(DType t) { return is_signed_int(t) || is_unsigned_int(t); }

/// Bytes of one element in memory (bool: 1).
constexpr int64_t size_bytes(DType t) {
  switch (t) {
    case DType::boolean: case DType::i8: case DType::u8: return 1;
    case DType::i16: case DType::u16: case DType::f16: case DType::bf16: return 2;
    case DType::i32: case DType::u32: case DType::f32: return 4;
    case DType::i64: case DType::u64: case DType::f64: return 8;
  }
  return 0;
}
constexpr int bits(DType t) { return t == DType::boolean ? 1 : static_cast<int>(size_bytes(t)) * 8; }

/// The name in the text form and in messages: bool, i8 .. i64, u8 .. u64, f16, bf16, f32, f64.
std::string_view name(DType t);
/// The inverse of name(); nothing if no dtype has that name.
std::optional<DType> dtype_from_name(std::string_view name);

/// IEEE 754 binary16 and bfloat16, rounded to nearest even straight from double (subnormals included, NaN stays NaN).
uint16_t to_f16_bits(double x);
uint16_t to_bf16_bits(double x);
float from_f16_bits(uint16_t bits);
float from_bf16_bits(uint16_t bits);

}  // namespace tessera
