// Replacements: which value replaces which. A pass walks ops in order, rewrites their operands through it, and adds to
// it.
#pragma once
#include <vector>

#include "engine/ir/kernel.h"

namespace tessera::passes {

class Replacements {
 public:
  explicit Replacements(const ir::Kernel& k) : to_(k.values.size()) {}
  ir::Value operator()(ir::Value v) const {
    while (v.index < to_.size() && to_[v.index]) v = to_[v.index];
    return v;
  }
  void replace(ir::Value from, ir::Value by) {
    if (from.index >= to_.size()) to_.resize(from.index + 1);
    to_[from.index] = (*this)(by);
  }
  /// True if an operand changed.
  bool apply(ir::Op& op) const {
    bool changed = false;
    for (ir::Value& v : op.operands)
      if (const ir::Value by = (*this)(v); by != v) {
        v = by;
        changed = true;
      }
    return changed;
  }

 private:
  std::vector<ir::Value> to_;
};

/// A loop whose step has become a constant below 1 stands where no valid program comes; the verifier wants a step from
/// 1 on. Gives it one, whose constant belongs before the loop; of any other op nothing.
inline ir::OpId keep_step(ir::Kernel& k, ir::OpId id) {
  if (k.op(id).code != ir::Opcode::for_ || ir::constant_int(k, k.op(id).operands[2]).value_or(1) > 0) return {};
  ir::Op one{.code = ir::Opcode::constant, .loc = k.op(id).loc};
  one.set(ir::Attr::bits, 1);
  const ir::OpId made{static_cast<uint32_t>(k.ops.size())};
  one.results = {ir::Value{static_cast<uint32_t>(k.values.size())}};
  k.values.push_back({ir::Type::array(DType::i32), made, {}, 0});
  k.op(id).operands[2] = one.results[0];
  k.ops.push_back(std::move(one));
  return made;
}

/// The regions that see no values of each other: index maps, then the body.
inline std::vector<ir::RegionId> top_regions(const ir::Kernel& k) {
  std::vector<ir::RegionId> regions;
  for (const ir::BlockMapping& b : k.blocks)
    if (!b.is_whole() && b.index_map()) regions.push_back(b.index_map());
  regions.push_back(k.body);
  return regions;
}

}  // namespace tessera::passes
