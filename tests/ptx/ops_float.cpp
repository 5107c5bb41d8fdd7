// Floats: arithmetic rounded once, comparisons of two for the smaller, approximate functions that are as inexact as
// PTX documents.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/ptx/decode.h"

namespace tessera::ptx {

void decode_integer(Decoder& d, const std::string& op, Type t);

namespace {

enum Flags : uint16_t { kFtz = 1, kSat = 2, kNan = 4, kXorsign = 8, kAbs = 16, kRelu = 32 };
enum Kind : uint32_t {
  kAdd,
  kSub,
  kMul,
  kFma,
  kDiv,
  kDivApprox,
  kDivFull,
  kRcp,
  kRcpApprox,
  kSqrt,
  kSqrtApprox,
  kRsqrt,
  kSin,
  kCos,
  kLg2,
  kEx2,
  kTanh,
  kMin,
  kMax,
  kNeg,
  kAbsolute,
  kCopysign
};

Type element(Type t) {
  return t == Type::f16x2 ? Type::f16 : t == Type::bf16x2 ? Type::bf16 : t == Type::f32x2 ? Type::f32 : t;
}
double flush(double x, Type t) {
  const double least = t == Type::f16 ? 0x1p-14 : 0x1p-126;
  return std::fabs(x) < least ? std::copysign(0.0, x) : x;
}
uint64_t pack(double x, const Instr& i, Type t) {
  if (i.flags & kSat) x = std::isnan(x) || x <= 0 ? 0.0 : x > 1 ? 1.0 : x;
  if ((i.flags & kRelu) && (x < 0 || (x == 0 && std::signbit(x)))) x = 0;
  uint64_t bits = narrow(t, x, static_cast<Round>(i.mode));
  if (i.flags & kFtz) bits = narrow(t, flush(widen(t, bits), t), Round::even);
  return bits;
}

double least(double a, double b, bool want_max, const Instr& i) {
  if (i.flags & kXorsign) {
    const bool sign = std::signbit(a) != std::signbit(b);
    a = std::fabs(a), b = std::fabs(b);
    Instr plain = i;
    plain.flags &= static_cast<uint16_t>(~(kXorsign | kAbs));
    const double r = least(a, b, want_max, plain);
    return std::isnan(r) ? r : std::copysign(r, sign ? -1.0 : 1.0);
  }
  if (std::isnan(a) || std::isnan(b)) {
    if ((i.flags & kNan) || (std::isnan(a) && std::isnan(b))) return std::numeric_limits<double>::quiet_NaN();
    return std::isnan(a) ? b : a;
  }
  if (a == b) return std::signbit(a) == want_max ? b : a;  // -0 < +0
  return (a < b) != want_max ? a : b;
}

/// Sines of large numbers lose what the reduction loses: nobody may rely on them beyond this.
double approximate(Thread& t, const Instr& i, Type type, double a, double b) {
  const Machine& m = *t.m;
  const uint64_t seed = std::bit_cast<uint64_t>(a) * 31 ^ std::bit_cast<uint64_t>(b) ^ uint64_t { i.kind } << 56;
  const bool narrow_type = type == Type::f16 || type == Type::bf16;
  switch (i.kind) {
    case kDivApprox:
      if (std::fabs(b) > 0x1p126 && std::isfinite(b))
        return std::isinf(a) ? std::numeric_limits<double>::quiet_NaN() : std::copysign(0.0, a) * std::copysign(1.0, b);
      return m.off(a / b, 0x1p-22, 0, seed);
    case kDivFull: {  // 2 ulp
      const double q = a / b;
      const int exponent = q != 0 && std::isfinite(q) ? std::max(std::ilogb(q), -126) : 0;
      return m.off(q, 0, std::min(std::ldexp(1.0, exponent - 22), std::fabs(q)), seed);
    }
    case kRcpApprox: return m.off(1 / a, type == Type::f64 ? 0x1p-20 : 0x1p-23, 0, seed);
    case kSqrtApprox: return m.off(std::sqrt(a), 0x1p-23, 0, seed);
    case kRsqrt: return m.off(1 / std::sqrt(a), type == Type::f64 ? 0x1p-20 : 0x1p-22, 0, seed);
    case kSin:
    case kCos: {
      const double r = i.kind == kSin ? std::sin(a) : std::cos(a);
      if (std::isinf(a)) return std::numeric_limits<double>::quiet_NaN();
      const double far = std::fabs(a) <= 3.2 ? 0 : std::fabs(a) * 0x1p-22;  // of the reduction
      const double x = m.off(r, 0, 0x1p-20 + far, seed);
      return x > 1 ? 1 : x < -1 ? -1 : x;
    }
    case kLg2: {
      const double r = std::log2(a);
      if (a > 0.5 && a < 2 && a != 1) return m.off(r, 0, 0x1p-22, seed);
      return a == 1 ? 0 : m.off(r, 0x1p-22, 0, seed);
    }
    case kEx2: {
      const double r = std::exp2(a);
      if (!narrow_type) return a == 0 ? 1 : m.off(r, 0x1p-22, 0, seed);
      return m.off(r, type == Type::f16 ? 0x1p-10 : 0x1p-7, 0, seed);
    }
    case kTanh: {
      const double x = m.off(std::tanh(a), type == Type::bf16 ? 0x1p-8 : 0x1p-11, 0, seed);
      return x > 1 ? 1 : x < -1 ? -1 : x;
    }
  }
  return 0;
}

/// An operation on numbers of a type narrower than f64: exact, or rounded to odd.
double compute(Thread& t, const Instr& i, Type type, double a, double b, double c) {
  switch (i.kind) {
    case kAdd: return odd_add(a, b);
    case kSub: return odd_add(a, -b);
    case kMul: return a * b;
    case kFma: return odd_fma(a, b, c);
    case kDiv: return odd_div(a, b);
    case kRcp: return odd_div(1, a);
    case kSqrt: return odd_sqrt(a);
    case kMin: return least(a, b, false, i);
    case kMax: return least(a, b, true, i);
    default: return approximate(t, i, type, a, b);
  }
}

uint64_t sign_op(const Instr& i, Type type, uint64_t a, uint64_t b) {
  const uint64_t sign = uint64_t{1} << (width_of(type) - 1);
  uint64_t r = i.kind == kNeg ? a ^ sign : i.kind == kAbsolute ? a & ~sign : (b & ~sign) | (a & sign);
  if (i.flags & kFtz) r = narrow(type, flush(widen(type, r), type), Round::even);
  return r;
}

/// Any operation on f16, bf16, their pairs, and f32 (f32x2).
void general(Thread& t, const Instr& i) {
  const Slot a = t.r[i.a], b = i.b == kNone ? Slot{} : t.r[i.b], c = i.c == kNone ? Slot{} : t.r[i.c];
  const Type type = element(i.type);
  const uint32_t width = width_of(type);
  const uint64_t mask = mask_of(width);
  Slot d;
  for (uint32_t at = 0; at < i.width; at += width) {
    const uint64_t x = a.bits >> at & mask, y = b.bits >> at & mask, z = c.bits >> at & mask;
    uint64_t r = 0;
    if (i.kind >= kNeg) {
      r = sign_op(i, type, x, y);
    } else {
      double u = widen(type, x), v = widen(type, y), w = widen(type, z);
      if (i.flags & kFtz) u = flush(u, type), v = flush(v, type), w = flush(w, type);
      r = pack(compute(t, i, type, u, v, w), i, type);
    }
    d.bits |= r << at;
    if ((a.poison | b.poison | c.poison) >> at & mask) d.poison |= mask << at;
  }
  t.r[i.d] = d;
}

float f32_of(uint64_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits)); }
uint64_t bits_of(float x) { return std::isnan(x) ? 0x7fffffff : std::bit_cast<uint32_t>(x); }

