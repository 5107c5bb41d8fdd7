// Loops inside out: an op whose operands are all defined outside the loop moves in front of it. Every pure op is total,
// so it may run although the loop would not. Tile-level loads may move too where the loop stores nothing to their
// memory: they are safe at any index. At lane level loads stay, since an index may be good only inside the loop; and so
// does the sum of a value and a constant that only says where accesses go: they take the constant as their offset,
// while in front of the loop each sum would hold a register.
#include <algorithm>

#include "engine/passes/memory.h"
#include "engine/passes/passes.h"

namespace tessera::passes {
namespace {
using ir::Effect, ir::Op, ir::OpId, ir::Opcode, ir::RegionId, ir::Value;

class Licm {
 public:
  explicit Licm(ir::Kernel& k) : k_(k), memory_(k), depth_(k.values.size()) {
    if (k.level == ir::Level::lane) find_offsets();
  }
  bool run() {
    region(k_.body, 0);
    return changed_;
  }

 private:
  ir::Kernel& k_;
  MemoryClasses memory_;
  std::vector<uint32_t> depth_;  // of the region that each value is defined in
  std::vector<bool> offset_;     // at lane level, per value: a sum with a constant, and a place of accesses alone
  bool changed_ = false;

  void region(RegionId r, uint32_t depth) {
    for (Value v : k_.region(r).args) depth_[v.index] = depth;
    std::vector<OpId> list;
    list.reserve(k_.region(r).ops.size());
    for (OpId id : k_.region(r).ops) {
      const Op& op = k_.op(id);
      for (RegionId inner : op.regions) region(inner, depth + 1);
      if (ir::is_loop(op.code))
        for (RegionId inner : op.regions) hoist(op, inner, depth, list);
      for (Value v : op.results) depth_[v.index] = depth;
      list.push_back(id);
    }
    k_.region(r).ops = std::move(list);
  }

  void hoist(const Op& loop, RegionId from, uint32_t depth, std::vector<OpId>& to) {
    std::vector<OpId> kept;
    kept.reserve(k_.region(from).ops.size());
    for (OpId id : k_.region(from).ops) {
      const Op& op = k_.op(id);
      if (!may_move(op, loop) ||
          std::any_of(op.operands.begin(), op.operands.end(), [&](Value v) { return depth_[v.index] > depth; })) {
        kept.push_back(id);
        continue;
      }
      for (Value v : op.results) depth_[v.index] = depth;
      to.push_back(id);
      changed_ = true;
    }
    k_.region(from).ops = std::move(kept);
  }

  void find_offsets() {
    offset_.assign(k_.values.size(), false);
    for (const Op& op : k_.ops)
      if (op.code == Opcode::add && op.results.size() == 1)
        offset_[op.results[0].index] = ir::constant_int(k_, op.operands[0]) || ir::constant_int(k_, op.operands[1]);
    for (const Op& op : k_.ops)
      for (size_t i = 0; i < op.operands.size(); ++i) {
        const bool place = ir::accesses_ref(op.code) &&
                           std::any_of(op.index.begin(), op.index.end(),
                                       [&](const auto& ix) { return !ix.is_static() && *ix.operand() == i; });
        if (!place) offset_[op.operands[i].index] = false;
      }
  }

  bool may_move(const Op& op, const Op& loop) const {
    if (!offset_.empty() && op.results.size() == 1 && offset_[op.results[0].index]) return false;
    const Effect e = info(op.code).effect;
    if (e == Effect::pure) return true;
    if (e != Effect::reads || k_.level == ir::Level::lane) return false;
    const uint32_t c = memory_.of(op.operands[0]);
    return std::none_of(loop.regions.begin(), loop.regions.end(), [&](RegionId r) {
      const auto& stored = memory_.effects(r).stored;
      return std::binary_search(stored.begin(), stored.end(), c);
    });
  }
};

}  // namespace

bool licm(ir::Kernel& k) { return Licm(k).run(); }

}  // namespace tessera::passes
