// What has been seen by whom: clocks, and the races that they find.
#include <algorithm>

#include "tests/ptx/machine.h"

namespace tessera::ptx {

namespace {

/// `into` takes the larger of each.
void take(Row& into, const Row& other) {
  for (size_t i = 0; i < into.size() && i < other.size(); ++i) into[i] = std::max(into[i], other[i]);
}
bool covers(const Row& a, const Row& b) {
  for (size_t i = 0; i < a.size(); ++i)
    if (a[i] < b[i]) return false;
  return true;
}

}  // namespace

void Object::make(uint64_t n, bool watched) {
  size = n;
  bytes.assign(n, 0);
  poison.assign(n, 0);
  pages.clear(), constant.clear();
  if (watched) pages.resize(((n >> granule) >> 8) + 1);
}

ClockPtr join(const ClockPtr& a, const ClockPtr& b) {
  if (!a || a == b) return b;
  if (!b) return a;
  auto r = std::make_shared<Clock>();
  auto x = a->rows.begin(), y = b->rows.begin();
  while (x != a->rows.end() || y != b->rows.end()) {
    if (y == b->rows.end() || (x != a->rows.end() && x->first < y->first)) {
      r->rows.push_back(*x++);
    } else if (x == a->rows.end() || y->first < x->first) {
      r->rows.push_back(*y++);
    } else {
      if (x->second == y->second || covers(*x->second, *y->second)) {
        r->rows.push_back(*x);
      } else {
        auto row = std::make_shared<Row>(*x->second);
        take(*row, *y->second);
        r->rows.push_back({x->first, std::move(row)});
      }
      ++x, ++y;
    }
  }
  return r;
}

namespace {

/// `base` with changes to one block's row.
template <class F>
ClockPtr with_row(const ClockPtr& base, uint32_t block, size_t agents, F&& change) {
  auto r = std::make_shared<Clock>();
  const Row* old = base ? base->find(block) : nullptr;
  auto row = old ? std::make_shared<Row>(*old) : std::make_shared<Row>(agents, 0u);
  change(*row);
  bool placed = false;
  if (base) {
    for (const auto& entry : base->rows) {
      if (!placed && entry.first >= block) r->rows.push_back({block, row}), placed = true;
      if (entry.first != block) r->rows.push_back(entry);
    }
  }
  if (!placed) r->rows.push_back({block, row});
  return r;
}

void own(Row& row, const Thread& t, bool proxied, size_t threads) {
  row[t.index] = std::max(row[t.index], proxied ? t.proxied_epoch : t.epoch);
  uint32_t& copies = row[kCopies * threads + t.index];
  copies = std::max(copies, proxied ? t.proxied_done : t.async_done);
  uint32_t& sources = row[kSources * threads + t.index];
  sources = std::max(sources, std::max(t.async_done, t.sources_done));
}

}  // namespace

ClockPtr Machine::clock_of(Thread& t, bool proxied) const {
  return with_row(proxied ? t.proxied : t.seen, t.block->number, size_t{kAgentKinds} * threads_per_block,
                  [&](Row& row) { own(row, t, proxied, threads_per_block); });
}

void Machine::see(Thread& t, const ClockPtr& seen, const ClockPtr& proxied) {
  if (!launch.races) return;
  t.seen = join(t.seen, seen);
  t.proxied = join(t.proxied, proxied);
  t.row = t.seen ? t.seen->find(t.block->number) : nullptr;
}

void Machine::meet(std::vector<Thread*>& threads) {
  if (!launch.races) return;
  ClockPtr all[2];
  for (const bool proxied : {false, true}) {
    ClockPtr base;
    for (Thread* t : threads) base = join(base, proxied ? t->proxied : t->seen);
    // threads of several blocks meet in a cluster
    for (size_t first = 0; first < threads.size();) {
      size_t last = first;
      while (last < threads.size() && threads[last]->block == threads[first]->block) ++last;
      base = with_row(base, threads[first]->block->number, size_t{kAgentKinds} * threads_per_block, [&](Row& row) {
        for (size_t k = first; k < last; ++k) own(row, *threads[k], proxied, threads_per_block);
      });
      first = last;
    }
    all[proxied] = base;
  }
  for (Thread* t : threads) {
    t->seen = all[0], t->proxied = all[1];
    t->row = t->seen->find(t->block->number);
    ++t->epoch;
  }
}

bool Machine::has_seen(const Thread& t, const Touch& x, bool proxied) const {
  const uint32_t block = x.agent >> kAgentBits, kind = x.agent >> kThreadBits & 3;
  const bool async = kind != kSelf;
  const uint32_t index = x.agent & ((1u << kThreadBits) - 1);
  const bool needs_fence = proxied && !code.code[x.at].proxy;
  if (block == t.block->number && index == t.index) {
    if (!async) return !needs_fence || x.epoch <= t.proxied_epoch;
    if (needs_fence ? x.epoch <= t.proxied_done : x.epoch <= t.async_done) return true;
    if (kind == kSources && x.epoch <= t.sources_done) return true;
  }
  const size_t at = size_t{kind} * threads_per_block + index;
  if (needs_fence) {  // what a generic access or cp.async did, the asynchronous proxy sees after a fence
    const Row* row = t.proxied ? t.proxied->find(block) : nullptr;
    return row && (*row)[at] >= x.epoch;
  }
  const Row* row = block == t.block->number ? t.row : t.seen ? t.seen->find(block) : nullptr;
  return row && (*row)[at] >= x.epoch;
}

ClockPtr Machine::clock_of_copy(const Thread& t, uint32_t epoch) const {
  return with_row(nullptr, t.block->number, size_t{kAgentKinds} * threads_per_block, [&](Row& row) {
    row[kCopies * threads_per_block + t.index] = row[kSources * threads_per_block + t.index] = epoch;
  });
}

namespace {

/// Two strong accesses of one place are no race if both are of all of it, and each is strong for the other's block.
bool both_strong(const Touch& a, const Touch& b) {
  const bool one_block = a.agent >> kAgentBits == b.agent >> kAgentBits;
  return a.strong && b.strong && a.bytes == b.bytes && (one_block || (!a.of_cta && !b.of_cta));
}

}  // namespace

void Machine::touch(Thread& t, const Instr& i, const Access& a, uint64_t bytes, How how, bool strong, Agent agent) {
  Object& o = *a.object;
  if (o.pages.empty() || bytes == 0) return;
  const bool async = agent != kSelf, proxied = async && i.proxy;
  const Touch me{.agent = t.agent | agent << kThreadBits,
                 .epoch = async ? t.async_epoch : t.epoch,
                 .at = i.pc,
                 .strong = strong,
                 .of_cta = i.of_cta,
                 .bytes = static_cast<uint8_t>(i.from / 8)};
  const uint64_t last = (a.offset + bytes - 1) >> o.granule;
  for (uint64_t k = a.offset >> o.granule; k <= last; ++k) {
    Cell& c = o.cell(k);
    const Touch& w = c.write;
    const bool other_proxy = proxied && !w.none() && !code.code[w.at].proxy;
    if (!w.none() && (w.agent != me.agent || other_proxy) && !both_strong(me, w) &&
        !has_seen(t, w, other_proxy && how == How::read)) {
      race(t, i, {a.object, k << o.granule}, w, how, w.strong ? How::atomic : How::write, async);
    }
    if (how == How::read) {
      // one that is ordered before this one says nothing more than this one
      Touch& r = c.read[0];
      if (r.none() || r.agent == me.agent || (!(r.strong && !strong) && has_seen(t, r, false))) {
        r = me;
      } else {
        c.read[1] = me;
      }
      continue;
    }
    for (const Touch& r : c.read) {
      if (!r.none() && r.agent != me.agent && !both_strong(me, r) && !has_seen(t, r, false))
        race(t, i, {a.object, k << o.granule}, r, how, How::read, async);
    }
    if (other_proxy && !has_seen(t, w, true)) race(t, i, {a.object, k << o.granule}, w, how, How::write, async);
    if (!o.constant.empty() && !o.constant[k].none())
      stop(
          Fault::race, t, i,
          "it writes byte " + std::to_string(k << o.granule) + " of " + o.name + ", which this launch has read by .nc");
    // what the same thread did weakly in the same epoch stays to be found
    const bool weak = w.agent == me.agent && w.epoch == me.epoch && !w.strong;
    c.write = me;
    if (weak) c.write.strong = false;
    c.read[0] = c.read[1] = Touch{};
  }
}

}  // namespace tessera::ptx
