// ElementOf<DType>: how one element of a dtype lies in memory and the C++ type that arithmetic on it uses. Header only,
// for the typed inner loops of the reference arithmetic and the interpreter; everything else uses Array or eval().
// with_dtype() turns a DType into a template argument.
#pragma once
#include <bit>
#include <cstdint>
#include <type_traits>

#include "engine/base/dtype.h"

namespace tessera {

/// f16 and bf16 from float and back, rounding to nearest even; the same results as to_f16_bits and to_bf16_bits, but
/// inline.
inline uint16_t round_to_bf16(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((u >> 16 & 0x8000u) | 0x7fc0u);
  return static_cast<uint16_t>((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}
inline uint16_t round_to_f16(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x), sign = u >> 16 & 0x8000u, magnitude = u & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
  if (magnitude >= 0x47800000u) return static_cast<uint16_t>(sign | 0x7c00u);  // 65536 and above
  // below 2^-14 the result is subnormal: adding 0.5 leaves a multiple of 2^-24, rounded, in the low bits
  if (magnitude < 0x38800000u) {
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u));
  }
  return static_cast<uint16_t>(sign | ((magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u)) >> 13));
}
inline float widen_f16(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16, magnitude = h & 0x7fffu;
  if (magnitude >= 0x7c00u)
    return std::bit_cast<float>(sign | 0x7f800000u |
                                (magnitude > 0x7c00u ? 0x400000u | (magnitude & 0x3ffu) << 13 : 0u));
  if (magnitude < 0x400u) {  // zero and subnormals: magnitude * 2^-24, exact
    const float value = static_cast<float>(magnitude) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(value));
  }
  return std::bit_cast<float>(sign | ((magnitude << 13) + 0x38000000u));
}
/// The same for the 8-bit floats; f8e5m2 is the upper half of an f16. What is too large becomes an infinity, in
/// f8e4m3fn a NaN.
inline uint8_t round_to_f8e4m3fn(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x), sign = u >> 24 & 0x80u, magnitude = u & 0x7fffffffu;
  // above 464, half way to the 480 that is NaN; and NaN
  if (magnitude > 0x43e80000u) return static_cast<uint8_t>(sign | 0x7fu);
  // below 2^-6 the result is subnormal: adding 2^14 leaves a multiple of 2^-9, rounded, in the low bits
  if (magnitude < 0x3c800000u) {
    const float shifted = std::bit_cast<float>(magnitude) + 0x1p14f;
    return static_cast<uint8_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x46800000u));
  }
  return static_cast<uint8_t>(sign | ((magnitude - 0x3c000000u + 0x7ffffu + (magnitude >> 20 & 1u)) >> 20));
}
inline uint8_t round_to_f8e5m2(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x), sign = u >> 24 & 0x80u, magnitude = u & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint8_t>(sign | 0x7eu);
  if (magnitude >= 0x47800000u) return static_cast<uint8_t>(sign | 0x7cu);  // 65536 and above
  if (magnitude < 0x38800000u) {                                            // below 2^-14: multiples of 2^-16
    const float shifted = std::bit_cast<float>(magnitude) + 0x1p7f;
    return static_cast<uint8_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x43000000u));
  }
  return static_cast<uint8_t>(sign | ((magnitude - 0x38000000u + 0xfffffu + (magnitude >> 21 & 1u)) >> 21));
}
inline float widen_f8e4m3fn(uint8_t b) {
  const uint32_t sign = static_cast<uint32_t>(b & 0x80u) << 24, magnitude = b & 0x7fu;
  if (magnitude == 0x7fu) return std::bit_cast<float>(sign | 0x7fc00000u);
  if (magnitude < 8u)
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(static_cast<float>(magnitude) * 0x1p-9f));
  return std::bit_cast<float>(sign | ((magnitude << 20) + 0x3c000000u));
}
inline float widen_f8e5m2(uint8_t b) { return widen_f16(static_cast<uint16_t>(b << 8)); }
inline float widen_bf16(uint16_t b) { return std::bit_cast<float>(static_cast<uint32_t>(b) << 16); }

