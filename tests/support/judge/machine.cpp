#include "tests/support/judge/machine.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <spirv/unified1/spirv.hpp>

#include "engine/ir/reference.h"

namespace tessera::judge {

Machine::Machine(const Module& m, Memory& memory, Reports& reports, Random& random, Dispatch d)
    : m_(m), memory_(memory), reports_(reports), random_(random), dispatch_(std::move(d)) {
  size_ = m.local_size[0] * m.local_size[1] * m.local_size[2];
  arithmetic_.fused = random.below(2);
  if (dispatch_.inexact) arithmetic_.errors = random.next() | 1;
  for (int i = 0; i < 3; ++i) arithmetic_.to_zero[i] = !m.rounds_even[i] && random.below(2);
  // Workgroups take turns where they can tell: by atomics.
  groups_.resize(m.has_atomics ? 3 : 1);
  // else an invocation ends before the next begins, and they share their slots
  const bool apart = m.waits || m.has_atomics;
  for (Group& g : groups_) {
    g.slots.resize(m.slots.size() * (apart ? size_ : 1));
    g.rounds.resize(m.loops.size() * (apart ? size_ : 1));
    g.invocations.resize(size_);
    g.passed.resize((size_ + dispatch_.subgroup_size - 1) / dispatch_.subgroup_size);
    std::vector<uint32_t> local(size_);
    std::iota(local.begin(), local.end(), 0u);
    random.shuffle(local);  // nothing ties the local index to subgroup and lane
    for (uint32_t i = 0; i < size_; ++i) {
      Invocation& v = g.invocations[i];
      v.slots = g.slots.data() + (apart ? i * m.slots.size() : 0);
      v.rounds = g.rounds.data() + (apart ? i * m.loops.size() : 0);
      std::copy(m.slots.begin(), m.slots.end(), v.slots);
      v.index = i, v.local_index = local[i], v.subgroup = i / dispatch_.subgroup_size,
      v.lane = i % dispatch_.subgroup_size;
    }
    g.shared.name = "shared memory";
    g.shared.size = m.shared_bytes;
    g.shared.bytes.resize(m.shared_bytes);
    g.shared.poison.resize(m.shared_bytes);
    g.shared.cells.resize(m.shared_bytes / 4);
    g.shared.slice = ~uint64_t{0};
  }
}

void Machine::run() {
  std::vector<uint32_t> order(size_t{dispatch_.groups[0]} * dispatch_.groups[1] * dispatch_.groups[2]);
  std::iota(order.begin(), order.end(), 0u);
  random_.shuffle(order);
  size_t next = 0;
  for (;;) {
    std::vector<Group*> active;
    for (Group& g : groups_) {
      if (!g.active && next < order.size()) begin(g, order[next++]);
      if (g.active) active.push_back(&g);
    }
    if (active.empty() || stopped) return;
    round(*active[random_.below(static_cast<uint32_t>(active.size()))]);
  }
}

void Machine::begin(Group& g, uint32_t number) {
  const uint32_t* n = dispatch_.groups;
  const uint32_t id[3] = {number % n[0], number / n[0] % n[1], number / n[0] / n[1]};
  for (int i = 0; i < 3; ++i) g.id[i] = dispatch_.base[i] + id[i];
  g.who = {number, 0, ++epoch_, epoch_};
  g.own_epochs.assign((size_ + dispatch_.subgroup_size - 1) / dispatch_.subgroup_size, 0);
  for (Invocation& v : g.invocations) v.pc = 0, v.state = State::ready, v.meets = kNone, v.gave_way = false;
  for (std::byte& b : g.shared.bytes) b = static_cast<std::byte>(random_.next());
  std::fill(g.shared.poison.begin(), g.shared.poison.end(), uint8_t{0xff});
  g.active = true;
}

// Lets every invocation that can go on do so, in random order; if none can, lets the workgroup pass its barrier, or
// ends it.
void Machine::round(Group& g) {
  std::vector<uint32_t> ready;
  for (uint32_t i = 0; i < size_; ++i)
    if (g.invocations[i].state == State::ready) ready.push_back(i);
  random_.shuffle(ready);
  for (const uint32_t i : ready) {
    advance(g, g.invocations[i]);
    if (stopped) return;
  }
  if (release_subgroups(g)) return;
  bool done = true;
  for (const Invocation& v : g.invocations) {
    if (v.state == State::ready) return;
    done &= v.state == State::finished;
  }
  if (done) return finish(g);
  if (!release_barrier(g)) g.active = false;
}

// Counts iterations as drivers do that run a subgroup under masks: a loop goes on for as long as any invocation wants,
// its last test is an iteration, and a loop that nobody gets to is one each time it is passed.
void Machine::finish(Group& g) {
  g.active = false;
  for (auto& passed : g.passed) {
    std::vector<int64_t> rounds(m_.loops.size()), times(m_.loops.size());
    for (const auto& [key, p] : passed) rounds[p.loop] += p.rounds, ++times[p.loop];
    int64_t total = 0;
    for (size_t l = 0; l < m_.loops.size(); ++l) {  // those around come first
      const int64_t all = m_.loops[l].parent == kNone ? 1 : rounds[m_.loops[l].parent];
      rounds[l] += std::max<int64_t>(all - times[l], 0);
      total += rounds[l];
    }
    most_iterations = std::max(most_iterations, total);
    passed.clear();
  }
}

Who Machine::who(const Group& g, const Invocation& v) const {
  Who w = g.who;
  w.invocation = v.index;
  w.id = w.group * size_ + v.index;
  w.subgroup = v.index / dispatch_.subgroup_size;
  w.own_epoch = g.own_epochs[w.subgroup];
  return w;
}

void Machine::undefined(const Group& g, const Invocation& v, uint32_t at) {
  reports_.add(Kind::undefined, at, 0, [&] {
    return std::string("undefined: ") + arithmetic_.undefined + ", in " + reports_.at(at) + " by " +
           Reports::who(who(g, v));
  });
  arithmetic_.undefined = nullptr;
}
void Machine::poisoned(const Group& g, const Invocation& v, uint32_t at, const char* use) {
  reports_.add(Kind::poison, at, 0, [&] {
    return std::string("undefined: ") + use + " hangs on uninitialised memory or an undefined result, in " +
           reports_.at(at) + " by " + Reports::who(who(g, v));
  });
}

// -- waiting

bool Machine::same_place(const Invocation& a, const Invocation& b) const {
  if (a.state != State::waiting || b.state != State::waiting || a.pc != b.pc) return false;
  for (const uint32_t l : around(m_.code[a.pc]))
    if (a.rounds[l] != b.rounds[l]) return false;
  return true;
}

bool Machine::of_subgroup(const Instr& i) const {
  return i.code == Code::barrier && i.a == spv::ScopeSubgroup && size_ > dispatch_.subgroup_size;
}

namespace {
bool orders(const Instr& barrier) {
  const uint32_t all = spv::MemorySemanticsAcquireReleaseMask | spv::MemorySemanticsMakeAvailableMask |
                       spv::MemorySemanticsMakeVisibleMask;
  return (barrier.c & all) == all;
}
}  // namespace

bool Machine::release_subgroups(Group& g) {
  bool any = false;
  for (uint32_t first = 0; m_.waits && first < size_; first += dispatch_.subgroup_size) {
    const uint32_t end = std::min(first + dispatch_.subgroup_size, size_);
    const Invocation& lead = g.invocations[first];
    const Instr& waits_at = m_.code[lead.pc];
    const bool barrier = of_subgroup(waits_at);
    if (lead.state != State::waiting || (waits_at.code != Code::subgroup && !barrier)) continue;
    bool together = true;
    for (uint32_t i = first + 1; i < end && together; ++i) together = same_place(lead, g.invocations[i]);
    if (!together) continue;
    any = true;
    if (!barrier) subgroup_op(g, first, end - first, lead.pc);
    else if (orders(waits_at) && (waits_at.c & spv::MemorySemanticsWorkgroupMemoryMask) &&
             waits_at.b <= spv::ScopeSubgroup && waits_at.b != spv::ScopeCrossDevice)
      ++g.own_epochs[first / dispatch_.subgroup_size];
    for (uint32_t i = first; i < end; ++i) {
      g.invocations[i].state = State::ready;
      ++g.invocations[i].pc;
    }
  }
  return any;
}

void Machine::subgroup_op(Group& g, size_t first, size_t n, uint32_t at) {
  const Instr& i = m_.code[at];
  const uint64_t mask = mask_of(i.width);
  if (i.aux >= kMatrixLoad && (i.aux <= kMatrixMultiplyAdd || i.aux == kMatrixFill)) return matrix_op(g, first, n, at);
  std::vector<Slot> in(n), out(n);
  for (size_t l = 0; l < n; ++l)
    if (i.a != kNone) in[l] = g.invocations[first + l].slots[i.a];
  // of nobody
  const auto from = [&](uint64_t lane) { return lane < n ? in[lane] : Slot{random_.next() & mask, mask}; };
  const auto other = [&](size_t l) { return g.invocations[first + l].slots[i.c]; };
  const auto lanes = [&](auto lane_of) {
    for (size_t l = 0; l < n; ++l) {
      out[l] = from(lane_of(l, other(l).bits));
      if (other(l).poison) out[l].poison = mask;
    }
  };
  switch (i.aux) {
    case spv::OpGroupNonUniformElect:
      for (size_t l = 0; l < n; ++l) out[l] = {l == 0, 0};
      break;
    case spv::OpGroupNonUniformBroadcastFirst: std::fill(out.begin(), out.end(), in[0]); break;
    case spv::OpGroupNonUniformAll:
    case spv::OpGroupNonUniformAny:
    case spv::OpGroupNonUniformAllEqual: {
      bool all = true, some = false, equal = true;
      uint64_t poison = 0;
      for (const Slot& s : in)
        all &= s.bits != 0, some |= s.bits != 0, equal &= s.bits == in[0].bits, poison |= s.poison;
      std::fill(out.begin(), out.end(),
                Slot{i.aux == spv::OpGroupNonUniformAll   ? all
                     : i.aux == spv::OpGroupNonUniformAny ? some
                                                          : equal,
                     poison != 0});
      break;
    }
    case spv::OpGroupNonUniformBallot: {
      for (size_t l = 0; l < n; ++l) {
        Slot* to = &g.invocations[first + l].slots[i.dst];
        for (int word = 0; word < 4; ++word) to[word] = {};
        for (size_t k = 0; k < n; ++k)
          to[k / 32].bits |= in[k].bits << (k % 32), to[k / 32].poison |= in[k].poison << (k % 32);
      }
      return;
    }
    case spv::OpGroupNonUniformBroadcast:
    case spv::OpGroupNonUniformShuffle: lanes([](size_t, uint64_t x) { return x; }); break;
    case spv::OpGroupNonUniformShuffleXor: lanes([](size_t l, uint64_t x) { return l ^ x; }); break;
    case spv::OpGroupNonUniformShuffleUp: lanes([](size_t l, uint64_t x) { return l - x; }); break;
    case spv::OpGroupNonUniformShuffleDown: lanes([](size_t l, uint64_t x) { return l + x; }); break;
    default: {
      const bool reduce = i.n == spv::GroupOperationReduce;
      if (!reduce) {
        const bool exclusive = i.n == spv::GroupOperationExclusiveScan;
        Slot sum{Arithmetic::identity(i.aux, i.width), 0};
        for (size_t l = 0; l < n; ++l) {
          if (exclusive) out[l] = sum;
          if (l == 0) sum = in[0];
          else
            sum = {Arithmetic::combine(i.aux, i.width, sum.bits, in[l].bits), whole(sum.poison | in[l].poison, mask)};
          if (!exclusive) out[l] = sum;
        }
        break;
      }
      const size_t start = random_.below(static_cast<uint32_t>(n));  // devices may begin anywhere
      Slot sum = in[start];
      for (size_t l = 1; l < n; ++l) {
        const Slot& x = in[(start + l) % n];
        sum = {Arithmetic::combine(i.aux, i.width, sum.bits, x.bits), whole(sum.poison | x.poison, mask)};
      }
      std::fill(out.begin(), out.end(), sum);
    }
  }
  for (size_t l = 0; l < n; ++l) g.invocations[first + l].slots[i.dst] = out[l];
}

// All wait at one barrier: lets them go on. Otherwise nobody can: reports it, and gives the workgroup up.
bool Machine::release_barrier(Group& g) {
  const Invocation& lead = g.invocations[0];
  size_t other = 0;
  for (size_t i = 1; i < size_ && !other; ++i)
    if (!same_place(lead, g.invocations[i])) other = i;
  if (lead.state == State::waiting && m_.code[lead.pc].code == Code::barrier && !of_subgroup(m_.code[lead.pc]) &&
      !other) {
    const Instr& i = m_.code[lead.pc];
    const uint32_t needed = size_ <= dispatch_.subgroup_size ? spv::ScopeSubgroup : spv::ScopeWorkgroup;
    const auto reaches = [&](uint32_t scope) { return scope <= needed && scope != spv::ScopeCrossDevice; };
    if (!reaches(i.a))
      reports_.add(Kind::divergence, lead.pc, 1,
                   [&] { return "a barrier for less than the workgroup: " + reports_.at(lead.pc); });
    ++epoch_;
    if (reaches(i.b) && orders(i)) {
      if (i.c & spv::MemorySemanticsUniformMemoryMask) g.who.buffer_epoch = epoch_;
      if (i.c & spv::MemorySemanticsWorkgroupMemoryMask) g.who.shared_epoch = epoch_;
    }
    for (Invocation& v : g.invocations) v.state = State::ready, ++v.pc;
    return true;
  }
  // Name two that disagree: within the first subgroup that does, for subgroup operations; else one that disagrees with
  // the first.
  size_t a = 0, b = other;
  for (size_t i = 0; i < size_; ++i) {
    const size_t first = i - i % dispatch_.subgroup_size;
    const Invocation& v = g.invocations[first];
    if (v.state == State::waiting && m_.code[v.pc].code == Code::subgroup && !same_place(v, g.invocations[i])) {
      a = first, b = i;
      break;
    }
  }
  const auto where = [&](size_t i) {
    const Invocation& v = g.invocations[i];
    if (v.state == State::finished) return "invocation " + std::to_string(i) + " has finished";
    std::string s = "invocation " + std::to_string(i) + " waits at " + reports_.at(v.pc);
    for (const uint32_t l : around(m_.code[v.pc])) s += ", in iteration " + std::to_string(v.rounds[l]);
    return s;
  };
  reports_.add(Kind::divergence, g.invocations[a].pc, g.invocations[b].pc, [&] {
    return "divergence in workgroup " + std::to_string(g.who.group) + ": " + where(a) + ", but " + where(b);
  });
  return false;
}

// -- memory

namespace {
uint64_t read(const void* from, uint32_t bytes) {
  uint64_t v = 0;
  std::memcpy(&v, from, bytes);
  return v;
}
}  // namespace

void Machine::load(Group& g, Invocation& v, uint32_t at) {
  const Instr& i = m_.code[at];
  const Slot p = v.slots[i.a];
  const uint32_t each = i.width / 8, all = each * i.n;
  if (p.poison) poisoned(g, v, at, "the address");
  const Memory::Reached r = i.code == Code::load_shared ? memory_.shared(g.shared, at, i, kRead, who(g, v), p.bits, all)
                                                        : memory_.buffer(at, i, kRead, who(g, v), p.bits, all);
  for (uint32_t c = 0; c < i.n; ++c) {
    Slot& to = v.slots[i.dst + c];
    to = r.bytes ? Slot{read(r.bytes + c * each, each), read(r.poison + c * each, each)}
                 : Slot{random_.next() & mask_of(i.width), 0};
  }
}

void Machine::store(Group& g, Invocation& v, uint32_t at) {
  const Instr& i = m_.code[at];
  const Slot p = v.slots[i.a];
  const uint32_t each = i.width / 8, all = each * i.n;
  if (p.poison) poisoned(g, v, at, "the address");
  if (v.meets != kNone) poisoned(g, v, at, "whether this is done");
  const bool shared = i.code == Code::store_shared;
  const Memory::Reached r = shared ? memory_.shared(g.shared, at, i, kWrite, who(g, v), p.bits, all)
                                   : memory_.buffer(at, i, kWrite, who(g, v), p.bits, all);
  if (!r.bytes) return;
  for (uint32_t c = 0; c < i.n; ++c) {
    const Slot& x = v.slots[i.b + c];
    std::memcpy(r.bytes + c * each, &x.bits, each);
    std::memcpy(r.poison + c * each, &x.poison, each);
    if (x.poison && !shared && !memory_.reached_slice()) poisoned(g, v, at, "the stored value");
  }
}

void Machine::atomic(Group& g, Invocation& v, uint32_t at) {
  const Instr& i = m_.code[at];
  const Slot p = v.slots[i.a], x = i.b != kNone ? v.slots[i.b] : Slot{1, 0};
  const uint32_t bytes = i.width / 8;
  const uint64_t mask = mask_of(i.width);
  if (p.poison) poisoned(g, v, at, "the address");
  if (v.meets != kNone) poisoned(g, v, at, "whether this is done");
  uint32_t touched = ~0u;
  if ((i.aux == spv::OpAtomicAnd || i.aux == spv::OpAtomicOr) && !x.poison) {  // what these leave alone may be others'
    touched = 0;
    for (uint32_t b = 0; b < bytes; ++b)
      touched |= ((x.bits >> (8 * b) & 0xff) != (i.aux == spv::OpAtomicAnd ? 0xff : 0) ? 1u : 0) << b;
  }
  const Memory::Reached r = i.flags & kShared ? memory_.shared(g.shared, at, i, kAtomic, who(g, v), p.bits, bytes)
                                              : memory_.buffer(at, i, kAtomic, who(g, v), p.bits, bytes, touched);
  if (!r.bytes) {
    if (i.dst != kNone) v.slots[i.dst] = {random_.next() & mask, 0};
    return;
  }
  // What nobody has written to an array is some number, and the same one for every atomic on it: neighbours in a word.
  if (!(i.flags & kShared) && !memory_.reached_slice()) std::memset(r.poison, 0, bytes);
  const uint64_t old = read(r.bytes, bytes), unknown = read(r.poison, bytes);
  uint64_t now = old, poison = unknown;
  switch (i.aux) {
    case spv::OpAtomicLoad: break;
    case spv::OpAtomicIIncrement: now = (old + 1) & mask; break;
    case spv::OpAtomicCompareExchange: {
      const Slot wanted = v.slots[i.c];
      if (wanted.poison | unknown) poisoned(g, v, at, "what is compared");
      if (old == wanted.bits) now = x.bits, poison = x.poison;
      break;
    }
    case spv::OpAtomicAnd:
      now = old & x.bits, poison = (unknown & (x.bits | x.poison)) | (x.poison & (old | unknown));
      break;
    case spv::OpAtomicOr:
      now = old | x.bits, poison = (unknown & (~x.bits | x.poison)) | (x.poison & (~old | unknown));
      break;
    case spv::OpAtomicExchange:
    case spv::OpAtomicStore: now = x.bits, poison = x.poison; break;
    default: now = Arithmetic::combine(i.aux, i.width, old, x.bits), poison = carried(unknown | x.poison, mask);
  }
  if (x.poison && !(i.flags & kShared) && !memory_.reached_slice()) poisoned(g, v, at, "the stored value");
  std::memcpy(r.bytes, &now, bytes);
  std::memcpy(r.poison, &poison, bytes);
  if (i.dst != kNone) v.slots[i.dst] = {old, unknown};
}

Slot Machine::input(const Group& g, const Invocation& v, uint32_t built_in, uint32_t c) const {
  const uint32_t local[3] = {v.local_index % m_.local_size[0], v.local_index / m_.local_size[0] % m_.local_size[1],
                             v.local_index / m_.local_size[0] / m_.local_size[1]};
  switch (built_in) {
    case spv::BuiltInNumWorkgroups: return {dispatch_.groups[c], 0};
    case spv::BuiltInWorkgroupId: return {g.id[c], 0};
    case spv::BuiltInLocalInvocationId: return {local[c], 0};
    case spv::BuiltInGlobalInvocationId: return {g.id[c] * m_.local_size[c] + local[c], 0};
    case spv::BuiltInLocalInvocationIndex: return {v.local_index, 0};
    case spv::BuiltInSubgroupId: return {v.subgroup, 0};
    case spv::BuiltInNumSubgroups: return {g.passed.size(), 0};
    case spv::BuiltInSubgroupLocalInvocationId: return {v.lane, 0};
    case spv::BuiltInSubgroupSize: return {dispatch_.subgroup_size, 0};
    default: return {0, ~uint64_t{0}};
  }
}

// -- going on

// What hangs on a branch that poison decided is poison: where its sides meet, and each round of a loop.
void Machine::poisoned_branch(Invocation& v, const Instr&, uint32_t merge) {
  if (v.meets == kNone) v.meets = merge;
}

bool Machine::take(Group& g, Invocation& v, uint32_t number, uint32_t& pc) {
  const Edge& e = m_.edges[number];
  const bool unknown = v.meets != kNone && (e.back || e.target == v.meets);
  const std::pair<uint32_t, uint32_t>* moves = m_.moves.data() + e.first;
  if (e.clash) {
    temporary_.resize(std::max<size_t>(temporary_.size(), e.count));
    for (uint32_t k = 0; k < e.count; ++k) temporary_[k] = v.slots[moves[k].second];
    for (uint32_t k = 0; k < e.count; ++k) v.slots[moves[k].first] = temporary_[k];
  } else {
    for (uint32_t k = 0; k < e.count; ++k) v.slots[moves[k].first] = v.slots[moves[k].second];
  }
  if (unknown) {
    for (uint32_t k = 0; k < e.count; ++k) v.slots[moves[k].first].poison = ~uint64_t{0};
    if (e.target == v.meets) v.meets = kNone;
  }
  if (e.leaves != kNone) {
    uint64_t key = e.leaves + 1;
    for (const uint32_t l : m_.loops[e.leaves].around) key = Random{key * 0x9e3779b97f4a7c15u + v.rounds[l]}.next();
    Passed& p = g.passed[v.subgroup].try_emplace(key, Passed{e.leaves, 0}).first->second;
    p.rounds = std::max(p.rounds, v.rounds[e.leaves]);
  }
  if (e.enters != kNone) v.rounds[e.enters] = e.back ? v.rounds[e.enters] + 1 : 1;
  pc = e.target;
  return steps <= dispatch_.max_steps;
}

// Runs one invocation until it waits, ends or gives way.
void Machine::advance(Group& g, Invocation& v) {
  Slot* const s = v.slots;
  const Instr* const code = m_.code.data();
  uint32_t pc = v.pc, from = pc;
  const auto go = [&](uint32_t edge) {
    steps += pc - from + 1;
    if (!take(g, v, edge, pc)) {
      stopped = true;
      v.pc = pc;
      return false;
    }
    from = pc;
    return true;
  };
  const auto rest = [&] {
    steps += pc - from + 1;
    v.pc = pc;
  };
  for (;;) {
    const Instr& i = code[pc];
    const auto a = [&]() -> const Slot& { return s[i.a]; };
    const auto b = [&]() -> const Slot& { return s[i.b]; };
    switch (i.code) {
      case Code::move: s[i.dst] = a(); break;
      case Code::add:
        s[i.dst] = {(a().bits + b().bits) & mask_of(i.width), carried(a().poison | b().poison, mask_of(i.width))};
        break;
      case Code::sub:
        s[i.dst] = {(a().bits - b().bits) & mask_of(i.width), carried(a().poison | b().poison, mask_of(i.width))};
        break;
      case Code::mul:
        s[i.dst] = {(a().bits * b().bits) & mask_of(i.width), carried(a().poison | b().poison, mask_of(i.width))};
        break;
      case Code::udiv:
      case Code::sdiv:
      case Code::umod:
      case Code::srem:
      case Code::smod:
        s[i.dst] = arithmetic_.divide(i, a(), b());
        if (arithmetic_.undefined) undefined(g, v, pc);
        break;
      case Code::and_: {
        const Slot x = a(), y = b();
        s[i.dst] = {x.bits & y.bits, (x.poison & (y.bits | y.poison)) | (y.poison & (x.bits | x.poison))};
        break;
      }
      case Code::or_: {
        const Slot x = a(), y = b();
        s[i.dst] = {x.bits | y.bits, (x.poison & (~y.bits | y.poison)) | (y.poison & (~x.bits | x.poison))};
        break;
      }
      case Code::xor_: s[i.dst] = {a().bits ^ b().bits, a().poison | b().poison}; break;
      case Code::not_: s[i.dst] = {~a().bits & mask_of(i.width), a().poison}; break;
      case Code::neg: s[i.dst] = {(0 - a().bits) & mask_of(i.width), carried(a().poison, mask_of(i.width))}; break;
      case Code::shl:
      case Code::shr:
      case Code::sar: {
        const uint64_t mask = mask_of(i.width), n = b().bits;
        const Slot x = a();
        const uint64_t unknown = b().poison;
        if (n >= i.width) {  // a value that is undefined, as long as nothing hangs on it
          s[i.dst] = {random_.next() & mask, mask};
          break;
        }
        if (i.code == Code::shl) s[i.dst] = {x.bits << n & mask, x.poison << n & mask};
        else if (i.code == Code::shr) s[i.dst] = {x.bits >> n, x.poison >> n};
        else
          s[i.dst] = {static_cast<uint64_t>(signed_of(x.bits, i.width) >> n) & mask,
                      static_cast<uint64_t>(signed_of(x.poison, i.width) >> n) & mask};
        if (unknown) s[i.dst].poison = mask;
        break;
      }
      case Code::eq:
      case Code::ne: {
        const Slot x = a(), y = b();
        const uint64_t unknown = x.poison | y.poison;
        s[i.dst] = {(x.bits == y.bits) == (i.code == Code::eq), unknown && !((x.bits ^ y.bits) & ~unknown)};
        break;
      }
      case Code::ult: s[i.dst] = {a().bits < b().bits, (a().poison | b().poison) != 0}; break;
      case Code::ule: s[i.dst] = {a().bits <= b().bits, (a().poison | b().poison) != 0}; break;
      case Code::slt:
        s[i.dst] = {signed_of(a().bits, i.width) < signed_of(b().bits, i.width), (a().poison | b().poison) != 0};
        break;
      case Code::sle:
        s[i.dst] = {signed_of(a().bits, i.width) <= signed_of(b().bits, i.width), (a().poison | b().poison) != 0};
        break;
      case Code::umul_extended:
      case Code::smul_extended: {
        const Slot x = a(), y = b();
        const uint64_t mask = mask_of(i.width), unknown = whole(x.poison | y.poison, mask);
        const auto product = i.code == Code::umul_extended
                                 ? static_cast<unsigned __int128>(x.bits) * y.bits
                                 : static_cast<unsigned __int128>(static_cast<__int128>(signed_of(x.bits, i.width)) *
                                                                  signed_of(y.bits, i.width));
        s[i.dst] = {static_cast<uint64_t>(product) & mask, carried(x.poison | y.poison, mask)};
        s[i.dst + 1] = {static_cast<uint64_t>(product >> i.width) & mask, unknown};
        break;
      }
      case Code::add_carry:
      case Code::sub_borrow: {
        const Slot x = a(), y = b();
        const uint64_t mask = mask_of(i.width), unknown = x.poison | y.poison,
                       r = (i.code == Code::add_carry ? x.bits + y.bits : x.bits - y.bits) & mask;
        s[i.dst] = {r, carried(unknown, mask)};
        s[i.dst + 1] = {i.code == Code::add_carry ? r < x.bits : x.bits < y.bits, unknown != 0};
        break;
      }
      case Code::sdot:
      case Code::udot:
      case Code::sudot: {
        const auto x = static_cast<uint32_t>(a().bits), y = static_cast<uint32_t>(b().bits);
        s[i.dst] = {reference::dot4(x, i.code != Code::udot, y, i.code == Code::sdot, 0),
                    whole(a().poison | b().poison, mask_of(32))};
        break;
      }
      case Code::sextract:
      case Code::uextract: {
        const uint64_t mask = mask_of(i.width), offset = b().bits, n = s[i.c].bits;
        const Slot x = a();
        const uint64_t unknown = b().poison | s[i.c].poison;
        if (offset + n > i.width) {
          s[i.dst] = {random_.next() & mask, mask};
          break;
        }
        if (n == 0) s[i.dst] = {0, whole(unknown, mask)};
        else if (i.code == Code::uextract)
          s[i.dst] = {x.bits >> offset & mask_of(static_cast<uint32_t>(n)),
                      x.poison >> offset & mask_of(static_cast<uint32_t>(n))};
        else
          s[i.dst] = {static_cast<uint64_t>(signed_of(x.bits >> offset, static_cast<uint32_t>(n))) & mask,
                      static_cast<uint64_t>(signed_of(x.poison >> offset, static_cast<uint32_t>(n))) & mask};
        if (unknown) s[i.dst].poison = mask;
        break;
      }
      case Code::bit_count:
        s[i.dst] = {static_cast<uint64_t>(std::popcount(a().bits)), whole(a().poison, mask_of(i.n))};
        break;
      case Code::bit_reverse: {
        Slot r;
        for (uint32_t k = 0; k < i.width; ++k)
          r.bits |= (a().bits >> k & 1) << (i.width - 1 - k), r.poison |= (a().poison >> k & 1) << (i.width - 1 - k);
        s[i.dst] = r;
        break;
      }
      case Code::uconvert: s[i.dst] = {a().bits & mask_of(i.n), a().poison & mask_of(i.n)}; break;
      case Code::sconvert:
        s[i.dst] = {static_cast<uint64_t>(signed_of(a().bits, i.width)) & mask_of(i.n),
                    static_cast<uint64_t>(signed_of(a().poison, i.width)) & mask_of(i.n)};
        break;
      case Code::fadd:
      case Code::fsub:
      case Code::fmul:
      case Code::fdiv:
      case Code::fneg:
      case Code::fcompare:
      case Code::is_nan:
      case Code::is_inf:
      case Code::fconvert:
      case Code::f_to_u:
      case Code::f_to_s:
      case Code::u_to_f:
      case Code::s_to_f:
        s[i.dst] = arithmetic_.floating(i, a(), i.b == kNone ? Slot{} : b(), {});
        if (arithmetic_.undefined) undefined(g, v, pc);
        break;
      case Code::glsl:
        s[i.dst] = arithmetic_.glsl(i, a(), i.b == kNone ? Slot{} : b(), i.c == kNone ? Slot{} : s[i.c]);
        if (arithmetic_.undefined) undefined(g, v, pc);
        break;
      case Code::select: {
        const Slot c = a(), x = b(), y = s[i.c];
        s[i.dst] = c.bits ? x : y;
        if (c.poison && (x.bits != y.bits || (x.poison | y.poison))) s[i.dst].poison = mask_of(i.n);
        break;
      }
      case Code::bitcast: {  // n components of `width` bits to c of b
        unsigned __int128 all = 0, unknown = 0;
        for (uint32_t k = 0; k < i.n; ++k)
          all |= static_cast<unsigned __int128>(s[i.a + k].bits) << (k * i.width),
              unknown |= static_cast<unsigned __int128>(s[i.a + k].poison) << (k * i.width);
        for (uint32_t k = 0; k < i.c; ++k)
          s[i.dst + k] = {static_cast<uint64_t>(all >> (k * i.b)) & mask_of(i.b),
                          static_cast<uint64_t>(unknown >> (k * i.b)) & mask_of(i.b)};
        break;
      }
      case Code::chain:
        s[i.dst] = {a().bits + static_cast<uint64_t>(signed_of(b().bits, i.width)) * i.aux,
                    carried(a().poison | b().poison, ~uint64_t{0})};
        break;
      case Code::load:
      case Code::load_shared: load(g, v, pc); break;
      case Code::store:
      case Code::store_shared: store(g, v, pc); break;
      case Code::load_push: {
        const uint32_t each = i.width / 8;
        for (uint32_t k = 0; k < i.n; ++k) {
          const size_t at = i.aux + k * each;
          s[i.dst + k] =
              at + each <= dispatch_.push.size() ? Slot{read(&dispatch_.push[at], each), 0} : Slot{0, mask_of(i.width)};
        }
        break;
      }
      case Code::input:
        for (uint32_t k = 0; k < i.n; ++k) s[i.dst + k] = input(g, v, i.aux, i.b + k);
        break;
      case Code::atomic:
        if (!v.gave_way && random_.below(4) == 0) {  // lets others come between
          v.gave_way = true;
          v.pc = pc;
          steps += pc - from;
          return;
        }
        v.gave_way = false;
        atomic(g, v, pc);
        break;
      case Code::jump:
        if (!go(i.aux)) return;
        continue;
      case Code::branch:
        if (a().poison) poisoned_branch(v, i, i.aux);
        if (!go(a().bits ? i.b : i.c)) return;
        continue;
      case Code::choose: {
        if (a().poison) poisoned_branch(v, i, i.c);
        const Choice& c = m_.choices[i.aux];
        uint32_t edge = c.otherwise;
        for (const auto& [value, e] : c.cases)
          if (value == a().bits) edge = e;
        if (!go(edge)) return;
        continue;
      }
      case Code::barrier:
      case Code::subgroup: v.state = State::waiting; return rest();
      case Code::unreachable:
        reports_.add(Kind::reached, pc, 0, [&] { return "OpUnreachable is reached by " + Reports::who(who(g, v)); });
        [[fallthrough]];
      case Code::end: v.state = State::finished; return rest();
    }
    ++pc;
  }
}

}  // namespace tessera::judge
