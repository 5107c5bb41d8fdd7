#include "codegen/tile/rematerialize.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "codegen/plan/keep.h"

namespace tessera::lowering {
using ir::Op;
using ir::Opcode;
using ir::OpId;
using ir::RegionId;
using ir::Value;

namespace {

class Rematerialization {
 public:
  explicit Rematerialization(ir::Kernel& k)
      : k_(k), free_(k.values.size(), false), user_(k.ops.size(), 0), copies_(k.ops.size()) {}

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
  static constexpr size_t kMost = 64;  // ops behind one operand: what is larger is not worth a copy

  // An index function of nothing but positions and scalars; those have no axes, and stay shared.
  bool position_only(const Op& op) const {
    if (!ir::is_index_function(op.code) || op.results.size() != 1 || k_.type(op.results[0]).shape.empty()) return false;
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
        if (within_limit(v)) k_.op(id).operands[i] = own(v, own_dims(v));
      }
      if (k_.op(id).code == Opcode::dot) {
        std::set<uint32_t> left, right;
        loads(k_.op(id).operands[0], left);
        loads(k_.op(id).operands[1], right);
        std::map<uint32_t, Value> made;
        if (std::any_of(right.begin(), right.end(), [&](uint32_t load) { return left.contains(load); })) {
          const Value v = again(k_.op(id).operands[1], made);
          k_.op(id).operands[1] = v;
        }
      }
    }
  }

  bool is_loaded(Value v) const {
    if (v.index >= free_.size() || free_[v.index] || k_.type(v).shape.empty() || !k_.value(v).def) return false;
    const Op& op = *k_.def(v);
    return op.results.size() == 1 && (op.code == Opcode::load || ir::is_index_function(op.code));
  }
  // Those that index functions lead to from v.
  void loads(Value v, std::set<uint32_t>& found) const {
    std::set<uint32_t> seen;
    std::vector<Value> stack{v};
    while (!stack.empty()) {
      const Value x = stack.back();
      stack.pop_back();
      if (!is_loaded(x) || !seen.insert(x.index).second || seen.size() > kMost) continue;
      const Op& op = *k_.def(x);
      if (op.code == Opcode::load) found.insert(k_.value(x).def.index);
      else stack.insert(stack.end(), op.operands.begin(), op.operands.end());
    }
  }
  // v anew: its loads and what is made of them, each beside the one that there is, where memory holds the same.
  Value again(Value v, std::map<uint32_t, Value>& made) {
    if (!is_loaded(v) || made.size() > kMost) return v;
    if (const auto it = made.find(v.index); it != made.end()) return it->second;
    const OpId id = k_.value(v).def;
    Op op = k_.op(id);
    if (op.code != Opcode::load)
      for (Value& x : op.operands) x = again(x, made);
    return made[v.index] = copied(id, std::move(op));
  }

  bool within_limit(Value root) const {
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

  // Which of the used value's dims each dim of v runs with; a single -1 where that is not followed.
  using Dims = std::vector<int64_t>;
  Dims own_dims(Value v) const {
    Dims d(k_.type(v).shape.size());
    std::iota(d.begin(), d.end(), 0);
    return d;
  }
  // Those of the operands of an op whose result has `dims`.
  static Dims operand_dims(const Op& op, const Dims& dims) {
    if (ir::is_elementwise(op.code) || dims == Dims{-1}) return dims;
    Dims d;
    if (op.code == Opcode::broadcast) {
      for (const int64_t to : op.ints(ir::Attr::dims)) d.push_back(dims[static_cast<size_t>(to)]);
    } else if (op.code == Opcode::transpose) {
      d.resize(dims.size());
      for (size_t i = 0; i < dims.size(); ++i) d[static_cast<size_t>(op.ints(ir::Attr::perm)[i])] = dims[i];
    } else {
      return {-1};
    }
    return d;
  }

  // v for the use at hand alone: the op itself for the first use, a copy beside it for the others. Along other dims of
  // what is used it is another value: a mask of rows and columns may count both by one iota.
  Value own(Value v, const Dims& dims) {
    const auto [known, fresh] = mine_.try_emplace({v.index, dims}, v);
    if (!fresh) return known->second;
    const OpId id = k_.value(v).def;
    Op op = original(id);
    const Dims inside = operand_dims(op, dims);
    for (Value& x : op.operands)
      if (x.index < free_.size() && free_[x.index]) x = own(x, inside);
    if (user_[id.index] == 0) {
      user_[id.index] = use_;
      originals_.emplace(id.index, k_.op(id));
      k_.op(id).operands = op.operands;
      return v;
    }
    const Value copy = copied(id, std::move(op));
    mine_[{v.index, dims}] = copy;
    return copy;
  }
  // An op with one result, `op` for that of `id`, which it comes to stand behind.
  Value copied(OpId id, Op op) {
    changed_ = true;
    const Value copy{static_cast<uint32_t>(k_.values.size())};
    const OpId copy_id{static_cast<uint32_t>(k_.ops.size())};
    ir::ValueInfo info = k_.value(op.results[0]);
    info.def = copy_id;
    k_.values.push_back(std::move(info));
    op.results = {copy};
    k_.ops.push_back(std::move(op));
    copies_[id.index].push_back(copy_id);
    return copy;
  }
  // As it was before its first user got operands of its own for it.
  Op original(OpId id) const {
    const auto it = originals_.find(id.index);
    return it == originals_.end() ? k_.op(id) : it->second;
  }

  ir::Kernel& k_;
  std::vector<bool> free_;                 // per value that the kernel had: position_only
  std::vector<size_t> user_;               // per op that the kernel had: the use that has it, or 0
  std::vector<std::vector<OpId>> copies_;  // per op that the kernel had
  std::map<uint32_t, Op> originals_;
  std::map<std::pair<uint32_t, Dims>, Value> mine_;  // of the use at hand
  size_t use_ = 0;
  bool changed_ = false;
};

}  // namespace

bool rematerialize(ir::Kernel& k) { return Rematerialization(k).run(); }

}  // namespace tessera::lowering
