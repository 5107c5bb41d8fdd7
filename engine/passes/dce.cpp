// Swaps without use for the old contents become stores. Marks what stores, swaps, semaphores, copies, barriers, waits,
// reports and whiles need, then removes the rest: ops, loop carries, and results of if and switch. A for always ends,
// so one without live results or effects goes; a while may not end and stays.
#include <algorithm>

#include "engine/ir/walk.h"
#include "engine/passes/passes.h"
#include "engine/passes/replacements.h"

namespace tessera::passes {
namespace {
using ir::Op, ir::OpId, ir::Opcode, ir::RegionId, ir::Value;

class Dce {
 public:
  explicit Dce(ir::Kernel& k)
      : k_(k),
        live_op_(k.ops.size()),
        live_value_(k.values.size()),
        op_owner_(k.ops.size()),
        region_owner_(k.regions.size()) {}

  bool run() {
    for (RegionId r : top_regions(k_)) own(r, {});
    for (OpId id : roots_) mark(id);
    while (!work_.empty()) {
      const Value v = work_.back();
      work_.pop_back();
      spread(v);
    }
    for (RegionId r : top_regions(k_)) sweep(r);
    return changed_;
  }

 private:
  ir::Kernel& k_;
  std::vector<bool> live_op_, live_value_;
  std::vector<OpId> op_owner_, region_owner_;  // the control-flow op around, or none
  std::vector<OpId> roots_;
  std::vector<Value> work_;
  bool changed_ = false;

  static bool is_control(const Op& o) { return !o.regions.empty(); }
  bool is_root(const Op& o) const {
    if (o.code == Opcode::report && ir::constant_bits(k_, o.operands[0]) == uint64_t{0}) return false;
    if (o.code == Opcode::while_ || o.code == Opcode::warpgroup_wait || ir::threads_meet(k_, o)) return true;
    if (is_control(o) || o.code == Opcode::yield) return false;  // kept for what is inside, or around
    return ir::writes_ref(o.code) || (ir::info(o.code).effect == ir::Effect::ordered && o.results.empty());
  }

  void own(RegionId r, OpId owner) {
    region_owner_[r.index] = owner;
    for (OpId id : k_.region(r).ops) {
      op_owner_[id.index] = owner;
      const Op& o = k_.op(id);
      if (is_root(o) || (o.code == Opcode::yield && !owner)) roots_.push_back(id);
      for (RegionId inner : o.regions) own(inner, id);
    }
  }
  void use(Value v) {
    if (live_value_[v.index]) return;
    live_value_[v.index] = true;
    work_.push_back(v);
  }
  void mark(OpId id) {
    for (; id && !live_op_[id.index]; id = op_owner_[id.index]) {
      live_op_[id.index] = true;
      const Op& o = k_.op(id);
      if (!is_control(o)) {
        for (Value v : o.operands) use(v);
      } else if (o.code == Opcode::while_) {
        for (Value v : k_.terminator(o.regions[0]).operands) use(v);
      } else {
        const size_t n = o.code == Opcode::for_ ? 3 : o.code == Opcode::run_scoped ? 0 : 1;
        for (size_t i = 0; i < n; ++i) use(o.operands[i]);
      }
    }
  }
  /// Entry i of what the op's results, and a loop's carries, stand for.
  void position(OpId id, size_t i) {
    mark(id);
    const Op& o = k_.op(id);
    if (ir::is_loop(o.code)) use(o.results[i]);
    for (Value v : ir::flows_into(k_, o, i)) use(v);
  }
  void spread(Value v) {
    const ir::ValueInfo& info = k_.value(v);
    if (info.def) {
      if (is_control(k_.op(info.def))) position(info.def, info.number);
      else mark(info.def);
      return;
    }
    const OpId owner = region_owner_[info.region.index];
    if (!owner) return;
    if (k_.op(owner).code == Opcode::run_scoped) return mark(owner);
    const size_t first = ir::first_carried(k_.op(owner));
    if (info.number < first) mark(owner);
    else position(owner, info.number - first);
  }

  void sweep(RegionId r) {
    std::vector<OpId>& list = k_.region(r).ops;
    const size_t before = list.size();
    list.erase(std::remove_if(list.begin(), list.end(),
                              [&](OpId id) { return !live_op_[id.index] && k_.op(id).code != Opcode::yield; }),
               list.end());
    changed_ |= list.size() != before;
    for (OpId id : list) {
      Op& o = k_.op(id);
      if (o.code == Opcode::swap) forget_old(o);
      if (!is_control(o)) continue;
      shrink(o);
      for (RegionId inner : o.regions) sweep(inner);
    }
  }
  // A swap whose result is unused is a store: what JAX traces for every `ref[...] = x`.
  void forget_old(Op& o) {
    if (k_.level != ir::Level::tile || live_value_[o.results[0].index] || o.attr_or(ir::Attr::other, 0)) return;
    o.code = Opcode::store;
    o.results.clear();
    changed_ = true;
  }
  void shrink(Op& o) {
    std::vector<bool> keep;
    for (Value v : o.results) keep.push_back(live_value_[v.index]);
    if (std::all_of(keep.begin(), keep.end(), [](bool b) { return b; })) return;
    changed_ = true;
    const auto erase = [&](std::vector<Value>& values, size_t first) {
      size_t to = first;
      for (size_t i = 0; i < keep.size(); ++i)
        if (keep[i]) values[to++] = values[first + i];
      values.resize(to);
    };
    const bool loop = ir::is_loop(o.code);
    for (RegionId r : o.regions) {
      if (!loop || r == o.regions.back()) erase(k_.op(k_.region(r).ops.back()).operands, 0);
      if (!loop) continue;
      std::vector<Value>& args = k_.region(r).args;
      erase(args, ir::first_carried(o));
      for (size_t i = 0; i < args.size(); ++i) k_.values[args[i].index].number = static_cast<uint32_t>(i);
    }
    if (loop) erase(o.operands, ir::first_init(o));
    erase(o.results, 0);
    for (size_t i = 0; i < o.results.size(); ++i) k_.values[o.results[i].index].number = static_cast<uint32_t>(i);
  }
};

}  // namespace

bool dce(ir::Kernel& k) { return Dce(k).run(); }

}  // namespace tessera::passes
