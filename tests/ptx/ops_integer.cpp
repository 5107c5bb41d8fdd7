// Whole numbers and bits: arithmetic, shifts, fields, permutations of bytes, dot products.
#include <algorithm>
#include <bit>

#include "tests/ptx/decode.h"

namespace tessera::ptx {

namespace {

__extension__ using u128 = unsigned __int128;
__extension__ using i128 = __int128;

uint64_t carried(uint64_t p) { return p | (0 - p); }  // bits above the lowest unknown one may be unknown, too
int64_t sg(uint64_t x, const Instr& i) { return signed_of(x, i.width); }
bool is_signed(const Instr& i) { return ptx::is_signed(i.type); }

enum Poison : uint8_t { kWhole, kCarried };

template <uint64_t (*F)(uint64_t, const Instr&)>
void unary(Thread& t, const Instr& i) {
  const Slot a = t.r[i.a];
  const uint64_t mask = mask_of(i.width);
  t.r[i.d] = {F(a.bits, i) & mask, a.poison ? mask : 0};
}
template <uint64_t (*F)(uint64_t, uint64_t, const Instr&), Poison P = kWhole>
void binary(Thread& t, const Instr& i) {
  const Slot a = t.r[i.a], b = t.r[i.b];
  const uint64_t mask = mask_of(i.width), p = a.poison | b.poison;
  t.r[i.d] = {F(a.bits, b.bits, i) & mask, p == 0 ? 0 : P == kCarried ? carried(p) & mask : mask};
}
template <uint64_t (*F)(uint64_t, uint64_t, uint64_t, const Instr&), Poison P = kWhole>
void ternary(Thread& t, const Instr& i) {
  const Slot a = t.r[i.a], b = t.r[i.b], c = t.r[i.c];
  const uint64_t mask = mask_of(i.width), p = a.poison | b.poison | c.poison;
  t.r[i.d] = {F(a.bits, b.bits, c.bits, i) & mask, p == 0 ? 0 : P == kCarried ? carried(p) & mask : mask};
}

// ---- arithmetic

uint64_t add_(uint64_t a, uint64_t b, const Instr&) { return a + b; }
uint64_t sub_(uint64_t a, uint64_t b, const Instr&) { return a - b; }
uint64_t mul_(uint64_t a, uint64_t b, const Instr&) { return a * b; }
uint64_t mad_(uint64_t a, uint64_t b, uint64_t c, const Instr&) { return a * b + c; }
uint64_t saturated(int64_t x) {
  return static_cast<uint64_t>(x > INT32_MAX ? INT32_MAX : x < INT32_MIN ? INT32_MIN : x);
}
uint64_t add_sat(uint64_t a, uint64_t b, const Instr& i) { return saturated(sg(a, i) + sg(b, i)); }
uint64_t sub_sat(uint64_t a, uint64_t b, const Instr& i) { return saturated(sg(a, i) - sg(b, i)); }
uint64_t high(uint64_t a, uint64_t b, const Instr& i) {
  if (is_signed(i)) return static_cast<uint64_t>(static_cast<i128>(sg(a, i)) * sg(b, i) >> i.width);
  return static_cast<uint64_t>(static_cast<u128>(a) * b >> i.width);
}
uint64_t mad_high(uint64_t a, uint64_t b, uint64_t c, const Instr& i) { return high(a, b, i) + c; }
uint64_t mad_high_sat(uint64_t a, uint64_t b, uint64_t c, const Instr& i) {
  return saturated(static_cast<int64_t>(high(a, b, i)) + sg(c, i));
}
/// Instr::from is the operands' width here, and width the result's.
uint64_t wide(uint64_t a, uint64_t b, const Instr& i) {
  return is_signed(i) ? static_cast<uint64_t>(signed_of(a, i.from) * signed_of(b, i.from)) : a * b;
}
uint64_t mad_wide(uint64_t a, uint64_t b, uint64_t c, const Instr& i) { return wide(a, b, i) + c; }
uint64_t product24(uint64_t a, uint64_t b, const Instr& i) {
  const int64_t x = is_signed(i) ? signed_of(a & 0xffffff, 24) : static_cast<int64_t>(a & 0xffffff);
  const int64_t y = is_signed(i) ? signed_of(b & 0xffffff, 24) : static_cast<int64_t>(b & 0xffffff);
  return static_cast<uint64_t>(x * y);
}
uint64_t mul24_lo(uint64_t a, uint64_t b, const Instr& i) { return product24(a, b, i); }
uint64_t mul24_hi(uint64_t a, uint64_t b, const Instr& i) { return product24(a, b, i) >> 16; }
uint64_t mad24_lo(uint64_t a, uint64_t b, uint64_t c, const Instr& i) { return product24(a, b, i) + c; }
uint64_t mad24_hi(uint64_t a, uint64_t b, uint64_t c, const Instr& i) { return (product24(a, b, i) >> 16) + c; }
uint64_t sad(uint64_t a, uint64_t b, uint64_t c, const Instr& i) {
  const bool less = is_signed(i) ? sg(a, i) < sg(b, i) : a < b;
  return c + (less ? b - a : a - b);
}
uint64_t abs_(uint64_t a, const Instr& i) { return sg(a, i) < 0 ? 0 - a : a; }
uint64_t neg_(uint64_t a, const Instr&) { return 0 - a; }
uint64_t min_(uint64_t a, uint64_t b, const Instr& i) { return (is_signed(i) ? sg(a, i) < sg(b, i) : a < b) ? a : b; }
uint64_t max_(uint64_t a, uint64_t b, const Instr& i) { return (is_signed(i) ? sg(a, i) < sg(b, i) : a < b) ? b : a; }

template <bool remainder>
void divide(Thread& t, const Instr& i) {
  const Slot a = t.r[i.a], b = t.r[i.b];
  const uint64_t mask = mask_of(i.width);
  if (b.bits == 0 || a.poison || b.poison) {  // a division by zero gives what nobody knows
    t.r[i.d] = {a.bits * 0x9e3779b97f4a7c15u & mask, mask};
    return;
  }
  uint64_t r = 0;
  if (is_signed(i)) {
    const int64_t x = sg(a.bits, i), y = sg(b.bits, i);
    r = y == -1 ? (remainder ? 0 : 0 - a.bits) : static_cast<uint64_t>(remainder ? x % y : x / y);
  } else {
    r = remainder ? a.bits % b.bits : a.bits / b.bits;
  }
  t.r[i.d] = {r & mask, 0};
}

/// add.cc, addc, addc.cc, sub.cc, subc, mad.lo.cc and so on: flags kIn and kOut.
enum Carry : uint16_t { kIn = 1, kOut = 2, kMinus = 4, kHigh = 8, kProduct = 16 };
void with_carry(Thread& t, const Instr& i) {
  Slot a = t.r[i.a];
  Slot b = t.r[i.b];
  const uint64_t mask = mask_of(i.width);
  if (i.flags & kProduct) {
    const uint64_t poison = a.poison | b.poison;
    a = {((i.flags & kHigh) ? high(a.bits, b.bits, i) : a.bits * b.bits) & mask, poison ? mask : 0};
    b = t.r[i.c];
  }
  const bool minus = (i.flags & kMinus) != 0;
  const uint64_t in = (i.flags & kIn) ? t.carry : 0;
  const bool poison = a.poison || b.poison || ((i.flags & kIn) && t.carry_poison);
  const u128 x = minus ? static_cast<u128>(a.bits) - b.bits - in : static_cast<u128>(a.bits) + b.bits + in;
  if (i.flags & kOut) t.carry = (x >> i.width & 1) != 0, t.carry_poison = poison;
  t.r[i.d] = {static_cast<uint64_t>(x) & mask, poison ? mask : 0};
}

/// Two halves at once.
template <uint64_t (*F)(uint64_t, uint64_t, const Instr&)>
void halves(Thread& t, const Instr& i) {
  const Slot a = t.r[i.a], b = t.r[i.b];
  Instr half = i;
  half.width = 16;
  Slot d;
  for (uint32_t k = 0; k < 32; k += 16) {
    d.bits |= (F(a.bits >> k & 0xffff, b.bits >> k & 0xffff, half) & 0xffff) << k;
    if ((a.poison | b.poison) >> k & 0xffff) d.poison |= uint64_t{0xffff} << k;
  }
  t.r[i.d] = d;
}

// ---- bits

void and_(Thread& t, const Instr& i) {
  const Slot a = t.r[i.a], b = t.r[i.b];  // a known 0 makes the result known
  t.r[i.d] = {a.bits & b.bits, (a.poison & (b.bits | b.poison)) | (b.poison & (a.bits | a.poison))};
}
void or_(Thread& t, const Instr& i) {
  const Slot a = t.r[i.a], b = t.r[i.b];
  t.r[i.d] = {a.bits | b.bits, (a.poison & (~b.bits | b.poison)) | (b.poison & (~a.bits | a.poison))};
}
void xor_(Thread& t, const Instr& i) {
  const Slot a = t.r[i.a], b = t.r[i.b];
  t.r[i.d] = {a.bits ^ b.bits, a.poison | b.poison};
}
void not_(Thread& t, const Instr& i) {
  const Slot a = t.r[i.a];
  t.r[i.d] = {~a.bits & mask_of(i.width), a.poison};
}
uint64_t cnot(uint64_t a, const Instr&) { return a == 0; }
uint64_t popc(uint64_t a, const Instr&) { return static_cast<uint64_t>(std::popcount(a)); }
uint64_t clz(uint64_t a, const Instr& i) { return static_cast<uint64_t>(std::countl_zero(a)) - (64 - i.from); }
uint64_t brev(uint64_t a, const Instr& i) {
  uint64_t r = 0;
  for (uint32_t k = 0; k < i.width; ++k) r |= (a >> k & 1) << (i.width - 1 - k);
  return r;
}
uint64_t bfind(uint64_t a, const Instr& i) {
  if (is_signed(i) && signed_of(a, i.from) < 0) a = ~a & mask_of(i.from);
  if (a == 0) return 0xffffffff;
  const uint64_t at = 63 - static_cast<uint64_t>(std::countl_zero(a));
  return i.kind ? i.from - 1 - at : at;  // .shiftamt
}
uint64_t fns(uint64_t mask, uint64_t base, uint64_t offset, const Instr&) {
  const int64_t n = signed_of(offset, 32);
  if (base > 31) return 0xffffffff;
  if (n == 0) return mask >> base & 1 ? base : 0xffffffff;
  int64_t left = n > 0 ? n : -n;
  for (int64_t k = static_cast<int64_t>(base); k >= 0 && k < 32; k += n > 0 ? 1 : -1)
    if ((mask >> k & 1) && --left == 0) return static_cast<uint64_t>(k);
  return 0xffffffff;
}
/// Shifts by more than the width are by the width.
void shl(Thread& t, const Instr& i) {
  const Slot a = t.r[i.a], b = t.r[i.b];
  const uint64_t mask = mask_of(i.width), n = b.bits & 0xffffffff;
  t.r[i.d] = n >= i.width ? Slot{0, 0} : Slot{a.bits << n & mask, a.poison << n & mask};
  if (b.poison) t.r[i.d].poison = mask;
}
void shr(Thread& t, const Instr& i) {
  const Slot a = t.r[i.a], b = t.r[i.b];
  const uint64_t mask = mask_of(i.width), n = b.bits & 0xffffffff;
  const uint64_t most = n >= i.width ? i.width - 1u : n;
  if (is_signed(i))
    t.r[i.d] = {static_cast<uint64_t>(sg(a.bits, i) >> most) & mask,
                static_cast<uint64_t>(sg(a.poison, i) >> most) & mask};
  else t.r[i.d] = n >= i.width ? Slot{0, 0} : Slot{a.bits >> n, a.poison >> n};
  if (b.poison) t.r[i.d].poison = mask;
}
/// shf: kind 1 right; mode 1 clamps.
void shf(Thread& t, const Instr& i) {
  const Slot a = t.r[i.a], b = t.r[i.b], c = t.r[i.c];
  const uint64_t n = i.mode ? std::min<uint64_t>(c.bits, 32) : c.bits & 31;
  const auto shift = [&](uint64_t lo, uint64_t hi) {
    const uint64_t both = hi << 32 | lo;
    return i.kind ? (both >> n) & 0xffffffff : (n ? both << n >> 32 : hi) & 0xffffffff;
  };
  t.r[i.d] = {shift(a.bits, b.bits), c.poison ? 0xffffffff : shift(a.poison, b.poison)};
}
void bfe(Thread& t, const Instr& i) {
  const Slot a = t.r[i.a], b = t.r[i.b], c = t.r[i.c];
  const uint64_t at = b.bits & 0xff, n = c.bits & 0xff, top = i.width - 1;
  const auto field = [&](uint64_t x) {
    const bool sign = is_signed(i) && n != 0 && (x >> std::min(at + n - 1, top) & 1);
    uint64_t r = 0;
    for (uint64_t k = 0; k <= top; ++k) r |= (k < n && at + k <= top ? x >> (at + k) & 1 : uint64_t{sign}) << k;
    return r;
  };
  t.r[i.d] = {field(a.bits), b.poison || c.poison ? mask_of(i.width) : a.poison ? field(a.poison) : 0};
}
void bfi(Thread& t, const Instr& i) {
  const Slot a = t.r[i.a], b = t.r[i.b], c = t.r[i.c], e = t.r[i.e];
  const uint64_t at = c.bits & 0xff, n = e.bits & 0xff, mask = mask_of(i.width);
  const uint64_t field =
      at >= i.width || n == 0 ? 0 : (mask_of(static_cast<uint32_t>(std::min<uint64_t>(n, 64))) << at) & mask;
  const auto insert = [&](uint64_t x, uint64_t y) { return (field ? x << at & field : 0) | (y & ~field); };
  t.r[i.d] = {insert(a.bits, b.bits), c.poison || e.poison ? mask : insert(a.poison, b.poison)};
}
uint64_t szext(uint64_t a, uint64_t b, const Instr& i) {
  uint64_t n = b & 0xffffffff;
  n = i.mode ? std::min<uint64_t>(n, 32) : n & 31;
  if (n == 0) return 0;
  if (n >= 32) return a;
  return is_signed(i) ? static_cast<uint64_t>(signed_of(a, static_cast<uint32_t>(n)))
                      : a & mask_of(static_cast<uint32_t>(n));
}
uint64_t bmsk(uint64_t a, uint64_t b, const Instr& i) {
  if (!i.mode) a &= 31, b &= 31;
  if (a >= 32 || b == 0) return 0;
  return mask_of(static_cast<uint32_t>(std::min<uint64_t>(b, 32))) << a;
}
void lop3(Thread& t, const Instr& i) {
  const Slot a = t.r[i.a], b = t.r[i.b], c = t.r[i.c];
  Slot d;
  for (uint32_t k = 0; k < 8; ++k) {
    if (!(i.imm >> k & 1)) continue;
    d.bits |= (k & 4 ? a.bits : ~a.bits) & (k & 2 ? b.bits : ~b.bits) & (k & 1 ? c.bits : ~c.bits);
  }
  // an operand's unknown bit matters where the two values that it may have make a difference
  const uint64_t p = a.poison | b.poison | c.poison;
  if (p) {
    uint64_t may_be0 = 0, may_be1 = 0;
    for (uint32_t k = 0; k < 8; ++k) {
      const uint64_t at = ((k & 4 ? a.bits : ~a.bits) | a.poison) & ((k & 2 ? b.bits : ~b.bits) | b.poison) &
                          ((k & 1 ? c.bits : ~c.bits) | c.poison);
      (i.imm >> k & 1 ? may_be1 : may_be0) |= at;
    }
    d.poison = may_be0 & may_be1 & p;
  }
  d.bits &= 0xffffffff, d.poison &= 0xffffffff;
  t.r[i.d] = d;
}
void prmt(Thread& t, const Instr& i) {
  const Slot a = t.r[i.a], b = t.r[i.b], c = t.r[i.c];
  const uint64_t bits = b.bits << 32 | a.bits, poison = b.poison << 32 | a.poison;
  static const uint8_t kModes[7][4][4] = {{},
                                          {{0, 1, 2, 3}, {1, 2, 3, 4}, {2, 3, 4, 5}, {3, 4, 5, 6}},   // f4e
                                          {{0, 7, 6, 5}, {1, 0, 7, 6}, {2, 1, 0, 7}, {3, 2, 1, 0}},   // b4e
                                          {{0, 0, 0, 0}, {1, 1, 1, 1}, {2, 2, 2, 2}, {3, 3, 3, 3}},   // rc8
                                          {{0, 1, 2, 3}, {1, 1, 2, 3}, {2, 2, 2, 3}, {3, 3, 3, 3}},   // ecl
                                          {{0, 0, 0, 0}, {0, 1, 1, 1}, {0, 1, 2, 2}, {0, 1, 2, 3}},   // ecr
                                          {{0, 1, 0, 1}, {2, 3, 2, 3}, {0, 1, 0, 1}, {2, 3, 2, 3}}};  // rc16
  Slot d;
  for (uint32_t k = 0; k < 4; ++k) {
    const uint32_t select = i.kind ? kModes[i.kind][c.bits & 3][k] : static_cast<uint32_t>(c.bits >> (4 * k) & 15);
    uint64_t x = bits >> (8 * (select & 7)) & 0xff, p = poison >> (8 * (select & 7)) & 0xff;
    if (select & 8) x = x & 0x80 ? 0xff : 0, p = p & 0x80 ? 0xff : 0;
    d.bits |= x << (8 * k), d.poison |= p << (8 * k);
  }
  if (c.poison) d.poison = 0xffffffff;
  t.r[i.d] = d;
}
/// dp4a: kind 0; dp2a: 1 lo, 2 hi. flags: 1 a is signed, 2 b is.
uint64_t dot(uint64_t a, uint64_t b, uint64_t c, const Instr& i) {
  int64_t sum = signed_of(c, 32);
  const auto part = [](uint64_t x, uint32_t at, uint32_t width, bool sign) {
    const uint64_t v = x >> at & mask_of(width);
    return sign ? signed_of(v, width) : static_cast<int64_t>(v);
  };
  if (i.kind == 0) {
    for (uint32_t k = 0; k < 32; k += 8) sum += part(a, k, 8, i.flags & 1) * part(b, k, 8, i.flags & 2);
  } else {
    for (uint32_t k = 0; k < 2; ++k)
      sum += part(a, 16 * k, 16, i.flags & 1) * part(b, 8 * k + (i.kind == 2 ? 16 : 0), 8, i.flags & 2);
  }
  return static_cast<uint64_t>(sum);
}

// ---- decoding

void sources(Decoder& d, Type t, size_t n) {
  d.need_operands(n + 1);
  d.i->type = t, d.i->width = d.i->from = static_cast<uint8_t>(width_of(t));
  d.i->d = d.result(0, t);
  if (n > 0) d.i->a = d.source(1, t);
  if (n > 1) d.i->b = d.source(2, t);
  if (n > 2) d.i->c = d.source(3, t);
}
void decode_carry(Decoder& d, bool product, uint16_t flags) {
  const bool out = d.take("cc");
  if (product && !d.take("lo")) {
    if (!d.take("hi")) d.fail(".lo or .hi is missing");
    flags |= kHigh;
  }
  sources(d, d.need_type(), product ? 3 : 2);
  d.i->run = with_carry;
  d.i->flags = flags | (out ? kOut : 0) | (product ? kProduct : 0);
}
bool two_halves(Type t) { return t == Type::s16x2 || t == Type::u16x2; }

}  // namespace

// Of opcodes that floats have, too: the float family calls these for whole numbers.
void decode_integer(Decoder& d, const std::string& op, Type t) {
  Instr& i = *d.i;
  const bool cc = op != "mad" && d.take("cc");
  if (cc) {
    sources(d, t, 2);
    i.run = with_carry, i.flags = static_cast<uint16_t>(kOut | (op == "sub" ? kMinus : 0));
    return;
  }
  if (op == "abs" || op == "neg") {
    sources(d, t, 1);
    i.run = op == "abs" ? unary<abs_> : unary<neg_>;
  } else if (op == "mul" || op == "mad") {
    const bool mad = op == "mad";
    const int part = d.take_any({"lo", "hi", "wide"});
    if (part < 0) d.fail(".lo, .hi or .wide is missing");
    if (mad && d.take("cc")) {
      sources(d, t, 3);
      i.run = with_carry, i.flags = static_cast<uint16_t>(kOut | kProduct | (part == 1 ? kHigh : 0));
      return;
    }
    if (part < 2) {
      sources(d, t, mad ? 3 : 2);
      if (mad && part == 1 && d.take("sat")) i.run = ternary<mad_high_sat>;
      else if (mad) i.run = part == 0 ? ternary<mad_, kCarried> : ternary<mad_high>;
      else i.run = part == 0 ? binary<mul_, kCarried> : binary<high>;
      return;
    }
    const uint32_t w = width_of(t);
    if (w > 32) d.fail("a wide product is of 16 or 32 bits");
    const Type twice = w == 16 ? Type::b32 : Type::b64;
    d.need_operands(mad ? 4 : 3);
    i.type = t, i.from = static_cast<uint8_t>(w), i.width = static_cast<uint8_t>(2 * w);
    i.d = d.result(0, twice), i.a = d.source(1, t), i.b = d.source(2, t);
    if (mad) i.c = d.source(3, twice);
    i.run = mad ? ternary<mad_wide> : binary<wide>;
  } else if (op == "div" || op == "rem") {
    sources(d, t, 2);
    i.run = op == "div" ? divide<false> : divide<true>;
  } else {
    const bool sat = d.take("sat"), relu = d.take("relu");
    sources(d, t, 2);
    if (relu) d.fail(".relu of whole numbers is not known");
    if (two_halves(t)) {
      i.run = op == "add" ? halves<add_> : op == "min" ? halves<min_> : op == "max" ? halves<max_> : nullptr;
      if (!i.run) d.fail("it is not known for this type");
      return;
    }
    if (sat && t != Type::s32) d.fail(".sat is of .s32");
    if (op == "add") i.run = sat ? binary<add_sat> : binary<add_, kCarried>;
    if (op == "sub") i.run = sat ? binary<sub_sat> : binary<sub_, kCarried>;
    if (op == "min") i.run = binary<min_>;
    if (op == "max") i.run = binary<max_>;
  }
}

void add_integer_ops(Opcodes& o) {
  o["addc"] = [](Decoder& d) { decode_carry(d, false, kIn); };
  o["subc"] = [](Decoder& d) { decode_carry(d, false, kIn | kMinus); };
  o["madc"] = [](Decoder& d) { decode_carry(d, true, kIn); };
  o["mul24"] = [](Decoder& d) {
    const bool hi = d.take("hi");
    if (!hi && !d.take("lo")) d.fail(".lo or .hi is missing");
    sources(d, d.need_type(), 2);
    d.i->run = hi ? binary<mul24_hi> : binary<mul24_lo>;
  };
  o["mad24"] = [](Decoder& d) {
    const bool hi = d.take("hi");
    if (!hi && !d.take("lo")) d.fail(".lo or .hi is missing");
    sources(d, d.need_type(), 3);
    d.i->run = hi ? ternary<mad24_hi> : ternary<mad24_lo>;
  };
  o["sad"] = [](Decoder& d) { sources(d, d.need_type(), 3), d.i->run = ternary<sad>; };
  o["rem"] = [](Decoder& d) { decode_integer(d, "rem", d.need_type()); };
  o["xor"] = [](Decoder& d) { sources(d, d.need_type(), 2), d.i->run = xor_; };
  o["and"] = [](Decoder& d) { sources(d, d.need_type(), 2), d.i->run = and_; };
  o["or"] = [](Decoder& d) { sources(d, d.need_type(), 2), d.i->run = or_; };
  o["not"] = [](Decoder& d) { sources(d, d.need_type(), 1), d.i->run = not_; };
  o["cnot"] = [](Decoder& d) { sources(d, d.need_type(), 1), d.i->run = unary<cnot>; };
  o["brev"] = [](Decoder& d) { sources(d, d.need_type(), 1), d.i->run = unary<brev>; };
  const auto count = [](Decoder& d, Handler h) {
    if (h == Handler(unary<bfind>) && d.take("shiftamt")) d.i->kind = 1;
    const Type t = d.need_type();
    d.need_operands(2);
    d.i->type = t, d.i->width = 32, d.i->from = static_cast<uint8_t>(width_of(t));
    d.i->d = d.result(0, Type::b32), d.i->a = d.source(1, t);
    d.i->run = h;
  };
  static const auto kCount = count;
  o["popc"] = [](Decoder& d) { kCount(d, unary<popc>); };
  o["clz"] = [](Decoder& d) { kCount(d, unary<clz>); };
  o["bfind"] = [](Decoder& d) { kCount(d, unary<bfind>); };
  o["fns"] = [](Decoder& d) { sources(d, d.need_type(), 3), d.i->run = ternary<fns>; };
  static const auto kShift = [](Decoder& d, Handler h) {
    const Type t = d.need_type();
    d.need_operands(3);
    d.i->type = t, d.i->width = static_cast<uint8_t>(width_of(t));
    d.i->d = d.result(0, t), d.i->a = d.source(1, t), d.i->b = d.source(2, Type::u32);
    d.i->run = h;
  };
  o["shl"] = [](Decoder& d) { kShift(d, shl); };
  o["shr"] = [](Decoder& d) { kShift(d, shr); };
  o["shf"] = [](Decoder& d) {
    d.i->kind = d.take("r") ? 1 : 0;
    if (!d.i->kind && !d.take("l")) d.fail(".l or .r is missing");
    d.i->mode = d.take("clamp") ? 1 : 0;
    if (!d.i->mode && !d.take("wrap")) d.fail(".clamp or .wrap is missing");
    sources(d, d.need_type(), 3);
    d.i->run = shf;
  };
  o["bfe"] = [](Decoder& d) {
    const Type t = d.need_type();
    d.need_operands(4);
    d.i->type = t, d.i->width = static_cast<uint8_t>(width_of(t));
    d.i->d = d.result(0, t), d.i->a = d.source(1, t), d.i->b = d.source(2, Type::u32), d.i->c = d.source(3, Type::u32);
    d.i->run = bfe;
  };
  o["bfi"] = [](Decoder& d) {
    const Type t = d.need_type();
    d.need_operands(5);
    d.i->width = static_cast<uint8_t>(width_of(t));
    d.i->d = d.result(0, t), d.i->a = d.source(1, t), d.i->b = d.source(2, t);
    d.i->c = d.source(3, Type::u32), d.i->e = d.source(4, Type::u32);
    d.i->run = bfi;
  };
  static const auto kClamped = [](Decoder& d, Handler h) {
    d.i->mode = d.take("clamp") ? 1 : 0;
    if (!d.i->mode && !d.take("wrap")) d.fail(".clamp or .wrap is missing");
    sources(d, d.need_type(), 2);
    d.i->run = h;
  };
  o["szext"] = [](Decoder& d) { kClamped(d, binary<szext>); };
  o["bmsk"] = [](Decoder& d) { kClamped(d, binary<bmsk>); };
  o["lop3"] = [](Decoder& d) {
    const Type t = d.need_type();
    d.need_operands(5);
    d.i->d = d.result(0, t), d.i->a = d.source(1, t), d.i->b = d.source(2, t), d.i->c = d.source(3, t);
    if (d.operand(4).kind != Operand::integer) d.fail("the table is no number");
    d.i->imm = d.operand(4).bits;
    d.i->run = lop3;
  };
  o["prmt"] = [](Decoder& d) {
    const Type t = d.need_type();
    d.i->kind = static_cast<uint32_t>(d.take_any({"f4e", "b4e", "rc8", "ecl", "ecr", "rc16"}) + 1);
    sources(d, t, 3);
    d.i->run = prmt;
  };
  static const auto kDot = [](Decoder& d, uint32_t kind) {
    d.i->kind = kind;
    const Type a = d.need_type(), b = d.need_type();
    d.need_operands(4);
    d.i->flags = static_cast<uint16_t>((ptx::is_signed(a) ? 1 : 0) | (ptx::is_signed(b) ? 2 : 0));
    d.i->width = 32;
    d.i->d = d.result(0, Type::b32), d.i->a = d.source(1, Type::b32), d.i->b = d.source(2, Type::b32),
    d.i->c = d.source(3, Type::b32);
    d.i->run = ternary<dot>;
  };
  o["dp4a"] = [](Decoder& d) { kDot(d, 0); };
  o["dp2a"] = [](Decoder& d) { kDot(d, d.take("hi") ? 2u : d.take("lo") ? 1u : 0u); };
}

}  // namespace tessera::ptx
