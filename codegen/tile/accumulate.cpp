#include "codegen/tile/accumulate.h"

#include <algorithm>
#include <set>
#include <vector>

#include "codegen/plan/matrices.h"
#include "engine/ir/walk.h"

namespace tessera::lowering {
using ir::Op;
using ir::Opcode;
using ir::Value;

namespace {
// Made of fewer elements than it has, like a bias of each column.
bool is_spread(const ir::Kernel& k, Value v) {
  const int64_t all = num_elements(k.type(v).shape);
  bool fewer = false;
  std::set<uint32_t> seen;
  const bool none_full = ir::walk_back(k, v, seen, [&](Value x, std::vector<Value>& next) {
    const Op* o = k.def(x);
    const bool on = o && o->code != Opcode::load && ir::is_index_function(o->code) && !ir::is_source(o->code);
    if (on) next.insert(next.end(), o->operands.begin(), o->operands.end());
    else if (!o || !ir::is_source(o->code)) fewer = true;
    return on || (o && ir::is_source(o->code)) || num_elements(k.type(x).shape) < all;
  });
  return none_full && fewer;
}
}  // namespace

bool accumulate_into_dots(ir::Kernel& k, const Target& target) {
  std::vector<int> uses(k.values.size(), 0);
  for (const Op& o : k.ops)
    for (Value v : o.operands) ++uses[v.index];
  const std::vector<ir::RegionId> region = ir::regions_of_ops(k);
  const auto product = [&](Value v, ir::RegionId wanted) {
    const Op* o = k.def(v);
    const DType t = k.type(v).dtype;
    return o && o->code == Opcode::dot && o->operands.size() == 2 && uses[v.index] == 1 && !is_narrow_float(t) &&
           region[k.value(v).def.index] == wanted;
  };
  bool changed = false;
  for (uint32_t i = 0; i < k.ops.size(); ++i) {
    Op& sum = k.ops[i];
    if (sum.code != Opcode::add || !region[i] || sum.operands[0] == sum.operands[1]) continue;
    const bool second = product(sum.operands[1], region[i]);
    if (!second && !product(sum.operands[0], region[i])) continue;
    const Value v = sum.operands[second ? 1 : 0], start = sum.operands[second ? 0 : 1];
    // Sums of matrices start from numbers that are there as matrices: others would go through shared memory first.
    const Op& product_op = *k.def(v);
    const auto dtype = [&](Value x) { return k.type(x).dtype; };
    if (is_spread(k, start) &&
        matrix_shape(target, dtype(product_op.operands[0]), dtype(product_op.operands[1]), dtype(v)))
      continue;
    // The product is pure, so it may wait for its sum; what is left of it is dead.
    const Op& dot = *k.def(v);
    sum.code = Opcode::dot;
    sum.operands = {dot.operands[0], dot.operands[1], start};
    sum.attrs = dot.attrs;
    sum.loc = dot.loc;
    changed = true;
  }
  return changed;
}

}  // namespace tessera::lowering
