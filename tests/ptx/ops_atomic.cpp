// Atomics, on all types and in all scopes. They are one after the other here, so scope makes no difference to values.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "tests/ptx/decode.h"

namespace tessera::ptx {

namespace {

enum Op : uint32_t { kAdd, kMin, kMax, kInc, kDec, kAnd, kOr, kXor, kExch, kCas };
constexpr uint16_t kFlushes = 1 << 8;  // a sum of f32 outside shared memory: subnormal numbers are zeros

double minimum(double a, double b, bool want_max) {
  if (a != a) return b;
  if (b != b) return a;
  return (a < b) != want_max ? a : b;
}
uint64_t combine_float(const Instr& i, Type t, uint64_t a, uint64_t b) {
  if (t == Type::f64) {
    const double x = std::bit_cast<double>(a), y = std::bit_cast<double>(b);
    return std::bit_cast<uint64_t>(i.kind == kAdd ? x + y : minimum(x, y, i.kind == kMax));
  }
  const double x = widen(t, a), y = widen(t, b);
  if (i.kind != kAdd) return narrow(t, minimum(x, y, i.kind == kMax), Round::even);
  if (!(i.flags & kFlushes)) return narrow(t, odd_add(x, y), Round::even);
  const auto flushed = [](double v) { return std::fabs(v) < 0x1p-126 ? std::copysign(0.0, v) : v; };
  return narrow(t, flushed(widen(t, narrow(t, odd_add(flushed(x), flushed(y)), Round::even))), Round::even);
}

}  // namespace

/// What an atomic, or a reducing copy, makes of the old value and the operand.
uint64_t combine_atomic(const Instr& i, uint64_t a, uint64_t b, uint64_t c) {
  const uint32_t w = width_of(i.type);
  const bool sign = is_signed(i.type);
  if (is_float(i.type) && i.kind <= kMax) {
    if (i.type != Type::f16x2 && i.type != Type::bf16x2) return combine_float(i, i.type, a, b);
    const Type half = i.type == Type::f16x2 ? Type::f16 : Type::bf16;
    return combine_float(i, half, a & 0xffff, b & 0xffff) | combine_float(i, half, a >> 16 & 0xffff, b >> 16 & 0xffff)
                                                                << 16;
  }
  const auto less = [&] { return sign ? signed_of(a, w) < signed_of(b, w) : a < b; };
  switch (i.kind) {
    case kAdd: return (a + b) & mask_of(w);
    case kMin: return less() ? a : b;
    case kMax: return less() ? b : a;
    case kInc: return a >= b ? 0 : a + 1;
    case kDec: return a == 0 || a > b ? b : a - 1;
    case kAnd: return a & b;
    case kOr: return a | b;
    case kXor: return a ^ b;
    case kExch: return b;
    default: return a == b ? c : a;
  }
}
int atomic_op(Decoder& d) { return d.take_any({"add", "min", "max", "inc", "dec", "and", "or", "xor", "exch", "cas"}); }

namespace {

void atomic(Thread& t, const Instr& i) {
  Machine& m = *t.m;
  const uint64_t bytes = i.from / 8, all = bytes * i.n;
  const Access a = m.reach(t, i, i.space, address_in(t, i, i.a, i.imm), all, all, How::atomic);
  m.touch(t, i, a, all, How::atomic, true);
  Instr sum = i;
  const auto& blocks = t.block->cluster;
  if (i.type == Type::f32 &&
      std::none_of(blocks.begin(), blocks.end(), [&](Block* b) { return a.object == &b->shared; }))
    sum.flags |= kFlushes;
  before_access(t, i, a, How::atomic);
  const auto& lists = m.code.lists;
  for (uint32_t k = 0; k < i.n; ++k) {
    Slot old;
    std::memcpy(&old.bits, a.bytes() + k * bytes, bytes);
    std::memcpy(&old.poison, a.poison() + k * bytes, bytes);
    const Slot b = t.r[i.n == 1 ? i.b : lists[i.list + i.n + k]], c = i.c == kNone ? Slot{} : t.r[i.c];
    const uint64_t mask = mask_of(i.from);
    const uint64_t value = combine_atomic(sum, old.bits, b.bits & mask, c.bits & mask) & mask;
    uint64_t poison = (i.kind == kExch ? 0 : old.poison) | b.poison | c.poison;
    if (poison && i.kind != kExch) poison = mask;
    poison &= mask;
    std::memcpy(a.bytes() + k * bytes, &value, bytes);
    std::memcpy(a.poison() + k * bytes, &poison, bytes);
    const uint32_t to = i.n == 1 ? i.d : lists[i.list + k];
    if (to != kNone) t.r[to] = old;
  }
  after_access(t, i, a, How::atomic);
  if (m.random.below(2)) t.quantum = 0;
}

void decode_atomic(Decoder& d, bool gives) {
  Instr& i = *d.i;
  i.effects = true;
  if (d.take("async")) d.fail("red.async is not known");
  i.flags = d.order() | kStrong;
  i.space = d.space(Space::generic);
  const int op = atomic_op(d);
  if (op < 0) d.fail("the operation is missing");
  i.kind = static_cast<uint32_t>(op);
  d.ignore({"noftz", "L2::cache_hint"});
  i.n = static_cast<uint8_t>(d.take("v2") ? 2 : d.take("v4") ? 4 : d.take("v8") ? 8 : 1);
  i.type = d.need_type();
  i.from = i.width = static_cast<uint8_t>(width_of(i.type));
  if (i.from < 16 || i.from > 64) d.fail("atomics of this width are not known");
  d.accesses(i.from / 8u);
  d.code.shares = true;
  const size_t first = gives ? 1 : 0, need = first + (op == kCas ? 3 : 2);
  if (d.operands() != need && d.operands() != need + 1) d.fail("there are too few operands");
  d.address(first);
  if (i.n == 1) {
    if (gives) i.d = d.result(0, i.type);
    i.b = d.source(first + 1, i.type);
    if (op == kCas) i.c = d.source(first + 2, i.type);
  } else {
    std::vector<uint32_t> slots;
    for (uint32_t k = 0; k < i.n; ++k) slots.push_back(gives ? d.result(d.operand(0).parts.at(k), i.type) : kNone);
    for (uint32_t k = 0; k < i.n; ++k) slots.push_back(d.source(d.operand(first + 1).parts.at(k), i.type));
    d.begin_list();
    for (const uint32_t s : slots) d.append(s);
  }
  i.run = atomic;
}

}  // namespace

void add_atomic_ops(Opcodes& o) {
  o["atom"] = [](Decoder& d) { decode_atomic(d, true); };
  o["red"] = [](Decoder& d) { decode_atomic(d, false); };
}

}  // namespace tessera::ptx
