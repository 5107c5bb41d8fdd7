#include "codegen/lower/separate.h"

#include <functional>
#include <map>
#include <set>

namespace tessera::lowering {
using ir::Op;
using ir::Opcode;
using ir::OpId;
using ir::RegionId;
using ir::Value;

bool is_index_function(Opcode c) {
  switch (c) {
    case Opcode::constant: case Opcode::iota: case Opcode::broadcast: case Opcode::reshape: case Opcode::transpose: case Opcode::slice: case Opcode::rev:
    case Opcode::concatenate: case Opcode::gather: return true;
    default: return ir::info(c).elementwise;
  }
}

namespace {

class Separation {
 public:
  explicit Separation(ir::Kernel& k) : k_(k), free_(k.values.size(), false), user_(k.ops.size(), 0), copies_(k.ops.size()) {}

  bool run() {
    walk(k_.body);
    for (ir::Region& r : k_.regions) {
      std::vector<OpId> ops;
      for (OpId id : r.ops) {
        ops.push_back(id);
        if (id.index < copies_.size()) ops.insert(ops.end(), copies_[id.index].begin(), copies_[id.index].end());
      }
      r.ops = std::move(ops);
    }
    return changed_;
  }

 private:
  // An index function of nothing but positions and scalars; those have no axes, and stay shared.
  bool position_only(const Op& op) const {
    if (!is_index_function(op.code) || op.results.size() != 1 || k_.type(op.results[0]).shape.empty()) return false;
    for (Value v : op.operands)
      if (k_.type(v).is_ref || (!k_.type(v).shape.empty() && !free_[v.index])) return false;
    return true;
  }

  void walk(RegionId r) {
    const std::vector<OpId> ops = k_.region(r).ops;
    for (OpId id : ops) {
      for (RegionId inner : std::vector<RegionId>(k_.op(id).regions)) walk(inner);
      if (position_only(k_.op(id))) {
        free_[k_.op(id).results[0].index] = true;
        continue;
      }
      for (size_t i = 0; i < k_.op(id).operands.size(); ++i) {
        const Value v = k_.op(id).operands[i];
        if (v.index >= free_.size() || !free_[v.index]) continue;
        ++use_;
        mine_.clear();
        if (within_limit(v)) k_.op(id).operands[i] = own(v);
      }
    }
  }

  bool within_limit(Value root) const {
    constexpr size_t kMost = 64;  // ops behind one operand: what is larger is not worth a copy
    std::set<uint32_t> seen;
    std::vector<Value> stack{root};
    while (!stack.empty() && seen.size() <= kMost) {
      const Value v = stack.back();
      stack.pop_back();
      if (!free_[v.index] || !seen.insert(v.index).second) continue;
      for (Value x : k_.def(v)->operands)
        if (x.index < free_.size()) stack.push_back(x);
    }
    return seen.size() <= kMost;
  }

  // v for the use at hand alone: the op itself for the first use, a copy beside it for the others.
  Value own(Value v) {
    const auto [known, fresh] = mine_.try_emplace(v.index, v);
    if (!fresh) return known->second;
    const OpId id = k_.value(v).def;
    Op op = original(id);
    for (Value& x : op.operands)
      if (x.index < free_.size() && free_[x.index]) x = own(x);
    if (user_[id.index] == 0) {
      user_[id.index] = use_;
      originals_.emplace(id.index, k_.op(id));
      k_.op(id).operands = op.operands;
      return v;
    }
    changed_ = true;
    const Value copy{static_cast<uint32_t>(k_.values.size())};
    const OpId copy_id{static_cast<uint32_t>(k_.ops.size())};
    ir::ValueInfo info = k_.value(v);
    info.def = copy_id;
    k_.values.push_back(std::move(info));
    op.results = {copy};
    k_.ops.push_back(std::move(op));
    copies_[id.index].push_back(copy_id);
    mine_[v.index] = copy;
    return copy;
  }
  // As it was before its first user got operands of its own for it.
  Op original(OpId id) const {
    const auto it = originals_.find(id.index);
    return it == originals_.end() ? k_.op(id) : it->second;
  }

  ir::Kernel& k_;
  std::vector<bool> free_;                   // per value that the kernel had: position_only
  std::vector<size_t> user_;                 // per op that the kernel had: the use that has it, or 0
  std::vector<std::vector<OpId>> copies_;    // per op that the kernel had
  std::map<uint32_t, Op> originals_;
  std::map<uint32_t, Value> mine_;           // of the use at hand
  size_t use_ = 0;
  bool changed_ = false;
};

}  // namespace

bool separate_uses(ir::Kernel& k) { return Separation(k).run(); }

}  // namespace tessera::lowering
