#include "tests/ptx/machine.h"

#include <algorithm>
#include <cstring>
#include <map>

namespace tessera::ptx {

namespace {

constexpr uint32_t kQuantum = 4000;
constexpr uint32_t kWarp = 32;
constexpr uint64_t kMostOfBlock = uint64_t{1} << 31;  // of registers and local memory of a block

std::string triple(const uint32_t* x) {
  return "(" + std::to_string(x[0]) + ", " + std::to_string(x[1]) + ", " + std::to_string(x[2]) + ")";
}
uint64_t volume(const uint32_t* x) { return uint64_t{x[0]} * x[1] * x[2]; }

}  // namespace

const char* name_of(Fault f) {
  switch (f) {
    case Fault::none: return "";
    case Fault::invalid: return "invalid";
    case Fault::bounds: return "out of bounds";
    case Fault::alignment: return "misaligned";
    case Fault::race: return "race";
    case Fault::poison: return "uninitialised";
    case Fault::deadlock: return "deadlock";
    case Fault::hang: return "hang";
    case Fault::barrier: return "barrier";
    case Fault::divergence: return "divergence";
    case Fault::undefined: return "undefined";
    case Fault::trap: return "trap";
  }
  return "";
}

Machine::Machine(const Code& c, const Launch& l) : code(c), launch(l), random{l.seed * 0x9e3779b97f4a7c15u + 1} {
  errors_ = random.next();
  const auto bad = [&](const std::string& what) { throw Stop{Fault::invalid, what, c.entry->line}; };
  const uint64_t n = volume(l.block);
  if (n == 0 || n > 1024) bad("a block of " + triple(l.block) + " threads");
  if (volume(l.grid) > (1u << 20)) bad("a grid of " + triple(l.grid) + " blocks is too large here");
  const uint32_t* req = c.entry->reqntid;
  if (req[0] && !std::equal(req, req + 3, l.block))
    bad("a block of " + triple(l.block) + ", but .reqntid " + triple(req));
  const uint32_t* most = c.entry->maxntid;
  if (most[0] && n > volume(most)) bad("a block of " + triple(l.block) + ", but .maxntid " + triple(most));
  for (int i = 0; i < 3; ++i)
    cluster_dims[i] = l.cluster[0] ? l.cluster[i] : c.entry->reqcluster[0] ? c.entry->reqcluster[i] : 1;
  for (int i = 0; i < 3; ++i)
    if (l.grid[i] % cluster_dims[i]) bad("a grid of " + triple(l.grid) + " in clusters of " + triple(cluster_dims));
  cluster_size = static_cast<uint32_t>(volume(cluster_dims));
  threads_per_block = static_cast<uint32_t>(n);
  warps_per_block = (threads_per_block + kWarp - 1) / kWarp;
  if ((uint64_t{c.slots} * sizeof(Slot) + c.local_bytes) * n > kMostOfBlock)
    bad("too many registers or too much local memory for a block here");
  if (l.parameters.size() < c.entry->param_bytes)
    bad(std::to_string(l.parameters.size()) + " bytes of parameters, but the entry takes " +
        std::to_string(c.entry->param_bytes));
  if (c.shared_static + l.dynamic_shared > l.max_shared)
    bad(std::to_string(c.shared_static + l.dynamic_shared) + " bytes of shared memory, more than " +
        std::to_string(l.max_shared));
  place_memory();
}

// ---- starting

uint64_t Machine::special(const Thread& t, Special s, uint32_t component) const {
  const Block& b = *t.block;
  const uint32_t* block = launch.block;
  const uint32_t tid[4] = {t.index % block[0], t.index / block[0] % block[1], t.index / block[0] / block[1], 0};
  const auto of = [&](const uint32_t* x, uint32_t w) { return component < 3 ? x[component] : w; };
  uint32_t cluster_id[3], clusters[3], in_cluster[3];
  for (int i = 0; i < 3; ++i) {
    cluster_id[i] = b.id[i] / cluster_dims[i], clusters[i] = launch.grid[i] / cluster_dims[i];
    in_cluster[i] = b.id[i] % cluster_dims[i];
  }
  switch (s) {
    case Special::tid: return of(tid, 0);
    case Special::ntid: return of(block, 1);
    case Special::ctaid: return of(b.id, 0);
    case Special::nctaid: return of(launch.grid, 1);
    case Special::laneid: return t.lane;
    case Special::warpid: return t.warp;
    case Special::nwarpid: return warps_per_block;
    case Special::smid: return b.number % 7;
    case Special::nsmid: return 7;
    case Special::gridid: return 1;
    case Special::clock:
    case Special::clock64:
    case Special::globaltimer: return steps;
    case Special::lanemask_eq: return 1u << t.lane;
    case Special::lanemask_lt: return (1u << t.lane) - 1;
    case Special::lanemask_le: return (2u << t.lane) - 1;
    case Special::lanemask_gt: return ~((2u << t.lane) - 1) & 0xffffffffu;
    case Special::lanemask_ge: return ~((1u << t.lane) - 1) & 0xffffffffu;
    case Special::warp_size: return kWarp;
    case Special::dynamic_smem_size: return launch.dynamic_shared;
    case Special::total_smem_size: return launch.dynamic_shared + code.shared_static;
    case Special::clusterid: return of(cluster_id, 0);
    case Special::nclusterid: return of(clusters, 1);
    case Special::cluster_ctaid: return of(in_cluster, 0);
    case Special::cluster_nctaid: return of(cluster_dims, 1);
    case Special::cluster_ctarank: return b.rank;
    case Special::cluster_nctarank: return cluster_size;
    case Special::is_explicit_cluster: return cluster_size > 1;
  }
  return 0;
}

void Machine::start_thread(Block& b, uint32_t index) {
  Thread& t = b.threads[index];
  Object* local = &b.locals[index];
  t = Thread{};
  t.m = this, t.block = &b, t.index = index, t.warp = index / kWarp, t.lane = index % kWarp;
  t.agent = b.number << kAgentBits | index;
  t.r = b.slots.data() + size_t{index} * code.slots;
  t.local = local;
  if (local->size) {
    for (uint8_t& x : local->bytes) x = static_cast<uint8_t>(errors_ >> (&x - local->bytes.data()) % 8 * 8);
    std::fill(local->poison.begin(), local->poison.end(), uint8_t{0xff});
  }
  for (uint32_t i = 0; i < code.slots; ++i) t.r[i] = {errors_ ^ (uint64_t{i} * 0x9e3779b97f4a7c15u), ~uint64_t{0}};
  for (const auto& [slot, bits] : code.constants) t.r[slot] = {bits, 0};
  for (const Code::AddressSlot& s : code.addresses) t.r[s.slot] = {variable_bases[s.variable] + s.offset, 0};
  for (const Code::SpecialSlot& s : code.specials) t.r[s.slot] = {special(t, s.which, s.component), 0};
  t.listed = true;
  ready_.push_back(&t);
}

void Machine::start(uint32_t number) {
  std::vector<Block*> cluster;
  uint32_t clusters[3];
  for (int i = 0; i < 3; ++i) clusters[i] = launch.grid[i] / cluster_dims[i];
  const uint32_t c[3] = {number % clusters[0], number / clusters[0] % clusters[1], number / clusters[0] / clusters[1]};
  for (uint32_t rank = 0; rank < cluster_size; ++rank) {
    std::unique_ptr<Block> b;
    if (idle_.empty()) {
      b = std::make_unique<Block>();
      b->threads.resize(threads_per_block);
      b->slots.resize(size_t{threads_per_block} * code.slots);
      b->locals.resize(threads_per_block);
      for (Object& o : b->locals) o.name = "the thread's local memory", o.make(code.local_bytes, false);
    } else {
      b = std::move(idle_.back());
      idle_.pop_back();
    }
    const uint32_t in[3] = {rank % cluster_dims[0], rank / cluster_dims[0] % cluster_dims[1],
                            rank / cluster_dims[0] / cluster_dims[1]};
    for (int i = 0; i < 3; ++i) b->id[i] = c[i] * cluster_dims[i] + in[i];
    b->number = (b->id[2] * launch.grid[1] + b->id[1]) * launch.grid[0] + b->id[0];
    b->rank = rank;
    reset(*b);
    cluster.push_back(b.get());
    blocks_.push_back(std::move(b));
  }
  for (Block* b : cluster) {
    b->cluster = cluster;
    for (uint32_t i = 0; i < threads_per_block; ++i) start_thread(*b, i);
  }
}

void Machine::reset(Block& b) {
  b.shared.name = "shared memory", b.shared.granule = code.granule;
  b.shared.make(code.shared_static + launch.dynamic_shared, launch.races);
  for (uint8_t& x : b.shared.bytes) x = static_cast<uint8_t>(random.next());
  std::fill(b.shared.poison.begin(), b.shared.poison.end(), uint8_t{0xff});
  b.shared.opaque.clear();
  b.shared.released.clear();
  b.barriers = {};
  b.cluster_barrier = {};
  b.mbarriers.clear();
  b.products.assign(warps_per_block, {});
  b.alive = threads_per_block;
}

// ---- running

void Machine::execute(Thread& t) {
  const Instr* const first = code.code.data();
  t.quantum = random.below(4) ? kQuantum : 1 + random.below(64);
  while (t.quantum-- > 0) {
    const Instr& i = first[t.pc];
    ++steps;
    if (i.guard != kNone) {
      const Slot g = t.r[i.guard];
      if (g.poison) {
        poisoned_guard(t, i);
        continue;
      }
      if (((g.bits & 1) != 0) == i.guard_not) {
        ++t.pc;
        continue;
      }
    }
    ++t.pc;
    i.run(t, i);
    if (t.state != State::ready) return;
  }
}

void Machine::poisoned_guard(Thread& t, const Instr& i) {
  const auto spoil = [&](const std::vector<uint32_t>& slots) {
    for (const uint32_t s : slots) t.r[s].poison = ~uint64_t{0};
  };
  if (i.effects) stop(Fault::poison, t, i, "its guard hangs on what nobody has written");
  if (code.successors[i.pc].empty()) {
    spoil(code.writes[i.pc]);
    ++t.pc;
    return;
  }
  auto [found, is_new] = regions_.insert({i.pc, {}});
  if (is_new) found->second = region_of(code, i.pc);
  const Region& r = found->second;
  if (r.effects || r.meets == kNone)
    stop(Fault::poison, t, i,
         "the branch hangs on what nobody has written, and more than registers hangs on the branch");
  spoil(r.writes);
  t.pc = r.meets;
}

Result Machine::run() {
  const uint32_t total = static_cast<uint32_t>(volume(launch.grid)) / cluster_size;
  for (uint32_t i = 0; i < total; ++i) order_.push_back(i);
  for (uint32_t i = total; i > 1; --i) std::swap(order_[i - 1], order_[random.below(i)]);
  const uint32_t resident = code.shares ? std::max(1u, launch.resident) : 1;
  Result result;
  try {
    while (next_block_ < total || !blocks_.empty()) {
      while (next_block_ < total && blocks_.size() / cluster_size < resident) start(order_[next_block_++]);
      if (ready_.empty()) {
        if (pending.empty()) deadlock();
        land_one(random.below(static_cast<uint32_t>(pending.size())));
      } else {
        const uint32_t k = random.below(static_cast<uint32_t>(ready_.size()));
        Thread& t = *ready_[k];
        if (t.state == State::ready) execute(t);
        if (t.state != State::ready) {
          t.listed = false;
          ready_[k] = ready_.back();
          ready_.pop_back();
        }
        if (!pending.empty() && random.below(16) == 0) land_one(random.below(static_cast<uint32_t>(pending.size())));
      }
      if (steps > launch.max_instructions) {
        const Thread& t =
            ready_.empty() ? blocks_[0]->threads[0] : *ready_[random.below(static_cast<uint32_t>(ready_.size()))];
        stop(Fault::hang, t, code.code[t.pc],
             "more than " + std::to_string(launch.max_instructions) + " instructions, and no end");
      }
      finish();
    }
    for (size_t b = 0; b < buffers.size(); ++b) {
      if (launch.buffers[b].may_hold_poison || !launch.buffers[b].may_write) continue;
      const auto& poison = buffers[b]->poison;
      const auto at = std::find_if(poison.begin(), poison.end(), [](uint8_t x) { return x != 0; });
      if (at != poison.end())
        throw Stop{Fault::poison,
                   "at the end byte " + std::to_string(at - poison.begin()) + " of " + buffers[b]->name +
                       " hangs on what nobody has written",
                   0};
    }
  } catch (const Stop& s) {
    result.fault = s.fault, result.text = std::string(name_of(s.fault)) + ": " + s.text, result.line = s.line;
  }
  result.instructions = steps;
  for (size_t b = 0; b < buffers.size(); ++b) {
    if (!launch.buffers[b].bytes.empty() && launch.buffers[b].may_write)
      std::memcpy(launch.buffers[b].bytes.data(), buffers[b]->bytes.data(), buffers[b]->size);
  }
  return result;
}

/// Lets blocks go that have ended: a cluster's all at once, since they may access each other's memory.
void Machine::finish() {
  for (size_t i = 0; i < blocks_.size(); i += cluster_size) {
    bool over = true;
    for (size_t k = 0; k < cluster_size; ++k) over = over && blocks_[i + k]->alive == 0;
    if (!over) continue;
    for (size_t p = pending.size(); p-- > 0;) {
      Block* b = pending[p].block;
      if (std::any_of(blocks_.begin() + static_cast<ptrdiff_t>(i),
                      blocks_.begin() + static_cast<ptrdiff_t>(i + cluster_size),
                      [&](const auto& x) { return x.get() == b; }))
        land_one(p), p = pending.size();
    }
    for (size_t k = 0; k < cluster_size; ++k) idle_.push_back(std::move(blocks_[i + k]));
    blocks_.erase(blocks_.begin() + static_cast<ptrdiff_t>(i),
                  blocks_.begin() + static_cast<ptrdiff_t>(i + cluster_size));
    return;
  }
}

// ---- what goes wrong

std::string Machine::who(const Thread& t) const {
  const uint32_t* b = launch.block;
  const uint32_t tid[3] = {t.index % b[0], t.index / b[0] % b[1], t.index / b[0] / b[1]};
  return "thread " + triple(tid) + " of block " + triple(t.block->id);
}

void Machine::stop(Fault f, const Thread& t, const Instr& i, const std::string& what) const {
  const Statement& s = code.statement(i);
  throw Stop{f, "line " + std::to_string(s.line) + ": " + s.text + ": " + who(t) + ": " + what, s.line};
}

void Machine::race(Thread& t, const Instr& i, const Access& a, const Touch& other, How how, How before, bool async) {
  const char* const names[] = {"reads", "writes", "atomically accesses"};
  const char* const was[] = {"read", "written", "atomically accessed"};
  const Instr& j = code.code[other.at];
  const uint32_t number = other.agent >> kAgentBits, index = other.agent & ((1u << kThreadBits) - 1);
  const uint32_t* g = launch.grid;
  const uint32_t* b = launch.block;
  const uint32_t block[3] = {number % g[0], number / g[0] % g[1], number / g[0] / g[1]};
  const uint32_t tid[3] = {index % b[0], index / b[0] % b[1], index / b[0] / b[1]};
  const Statement& s = code.statement(j);
  const bool copied = (other.agent >> kThreadBits & 3) != kSelf;
  stop(Fault::race, t, i,
       std::string(async ? "its copy " : "it ") + names[static_cast<int>(how)] + " byte " + std::to_string(a.offset) +
           " of " + a.object->name + ", which is " + was[static_cast<int>(before)] + " by " +
           (copied ? "a copy of " : "") + "thread " + triple(tid) + " of block " + triple(block) + " at line " +
           std::to_string(s.line) + ": " + s.text + ": nothing orders them");
}

void Machine::deadlock() {
  // how many wait where
  std::map<std::pair<uint32_t, State>, std::pair<uint32_t, const Thread*>> places;
  for (const auto& b : blocks_)
    for (const Thread& t : b->threads)
      if (t.state != State::done) {
        auto& p = places[{t.waits_at, t.state}];
        if (p.first++ == 0) p.second = &t;
      }
  std::string text;
  uint32_t line = 0;
  for (const auto& [where, who_] : places) {
    const Thread& t = *who_.second;
    const Statement& s = code.statement(code.code[where.first]);
    if (line == 0) line = s.line;
    text += (text.empty() ? "" : "; ") + std::to_string(who_.first) + " threads wait at line " +
            std::to_string(s.line) + ": " + s.text + " (" + who(t);
    if (where.second == State::barrier) {
      const Barrier& bar = t.block->barriers[t.waits_for];
      text += ": barrier " + std::to_string(t.waits_for) + ": " + std::to_string(bar.arrived) + " of " +
              std::to_string(bar.expected ? bar.expected : t.block->alive) + " threads have come";
    } else if (where.second == State::mbarrier) {
      const Block* b = t.block;
      const uint64_t rank = t.waits_for >> 24;
      if (rank) b = t.block->cluster[rank - 1];
      const uint64_t at = (t.waits_for & 0xffffff) - kSharedBase;
      const auto found = b->mbarriers.find(at);
      if (found != b->mbarriers.end()) {
        text += ": the mbarrier at byte " + std::to_string(at) + " of shared memory is in phase " +
                std::to_string(found->second.phase) + ", waits for " + std::to_string(found->second.pending) + " of " +
                std::to_string(found->second.expected) + " arrivals and " + std::to_string(found->second.bytes) +
                " bytes";
      }
    } else if (where.second == State::warp) {
      text += ": not all threads of its warp come";
    }
    text += ")";
  }
  throw Stop{Fault::deadlock, text, line};
}

namespace {

const Function& entry_of(const Module& module, const std::string& name) {
  const Function* entry = nullptr;
  for (const Function& f : module.functions) {
    if (!f.entry || (!name.empty() && f.name != name)) continue;
    if (entry) throw Error(f.line, "there are several entries: say which one");
    entry = &f;
  }
  if (!entry) throw Error(1, name.empty() ? "there is no entry" : "there is no entry \"" + name + "\"");
  return *entry;
}

}  // namespace

void check(const Module& module, const std::string& entry) { decode(module, entry_of(module, entry)); }

Result run(const Module& module, const Launch& launch) {
  const Code code = decode(module, entry_of(module, launch.entry));
  try {
    return Machine(code, launch).run();
  } catch (const Stop& s) {
    Result r;
    r.fault = s.fault, r.text = std::string(name_of(s.fault)) + ": " + s.text, r.line = s.line;
    return r;
  }
}

}  // namespace tessera::ptx
