// Who waits for whom: warps, barriers, copies in flight.
#include <algorithm>
#include <cmath>
#include <functional>

#include "tests/ptx/machine.h"

namespace tessera::ptx {

namespace {

constexpr uint32_t kWarp = 32;

bool alike(const Instr& a, const Instr& b) {
  return a.run == b.run && a.kind == b.kind && a.type == b.type && a.flags == b.flags && a.mode == b.mode;
}

}  // namespace

void Machine::wait(Thread& t, const Instr& i, State s, uint64_t what) {
  t.state = s, t.waits_at = i.pc, t.waits_for = what;
}

void Machine::wake(Thread& t) {
  t.state = State::ready;
  if (t.listed) return;
  t.listed = true;
  ready_.push_back(&t);
}

uint32_t Machine::alive_lanes(const Thread& t) const {
  uint32_t mask = 0;
  const uint32_t first = t.warp * kWarp;
  for (uint32_t k = 0; k < kWarp && first + k < threads_per_block; ++k)
    if (t.block->threads[first + k].state != State::done) mask |= 1u << k;
  return mask;
}

std::vector<Thread*> Machine::gather(Thread& t, const Instr& i, uint32_t mask, bool same_place) {
  if (!(mask >> t.lane & 1))
    stop(Fault::divergence, t, i, "the member mask does not have lane " + std::to_string(t.lane) + " itself");
  std::vector<Thread*> all;
  const uint32_t first = t.warp * kWarp, alive = alive_lanes(t) & mask;
  bool complete = true;
  for (uint32_t k = 0; k < kWarp && complete; ++k) {
    if (!(alive >> k & 1)) continue;
    Thread& other = t.block->threads[first + k];
    all.push_back(&other);
    if (&other == &t) continue;
    complete = other.state == State::warp && other.waits_for == mask &&
               (same_place ? other.waits_at == i.pc : alike(code.code[other.waits_at], i));
    if (same_place && other.state == State::warp)
      complete = other.waits_at == i.pc;  // an exit may have changed the mask
  }
  if (!complete) {
    wait(t, i, State::warp, mask);
    return {};
  }
  t.waits_at = i.pc;
  for (Thread* other : all) wake(*other);
  return all;
}

void Machine::exit(Thread& t) {
  t.state = State::done;
  Block& b = *t.block;
  --b.alive;
  if (b.alive == 0) {
    for (uint32_t w = 0; w + 3 < warps_per_block; w += 4)
      for (uint32_t k = w + 1; k < w + 4; ++k)
        if (const Products &p = b.products[w], &q = b.products[k]; p.history != q.history)
          stop(Fault::divergence, t, code.code[p.history ? p.last : q.last],
               "the warps of its warpgroup did not all run the same wgmma, with the same descriptors");
    for (const Thread& x : b.threads)
      if (x.last_source > std::max(x.sources_done, x.async_done))
        stop(Fault::undefined, x, code.code[x.last_source_at],
             "its block ends before anybody has waited until the block's shared memory is read");
    for (const Pending& p : pending)
      if (p.block == &b && p.needs_shared)
        stop(Fault::undefined, b.threads[p.thread], code.code[p.pc],
             "its block ends before it is done with the block's shared memory");
  }
  const uint32_t first = t.warp * kWarp;
  for (uint32_t k = first; k < std::min(first + kWarp, threads_per_block); ++k) {
    Thread& other = b.threads[k];
    if (other.state != State::warp) continue;
    other.pc = other.waits_at;  // anew, without this one
    wake(other);
  }
  for (uint32_t id = 0; id < 16; ++id)
    if (b.barriers[id].arrived) barrier_check(b, id);
  cluster_check(*b.cluster[0]);
}

void Machine::arrive(Thread& t, const Instr& i, uint32_t id, uint32_t expected, uint32_t count, bool waits) {
  if (id >= 16) stop(Fault::barrier, t, i, "there are 16 barriers, and no number " + std::to_string(id));
  if (expected % kWarp) stop(Fault::barrier, t, i, std::to_string(expected) + " threads are not whole warps");
  Barrier& bar = t.block->barriers[id];
  if (bar.arrived && bar.expected != expected)
    stop(Fault::barrier, t, i,
         "barrier " + std::to_string(id) + " is to be for " + std::to_string(expected) +
             " threads, but for others that have come for " + std::to_string(bar.expected));
  bar.expected = expected;
  bar.arrived += count;
  if (expected && bar.arrived > expected)
    stop(Fault::barrier, t, i,
         std::to_string(bar.arrived) + " threads have come to barrier " + std::to_string(id) + ", which is for " +
             std::to_string(expected));
  if (waits) {
    wait(t, i, State::barrier, id);
    bar.waiting.push_back(&t);
  } else if (launch.races) {
    bar.clock = join(bar.clock, clock_of(t, false));
    bar.proxied = join(bar.proxied, clock_of(t, true));
    advance(t);
  }
}

void Machine::barrier_check(Block& b, uint32_t id) {
  Barrier& bar = b.barriers[id];
  if (bar.arrived < (bar.expected ? bar.expected : b.alive)) return;
  const Barrier over = std::move(bar);
  bar = {};
  std::vector<Thread*> all = over.waiting;
  meet(all);
  for (Thread* t : all) {
    if (over.clock) see(*t, over.clock, over.proxied);
    const Instr& i = code.code[t->waits_at];
    if (i.d != kNone) {
      const uint64_t value = i.kind == 0 ? over.trues : i.kind == 1 ? over.falses == 0 : over.trues != 0;
      t->r[i.d] = {value, over.poison ? mask_of(i.width) : 0};
    }
    wake(*t);
  }
}

void Machine::cluster_check(Block& b) {
  Barrier& bar = b.cluster_barrier;
  uint32_t alive = 0;
  for (const Block* other : b.cluster) alive += other->alive;
  if (bar.arrived == 0 || bar.arrived < alive) return;
  ++bar.phase;
  bar.arrived = 0;
  bar.done = std::move(bar.clock), bar.done_proxied = std::move(bar.proxied);
  bar.clock = bar.proxied = nullptr;
  std::vector<Thread*> all = std::move(bar.waiting);
  bar.waiting.clear();
  for (Thread* t : all) {
    see(*t, bar.done, bar.done_proxied);
    wake(*t);
  }
}

void Machine::phase_check(Block& b, uint64_t offset, MBarrier& bar) {
  if (bar.pending != 0 || bar.bytes != 0) return;
  ++bar.phase;
  bar.pending = bar.expected;
  bar.done = join(bar.done, bar.clock), bar.done_proxied = join(bar.done_proxied, bar.proxied);
  bar.clock = bar.proxied = nullptr;
  for (Block* other : b.cluster)
    for (Thread& t : other->threads) {
      if (t.state != State::mbarrier || block_of(t, t.waits_for) != &b ||
          (t.waits_for & 0xffffff) - kSharedBase != offset)
        continue;
      t.pc = t.waits_at;  // it tries again
      wake(t);
    }
}

// ---- copies in flight

void Machine::launch_async(Thread& t, const Instr& i, PendingKind kind, bool needs_shared, std::function<void()> land) {
  Pending p;
  p.land = std::move(land);
  p.agent_epoch = t.async_epoch, p.kind = kind, p.thread = t.index, p.block = t.block, p.pc = i.pc;
  p.needs_shared = needs_shared;
  // reads of a bulk copy's source are a part of its group
  p.group = static_cast<uint32_t>(t.committed[kind == kBulkSource ? kBulk : kind].size());
  pending.push_back(std::move(p));
}

void Machine::land_one(size_t at) {
  const std::function<void()> land = std::move(pending[at].land);
  pending[at] = std::move(pending.back());
  pending.pop_back();
  land();
}

void Machine::commit(Thread& t, uint8_t kind) { t.committed[kind].push_back(t.async_epoch); }

void Machine::wait_group(Thread& t, uint8_t kind, uint64_t most_left, bool sources) {
  const auto& groups = t.committed[kind];
  if (groups.size() <= most_left) return;
  const size_t over = groups.size() - most_left;
  for (;;) {  // in random order
    std::vector<size_t> due;
    for (size_t p = 0; p < pending.size(); ++p) {
      const Pending& x = pending[p];
      const bool is_source = kind == kBulk && x.kind == kBulkSource;
      if (x.block == t.block && x.thread == t.index && (is_source || (!sources && x.kind == kind)) && x.group < over)
        due.push_back(p);
    }
    if (due.empty()) break;
    land_one(due[random.below(static_cast<uint32_t>(due.size()))]);
  }
  uint32_t& done = sources ? t.sources_done : t.async_done;
  done = std::max(done, groups[over - 1]);
}

double Machine::off(double exact, double relative, double absolute, uint64_t operands) const {
  if (!launch.inexact || !std::isfinite(exact) || exact == 0) return exact;
  Random r{operands ^ errors_};
  const double share = static_cast<double>(r.next() >> 11) * 0x1p-52 - 1;  // [-1, 1)
  return exact + share * (std::fabs(exact) * relative + absolute);
}

}  // namespace tessera::ptx
