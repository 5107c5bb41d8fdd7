// Conversions between dtypes, and between registers and memory. Roundings go through integer bits wherever the target
// does not promise round-to-nearest-even, and always for bf16 and the 8-bit floats.
#include "codegen/expand/convert.h"

#include <bit>
#include <cmath>

#include "engine/base/error.h"
#include "engine/passes/interval.h"

namespace tessera::expand {
namespace {

bool rounds_to_even(const Target& t, Reg r) { return r == Reg::f64 ? t.rte64 : t.rte32; }

/// f32 to the nearest f16, as f32.
V round_f16(V v) {
  const V m = magnitude_bits(v);
  const V last = (m >> 13) & 1;
  V r = ((m + 0xfff) + last) & ~0x1fffu;
  r = select(r >= 0x47800000u, 0x7f800000u, r);  // 65520 and above: infinity
  // Below 2^-14: multiples of 2^-24. Rounds the 24-bit significand after a shift by 126 - exponent, which is at least
  // 14; of what is not below, by anything from 1 to 31.
  const V shift = 126 - (m >> 23), amount = select((shift - 1) > 30, 31, shift);
  const V significand = (m & 0x7fffff) | 0x800000;
  const V odd = (significand >> amount) & 1;
  const V steps = (significand + ((literal(m, 1) << (amount - 1)) - 1) + odd) >> amount;
  const V subnormal = bits(float_from_uint(steps, Reg::f32) * 0x1p-24);
  r = select(m < 0x38800000u, subnormal, r);
  const V quiet = (m | 0x400000) & ~0x1fffu;
  r = select(m > 0x7f800000u, quiet, r);
  return floating(r | sign_bit(v));
}

/// f32 to the nearest f8, as f32: integer code, as round_f16's.
V round_f8(V v, DType t) {
  const FloatFormat l = float_format(t);
  const int dropped = 23 - l.mantissa, least = l.mantissa - l.least_exponent;  // 2^-least is the least subnormal
  const uint32_t normal = static_cast<uint32_t>(127 + l.least_exponent) << 23;
  const V m = magnitude_bits(v);
  const V last = (m >> dropped) & 1;
  V r = ((m + ((1u << (dropped - 1)) - 1)) + last) & ~((1u << dropped) - 1);
  // Below the least normal: multiples of 2^-least.
  const V shift = (150 - least) - (m >> 23), amount = select((shift - 1) > 30, 31, shift);
  const V significand = (m & 0x7fffff) | 0x800000;
  const V odd = (significand >> amount) & 1;
  const V steps = (significand + ((literal(m, 1) << (amount - 1)) - 1) + odd) >> amount;
  const V subnormal = bits(float_from_uint(steps, Reg::f32) * std::ldexp(1.0, -least));
  r = select(m < normal, subnormal, r);
  // 448 is the greatest f8e4m3fn; beyond the greatest f8e5m2 comes 2^16.
  r = l.has_infinity ? select(r >= 0x47800000u, 0x7f800000u, r) : select(r > 0x43e00000u, 0x7fc00000u, r);
  r = select(m > 0x7f800000u, 0x7fc00000u, r);
  return floating(r | sign_bit(v));
}

/// Unsigned integer to float through bits, rounding to nearest even.
V pack(V v, Reg to) {
  const int w = static_cast<int>(width(v.reg));
  const Layout l = layout(to);
  const V n = highest_bit(v);
  const V aligned = v << to_uint(w - 1 - n, v.reg);  // highest bit on top
  V top, rest;
  if (w > l.mantissa + 1) {
    top = aligned >> (w - 1 - l.mantissa);
    rest = aligned << (l.mantissa + 1);
  } else {  // u32 to f64: exact
    return float_from_uint(v, to);
  }
  const uint64_t half = uint64_t{1} << (w - 1);
  const V odd = ne(top & 1, 0), tie = eq(rest, Literal(half)) & odd, up = (rest > Literal(half)) | tie;
  top = top + select(up, 1, literal(top, 0));
  const Reg u = uint_of(to);
  // top's highest bit adds 1 to the exponent
  const V significand = to_uint(top, u), packed = ((to_uint(n, u) + (l.bias - 1)) << l.mantissa) + significand;
  return floating(select(eq(v, 0), 0, packed));
}

V int_to_float(V v, DType from, DType to) {
  const Reg reg = reg_of(to);
  const bool sgn = is_signed_int(from);
  const int significant = bits(from) - (sgn ? 1 : 0), holds = layout(reg).mantissa + 1;
  // Narrow floats round twice, through f32, as the reference does.
  if (significant <= holds || rounds_to_even(v.fn->target, reg))
    return normalize(sgn ? float_from_sint(v, reg) : float_from_uint(v, reg), to);
  if (!sgn) return normalize(pack(v, reg), to);
  const V negative = slt(v, 0);
  const V m = pack(select(negative, -v, v), reg);
  const V plus = literal(bits(m), 0), sign = select(negative, literal(bits(m), layout(reg).sign), plus);
  return normalize(floating(bits(m) | sign), to);
}

V float_to_int(V v, DType to) {
  const Reg reg = reg_of(to);
  const int n = tessera::bits(to);
  // 2^(n-1) or 2^n
  const double above = std::bit_cast<double>(static_cast<uint64_t>(1023 + n - (is_signed_int(to) ? 1 : 0)) << 52);
  const V not_nan = ~is_nan(v);
  if (is_signed_int(to)) {
    const V low = v < -above, high = v >= above, ok = not_nan & ~(low | high);
    const V r = sint_from_float(select(ok, v, 0.0), reg);
    const uint64_t most = (uint64_t{1} << (n - 1)) - 1;
    const V zero = literal(r, 0), nearest = select(low, ~most, literal(r, most));
    return select(ok, r, select(not_nan, nearest, zero));
  }
  const V positive = (v > 0.0) & not_nan, high = v >= above;
  const V r = uint_from_float(select(positive & ~high, v, 0.0), reg);
  const V most = literal(r, n == 64 ? ~uint64_t{0} : (uint64_t{1} << n) - 1);
  return select(positive & high, most, r);
}

V f64_to_f32(V v) {
  const V b = bits(v), m = b & (layout(Reg::f64).sign - 1), e = m >> 52;
  const V sign = to_uint(b >> 32, Reg::u32) & 0x80000000u;
  const V fraction = (m & layout(Reg::f64).fraction) | uint64_t{1} << 52;
  // The result's 24 bits (fewer below 2^-126) after a shift; what falls off decides the rounding.
  const V none = literal(e, 0), below = 897 - e, deficit = select(e < 897, below, none);
  const V shift = 29 + select(deficit > 34, 34, deficit);
  const V kept = fraction >> shift, rest = fraction & ((literal(b, 1) << shift) - 1);
  const V half = literal(b, 1) << (shift - 1);
  const V one = literal(b, 1), odd = ne(kept & 1, 0), tie = eq(rest, half) & odd, up = (rest > half) | tie;
  const V q = kept + select(up, one, none);
  const V above = e - 897, base = select(e < 897, none, above);
  const V packed = (base << 23) + q;
  const V limited = select(packed >= uint64_t{0x7f800000}, 0x7f800000, packed);
  const V quiet = (m >> 29 & 0x3fffff) | 0x7fc00000;
  const V special = select(eq(m, layout(Reg::f64).infinity), 0x7f800000, quiet);
  const V r = select(m >= layout(Reg::f64).infinity, special, limited);
  return floating(to_uint(r, Reg::u32) | sign);
}

V float_to_float_dtype(V v, DType from, DType to) {
  if (from == DType::f64)
    return normalize(rounds_to_even(v.fn->target, Reg::f32) ? float_to_float(v, Reg::f32) : f64_to_f32(v), to);
  if (to == DType::f64) return float_to_float(v, Reg::f64);
  return to == DType::f32 ? v : normalize(v, to);
}

}  // namespace

V bf16_bits(V v) {
  if (v.fn->converts(DType::bf16)) return v.fn->narrow_bits(v, DType::bf16);
  const V b = bits(v);
  if (v.fn->target.kind == Target::Kind::gpu && v.fn->target.preserve32) {
    const V sixteen = literal(b, 16), one = literal(b, 1),
            last = v.fn->apply(Prim::extract_uint, b.reg, {b, sixteen, one});
    const V rounded = (b + last) + 0x7fff, number = eq(v, v), quiet = literal(b, 0x7fc00000u);
    return select(number, rounded, quiet) >> 16;
  }
  const V last = (b >> 16) & 1, rounded = (b + 0x7fff) + last, quiet = b | 0x400000;
  return select(is_nan(v), quiet, rounded) >> 16;
}

V normalize(V v, DType t) {
  if (is_narrow_float(t) && v.fn->converts(t)) return v.fn->rounded(v, t);
  switch (t) {
    case DType::i4: return sign_extend(v, 4);
    case DType::u4: return v & 15;
    case DType::i8: return sign_extend(v, 8);
    case DType::i16: return sign_extend(v, 16);
    case DType::u8: return v & 0xff;
    case DType::u16: return v & 0xffff;
    case DType::f8e4m3fn:
    case DType::f8e5m2: return round_f8(v, t);
    case DType::f16: return round_f16(v);
    case DType::bf16: return floating(bf16_bits(v) << 16);
    default: return v;
  }
}

V convert(V v, DType from, DType to) {
  if (from == to) return v;
  const Reg reg = reg_of(to);
  if (to == DType::boolean) return tessera::is_float(from) ? ne(magnitude_bits(v), 0) : ne(v, 0);
  if (from == DType::boolean) return select(v, 1, v.fn->make(reg, 0));
  if (tessera::is_float(from)) return tessera::is_float(to) ? float_to_float_dtype(v, from, to) : float_to_int(v, to);
  if (tessera::is_float(to)) return int_to_float(v, from, to);
  const V w = reg == v.reg ? v : reg == Reg::u64 && is_signed_int(from) ? sign_extend(v) : to_uint(v, reg);
  const Bounds all = values_of(to);
  return within(values_of(from), all ? all->lo : INT64_MIN, all ? all->hi : INT64_MAX) ? w : normalize(w, to);
}

V constant(Sink& f, DType t, uint64_t b) {
  switch (t) {
    case DType::i4: return f.make(Reg::u32, static_cast<int>((b & 15) ^ 8) - 8);
    case DType::i8: return f.make(Reg::u32, static_cast<int8_t>(b));
    case DType::i16: return f.make(Reg::u32, static_cast<int16_t>(b));
    case DType::f8e4m3fn:
      return f.make_bits(Reg::f32, std::bit_cast<uint32_t>(from_f8e4m3fn_bits(static_cast<uint8_t>(b))));
    case DType::f8e5m2:
      return f.make_bits(Reg::f32, std::bit_cast<uint32_t>(from_f8e5m2_bits(static_cast<uint8_t>(b))));
    case DType::f16: return f.make_bits(Reg::f32, std::bit_cast<uint32_t>(from_f16_bits(static_cast<uint16_t>(b))));
    case DType::bf16: return f.make_bits(Reg::f32, (b & 0xffff) << 16);
    case DType::boolean: return f.boolean(b != 0);
    default: return f.make_bits(reg_of(t), width(reg_of(t)) == 64 ? b : b & 0xffffffffu);
  }
}

V memory_bits(V v, DType t) {
  Sink& f = *v.fn;
  if (is_narrow_float(t) && f.converts(t)) return f.narrow_bits(v, t);
  switch (t) {
    case DType::boolean: return select(v, 1, f.make(Reg::u32, 0));
    case DType::i4:
    case DType::u4: return v & 15;
    case DType::i8: return v & 0xff;
    case DType::i16: return v & 0xffff;
    case DType::f8e5m2: return memory_bits(v, DType::f16) >> 8;
    case DType::f8e4m3fn: {
      const V m = magnitude_bits(v);
      V r = (m - 0x3c000000u) >> 20;
      const V a = floating(m), steps = uint_from_float(select(m < 0x3c800000u, a, 0.0) * 0x1p9, Reg::u32);
      r = select(m < 0x3c800000u, steps, r);
      const V sign = sign_bit(v) >> 24;
      return select(m >= 0x7f800000u, 0x7f, r) | sign;
    }
    case DType::bf16: return bits(v) >> 16;
    case DType::f16: {
      const V m = magnitude_bits(v);
      V r = (m - 0x38000000u) >> 13;
      const V a = floating(m), steps = uint_from_float(select(m < 0x38800000u, a, 0.0) * 0x1p24, Reg::u32);
      r = select(m < 0x38800000u, steps, r);
      const V special = ((m >> 13) & 0x3ff) | 0x7c00;
      r = select(m >= 0x7f800000u, special, r);
      return r | (sign_bit(v) >> 16);
    }
    default: return bits(v);
  }
}

V from_memory_bits(V raw, DType t) {
  if (is_narrow_float(t) && raw.fn->converts(t)) return raw.fn->widened(raw, t);
  switch (t) {
    case DType::boolean: return ne(raw, 0);
    case DType::i4:
    case DType::u4:
    case DType::i8:
    case DType::i16: return normalize(raw, t);
    case DType::f8e5m2: return from_memory_bits(raw << 8, DType::f16);
    case DType::f8e4m3fn: {
      const V m = raw & 0x7f;
      V r = (m << 20) + 0x3c000000u;
      const V subnormal = bits(float_from_uint(m, Reg::f32) * 0x1p-9);
      r = select(m < 8, subnormal, r);
      r = select(eq(m, 0x7f), 0x7fc00000u, r);
      return floating(r | ((raw & 0x80) << 24));
    }
    case DType::bf16: return floating(raw << 16);
    case DType::f16: {
      const V m = raw & 0x7fff, shifted = m << 13;
      const V usual = literal(m, 0x38000000u), of_special = literal(m, 0x70000000u);
      V r = shifted + select(m >= 0x7c00, of_special, usual);
      const V subnormal = bits(float_from_uint(m, Reg::f32) * 0x1p-24);
      r = select(m < 0x400, subnormal, r);
      return floating(r | ((raw & 0x8000) << 16));
    }
    case DType::f32:
    case DType::f64: return floating(raw);
    default: return raw;
  }
}

}  // namespace tessera::expand
