// One walk with a table of available values. Leaving a region takes back what it added, so an entry always dominates
// its uses. Loads carry their memory class's version, a number that every store to the class (and at lane level every
// barrier) makes new.
#include <bit>

#include "engine/passes/memory.h"
#include "engine/passes/passes.h"
#include "engine/passes/replacements.h"

namespace tessera::passes {
namespace {
using ir::Attr, ir::Effect, ir::Op, ir::OpId, ir::Opcode, ir::RegionId, ir::Value;

class Cse {
 public:
  explicit Cse(ir::Kernel& k)
      : k_(k), replaced_(k), memory_(k), versions_(memory_.count()), heads_(std::bit_ceil(k.ops.size() + 1), kNone) {}

  bool run() {
    for (RegionId r : top_regions(k_)) region(r);
    return changed_;
  }

 private:
  struct Entry {
    OpId op;           // a pure op or load, or the store whose value a load would find
    uint64_t version;  // of the memory at that point; 0 for pure ops
    uint64_t hash;
    uint32_t next;  // older entry with the same head
  };
  static constexpr uint32_t kNone = UINT32_MAX;
  ir::Kernel& k_;
  Replacements replaced_;
  MemoryClasses memory_;
  std::vector<uint64_t> versions_;
  uint64_t last_version_ = 0;
  std::vector<uint32_t> heads_;  // by hash: the newest entry
  std::vector<Entry> entries_;   // in order of scopes
  bool changed_ = false;

  void touch(uint32_t c) { versions_[c] = ++last_version_; }
  void touch_all_written() {
    for (uint32_t c = 0; c < versions_.size(); ++c)
      if (!memory_.read_only(c)) touch(c);
  }
  void touch(const MemoryClasses::Effects& e) {
    for (uint32_t c : e.stored) touch(c);
    if (e.barrier) touch_all_written();
  }

  void region(RegionId r) {
    const size_t scope = entries_.size();
    std::vector<OpId> kept;
    kept.reserve(k_.region(r).ops.size());
    for (OpId id : k_.region(r).ops) {
      if (op(id)) continue;
      if (const OpId one = keep_step(k_, id)) kept.push_back(one);
      kept.push_back(id);
    }
    k_.region(r).ops = std::move(kept);
    for (; entries_.size() > scope; entries_.pop_back()) head(entries_.back().hash) = entries_.back().next;
  }

  /// True if the op's value was there already.
  bool op(OpId id) {
    Op& o = k_.op(id);
    changed_ |= replaced_.apply(o);
    if (!o.regions.empty()) {
      control_flow(o);
      return false;
    }
    switch (info(o.code).effect) {
      case Effect::pure: return o.results.size() == 1 && merge(id, 0);
      case Effect::reads: return merge(id, versions_[memory_.of(o.operands[0])] + 1);
      case Effect::writes: {
        const uint32_t c = memory_.of(o.operands[0]);
        touch(c);
        // One by one, elements are dropped or overwrite each other.
        if (o.code == Opcode::store && !o.has_mask() && !ir::access_dims(k_, o).per_element)
          add(load_hash(o, versions_[c] + 1), id, versions_[c] + 1);
        return false;
      }
      case Effect::ordered:
        if (is_barrier(o.code)) touch_all_written();
        for (const uint32_t c : memory_.stores(o)) touch(c);
        return false;
    }
    return false;
  }

  void control_flow(const Op& o) {
    const std::vector<RegionId> regions = o.regions;
    const bool loop = ir::is_loop(o.code);
    for (const uint32_t c : memory_.stores(o)) touch(c);  // where threads meet at its begin
    if (loop)                                             // what an earlier step stored
      for (RegionId r : regions) touch(memory_.effects(r));
    const std::vector<uint64_t> before = versions_;
    for (RegionId r : regions) {
      if (!loop) versions_ = before;  // the arms do not follow each other
      region(r);
    }
    for (RegionId r : regions) touch(memory_.effects(r));
  }

  bool merge(OpId id, uint64_t version) {
    const Op& o = k_.op(id);
    const uint64_t h = o.code == Opcode::load ? load_hash(o, version) : hash(o);
    for (uint32_t i = head(h); i != kNone; i = entries_[i].next)
      if (const Entry& e = entries_[i]; e.hash == h && e.version == version && same(k_.op(e.op), o)) {
        const Op& earlier = k_.op(e.op);
        if (earlier.code == Opcode::store) replaced_.replace(o.results[0], earlier.operands[1]);
        else  // a lane-level vector load has several results
          for (size_t r = 0; r < o.results.size(); ++r) replaced_.replace(o.results[r], earlier.results[r]);
        return changed_ = true;
      }
    add(h, id, version);
    return false;
  }
  uint32_t& head(uint64_t h) { return heads_[h & (heads_.size() - 1)]; }
  void add(uint64_t h, OpId op, uint64_t version) {
    entries_.push_back({op, version, h, head(h)});
    head(h) = static_cast<uint32_t>(entries_.size() - 1);
  }

  static void mix(uint64_t& h, uint64_t x) { h = (h ^ x) * 0x9e3779b97f4a7c15u, h ^= h >> 29; }
  uint64_t hash(const Op& o) const {
    uint64_t h = static_cast<uint64_t>(o.code) + 1;
    if (info(o.code).commutative) mix(h, uint64_t{o.operands[0].index} + o.operands[1].index);
    else
      for (Value v : o.operands) mix(h, v.index);
    for (const auto& [key, ints] : o.attrs) {
      mix(h, static_cast<uint64_t>(key));
      for (int64_t i : ints) mix(h, static_cast<uint64_t>(i));
    }
    return h;
  }
  /// Of a load, or of the load that would find what a store left.
  uint64_t load_hash(const Op& o, uint64_t version) const {
    uint64_t h = version;
    mix(h, o.operands[0].index);
    for (const ir::Index& x : o.index) {
      mix(h, x.is_static() ? static_cast<uint64_t>(x.constant()) : o.operand_of(x).index);
      mix(h, (x.slice() ? static_cast<uint64_t>(x.slice()->size) : 1) * 4 + x.what.index());
    }
    return h;
  }
  bool same_index(const Op& a, const Op& b) const {
    for (size_t d = 0; d < a.index.size(); ++d) {
      const ir::Index& x = a.index[d];
      ir::Index y = b.index[d];
      const Value of_a = a.operand_of(x);
      if (of_a != b.operand_of(y)) return false;
      if (!x.is_static()) *y.operand() = *x.operand();
      if (x != y) return false;
    }
    return true;
  }
  /// `b` gives the value of `a`; `a` may be a store where b is a load.
  bool same(const Op& a, const Op& b) const {
    if (b.code == Opcode::load) {
      if (a.operands[0] != b.operands[0] || !same_index(a, b)) return false;
      if (a.code == Opcode::store) return !b.has_mask();
      if (a.has_mask() != b.has_mask() || a.has_other() != b.has_other()) return false;
      if (b.has_mask() && a.operands[1] != b.operands[1]) return false;
      return !b.has_other() || a.operands[2] == b.operands[2];
    }
    if (a.code != b.code || k_.type(a.results[0]) != k_.type(b.results[0]) || a.attrs != b.attrs) return false;
    if (a.operands == b.operands) return true;
    return info(a.code).commutative && a.operands[0] == b.operands[1] && a.operands[1] == b.operands[0];
  }
};

}  // namespace

bool cse(ir::Kernel& k) { return Cse(k).run(); }

}  // namespace tessera::passes
