// mbarriers: barriers in shared memory that count arrivals, and bytes that copies bring.
#include <algorithm>

#include "tests/ptx/decode.h"

namespace tessera::ptx {

Machine::Found Machine::mbarrier_at(Thread& t, const Instr& i, Space space, uint64_t address, bool proxied) {
  const Access a = reach(t, i, space, address, 8, 8, How::read);
  for (Block* b : t.block->cluster) {
    if (a.object != &b->shared) continue;
    const auto found = b->mbarriers.find(a.offset);
    if (found == b->mbarriers.end())
      stop(Fault::undefined, t, i,
           "there is no mbarrier at byte " + std::to_string(a.offset) + " of shared memory: nobody has made one");
    if (launch.races && !has_seen(t, found->second.made, proxied && !found->second.told))
      stop(Fault::race, t, i,
           "the mbarrier at byte " + std::to_string(a.offset) +
               " of shared memory is made by mbarrier.init of thread " +
               std::to_string(found->second.made.agent & ((1u << kThreadBits) - 1)) +
               (proxied ? ", and no fence makes that known to the asynchronous proxy" : ": nothing orders them"));
    return {b, a.offset, &found->second};
  }
  stop(Fault::undefined, t, i, "an mbarrier is in shared memory");
}

void Machine::mbarrier_arrive(const Thread& t, const Instr& i, const Found& f, uint32_t count) {
  MBarrier& b = *f.barrier;
  if (count > b.pending)
    stop(Fault::barrier, t, i,
         std::to_string(count) + " arrivals at the mbarrier at byte " + std::to_string(f.offset) +
             ", which waits for " + std::to_string(b.pending) + " in this phase");
  b.pending -= count;
}

void Machine::mbarrier_bytes(Block& b, uint64_t offset, int64_t bytes, const ClockPtr& clock, bool by_proxy) {
  const auto found = b.mbarriers.find(offset);
  if (found == b.mbarriers.end()) return;  // invalidated: whoever did that is at fault where it matters
  MBarrier& bar = found->second;
  bar.bytes -= bytes;
  bar.clock = join(bar.clock, clock);
  if (by_proxy) bar.proxied = join(bar.proxied, clock);
  phase_check(b, offset, bar);
}

namespace {

enum Kind : uint32_t {
  kInit,
  kInval,
  kExpect,
  kComplete,
  kArrive,
  kArriveExpect,
  kDrop,
  kDropExpect,
  kTest,
  kTry,
  kPendingCount
};
enum Flags : uint16_t { kRelaxed = 1, kParity = 2 };

uint32_t value(Thread& t, const Instr& i, uint32_t slot, uint32_t otherwise) {
  if (slot == kNone) return otherwise;
  if (t.r[slot].poison) t.m->stop(Fault::poison, t, i, "its operand hangs on what nobody has written");
  return static_cast<uint32_t>(t.r[slot].bits);
}

constexpr uint32_t kMostCount = (1u << 20) - 1;  // of arrivals, and of bytes

void make(Thread& t, const Instr& i) {
  Machine& m = *t.m;
  const Access a = m.reach(t, i, i.space, address_in(t, i, i.a, i.imm), 8, 8, How::write);
  if (a.object != &t.block->shared) m.stop(Fault::undefined, t, i, "an mbarrier is in the block's own shared memory");
  m.touch(t, i, a, 8, How::write, false);
  auto& opaque = t.block->shared.opaque;
  if (opaque.empty()) opaque.resize(t.block->shared.size / 8 + 1);
  if (i.kind == kInval) {
    m.mbarrier_at(t, i, i.space, address_in(t, i, i.a, i.imm), false);
    t.block->mbarriers.erase(a.offset);
    opaque[a.offset / 8] = 0;
    std::fill(a.poison(), a.poison() + 8, uint8_t{0xff});
    return;
  }
  if (opaque[a.offset / 8]) m.stop(Fault::undefined, t, i, "there is an mbarrier already");
  const uint32_t count = value(t, i, i.b, 0);
  if (count == 0 || count > kMostCount)
    m.stop(Fault::barrier, t, i, "an mbarrier cannot be for " + std::to_string(count) + " arrivals");
  MBarrier b;
  b.expected = b.pending = count;
  b.made = {t.agent, t.epoch, i.pc, false};
  t.block->mbarriers[a.offset] = b;
  opaque[a.offset / 8] = 1;
}

void arrive(Thread& t, const Instr& i) {
  Machine& m = *t.m;
  const Machine::Found f = m.mbarrier_at(t, i, i.space, address_in(t, i, i.a, i.imm), false);
  MBarrier& b = *f.barrier;
  const bool expects = i.kind == kExpect || i.kind == kArriveExpect || i.kind == kDropExpect;
  const bool arrives = i.kind >= kArrive;
  const uint32_t n = value(t, i, i.b, 1);
  if ((arrives && !expects && n == 0) || n > kMostCount)
    m.stop(Fault::barrier, t, i, "it cannot be " + std::to_string(n) + (arrives && !expects ? " arrivals" : " bytes"));
  if (i.d != kNone && f.block != t.block)
    m.stop(Fault::undefined, t, i, "an arrival at another block's mbarrier gives no state");
  if (i.d != kNone) t.r[i.d] = {b.phase, 0};
  if (expects) b.bytes += n;
  if (i.kind == kComplete) b.bytes -= n;
  if (arrives) {
    m.mbarrier_arrive(t, i, f, expects ? 1 : n);
    if (i.kind == kDrop || i.kind == kDropExpect) b.expected -= expects ? 1 : n;
    if (!(i.flags & kRelaxed) && m.launch.races) {
      b.clock = join(b.clock, m.clock_of(t, false));
      b.proxied = join(b.proxied, m.clock_of(t, true));
      m.advance(t);
    }
  }
  m.phase_check(*f.block, f.offset, b);
  if (m.random.below(2)) t.quantum = 0;
}

void test(Thread& t, const Instr& i) {
  Machine& m = *t.m;
  const uint64_t address = address_in(t, i, i.a, i.imm);
  const Machine::Found f = m.mbarrier_at(t, i, i.space, address, false);
  const MBarrier& b = *f.barrier;
  if (f.block != t.block) m.stop(Fault::undefined, t, i, "nobody can wait at another block's mbarrier");
  const uint32_t which = value(t, i, i.b, 0);
  bool over = (i.flags & kParity) ? (b.phase & 1) != (which & 1) : b.phase != which;
  if (!(i.flags & kParity) && which != b.phase && which + 1 != b.phase)
    m.stop(Fault::barrier, t, i,
           "the state is of phase " + std::to_string(which) + ", the mbarrier in phase " + std::to_string(b.phase));
  if ((i.flags & kParity) && which > 1)
    m.stop(Fault::barrier, t, i, "a parity is 0 or 1, not " + std::to_string(which));
  // it may give up at any time: the first time it does, so that nobody relies on one try
  const bool again = t.tried == i.pc && t.tried_at == address;
  t.tried = over ? kNone : i.pc, t.tried_at = address;
  if (!over && i.kind == kTry && again) {
    const uint64_t shared = i.space == Space::generic ? m.from_generic(Space::shared, address) : address;
    m.wait(t, i, State::mbarrier, shared);
    return;
  }
  t.r[i.d] = {over, 0};
  if (!over) t.quantum = 0;
  if (over && !(i.flags & kRelaxed)) m.see(t, b.done, b.done_proxied);
}

void decode_mbarrier(Decoder& d) {
  Instr& i = *d.i;
  static const std::vector<std::pair<const char*, Kind>> kNames = {{"init", kInit},
                                                                   {"inval", kInval},
                                                                   {"expect_tx", kExpect},
                                                                   {"complete_tx", kComplete},
                                                                   {"arrive", kArrive},
                                                                   {"arrive_drop", kDrop},
                                                                   {"test_wait", kTest},
                                                                   {"try_wait", kTry},
                                                                   {"pending_count", kPendingCount}};
  i.opaque = true, i.effects = true;
  bool known = false;
  // of mbarrier.arrive.expect_tx the first word decides
  for (const auto& [name, kind] : kNames)
    if (!d.s->words.empty() && d.s->words[0] == name) i.kind = kind, known = d.take(name);
  if (!known || i.kind == kPendingCount) d.fail("it is not known in this form");
  if ((i.kind == kArrive || i.kind == kDrop) && d.take("expect_tx"))
    i.kind = i.kind == kArrive ? kArriveExpect : kDropExpect;
  if (d.take("noComplete")) d.fail(".noComplete is not known");
  if (d.take("relaxed")) i.flags |= kRelaxed;
  d.ignore({"release", "acquire", "cta", "cluster"});
  if (d.take("parity")) i.flags |= kParity;
  i.space = d.space(Space::generic);
  if (d.need_type() != Type::b64) d.fail("an mbarrier is .b64");
  if (i.kind <= kComplete) {
    d.need_operands(i.kind == kInval ? 1 : 2);
    d.address(0);
    if (i.kind != kInval) i.b = d.source(1, Type::b32);
    i.run = i.kind <= kInval ? make : arrive;
  } else if (i.kind < kTest) {
    // without a state: of another block's barrier
    const bool state = d.operand(0).kind != Operand::address;
    if (state && d.operand(0).kind == Operand::reg) i.d = d.result(0, Type::b64);
    const size_t at = state ? 1 : 0;
    d.address(at);
    if (d.operands() > at + 1) i.b = d.source(at + 1, Type::b32);
    else if (i.kind == kArriveExpect || i.kind == kDropExpect) d.fail("the number of bytes is missing");
    i.run = arrive;
  } else {
    if (d.operands() != 3 && !(i.kind == kTry && d.operands() == 4)) d.fail("three operands are expected");
    i.d = d.result(0, Type::pred);
    d.address(1);
    i.b = d.source(2, (i.flags & kParity) ? Type::b32 : Type::b64);
    i.run = test;
  }
}

}  // namespace

/// cp.async.mbarrier.arrive: when all copies before it are done.
void copies_arrive(Thread& t, const Instr& i) {
  Machine& m = *t.m;
  const Machine::Found f = m.mbarrier_at(t, i, i.space, address_in(t, i, i.a, i.imm), false);
  if (!i.kind) ++f.barrier->pending;  // not .noinc
  const uint32_t last = t.async_epoch;
  const ClockPtr clock = m.launch.races ? m.clock_of_copy(t, t.async_epoch) : nullptr;
  m.launch_async(t, i, kToBarrier, false, [&m, &t, &i, f, last, clock] {
    for (size_t p = 0; p < m.pending.size();) {
      const Pending& x = m.pending[p];
      if (x.block == t.block && x.thread == t.index && x.kind == kCopy && x.agent_epoch <= last) m.land_one(p), p = 0;
      else ++p;
    }
    const auto found = f.block->mbarriers.find(f.offset);
    if (found == f.block->mbarriers.end()) return;
    m.mbarrier_arrive(t, i, {f.block, f.offset, &found->second}, 1);
    m.mbarrier_bytes(*f.block, f.offset, 0, clock, false);
  });
}

void add_mbarrier_ops(Opcodes& o) { o["mbarrier"] = decode_mbarrier; }

}  // namespace tessera::ptx
