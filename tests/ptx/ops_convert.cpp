// Conversions between all types, and of pairs.
#include <cmath>
#include <limits>

#include "tests/ptx/decode.h"

namespace tessera::ptx {

namespace {

enum Flags : uint16_t { kFtz = 1, kSat = 2, kFinite = 4, kRelu = 8, kWhole = 16, kSwap = 32 };

double flushed(double x, const Instr& i) {
  if (!(i.flags & kFtz)) return x;
  return std::fabs(x) < 0x1p-126 ? std::copysign(0.0, x) : x;
}

uint64_t extended(uint64_t bits, Type t, uint32_t to) {
  return (is_signed(t) ? static_cast<uint64_t>(signed_of(bits, width_of(t))) : bits & mask_of(width_of(t))) &
         mask_of(to);
}

uint64_t float_to_integer(double x, const Instr& i) {
  const uint32_t w = width_of(i.type);
  const bool sign = is_signed(i.type);
  if (std::isnan(x)) {
    if (i.source != Type::f64 && w < 64) return 0;
    return w == 64 || i.source == Type::f64 ? uint64_t{1} << (w - 1) : 0;
  }
  x = round_whole(x, static_cast<Round>(i.mode));
  if (sign) {
    const double top = std::ldexp(1.0, static_cast<int>(w) - 1);
    if (x >= top) return mask_of(w - 1);
    if (x < -top) return uint64_t{1} << (w - 1);
    return static_cast<uint64_t>(static_cast<int64_t>(x)) & mask_of(w);
  }
  if (x <= 0) return 0;
  if (x >= std::ldexp(1.0, static_cast<int>(w))) return mask_of(w);
  return static_cast<uint64_t>(x);
}

uint64_t integer_to_integer(uint64_t bits, const Instr& i) {
  const uint32_t w = width_of(i.type), from = width_of(i.source);
  if (i.flags & kSat) {
    const bool negative = is_signed(i.source) && signed_of(bits, from) < 0;
    if (is_signed(i.type)) {
      const uint64_t top = mask_of(w - 1);
      if (!negative && (bits & mask_of(from)) > top) return top;
      if (negative && signed_of(bits, from) < -static_cast<int64_t>(top) - 1) return uint64_t{1} << (w - 1);
    } else {
      if (negative) return 0;
      if ((bits & mask_of(from)) > mask_of(w)) return mask_of(w);
    }
  }
  return extended(bits, i.source, 64) & mask_of(w);
}

uint64_t to_float(double x, const Instr& i, Type t) {
  if (i.flags & kWhole) x = round_whole(x, static_cast<Round>(i.mode));
  if (i.flags & kSat) x = std::isnan(x) || x <= 0 ? 0.0 : x > 1 ? 1.0 : x;
  if ((i.flags & kRelu) && (x < 0 || (x == 0 && std::signbit(x)))) x = 0;
  const Round mode = i.flags & kWhole ? Round::even : static_cast<Round>(i.mode);
  const bool finite = (i.flags & kFinite) != 0;
  if (finite && std::isinf(x) && t == Type::f16) return narrow(t, std::copysign(65504.0, x), mode, true);
  uint64_t bits = narrow(t, x, mode, finite);
  if ((i.flags & kFtz) && t == Type::f32) bits = narrow(t, flushed(widen(t, bits), i), Round::even);
  return bits;
}

void convert(Thread& t, const Instr& i) {
  const Slot a = t.r[i.a];
  const bool from_float = is_float(i.source), into_float = is_float(i.type);
  uint64_t r = 0;
  if (from_float && i.type == Type::f64 && i.source == Type::f64 && !(i.flags & ~kFtz)) {
    r = a.bits;
  } else if (from_float) {
    const double x = flushed(widen(i.source, a.bits & mask_of(width_of(i.source))), i);
    r = into_float ? to_float(x, i, i.type) : float_to_integer(x, i);
  } else if (into_float) {
    const uint64_t x = extended(a.bits, i.source, 64);
    const bool negative = is_signed(i.source) && static_cast<int64_t>(x) < 0;
    r = from_integer(i.type, negative ? 0 - x : x, negative, static_cast<Round>(i.mode));
    if (i.flags & kSat) r = to_float(widen(i.type, r), i, i.type);
  } else {
    const uint64_t x = integer_to_integer(a.bits, i);
    const uint64_t p = a.poison & mask_of(width_of(i.source));
    t.r[i.d] = {extended(x, i.type, i.width),
                (i.flags & kSat) && p ? mask_of(i.width) : extended(extended(p, i.source, 64), i.type, i.width)};
    return;
  }
  const bool poison = (a.poison & mask_of(width_of(i.source))) != 0;
  t.r[i.d] = {into_float ? r : extended(r, i.type, i.width), poison ? mask_of(i.width) : 0};
}

Type element(Type t) {
  switch (t) {
    case Type::f16x2: return Type::f16;
    case Type::bf16x2: return Type::bf16;
    case Type::e4m3x2: return Type::e4m3;
    case Type::e5m2x2: return Type::e5m2;
    default: return t;
  }
}
/// Two floats into one register (a is the upper one), or a pair into a pair.
void convert_pair(Thread& t, const Instr& i) {
  const Type to = element(i.type), from = element(i.source);
  const uint32_t w = width_of(to), v = width_of(from);
  Slot d;
  for (uint32_t k = 0; k < 2; ++k) {
    const Slot a = i.b == kNone ? t.r[i.a] : k ? t.r[i.a] : t.r[i.b];
    const uint32_t at = i.b == kNone ? k * v : 0;
    const double x = flushed(widen(from, a.bits >> at & mask_of(v)), i);
    d.bits |= to_float(x, i, to) << (k * w);
    if (a.poison >> at & mask_of(v)) d.poison |= mask_of(w) << (k * w);
  }
  t.r[i.d] = d;
}

void decode_cvt(Decoder& d) {
  Instr& i = *d.i;
  bool given = false;
  const bool whole_word = [&] {
    for (const std::string& w : d.s->words)
      if (w == "rni" || w == "rzi" || w == "rmi" || w == "rpi") return true;
    return false;
  }();
  i.mode = static_cast<uint8_t>(d.rounding(Round::even, &given));
  if (d.take("pack")) d.fail("cvt.pack is not known");
  if (d.take("rs")) d.fail("stochastic rounding is not known");
  if (d.take("ftz")) i.flags |= kFtz;
  if (d.take("sat")) i.flags |= kSat;
  if (d.take("satfinite")) i.flags |= kFinite;
  if (d.take("relu")) i.flags |= kRelu;
  i.type = d.need_type(), i.source = d.need_type();
  i.width = static_cast<uint8_t>(width_of(i.type));
  const bool to = is_float(i.type), from = is_float(i.source);
  const bool pair = element(i.type) != i.type;
  if (pair) {
    const bool two = element(i.source) == i.source;
    if (two && i.source != Type::f32) d.fail("two numbers of .f32 become a pair");
    d.need_operands(two ? 3 : 2);
    i.d = d.result(0, i.type);
    i.a = d.source(1, i.source);
    if (two) i.b = d.source(2, i.source);
    if (!given) d.fail("a rounding mode is missing");
    const bool eight = width_of(element(i.type)) == 8;
    if (eight && !(i.flags & kFinite)) d.fail(".satfinite is missing");
    i.run = convert_pair;
    return;
  }
  d.need_operands(2);
  if (from && !to && !given) d.fail("a rounding mode (.rni, .rzi, .rmi, .rpi) is missing");
  if (!from && to && !given) d.fail("a rounding mode is missing");
  if (from && to) {
    if (whole_word && i.type == i.source) i.flags |= kWhole;
    else if (whole_word) d.fail("rounding to a whole number is of one type");
    const bool narrows = width_of(i.type) < width_of(i.source) || i.type == Type::tf32 ||
                         (i.type != i.source && width_of(i.type) == 16 && width_of(i.source) == 16);
    if (narrows && !given) d.fail("a rounding mode is missing");
  }
  i.d = d.result(0, i.type == Type::tf32 ? Type::b32 : i.type, true);
  const uint32_t has = d.register_width(d.operand(0));
  if (d.operand(0).kind == Operand::reg && (has < i.width || (to && has != i.width)))
    d.fail("the result's register is too narrow");
  if (has) i.width = static_cast<uint8_t>(has);
  i.a = d.source(1, i.source, true);
  const uint32_t had = d.register_width(d.operand(1));
  if (had && had < width_of(i.source)) d.fail("the source's register is too narrow");
  i.run = convert;
}

}  // namespace

void add_convert_ops(Opcodes& o) { o["cvt"] = decode_cvt; }

}  // namespace tessera::ptx
