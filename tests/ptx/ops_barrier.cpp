// Barriers of a block and of a cluster.
#include "tests/ptx/decode.h"

namespace tessera::ptx {

void decode_warp_sync(Decoder& d);

namespace {

/// Instr: a the barrier, b the threads or kNone, c a predicate or kNone, d a result or kNone.
enum Flags : uint16_t { kAligned = 1, kArrives = 2, kNegated = 4 };
enum Reduction : uint32_t { kPopc, kAnd, kOr };

uint32_t number(Thread& t, const Instr& i, uint32_t slot) {
  if (t.r[slot].poison) t.m->stop(Fault::poison, t, i, "its operand hangs on what nobody has written");
  return static_cast<uint32_t>(t.r[slot].bits);
}

void barrier(Thread& t, const Instr& i) {
  Machine& m = *t.m;
  std::vector<Thread*> all{&t};
  if (i.flags & kAligned) {
    all = m.gather(t, i, m.alive_lanes(t), true);
    if (all.empty()) return;
  }
  t.waits_at = i.pc;
  const uint32_t id = number(t, i, i.a);
  for (size_t k = 0; k < all.size(); ++k) {
    Thread& x = *all[k];
    if (number(x, i, i.a) != id) m.stop(Fault::divergence, x, i, "threads of a warp name several barriers");
    const uint32_t expected = i.b == kNone ? 0 : number(x, i, i.b);
    // a warp counts as 32 threads, whether it has them or not
    const uint32_t count =
        (i.flags & kAligned) && expected && k + 1 == all.size() ? 33 - static_cast<uint32_t>(all.size()) : 1;
    m.arrive(x, i, id, expected, count, !(i.flags & kArrives));
    if (i.c == kNone) continue;
    Barrier& b = x.block->barriers[id];
    const bool yes = ((x.r[i.c].bits & 1) != 0) != ((i.flags & kNegated) != 0);
    (yes ? b.trues : b.falses) += 1;
    b.poison = b.poison || x.r[i.c].poison;
  }
  m.barrier_check(*t.block, id);
}

void cluster_arrive(Thread& t, const Instr& i) {
  Machine& m = *t.m;
  Barrier& b = t.block->cluster[0]->cluster_barrier;
  if (t.cluster_phase == b.phase + 1)
    m.stop(Fault::barrier, t, i, "it arrives twice in one phase of the cluster's barrier");
  t.cluster_phase = b.phase + 1;
  ++b.arrived;
  if (m.launch.races && i.kind == 0) {  // not .relaxed
    b.clock = join(b.clock, m.clock_of(t, false));
    b.proxied = join(b.proxied, m.clock_of(t, true));
    m.advance(t);
  }
  m.cluster_check(*t.block->cluster[0]);
}
void cluster_wait(Thread& t, const Instr& i) {
  Barrier& b = t.block->cluster[0]->cluster_barrier;
  if (t.cluster_phase == 0) t.m->stop(Fault::barrier, t, i, "it waits at the cluster's barrier without having arrived");
  const bool over = b.phase >= t.cluster_phase;
  if (over) return t.m->see(t, b.done, b.done_proxied);
  t.m->wait(t, i, State::cluster, 0);
  b.waiting.push_back(&t);
}

void decode_barrier(Decoder& d, bool aligned) {
  Instr& i = *d.i;
  i.effects = true;
  if (d.take("cluster")) {
    const bool arrive = d.take("arrive");
    if (!arrive && !d.take("wait")) d.fail(".arrive or .wait is missing");
    d.take("release"), d.take("acquire"), d.take("aligned");
    i.kind = d.take("relaxed") ? 1 : 0;
    d.need_operands(0);
    i.run = arrive ? cluster_arrive : cluster_wait;
    return;
  }
  d.take("cta");
  if (aligned && d.take("warp")) {
    if (!d.take("sync")) d.fail(".sync is missing");
    return decode_warp_sync(d);
  }
  if (aligned || d.take("aligned")) i.flags |= kAligned;
  const bool reduces = d.take("red"), arrives = d.take("arrive");
  if (!reduces && !arrives && !d.take("sync")) d.fail(".sync, .arrive or .red is missing");
  i.run = barrier;
  if (arrives) i.flags |= kArrives;
  size_t at = 0;
  if (reduces) {
    const int k = d.take_any({"popc", "and", "or"});
    if (k < 0) d.fail("the reduction is missing");
    i.kind = static_cast<uint32_t>(k);
    const Type t = d.need_type();
    i.width = static_cast<uint8_t>(width_of(t));
    i.d = d.result(at++, t);
  }
  i.a = d.source(at++, Type::b32);
  const size_t left = d.operands() - at - (reduces ? 1 : 0);
  if (left > 1 || (arrives && left == 0)) d.fail("another number of operands is expected");
  if (left == 1) i.b = d.source(at++, Type::b32);
  if (!reduces) return;
  i.c = d.predicate(d.operand(at));
  if (d.operand(at).negated) i.flags |= kNegated;
}

}  // namespace

void add_barrier_ops(Opcodes& o) {
  o["bar"] = [](Decoder& d) { decode_barrier(d, true); };
  o["barrier"] = [](Decoder& d) { decode_barrier(d, false); };
}

}  // namespace tessera::ptx
