// Element types, and the bit-exact conversions from double to the floats narrower than f32 and back.
// Every dtype is stored in memory with size_bytes() bytes per element: a bool is one byte, 0 or 1; an i4 or u4 is one
// byte, whose upper four bits are written as zeros and ignored on reads (a kernel packs two to a byte itself, with
// shifts of u8). Read next: engine/ir/kernel.h for the types of values, engine/ir/reference.h for arithmetic on them.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

namespace tessera {

// clang-format off
enum class DType : uint8_t { boolean, i4, i8, i16, i32, i64, u4, u8, u16, u32, u64, f8e4m3fn, f8e5m2, f16, bf16,
  f32, f64 };
// clang-format on

inline constexpr DType boolean = DType::boolean;
inline constexpr DType i4 = DType::i4, i8 = DType::i8, i16 = DType::i16, i32 = DType::i32, i64 = DType::i64;
inline constexpr DType u4 = DType::u4, u8 = DType::u8, u16 = DType::u16, u32 = DType::u32, u64 = DType::u64;
inline constexpr DType f8e4m3fn = DType::f8e4m3fn, f8e5m2 = DType::f8e5m2;  // ml_dtypes' float8_e4m3fn and float8_e5m2
inline constexpr DType f16 = DType::f16, bf16 = DType::bf16, f32 = DType::f32, f64 = DType::f64;
inline constexpr int kNumDTypes = 17;

constexpr bool is_float(DType t) { return t >= DType::f8e4m3fn; }
constexpr bool is_signed_int(DType t) { return t >= DType::i4 && t <= DType::i64; }
constexpr bool is_unsigned_int(DType t) { return t >= DType::u4 && t <= DType::u64; }
constexpr bool is_int(DType t) { return is_signed_int(t) || is_unsigned_int(t); }
constexpr bool is_int4(DType t) { return t == DType::i4 || t == DType::u4; }
constexpr bool is_float8(DType t) { return t == DType::f8e4m3fn || t == DType::f8e5m2; }

/// Bytes of one element in memory (bool, i4, u4: 1).
constexpr int64_t size_bytes(DType t) {
  switch (t) {
    case DType::boolean:
    case DType::i4:
    case DType::u4:
    case DType::i8:
    case DType::u8:
    case DType::f8e4m3fn:
    case DType::f8e5m2: return 1;
    case DType::i16:
    case DType::u16:
    case DType::f16:
    case DType::bf16: return 2;
    case DType::i32:
    case DType::u32:
    case DType::f32: return 4;
    case DType::i64:
    case DType::u64:
    case DType::f64: return 8;
  }
  return 0;
}
constexpr int bits(DType t) { return t == DType::boolean ? 1 : is_int4(t) ? 4 : static_cast<int>(size_bytes(t)) * 8; }
/// The unsigned integers of 4, 8, 16, 32 or 64 bits.
constexpr DType unsigned_of(int bits) {
  return bits == 4 ? DType::u4 : bits == 8 ? DType::u8 : bits == 16 ? DType::u16 : bits == 32 ? DType::u32 : DType::u64;
}
/// Floats that are stored in fewer bits than f32, in which they compute.
constexpr bool is_narrow_float(DType t) { return is_float(t) && size_bytes(t) < 4; }

/// How a float dtype lies in its bits: sign, exponent, `mantissa` stored bits. f8e4m3fn has no infinities: its only
/// NaNs are all ones.
struct FloatFormat {
  int mantissa = 0, least_exponent = 0;      // the least normal number is 2^least_exponent
  uint64_t sign = 0, greatest = 0, nan = 0;  // bits: the greatest finite number, the usual quiet NaN
  bool has_infinity = true;                  // greatest + 1
};
constexpr FloatFormat float_format(DType t) {
  switch (t) {
    case DType::f8e4m3fn: return {3, -6, 0x80, 0x7e, 0x7f, false};
    case DType::f8e5m2: return {2, -14, 0x80, 0x7b, 0x7e};
    case DType::f16: return {10, -14, 0x8000, 0x7bff, 0x7e00};
    case DType::bf16: return {7, -126, 0x8000, 0x7f7f, 0x7fc0};
    case DType::f32: return {23, -126, 0x80000000, 0x7f7fffff, 0x7fc00000};
    default: return {52, -1022, uint64_t{1} << 63, 0x7fefffffffffffff, 0x7ff8000000000000};
  }
}

/// The name in the text form and in messages: bool, i4 .. i64, u4 .. u64, f8e4m3fn, f8e5m2, f16, bf16, f32, f64.
std::string_view name(DType t);
/// The inverse of name(); nothing if no dtype has that name.
std::optional<DType> dtype_from_name(std::string_view name);

/// The bits of x in a float dtype narrower than f32, rounded to nearest even straight from double (subnormals included,
/// NaN stays NaN). What is too large becomes an infinity, in f8e4m3fn a NaN.
uint16_t to_narrow_bits(DType t, double x);
inline uint16_t to_f16_bits(double x) { return to_narrow_bits(DType::f16, x); }
inline uint16_t to_bf16_bits(double x) { return to_narrow_bits(DType::bf16, x); }
inline uint8_t to_f8e4m3fn_bits(double x) { return static_cast<uint8_t>(to_narrow_bits(DType::f8e4m3fn, x)); }
inline uint8_t to_f8e5m2_bits(double x) { return static_cast<uint8_t>(to_narrow_bits(DType::f8e5m2, x)); }
float from_f16_bits(uint16_t bits);
float from_bf16_bits(uint16_t bits);
float from_f8e4m3fn_bits(uint8_t bits);
float from_f8e5m2_bits(uint8_t bits);

}  // namespace tessera
