// Walks over a kernel: the ops of a region, the values behind a value, and the values that control flow passes on.
#pragma once
#include <set>
#include <vector>

#include "engine/ir/kernel.h"

namespace tessera::ir {

/// Whether f(OpId) holds for an op of the region, or of one in it. An op comes before those inside it; it ends with the
/// first that holds. f does not change which ops there are.
template <class F> bool any_op(const Kernel& k, RegionId r, const F& f) {
  for (const OpId id : k.region(r).ops) {
    if (f(id)) return true;
    for (const RegionId inner : k.op(id).regions)
      if (any_op(k, inner, f)) return true;
  }
  return false;
}

/// Calls f(OpId) for every op of the region and of those in it, in the order of any_op().
template <class F> void each_op(const Kernel& k, RegionId r, const F& f) {
  any_op(k, r, [&](OpId id) {
    f(id);
    return false;
  });
}

/// The same of the ops inside of an op, but not of that op itself,
template <class F> bool any_op_inside(const Kernel& k, const Op& op, const F& f) {
  for (const RegionId r : op.regions)
    if (any_op(k, r, f)) return true;
  return false;
}
template <class F> void each_op_inside(const Kernel& k, const Op& op, const F& f) {
  for (const RegionId r : op.regions) each_op(k, r, f);
}
/// and of the op and those inside of it.
template <class F> void each_op_from(const Kernel& k, OpId op, const F& f) {
  f(op);
  each_op_inside(k, k.op(op), f);
}

/// The region that each op stands in, by its number; none for an op that no region has.
std::vector<RegionId> regions_of_ops(const Kernel& k);

/// Visits `root` and what is behind it, each value once and no Refs: f(v, next) appends to `next` what to visit because
/// of v. It ends where f returns false, and is false then. `seen`: the values visited, by this walk and those before.
template <class F> bool walk_back(const Kernel& k, Value root, std::set<uint32_t>& seen, const F& f) {
  std::vector<Value> next{root};
  while (!next.empty()) {
    const Value v = next.back();
    next.pop_back();
    if (!k.type(v).is_ref && seen.insert(v.index).second && !f(v, next)) return false;
  }
  return true;
}

/// Whether the threads of a program meet where the op begins: a run_scoped of memory that they share.
bool threads_meet(const Kernel& k, const Op& op);

/// Where a loop's initial values begin among its operands,
inline size_t first_init(const Op& loop) { return loop.code == Opcode::for_ ? 3 : 0; }
/// and what it carries among the arguments of its regions.
inline size_t first_carried(const Op& loop) { return loop.code == Opcode::for_ ? 1 : 0; }

/// What result i of a loop or a branch may be: what a loop starts with and carries in each region, and what its body,
/// or each branch, yields.
std::vector<Value> flows_into(const Kernel& k, const Op& op, size_t i);

}  // namespace tessera::ir
