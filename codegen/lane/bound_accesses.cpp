#include <algorithm>

#include "codegen/lane/bounds.h"
#include "codegen/lane/uniformity.h"
#include "engine/ir/builder.h"

namespace tessera::lane {
using ir::Opcode;
using ir::Value;

namespace {
// The elements of the memory that a Ref points into, if that is an arg of static size.
std::optional<int64_t> array_size(const ir::Kernel& k, Value root) {
  if (!root || k.def(root) || k.value(root).region != k.body) return std::nullopt;
  int64_t n = 1;
  for (const Extent& e : k.blocks[k.value(root).number].array_shape) {
    const auto size = e.value();
    if (!size || (*size > 0 && n > INT64_MAX / *size)) return std::nullopt;
    n *= *size;
  }
  return n;
}

class Walk {
 public:
  explicit Walk(const ir::Kernel& k) : k_(k), bounds_(k) { region(k.body); }
  std::vector<ir::OpId> unproved;

 private:
  void region(ir::RegionId r) {
    for (ir::OpId id : k_.region(r).ops) {
      const ir::Op& o = k_.op(id);
      if (ir::accesses_ref(o.code) && !inside(o)) unproved.push_back(id);
      for (size_t i = 0; i < o.regions.size(); ++i) {
        if (o.code == Opcode::if_) conditions_.push_back({o.operands[0], i == 0});
        if (o.code == Opcode::for_) {
          scope_.push_back({k_.region(o.regions[i]).args[0], o.operands[0], o.operands[1], o.operands[2]});
          bounds_.between(scope_.back());
        }
        region(o.regions[i]);
        if (o.code == Opcode::if_) conditions_.pop_back();
        if (o.code == Opcode::for_) scope_.pop_back();
      }
    }
  }
  bool inside(const ir::Op& o) {
    const auto n = array_size(k_, root_of(k_, o.operands[0]));
    if (!n) return true;
    std::vector<Bounds::Term> first, behind{{*n, {}}};  // the access's first element, and how many come from its last one on
    const auto at = [&](int64_t factor, Value v) {
      first.emplace_back(factor, v);
      behind.emplace_back(-factor, v);
    };
    const ir::Index& x = o.index[0];
    x.is_static() ? at(x.start, {}) : at(1, o.operands[static_cast<size_t>(x.start_operand)]);
    for (const ir::Op* view = k_.def(o.operands[0]); view; view = k_.def(view->operands[0])) at(1, view->operands[1]);
    behind.emplace_back(-x.size, Value{});
    if (o.has_mask()) conditions_.push_back({o.operands[static_cast<size_t>(o.mask_position())], true});
    const bool proved = bounds_.not_negative(first, conditions_, scope_) && bounds_.not_negative(behind, conditions_, scope_);
    if (o.has_mask()) conditions_.pop_back();
    return proved;
  }

  const ir::Kernel& k_;
  Bounds bounds_;
  std::vector<Bounds::Condition> conditions_;
  std::vector<Bounds::Between> scope_;
};
}  // namespace

std::vector<ir::OpId> unproved_accesses(const ir::Kernel& lanes) { return Walk(lanes).unproved; }

bool bound_accesses(ir::Kernel& k) {
  std::vector<bool> wanted(k.ops.size(), false);
  const std::vector<ir::OpId> unproved = unproved_accesses(k);
  for (ir::OpId id : unproved) wanted[id.index] = true;
  for (uint32_t r = 0; r < k.regions.size() && !unproved.empty(); ++r) {
    const std::vector<ir::OpId> list = std::move(k.regions[r].ops);
    k.regions[r].ops.clear();
    ir::Builder b(k);
    b.set_region({r});
    for (ir::OpId id : list) {
      if (id.index < wanted.size() && wanted[id.index]) {
        ir::Op o = k.op(id);
        b.set_loc(o.loc);
        const Value root = root_of(k, o.operands[0]);
        const auto number = [&](int64_t n) { return b.constant_int(DType::i64, n); };
        ir::Index& x = o.index[0];
        Value at = x.is_static() ? number(x.start) : b.convert(o.operands[static_cast<size_t>(x.start_operand)], DType::i64);
        for (Value ref = o.operands[0]; ref != root; ref = k.def(ref)->operands[0]) at = b.elementwise(Opcode::add, {at, k.def(ref)->operands[1]});  // no Op is held while ops are made
        at = b.elementwise(Opcode::max, {b.elementwise(Opcode::min, {at, number(*array_size(k, root) - x.size)}), number(0)});
        if (!x.is_static()) o.operands.erase(o.operands.begin() + x.start_operand);
        x.start = 0;
        x.start_operand = -1;
        o.operands[0] = b.one({.code = Opcode::view, .operands = {root, at}});
        k.op(id) = std::move(o);
      }
      k.regions[r].ops.push_back(id);
    }
  }
  return !unproved.empty();
}

}  // namespace tessera::lane