/// Memory: what lies in memory. Compute: what operators work on. get and put convert (put rounds once).
template <DType t> struct ElementOf;
template <class T> struct PlainElement {
  using Memory = T;
  using Compute = T;
  static T get(T x) { return x; }
  static T put(T x) { return x; }
  static T put_wide(double x) { return static_cast<T>(x); }  // floats only
};
template <> struct ElementOf<DType::i8> : PlainElement<int8_t> {};
template <> struct ElementOf<DType::i16> : PlainElement<int16_t> {};
template <> struct ElementOf<DType::i32> : PlainElement<int32_t> {};
template <> struct ElementOf<DType::i64> : PlainElement<int64_t> {};
template <> struct ElementOf<DType::u8> : PlainElement<uint8_t> {};
template <> struct ElementOf<DType::u16> : PlainElement<uint16_t> {};
template <> struct ElementOf<DType::u32> : PlainElement<uint32_t> {};
template <> struct ElementOf<DType::u64> : PlainElement<uint64_t> {};
template <> struct ElementOf<DType::f32> : PlainElement<float> {};
template <> struct ElementOf<DType::f64> : PlainElement<double> {};
template <> struct ElementOf<DType::boolean> {
  using Memory = uint8_t;
  using Compute = bool;
  static bool get(uint8_t x) { return x != 0; }
  static uint8_t put(bool x) { return x ? 1 : 0; }
};
/// A byte whose lower four bits count; the upper ones are written as zeros.
template <> struct ElementOf<DType::i4> {
  using Memory = uint8_t;
  using Compute = int8_t;
  static int8_t get(uint8_t x) { return static_cast<int8_t>(((x & 15) ^ 8) - 8); }
  static uint8_t put(int8_t x) { return static_cast<uint8_t>(x & 15); }
};
template <> struct ElementOf<DType::u4> {
  using Memory = uint8_t;
  using Compute = uint8_t;
  static uint8_t get(uint8_t x) { return static_cast<uint8_t>(x & 15); }
  static uint8_t put(uint8_t x) { return static_cast<uint8_t>(x & 15); }
};
template <> struct ElementOf<DType::f8e4m3fn> {
  using Memory = uint8_t;
  using Compute = float;
  static float get(uint8_t x) { return widen_f8e4m3fn(x); }
  static uint8_t put(float x) { return round_to_f8e4m3fn(x); }
  static uint8_t put_wide(double x) { return to_f8e4m3fn_bits(x); }
};
template <> struct ElementOf<DType::f8e5m2> {
  using Memory = uint8_t;
  using Compute = float;
  static float get(uint8_t x) { return widen_f8e5m2(x); }
  static uint8_t put(float x) { return round_to_f8e5m2(x); }
  static uint8_t put_wide(double x) { return to_f8e5m2_bits(x); }
};
template <> struct ElementOf<DType::f16> {
  using Memory = uint16_t;
  using Compute = float;
  static float get(uint16_t x) { return widen_f16(x); }
  static uint16_t put(float x) { return round_to_f16(x); }
  static uint16_t put_wide(double x) { return to_f16_bits(x); }
};
template <> struct ElementOf<DType::bf16> {
  using Memory = uint16_t;
  using Compute = float;
  static float get(uint16_t x) { return widen_bf16(x); }
  static uint16_t put(float x) { return round_to_bf16(x); }
  static uint16_t put_wide(double x) { return to_bf16_bits(x); }
};

/// f(std::integral_constant<DType, t>) for a run-time t.
template <class F> decltype(auto) with_dtype(DType t, F&& f) {
  switch (t) {
    case DType::boolean: return f(std::integral_constant<DType, DType::boolean>{});
    case DType::i4: return f(std::integral_constant<DType, DType::i4>{});
    case DType::i8: return f(std::integral_constant<DType, DType::i8>{});
    case DType::i16: return f(std::integral_constant<DType, DType::i16>{});
    case DType::i32: return f(std::integral_constant<DType, DType::i32>{});
    case DType::i64: return f(std::integral_constant<DType, DType::i64>{});
    case DType::u4: return f(std::integral_constant<DType, DType::u4>{});
    case DType::u8: return f(std::integral_constant<DType, DType::u8>{});
    case DType::u16: return f(std::integral_constant<DType, DType::u16>{});
    case DType::u32: return f(std::integral_constant<DType, DType::u32>{});
    case DType::u64: return f(std::integral_constant<DType, DType::u64>{});
    case DType::f8e4m3fn: return f(std::integral_constant<DType, DType::f8e4m3fn>{});
    case DType::f8e5m2: return f(std::integral_constant<DType, DType::f8e5m2>{});
    case DType::f16: return f(std::integral_constant<DType, DType::f16>{});
    case DType::bf16: return f(std::integral_constant<DType, DType::bf16>{});
    case DType::f32: return f(std::integral_constant<DType, DType::f32>{});
    case DType::f64: break;
  }
  return f(std::integral_constant<DType, DType::f64>{});
}

}  // namespace tessera
