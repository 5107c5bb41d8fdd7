// Loads, stores, fences and copies of single threads into shared memory (cp.async).
#include <algorithm>
#include <cstring>

#include "tests/ptx/decode.h"

namespace tessera::ptx {

void decode_bulk(Decoder& d, bool reduce);  // cp.async.bulk

void before_access(Thread& t, const Instr& i, const Access& a, How how) {
  if (how == How::read || !t.m->launch.races) return;
  auto& released = a.object->released;
  ClockPtr clock = t.fenced;
  if (i.flags & kRelease) {
    clock = t.m->clock_of(t, false);
    t.m->advance(t);
  }
  if (how == How::atomic) {
    if (clock) released[a.offset] = join(released[a.offset], clock);  // others' releases go on through it
  } else if (clock) {
    released[a.offset] = clock;
  } else if (!released.empty()) {
    released.erase(a.offset);
  }
}
void after_access(Thread& t, const Instr& i, const Access& a, How how) {
  if (how == How::write || a.object->released.empty()) return;
  const auto found = a.object->released.find(a.offset);
  if (found == a.object->released.end()) return;
  if (i.flags & kAcquire) t.m->see(t, found->second, nullptr);
  else t.acquired = join(t.acquired, found->second);
}

namespace {

void give_way(Thread& t) {
  if (t.m->random.below(2)) t.quantum = 0;
}

void load(Thread& t, const Instr& i) {
  const uint64_t bytes = i.from / 8, all = bytes * i.n;
  const uint64_t address = address_in(t, i, i.a, i.imm);
  const Access a = t.m->reach(t, i, i.space, address, all, all, How::read);
  const bool strong = (i.flags & kStrong) != 0;
  if (!a.object->pages.empty()) {
    t.m->touch(t, i, a, all, How::read, strong);
    if (i.flags & kReadOnly) {
      Object& o = *a.object;
      if (o.constant.empty()) o.constant.resize((o.size >> o.granule) + 1);
      for (uint64_t k = a.offset >> o.granule; k <= (a.offset + all - 1) >> o.granule; ++k) {
        if (!o.cell(k).write.none())
          t.m->stop(
              Fault::race, t, i,
              ".nc reads byte " + std::to_string(k << o.granule) + " of " + o.name + ", which this launch has written");
        o.constant[k] = {.agent = t.agent, .epoch = t.epoch, .at = i.pc};
      }
    }
  }
  if (strong) after_access(t, i, a, How::read), give_way(t);
  const uint32_t* to = i.n == 1 ? &i.d : t.m->code.lists.data() + i.list;
  for (uint32_t k = 0; k < i.n; ++k) {
    Slot x;
    std::memcpy(&x.bits, a.bytes() + k * bytes, bytes);
    std::memcpy(&x.poison, a.poison() + k * bytes, bytes);
    if (is_signed(i.type) && i.width > i.from) {
      x.bits = static_cast<uint64_t>(signed_of(x.bits, i.from)) & mask_of(i.width);
      x.poison = static_cast<uint64_t>(signed_of(x.poison, i.from)) & mask_of(i.width);
    }
    t.r[to[k]] = x;
  }
}

void store(Thread& t, const Instr& i) {
  const uint64_t bytes = i.from / 8, all = bytes * i.n;
  const uint64_t address = address_in(t, i, i.a, i.imm);
  const Access a = t.m->reach(t, i, i.space, address, all, all, How::write);
  const bool strong = (i.flags & kStrong) != 0;
  t.m->touch(t, i, a, all, How::write, strong);
  if (strong) before_access(t, i, a, How::write), give_way(t);
  const uint32_t* from = i.n == 1 ? &i.d : t.m->code.lists.data() + i.list;
  for (uint32_t k = 0; k < i.n; ++k) {
    const Slot x = t.r[from[k]];
    std::memcpy(a.bytes() + k * bytes, &x.bits, bytes);
    std::memcpy(a.poison() + k * bytes, &x.poison, bytes);
  }
}

void hints(Decoder& d) {
  d.ignore({"ca",
            "cg",
            "cs",
            "lu",
            "cv",
            "wb",
            "wt",
            "L1::evict_normal",
            "L1::evict_unchanged",
            "L1::evict_first",
            "L1::evict_last",
            "L1::no_allocate",
            "L2::evict_normal",
            "L2::evict_first",
            "L2::evict_last",
            "L2::cache_hint",
            "L2::64B",
            "L2::128B",
            "L2::256B",
            "unified"});
}
void decode_access(Decoder& d, bool loads) {
  Instr& i = *d.i;
  i.flags = d.order();
  const size_t to = loads ? 0 : 1, from = loads ? 1 : 0;
  i.space = d.space(Space::generic);
  if (d.take("nc")) i.flags |= kReadOnly;
  hints(d);
  i.n = static_cast<uint8_t>(d.take("v2") ? 2 : d.take("v4") ? 4 : d.take("v8") ? 8 : 1);
  i.type = d.need_type();
  i.from = static_cast<uint8_t>(width_of(i.type));
  if (i.from < 8 || i.from > 64) d.fail("memory is not accessed by this type");
  if (d.operands() < 2 || d.operands() > 3) d.fail("two operands are expected");
  i.effects = !loads;
  d.accesses(i.from / 8u);
  if (i.flags & (kAcquire | kRelease)) d.code.shares = true;
  if (i.flags & kStrong) d.code.shares = true;
  d.address(loads ? from : from);
  const Operand& data = d.operand(loads ? 0 : to);
  const auto one = [&](const Operand& o) {
    const uint32_t slot = loads ? d.result(o, i.type, true) : d.source(o, i.type, true);
    const uint32_t has = d.register_width(o);
    if (has && has < i.from) d.fail("\"" + o.name + "\" is too narrow");
    if (has) i.width = static_cast<uint8_t>(has);
    return slot;
  };
  if (i.n == 1) {
    i.d = one(data.kind == Operand::vector && data.parts.size() == 1 ? data.parts[0] : data);
  } else {
    if (data.kind != Operand::vector || data.parts.size() != i.n)
      d.fail("a vector of " + std::to_string(i.n) + " is expected");
    std::vector<uint32_t> slots;
    for (const Operand& o : data.parts) slots.push_back(one(o));
    d.begin_list();
    for (const uint32_t s : slots) d.append(s);
  }
  i.run = loads ? load : store;
}

// ---- fences

enum Fence : uint32_t { kOrdinary, kProxy, kInit };

void fence(Thread& t, const Instr& i) {
  Machine& m = *t.m;
  if (!m.launch.races) return;
  if (i.kind == kInit) {  // of the mbarriers that it has made, and of nothing else
    for (auto& [offset, b] : t.block->mbarriers) b.told = b.told || b.made.agent == t.agent;
    return;
  }
  if (i.kind == kProxy) {
    t.proxied = join(t.proxied, t.seen);
    t.proxied_epoch = t.epoch, t.proxied_done = t.async_done;
    m.advance(t);
    return;
  }
  if (t.acquired) m.see(t, t.acquired, nullptr), t.acquired = nullptr;
  t.fenced = m.clock_of(t, false);
  m.advance(t);
}
void decode_fence(Decoder& d) {
  d.need_operands(0);
  d.i->effects = true;
  d.i->run = fence;
  if (d.take("proxy")) {
    if (d.take_any({"async", "async::generic"}) < 0) d.fail("this proxy is not known");
    d.space(Space::generic);
    d.ignore({"acquire", "release", "cluster", "sync_restrict::shared::cta", "sync_restrict::shared::cluster"});
    d.i->kind = kProxy;
    return;
  }
  if (d.take("mbarrier_init")) {
    d.ignore({"release", "cluster"});
    d.i->kind = kInit;
    return;
  }
  d.code.shares = true;
  d.ignore({"sc", "acq_rel", "acquire", "release", "cta", "cluster", "gpu", "sys", "gl", "sync_restrict::shared::cta",
            "sync_restrict::shared::cluster"});
}

// ---- cp.async

/// Copies `bytes`, of which the first i.imm (or as many as b says) come from memory and the others are zero.
void copy(Thread& t, const Instr& i) {
  Machine& m = *t.m;
  const uint64_t bytes = i.from;
  uint64_t size = bytes;
  if (i.b != kNone) {
    if (t.r[i.b].poison) m.stop(Fault::poison, t, i, "its size hangs on what nobody has written");
    size = t.r[i.b].bits;
  }
  if (i.flags && t.r[i.c].poison) m.stop(Fault::poison, t, i, "its predicate hangs on what nobody has written");
  if (i.flags && (t.r[i.c].bits & 1)) size = 0;  // ignore-src
  if (size > bytes)
    m.stop(Fault::undefined, t, i, std::to_string(size) + " bytes of " + std::to_string(bytes) + " are to be copied");
  ++t.async_epoch;
  const auto& lists = m.code.lists;
  const Access to = m.reach(t, i, Space::shared, address_in(t, i, i.a, i.imm), bytes, bytes, How::write);
  const uint64_t source = address_in(t, i, lists[i.list], uint64_t{lists[i.list + 2]} << 32 | lists[i.list + 1]);
  Access from;
  if (size) {
    from = m.reach(t, i, i.space, source, size, 1, How::read);
    if (source % bytes)
      m.stop(Fault::alignment, t, i,
             "the source (byte " + std::to_string(from.offset) + " of " + from.object->name + ") is no multiple of " +
                 std::to_string(bytes));
    m.touch(t, i, from, size, How::read, false, kCopies);
  }
  m.touch(t, i, to, bytes, How::write, false, kCopies);
  std::memset(to.poison(), 0xff, bytes);
  m.launch_async(t, i, kCopy, false, [to, from, size, bytes] {
    std::memset(to.bytes(), 0, bytes);
    std::memset(to.poison(), 0, bytes);
    if (!size) return;
    std::memcpy(to.bytes(), from.bytes(), size);
    std::memcpy(to.poison(), from.poison(), size);
  });
}
void commit(Thread& t, const Instr& i) { t.m->commit(t, static_cast<uint8_t>(i.kind)); }
void wait_groups(Thread& t, const Instr& i) {
  if (i.flags) t.m->commit(t, static_cast<uint8_t>(i.kind));  // wait_all
  t.m->wait_group(t, static_cast<uint8_t>(i.kind), i.imm);
}

void decode_cp(Decoder& d) {
  Instr& i = *d.i;
  i.effects = true;
  const bool reduce = d.take("reduce");
  if (!d.take("async")) d.fail("\"cp\" is cp.async");
  if (d.take("bulk")) return decode_bulk(d, reduce);
  if (d.take("mbarrier")) return decode_bulk(d, false);
  i.kind = kCopy;
  if (d.take("commit_group")) {
    d.need_operands(0);
    i.run = commit;
    return;
  }
  const bool all = d.take("wait_all");
  if (all || d.take("wait_group")) {
    d.need_operands(all ? 0 : 1);
    if (!all && d.operand(0).kind != Operand::integer) d.fail("a number is expected");
    i.flags = all, i.imm = all ? 0 : d.operand(0).bits;
    i.run = wait_groups;
    return;
  }
  const bool cg = d.take("cg");
  if (!cg && !d.take("ca")) d.fail(".ca or .cg is missing");
  hints(d);
  if (d.space(Space::generic) != Space::shared) d.fail(".shared.global is missing");
  i.space = d.space(Space::generic);
  if (i.space != Space::global) d.fail(".shared.global is missing");
  if (d.operands() < 3) d.fail("the size is missing");
  Space shared = Space::shared;
  d.address(d.operand(0), shared, i.a, i.imm);
  uint32_t slot = 0;
  uint64_t offset = 0;
  d.address(d.operand(1), i.space, slot, offset);
  i.from = static_cast<uint8_t>(d.operand(2).bits);
  if (d.operand(2).kind != Operand::integer || (i.from != 16 && (cg || (i.from != 8 && i.from != 4))))
    d.fail("this size is not allowed");
  if (d.operands() > 3) {
    const Operand& o = d.operand(3);
    if (o.negated) d.fail("a negated predicate is not known here");
    if (o.kind == Operand::reg && d.register_width(o) == 1) i.c = d.predicate(o), i.flags = 1;
    else if (d.register_width(o) != 64) i.b = d.source(o, Type::b32);  // 64: a cache policy
  }
  d.begin_list();
  d.append(slot), d.append(static_cast<uint32_t>(offset)), d.append(static_cast<uint32_t>(offset >> 32));
  i.run = copy;
}

void prefetch(Thread&, const Instr&) {}

}  // namespace

void add_memory_ops(Opcodes& o) {
  o["ld"] = [](Decoder& d) { decode_access(d, true); };
  o["ldu"] = [](Decoder& d) { decode_access(d, true); };
  o["st"] = [](Decoder& d) { decode_access(d, false); };
  o["membar"] = decode_fence;
  o["fence"] = decode_fence;
  o["cp"] = decode_cp;
  static const auto kNothing = [](Decoder& d) {
    d.space(Space::generic);
    d.ignore({"L1", "L2", "L2::evict_last", "L2::evict_normal", "L2::evict_first", "L2::evict_unchanged", "L2::128B",
              "b64", "fractional", "tensormap", "createpolicy"});
    d.i->run = prefetch;
  };
  o["prefetch"] = [](Decoder& d) { kNothing(d); };
  o["prefetchu"] = [](Decoder& d) { kNothing(d); };
  o["applypriority"] = [](Decoder& d) { kNothing(d); };
  o["createpolicy"] = [](Decoder& d) {
    kNothing(d);
    d.i->a = d.constant(0), d.i->d = d.result(0, Type::b64);
    d.i->run = [](Thread& t, const Instr& i) { t.r[i.d] = {0, 0}; };
  };
}

}  // namespace tessera::ptx