/// Of f32 to nearest, without flags: often.
template <uint32_t kind>
void quick(Thread& t, const Instr& i) {
  const Slot a = t.r[i.a], b = t.r[i.b];
  const float x = f32_of(a.bits), y = f32_of(b.bits);
  float r = 0;
  uint64_t poison = a.poison | b.poison;
  if constexpr (kind == kAdd) r = x + y;
  if constexpr (kind == kSub) r = x - y;
  if constexpr (kind == kMul) r = x * y;
  if constexpr (kind == kFma) {
    const Slot c = t.r[i.c];
    poison |= c.poison;
    r = std::fma(x, y, f32_of(c.bits));
  }
  t.r[i.d] = {bits_of(r), poison ? 0xffffffff : 0};
}

void wide(Thread& t, const Instr& i) {  // f64
  const Slot a = t.r[i.a], b = i.b == kNone ? Slot{} : t.r[i.b], c = i.c == kNone ? Slot{} : t.r[i.c];
  const double x = std::bit_cast<double>(a.bits), y = std::bit_cast<double>(b.bits), z = std::bit_cast<double>(c.bits);
  const Round mode = static_cast<Round>(i.mode);
  uint64_t r = 0;
  switch (i.kind) {
    case kAdd: r = std::bit_cast<uint64_t>(op64(Op64::add, x, y, 0, mode)); break;
    case kSub: r = std::bit_cast<uint64_t>(op64(Op64::sub, x, y, 0, mode)); break;
    case kMul: r = std::bit_cast<uint64_t>(op64(Op64::mul, x, y, 0, mode)); break;
    case kFma: r = std::bit_cast<uint64_t>(op64(Op64::fma, x, y, z, mode)); break;
    case kDiv: r = std::bit_cast<uint64_t>(op64(Op64::div, x, y, 0, mode)); break;
    case kRcp: r = std::bit_cast<uint64_t>(op64(Op64::rcp, x, 0, 0, mode)); break;
    case kSqrt: r = std::bit_cast<uint64_t>(op64(Op64::sqrt, x, 0, 0, mode)); break;
    case kMin: r = std::bit_cast<uint64_t>(least(x, y, false, i)); break;
    case kMax: r = std::bit_cast<uint64_t>(least(x, y, true, i)); break;
    case kNeg:
    case kAbsolute:
    case kCopysign: r = sign_op(i, Type::f64, a.bits, b.bits); break;
    default: {  // .approx.ftz.f64: of the upper 32 bits only
      r = std::bit_cast<uint64_t>(approximate(t, i, Type::f64, x, y));
      if (!std::isnan(std::bit_cast<double>(r))) r &= ~uint64_t{0xffffffff};
    }
  }
  t.r[i.d] = {r, a.poison || b.poison || c.poison ? ~uint64_t{0} : 0};
}

