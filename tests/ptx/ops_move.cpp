// Moves, comparisons and selections, and addresses from one space to another.
#include <cmath>

#include "tests/ptx/decode.h"

namespace tessera::ptx {

namespace {

void move(Thread& t, const Instr& i) { t.r[i.d] = t.r[i.a]; }
void move_clock(Thread& t, const Instr& i) { t.r[i.d] = {t.m->steps & mask_of(i.width), 0}; }
/// A vector into one register: elements of `from` bits.
void pack(Thread& t, const Instr& i) {
  Slot d;
  for (uint32_t k = 0; k < i.count; ++k) {
    const Slot a = t.r[t.m->code.lists[i.list + k]];
    d.bits |= (a.bits & mask_of(i.from)) << (k * i.from);
    d.poison |= (a.poison & mask_of(i.from)) << (k * i.from);
  }
  t.r[i.d] = d;
}
void unpack(Thread& t, const Instr& i) {
  const Slot a = t.r[i.a];
  for (uint32_t k = 0; k < i.count; ++k)
    t.r[t.m->code.lists[i.list + k]] = {a.bits >> (k * i.from) & mask_of(i.from),
                                        a.poison >> (k * i.from) & mask_of(i.from)};
}

void decode_mov(Decoder& d) {
  Instr& i = *d.i;
  const Type t = d.need_type();
  d.need_operands(2);
  const Operand& to = d.operand(0);
  const Operand& from = d.operand(1);
  const uint32_t width = width_of(t);
  i.width = static_cast<uint8_t>(width);
  if (width == 128) d.fail("registers of 128 bits are not known");
  const Type parts[] = {Type::none, Type::none,
                        width == 64   ? Type::b32
                        : width == 32 ? Type::b16
                                      : Type::b8,
                        Type::none, width == 64 ? Type::b16 : Type::b8};
  if (to.kind == Operand::vector || from.kind == Operand::vector) {
    const Operand& v = to.kind == Operand::vector ? to : from;
    if (v.parts.size() != 2 && v.parts.size() != 4) d.fail("a vector of 2 or 4 is expected");
    const Type part = parts[v.parts.size()];
    i.from = static_cast<uint8_t>(width / v.parts.size());
    std::vector<uint32_t> slots;
    for (const Operand& o : v.parts) slots.push_back(&v == &to ? d.result(o, part) : d.source(o, part));
    d.begin_list();
    for (const uint32_t s : slots) d.append(s);
    if (&v == &to) i.a = d.source(from, t);
    else i.d = d.result(to, t);
    i.run = &v == &to ? unpack : pack;
    return;
  }
  i.d = d.result(to, t);
  if (from.kind == Operand::special &&
      (from.which == Special::clock || from.which == Special::clock64 || from.which == Special::globaltimer)) {
    i.run = move_clock;
    return;
  }
  i.a = d.source(from, t);
  i.run = move;
}

// ---- comparisons

enum Compare : uint8_t { kEq, kNe, kLt, kLe, kGt, kGe, kNum, kNan };
/// flags: 1 true where one is NaN; 2 ftz; kind's combination in e: 0 none, 1 and, 2 or, 3 xor; 4: c is negated.
enum Flags : uint16_t { kUnordered = 1, kFtz = 2, kAnd = 4, kOr = 8, kXor = 16, kNegated = 32, kAsFloat = 64 };

template <class T>
bool compare(uint8_t how, T a, T b) {
  switch (how) {
    case kEq: return a == b;
    case kNe: return a != b;
    case kLt: return a < b;
    case kLe: return a <= b;
    case kGt: return a > b;
    default: return a >= b;
  }
}
bool compared(const Instr& i, Type type, uint64_t a, uint64_t b) {
  if (is_float(type)) {
    double x = widen(type, a), y = widen(type, b);
    if (i.flags & kFtz) {
      if (std::fabs(x) < 0x1p-126) x = 0;
      if (std::fabs(y) < 0x1p-126) y = 0;
    }
    const bool nan = std::isnan(x) || std::isnan(y);
    if (i.mode == kNum) return !nan;
    if (i.mode == kNan) return nan;
    if (nan) return (i.flags & kUnordered) != 0;
    return compare(i.mode, x, y);
  }
  if (is_signed(type)) return compare(i.mode, signed_of(a, width_of(type)), signed_of(b, width_of(type)));
  return compare(i.mode, a, b);
}
bool combined(const Instr& i, bool x, bool c) {
  if (i.flags & kNegated) c = !c;
  return i.flags & kAnd ? x && c : i.flags & kOr ? x || c : i.flags & kXor ? x != c : x;
}
Slot with(const Instr& i, bool x, bool poison, const Slot& c) {
  const bool known = c.bits & 1;
  bool p = poison || c.poison;
  // false and anything, true or anything
  if (p && (i.flags & kAnd)) p = !((!poison && !x) || (!c.poison && known == ((i.flags & kNegated) != 0)));
  if (p && (i.flags & kOr)) p = !((!poison && x) || (!c.poison && known != ((i.flags & kNegated) != 0)));
  return {combined(i, x, known), p ? 1u : 0u};
}
void setp(Thread& t, const Instr& i) {
  const Slot a = t.r[i.a], b = t.r[i.b], c = i.c == kNone ? Slot{} : t.r[i.c];
  const bool x = compared(i, i.type, a.bits, b.bits), poison = (a.poison | b.poison) != 0;
  if (i.e != kNone) t.r[i.e] = with(i, !x, poison, c);
  t.r[i.d] = with(i, x, poison, c);
}
/// Of pairs: p of the lower halves, q of the upper ones.
void setp_pair(Thread& t, const Instr& i) {
  const Slot a = t.r[i.a], b = t.r[i.b], c = i.c == kNone ? Slot{} : t.r[i.c];
  const Type half = i.type == Type::f16x2 ? Type::f16 : Type::bf16;
  const auto one = [&](uint32_t at) {
    return with(i, compared(i, half, a.bits >> at & 0xffff, b.bits >> at & 0xffff),
                ((a.poison | b.poison) >> at & 0xffff) != 0, c);
  };
  const Slot p = one(0), q = one(16);
  t.r[i.d] = p;
  t.r[i.e] = q;
}
void set(Thread& t, const Instr& i) {
  const Slot a = t.r[i.a], b = t.r[i.b], c = i.c == kNone ? Slot{} : t.r[i.c];
  const Slot x = with(i, compared(i, i.source, a.bits, b.bits), (a.poison | b.poison) != 0, c);
  const uint64_t yes = i.type == Type::f32    ? 0x3f800000
                       : i.type == Type::f16  ? 0x3c00
                       : i.type == Type::bf16 ? 0x3f80
                                              : mask_of(i.width);
  t.r[i.d] = {x.bits ? yes : 0, x.poison ? mask_of(i.width) : 0};
}
void selp(Thread& t, const Instr& i) {
  const Slot a = t.r[i.a], b = t.r[i.b], c = t.r[i.c];
  const bool yes = ((c.bits & 1) != 0) != ((i.flags & kNegated) != 0);
  Slot d = yes ? a : b;
  if (c.poison) d.poison |= (a.bits ^ b.bits) | a.poison | b.poison;
  t.r[i.d] = d;
}
void slct(Thread& t, const Instr& i) {
  const Slot a = t.r[i.a], b = t.r[i.b], c = t.r[i.c];
  bool yes = signed_of(c.bits, 32) >= 0;
  if (i.source == Type::f32) {
    float x = std::bit_cast<float>(static_cast<uint32_t>(c.bits));
    if ((i.flags & kFtz) && std::fabs(x) < 0x1p-126f) x = 0;
    yes = x >= 0;
  }
  Slot d = yes ? a : b;
  if (c.poison) d.poison |= (a.bits ^ b.bits) | a.poison | b.poison;
  t.r[i.d] = d;
}

void comparison(Decoder& d) {
  static const std::vector<std::string> kNames = {"eq",  "ne",  "lt",  "le",  "gt",  "ge", "num", "nan", "equ",
                                                  "neu", "ltu", "leu", "gtu", "geu", "lo", "ls",  "hi",  "hs"};
  static const uint8_t kHow[] = {kEq, kNe, kLt, kLe, kGt, kGe, kNum, kNan, kEq,
                                 kNe, kLt, kLe, kGt, kGe, kLt, kLe,  kGt,  kGe};
  const int k = d.take_any(kNames);
  if (k < 0) d.fail("the comparison is missing");
  d.i->mode = kHow[k];
  // != of floats is false where one is NaN, unless it is neu
  if (k >= 8 && k < 14) d.i->flags |= kUnordered;
  const int op = d.take_any({"and", "or", "xor"});
  if (op >= 0) d.i->flags |= static_cast<uint16_t>(op == 0 ? kAnd : op == 1 ? kOr : kXor);
  if (d.take("ftz")) d.i->flags |= kFtz;
}
void third(Decoder& d, size_t at) {
  const bool combines = (d.i->flags & (kAnd | kOr | kXor)) != 0;
  d.need_operands(combines ? at + 1 : at);
  if (!combines) return;
  d.i->c = d.predicate(d.operand(at));
  if (d.operand(at).negated) d.i->flags |= kNegated;
}
void decode_setp(Decoder& d) {
  Instr& i = *d.i;
  comparison(d);
  i.type = d.need_type();
  const Operand& to = d.operand(0);
  const bool two = to.kind == Operand::pair;
  if (two && to.parts.size() != 2) d.fail("p|q is expected");
  i.d = d.result(two ? to.parts[0] : to, Type::pred);
  if (two) i.e = d.result(to.parts[1], Type::pred);
  i.a = d.source(1, i.type), i.b = d.source(2, i.type);
  third(d, 3);
  const bool pair = i.type == Type::f16x2 || i.type == Type::bf16x2;
  if (pair && !two) d.fail("p|q is expected");
  i.run = pair ? setp_pair : setp;
}
void decode_set(Decoder& d) {
  Instr& i = *d.i;
  comparison(d);
  i.type = d.need_type(), i.source = d.need_type();
  i.width = static_cast<uint8_t>(width_of(i.type));
  i.d = d.result(0, i.type), i.a = d.source(1, i.source), i.b = d.source(2, i.source);
  third(d, 3);
  i.run = set;
}

// ---- addresses

void cvta(Thread& t, const Instr& i) {
  Slot a = t.r[i.a];
  a.bits += i.imm;
  if (!a.poison) a.bits = i.kind ? t.m->from_generic(i.space, a.bits) : t.m->to_generic(i.space, a.bits);
  t.r[i.d] = {a.bits & mask_of(i.width), a.poison};
}
void isspacep(Thread& t, const Instr& i) {
  const Slot a = t.r[i.a];
  t.r[i.d] = {t.m->space_of(a.bits) == i.space, a.poison ? 1u : 0u};
}
void decode_cvta(Decoder& d) {
  Instr& i = *d.i;
  i.kind = d.take("to") ? 1 : 0;
  i.space = d.space(Space::generic);
  if (i.space == Space::generic) d.fail("the space is missing");
  const Type t = d.need_type();
  i.width = static_cast<uint8_t>(width_of(t));
  d.need_operands(2);
  i.d = d.result(0, t);
  i.a = d.source(1, t);
  i.run = cvta;
}
/// The address of another block's shared memory.
void mapa(Thread& t, const Instr& i) {
  const Slot a = t.r[i.a], b = t.r[i.b];
  uint64_t address = a.bits;
  if (i.kind) address = t.m->from_generic(Space::shared, address);
  address = (address & 0xffffff) | (b.bits + 1) << 24;
  if (i.kind) address = t.m->to_generic(Space::shared, address);
  if (!b.poison && b.bits >= t.m->cluster_size)
    t.m->stop(Fault::bounds, t, i, "the cluster has no block of rank " + std::to_string(b.bits));
  t.r[i.d] = {address & mask_of(i.width), a.poison || b.poison ? mask_of(i.width) : 0};
}

}  // namespace

void add_move_ops(Opcodes& o) {
  o["mov"] = decode_mov;
  o["setp"] = decode_setp;
  o["set"] = decode_set;
  o["selp"] = [](Decoder& d) {
    const Type t = d.need_type();
    d.need_operands(4);
    d.i->d = d.result(0, t), d.i->a = d.source(1, t), d.i->b = d.source(2, t), d.i->c = d.predicate(d.operand(3));
    if (d.operand(3).negated) d.i->flags |= kNegated;
    d.i->run = selp;
  };
  o["slct"] = [](Decoder& d) {
    if (d.take("ftz")) d.i->flags |= kFtz;
    const Type t = d.need_type();
    d.i->source = d.need_type();
    d.need_operands(4);
    d.i->d = d.result(0, t), d.i->a = d.source(1, t), d.i->b = d.source(2, t), d.i->c = d.source(3, d.i->source);
    d.i->run = slct;
  };
  o["cvta"] = decode_cvta;
  o["isspacep"] = [](Decoder& d) {
    d.i->space = d.space(Space::generic);
    d.need_operands(2);
    d.i->d = d.result(0, Type::pred), d.i->a = d.source(1, Type::b64);
    d.i->run = isspacep;
  };
  o["mapa"] = [](Decoder& d) {
    d.i->kind = d.space(Space::generic) == Space::generic ? 1 : 0;
    const Type t = d.need_type();
    d.need_operands(3);
    d.i->width = static_cast<uint8_t>(width_of(t));
    d.i->d = d.result(0, t), d.i->a = d.source(1, t), d.i->b = d.source(2, Type::b32);
    d.i->run = mapa;
  };
}

}  // namespace tessera::ptx
