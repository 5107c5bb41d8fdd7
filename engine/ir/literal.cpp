#include <bit>
#include <charconv>

#include "engine/ir/text.h"

namespace tessera::ir {
namespace {

template <class T> std::string shortest(T x) {
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, x).ptr;
  std::string s(buffer, end);
  if (s.find_first_of(".e") == std::string::npos) s += ".0";
  return s;
}

std::string hex(uint64_t bits) {
  char buffer[32];
  return "0x" + std::string(buffer, std::to_chars(buffer, buffer + sizeof buffer, bits, 16).ptr);
}

template <class T> std::optional<T> whole(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<uint64_t> parse_float(DType t, std::string_view text) {
  const FloatFormat f = float_format(t);
  const bool negative = text.starts_with('-');
  const std::string_view digits = text.substr(negative ? 1 : 0);
  if (digits == "inf") return f.has_infinity ? std::optional((f.greatest + 1) | (negative ? f.sign : 0)) : std::nullopt;
  if (digits == "nan") return f.nan | (negative ? f.sign : 0);
  // from_chars knows more words
  if (digits.empty() || (digits[0] != '.' && (digits[0] < '0' || digits[0] > '9'))) return std::nullopt;
  if (t == DType::f32) {
    const auto x = whole<float>(text);
    return x ? std::optional<uint64_t>(std::bit_cast<uint32_t>(*x)) : std::nullopt;
  }
  const auto x = whole<double>(text);
  if (!x) return std::nullopt;
  const uint64_t b = t == DType::f64 ? std::bit_cast<uint64_t>(*x) : to_narrow_bits(t, *x);
  return (b & ~f.sign) > f.greatest ? std::nullopt : std::optional(b);  // too large
}

}  // namespace

std::string literal(DType t, uint64_t b) {
  if (const int n = bits(t); n < 64 && b >> n) return hex(b);  // not an element of t; for dumps of broken kernels
  if (t == DType::boolean) return b ? "true" : "false";
  if (is_unsigned_int(t)) return std::to_string(b);
  if (is_signed_int(t)) {
    const int shift = 64 - bits(t);
    return std::to_string(static_cast<int64_t>(b << shift) >> shift);
  }
  const FloatFormat f = float_format(t);
  const uint64_t magnitude = b & ~f.sign;
  if (f.has_infinity && magnitude == f.greatest + 1) return magnitude == b ? "inf" : "-inf";
  if (magnitude == f.nan) return magnitude == b ? "nan" : "-nan";
  if (magnitude > f.greatest) return hex(b);
  switch (t) {
    case DType::f8e4m3fn: return shortest(from_f8e4m3fn_bits(static_cast<uint8_t>(b)));
    case DType::f8e5m2: return shortest(from_f8e5m2_bits(static_cast<uint8_t>(b)));
    case DType::f16: return shortest(from_f16_bits(static_cast<uint16_t>(b)));
    case DType::bf16: return shortest(from_bf16_bits(static_cast<uint16_t>(b)));
    case DType::f32: return shortest(std::bit_cast<float>(static_cast<uint32_t>(b)));
    default: return shortest(std::bit_cast<double>(b));
  }
}

std::optional<uint64_t> parse_literal(DType t, std::string_view text) {
  const int n = bits(t);
  if (text.starts_with("0x")) {
    uint64_t b = 0;
    const auto [end, error] = std::from_chars(text.data() + 2, text.data() + text.size(), b, 16);
    if (text.size() == 2 || error != std::errc() || end != text.data() + text.size() || (n < 64 && b >> n))
      return std::nullopt;
    return b;
  }
  if (t == DType::boolean)
    return text == "true" ? std::optional<uint64_t>(1) : text == "false" ? std::optional<uint64_t>(0) : std::nullopt;
  if (is_float(t)) return parse_float(t, text);
  if (is_unsigned_int(t)) {
    const auto x = whole<uint64_t>(text);
    return x && (n == 64 || *x >> n == 0) ? x : std::nullopt;
  }
  const auto x = whole<int64_t>(text);
  if (!x || (n < 64 && (*x < -(int64_t{1} << (n - 1)) || *x >= int64_t{1} << (n - 1)))) return std::nullopt;
  return static_cast<uint64_t>(*x) & (n == 64 ? ~uint64_t{0} : (uint64_t{1} << n) - 1);
}

}  // namespace tessera::ir