void min3(Thread& t, const Instr& i) {
  const Slot a = t.r[i.a], b = t.r[i.b], c = t.r[i.c];
  const bool want_max = i.kind == kMax;
  double x = widen(i.type, a.bits), y = widen(i.type, b.bits), z = widen(i.type, c.bits);
  if (i.flags & kFtz) x = flush(x, i.type), y = flush(y, i.type), z = flush(z, i.type);
  const double r = least(least(x, y, want_max, i), z, want_max, i);
  t.r[i.d] = {narrow(i.type, r, Round::even), a.poison || b.poison || c.poison ? mask_of(i.width) : 0};
}

void decode_float(Decoder& d, Kind kind, Type t, size_t n) {
  Instr& i = *d.i;
  i.kind = kind;
  i.type = t, i.width = static_cast<uint8_t>(width_of(t));
  bool rounded = false;
  i.mode = static_cast<uint8_t>(d.rounding(Round::even, &rounded));
  if (d.take("ftz")) i.flags |= kFtz;
  if (d.take("sat")) i.flags |= kSat;
  if (d.take("NaN")) i.flags |= kNan;
  if (d.take("relu")) i.flags |= kRelu;
  if (d.take("xorsign")) i.flags |= kXorsign;
  if (d.take("abs")) i.flags |= kAbs;
  if (d.take("oob")) d.fail(".oob is not known");
  d.need_operands(n + 1);
  i.d = d.result(0, t);
  i.a = d.source(1, t);
  if (n > 1) i.b = d.source(2, t);
  if (n > 2) i.c = d.source(3, t);
  const bool bare = i.flags == 0 && i.mode == 0;
  if (t == Type::f64) {
    i.run = wide;
  } else if (t == Type::f32 && bare && kind <= kFma) {
    i.run = kind == kAdd ? quick<kAdd> : kind == kSub ? quick<kSub> : kind == kMul ? quick<kMul> : quick<kFma>;
  } else {
    i.run = general;
  }
  if (kind == kFma && !rounded && (t == Type::f32 || t == Type::f64)) d.fail("a rounding mode is missing");
}

