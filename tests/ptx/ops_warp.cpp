// What the threads of a warp do together.
#include <algorithm>
#include <bit>

#include "tests/ptx/decode.h"

namespace tessera::ptx {

namespace {

const Instr& of(const Thread& t) { return t.m->code.code[t.waits_at]; }

/// The threads that take part, once all have come; empty: this one waits.
std::vector<Thread*> members(Thread& t, const Instr& i) {
  const Slot mask = t.r[i.e];
  if (mask.poison) t.m->stop(Fault::poison, t, i, "its member mask hangs on what nobody has written");
  return t.m->gather(t, i, static_cast<uint32_t>(mask.bits), false);
}

enum Shuffle : uint32_t { kUp, kDown, kBfly, kIdx };
void shfl(Thread& t, const Instr& i) {
  const std::vector<Thread*> all = members(t, i);
  Thread* lanes[32] = {};
  Slot values[32];
  for (Thread* x : all) lanes[x->lane] = x, values[x->lane] = x->r[of(*x).a];
  for (Thread* x : all) {
    const Instr& j = of(*x);
    const Slot b = x->r[j.b], c = x->r[j.c];
    if (b.poison || c.poison) {
      x->r[j.d] = {values[x->lane].bits, 0xffffffff};
      if (j.count) x->r[x->m->code.lists[j.list]] = {0, 1};
      continue;
    }
    const int lane = static_cast<int>(x->lane), by = static_cast<int>(b.bits & 31),
              clamp = static_cast<int>(c.bits & 31);
    const int segment = static_cast<int>(c.bits >> 8 & 31);
    const int most = (lane & segment) | (clamp & ~segment & 31), least = lane & segment;
    int from = 0;
    bool inside = false;
    switch (j.kind) {
      case kUp: from = lane - by, inside = from >= most; break;
      case kDown: from = lane + by, inside = from <= most; break;
      case kBfly: from = lane ^ by, inside = from <= most; break;
      default: from = least | (by & ~segment & 31), inside = from <= most;
    }
    if (!inside) from = lane;
    // of a lane that does not take part: nobody knows
    x->r[j.d] = lanes[from] ? values[from] : Slot{values[lane].bits, 0xffffffff};
    if (j.count) x->r[x->m->code.lists[j.list]] = {inside, 0};
  }
}

enum Vote : uint32_t { kAll, kAny, kUni, kBallot };
void vote(Thread& t, const Instr& i) {
  const std::vector<Thread*> all = members(t, i);
  uint64_t yes = 0, mask = 0, poison = 0;
  for (Thread* x : all) {
    const Instr& j = of(*x);
    const Slot p = x->r[j.a];
    const bool value = ((p.bits & 1) != 0) != ((j.flags & 1) != 0);
    mask |= uint64_t{1} << x->lane;
    yes |= uint64_t{value} << x->lane;
    if (p.poison) poison |= uint64_t{1} << x->lane;
  }
  for (Thread* x : all) {
    const Instr& j = of(*x);
    const uint64_t known = yes & ~poison, no = mask & ~yes & ~poison;
    switch (j.kind) {
      case kAll: x->r[j.d] = {yes == mask, poison && !no ? 1u : 0u}; break;
      case kAny: x->r[j.d] = {yes != 0, poison && !known ? 1u : 0u}; break;
      case kUni: x->r[j.d] = {yes == mask || yes == 0, poison && !(no && known) ? 1u : 0u}; break;
      default: x->r[j.d] = {yes, poison};
    }
  }
}

void match(Thread& t, const Instr& i) {
  const std::vector<Thread*> all = members(t, i);
  struct Value {
    uint64_t bits;
    bool poison;
  };
  std::vector<Value> values;
  for (Thread* x : all) values.push_back({x->r[of(*x).a].bits, x->r[of(*x).a].poison != 0});
  const bool poison = std::any_of(values.begin(), values.end(), [](const Value& v) { return v.poison; });
  for (size_t n = 0; n < all.size(); ++n) {
    const Instr& j = of(*all[n]);
    uint64_t same = 0, mask = 0;
    for (size_t k = 0; k < all.size(); ++k) {
      mask |= uint64_t{1} << all[k]->lane;
      if (values[k].bits == values[n].bits) same |= uint64_t{1} << all[k]->lane;
    }
    if (j.kind == 1 && same != mask) same = 0;  // match.all
    all[n]->r[j.d] = {same, poison ? 0xffffffff : 0};
    if (j.count) all[n]->r[t.m->code.lists[j.list]] = {same == mask, poison ? 1u : 0u};
  }
}

enum Redux : uint32_t { kAdd, kMin, kMax, kAnd, kOr, kXor };
void redux(Thread& t, const Instr& i) {
  const std::vector<Thread*> all = members(t, i);
  if (all.empty()) return;
  bool first = true;
  Slot r;
  for (Thread* x : all) {
    const Slot a = x->r[of(*x).a];
    r.poison |= a.poison ? 0xffffffff : 0;
    if (first) {
      r.bits = a.bits, first = false;
      continue;
    }
    const bool less = is_signed(i.type) ? signed_of(a.bits, 32) < signed_of(r.bits, 32) : a.bits < r.bits;
    switch (i.kind) {
      case kAdd: r.bits = (r.bits + a.bits) & 0xffffffff; break;
      case kMin: r.bits = less ? a.bits : r.bits; break;
      case kMax: r.bits = less ? r.bits : a.bits; break;
      case kAnd: r.bits &= a.bits; break;
      case kOr: r.bits |= a.bits; break;
      default: r.bits ^= a.bits;
    }
  }
  for (Thread* x : all) x->r[of(*x).d] = r;
}

/// Nothing promises that threads of a warp run together: some of those that are about to come here.
void activemask(Thread& t, const Instr& i) {
  Machine& m = *t.m;
  std::vector<Thread*> some;
  uint64_t mask = 0;
  const uint32_t first = t.warp * 32;
  for (uint32_t k = first; k < std::min(first + 32, m.threads_per_block); ++k) {
    Thread& x = t.block->threads[k];
    const bool here = &x == &t || (x.state == State::ready && x.pc == i.pc && i.guard == kNone && m.random.below(2));
    if (!here) continue;
    some.push_back(&x);
    mask |= uint64_t{1} << x.lane;
  }
  for (Thread* x : some) {
    x->r[i.d] = {mask, 0};
    x->pc = i.pc + 1;
  }
}

void elect(Thread& t, const Instr& i) {
  const std::vector<Thread*> all = members(t, i);
  if (all.empty()) return;
  Thread* leader = all[t.m->launch.seed % all.size()];  // always the same one for a mask
  for (Thread* x : all) {
    const Instr& j = of(*x);
    if (j.d != kNone) x->r[j.d] = {leader->lane, 0};
    x->r[j.a] = {x == leader, 0};
  }
}

void warp_sync(Thread& t, const Instr& i) {
  std::vector<Thread*> all = members(t, i);
  if (!all.empty()) t.m->meet(all);
}

/// d|p or d.
void result_pair(Decoder& d, Type t) {
  const Operand& o = d.operand(0);
  if (o.kind != Operand::pair) {
    d.i->d = d.result(o, t);
    return;
  }
  d.i->d = d.result(o.parts[0], t);
  const uint32_t p = d.result(o.parts[1], Type::pred);
  d.begin_list();
  d.append(p);
}
void begin(Decoder& d) {
  d.i->effects = true;
  if (!d.take("sync")) d.fail(".sync is missing");
}

}  // namespace

void decode_warp_sync(Decoder& d) {
  d.need_operands(1);
  d.i->effects = true;
  d.i->e = d.source(0, Type::b32);
  d.i->run = warp_sync;
}

void add_warp_ops(Opcodes& o) {
  o["shfl"] = [](Decoder& d) {
    begin(d);
    const int k = d.take_any({"up", "down", "bfly", "idx"});
    if (k < 0 || d.need_type() != Type::b32) d.fail("it is not known in this form");
    d.need_operands(5);
    d.i->kind = static_cast<uint32_t>(k);
    result_pair(d, Type::b32);
    d.i->a = d.source(1, Type::b32), d.i->b = d.source(2, Type::b32), d.i->c = d.source(3, Type::b32),
    d.i->e = d.source(4, Type::b32);
    d.i->run = shfl;
  };
  o["vote"] = [](Decoder& d) {
    begin(d);
    const int k = d.take_any({"all", "any", "uni", "ballot"});
    if (k < 0) d.fail("the mode is missing");
    const Type t = d.need_type();
    d.need_operands(3);
    d.i->kind = static_cast<uint32_t>(k);
    d.i->d = d.result(0, t), d.i->a = d.predicate(d.operand(1)), d.i->e = d.source(2, Type::b32);
    if (d.operand(1).negated) d.i->flags = 1;
    d.i->run = vote;
  };
  o["match"] = [](Decoder& d) {
    d.i->kind = d.take("all") ? 1 : 0;
    if (!d.i->kind && !d.take("any")) d.fail(".any or .all is missing");
    begin(d);
    const Type t = d.need_type();
    d.need_operands(3);
    result_pair(d, Type::b32);
    d.i->a = d.source(1, t), d.i->e = d.source(2, Type::b32);
    d.i->run = match;
  };
  o["redux"] = [](Decoder& d) {
    begin(d);
    const int k = d.take_any({"add", "min", "max", "and", "or", "xor"});
    if (k < 0) d.fail("the operation is missing");
    d.i->kind = static_cast<uint32_t>(k);
    d.i->type = d.need_type();
    if (is_float(d.i->type)) d.fail("it is not known for floats");
    d.need_operands(3);
    d.i->d = d.result(0, Type::b32), d.i->a = d.source(1, Type::b32), d.i->e = d.source(2, Type::b32);
    d.i->run = redux;
  };
  o["activemask"] = [](Decoder& d) {
    d.need_type();
    d.need_operands(1);
    d.i->effects = true;
    d.i->d = d.result(0, Type::b32);
    d.i->run = activemask;
  };
  o["elect"] = [](Decoder& d) {
    begin(d);
    d.need_operands(2);
    const Operand& to = d.operand(0);
    if (to.kind != Operand::pair) d.fail("d|p is expected");
    d.i->d = d.result(to.parts[0], Type::b32);
    d.i->a = d.result(to.parts[1], Type::pred);
    d.i->e = d.source(1, Type::b32);
    d.i->run = elect;
  };
}

}  // namespace tessera::ptx