void either(Decoder& d, const char* op, Kind kind, size_t n) {
  const Type t = d.need_type();
  if (is_float(t)) return decode_float(d, kind, t, n);
  decode_integer(d, op, t);
}
void min_max(Decoder& d, const char* op, Kind kind) {
  const Type t = d.need_type();
  if (!is_float(t)) return decode_integer(d, op, t);
  if (d.operands() == 4) {
    decode_float(d, kind, t, 3);
    d.i->run = min3;
    return;
  }
  decode_float(d, kind, t, 2);
}

void testp(Thread& t, const Instr& i) {
  const Slot a = t.r[i.a];
  const double x = widen(i.type, a.bits);
  const double least_normal =
      i.type == Type::f64 ? std::numeric_limits<double>::min() : std::numeric_limits<float>::min();
  bool r = false;
  switch (i.kind) {
    case 0: r = std::isfinite(x); break;
    case 1: r = std::isinf(x); break;
    case 2: r = !std::isnan(x); break;
    case 3: r = std::isnan(x); break;
    case 4: r = std::isfinite(x) && std::fabs(x) >= least_normal; break;
    case 5: r = std::fabs(x) < least_normal && x != 0; break;
  }
  t.r[i.d] = {r, a.poison ? 1u : 0u};
}

}  // namespace

void add_float_ops(Opcodes& o) {
  o["add"] = [](Decoder& d) { either(d, "add", kAdd, 2); };
  o["sub"] = [](Decoder& d) { either(d, "sub", kSub, 2); };
  o["mul"] = [](Decoder& d) { either(d, "mul", kMul, 2); };
  o["mad"] = [](Decoder& d) { either(d, "mad", kFma, 3); };
  o["fma"] = [](Decoder& d) { decode_float(d, kFma, d.need_type(), 3); };
  o["neg"] = [](Decoder& d) { either(d, "neg", kNeg, 1); };
  o["abs"] = [](Decoder& d) {
    const Type t = d.need_type();
    if (is_float(t)) decode_float(d, kAbsolute, t, 1);
    else decode_integer(d, "abs", t);
  };
  o["min"] = [](Decoder& d) { min_max(d, "min", kMin); };
  o["max"] = [](Decoder& d) { min_max(d, "max", kMax); };
  o["copysign"] = [](Decoder& d) { decode_float(d, kCopysign, d.need_type(), 2); };
  o["div"] = [](Decoder& d) {
    const bool approx = d.take("approx"), full = d.take("full");
    const Type t = d.need_type();
    if (!is_float(t)) return decode_integer(d, "div", t);
    decode_float(d, approx ? kDivApprox : full ? kDivFull : kDiv, t, 2);
  };
  o["rcp"] = [](Decoder& d) { decode_float(d, d.take("approx") ? kRcpApprox : kRcp, d.need_type(), 1); };
  o["sqrt"] = [](Decoder& d) { decode_float(d, d.take("approx") ? kSqrtApprox : kSqrt, d.need_type(), 1); };
  static const auto kApprox = [](Decoder& d, Kind k) {
    if (!d.take("approx")) d.fail(".approx is missing");
    decode_float(d, k, d.need_type(), 1);
  };
  o["rsqrt"] = [](Decoder& d) { kApprox(d, kRsqrt); };
  o["sin"] = [](Decoder& d) { kApprox(d, kSin); };
  o["cos"] = [](Decoder& d) { kApprox(d, kCos); };
  o["lg2"] = [](Decoder& d) { kApprox(d, kLg2); };
  o["ex2"] = [](Decoder& d) { kApprox(d, kEx2); };
  o["tanh"] = [](Decoder& d) { kApprox(d, kTanh); };
  o["testp"] = [](Decoder& d) {
    const int k = d.take_any({"finite", "infinite", "number", "notanumber", "normal", "subnormal"});
    if (k < 0) d.fail("what to test is missing");
    const Type t = d.need_type();
    d.need_operands(2);
    d.i->type = t, d.i->kind = static_cast<uint32_t>(k), d.i->run = testp;
    d.i->d = d.result(0, Type::pred), d.i->a = d.source(1, t);
  };
}

}  // namespace tessera::ptx
