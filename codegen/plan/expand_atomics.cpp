#include "codegen/plan/expand_atomics.h"

#include <algorithm>

#include "codegen/plan/indexed.h"
#include "codegen/plan/plan.h"
#include "engine/ir/builder.h"

namespace tessera::lowering {
using ir::Attr;
using ir::Opcode;
using ir::Value;

namespace {
// A memory op of the same place and mask with other leading operands.
ir::Op at_the_place_of(const ir::Op& o, Opcode code, std::vector<Value> operands, bool other) {
  ir::Op r{.code = code, .operands = std::move(operands), .index = o.index, .loc = o.loc};
  const size_t before = static_cast<size_t>(o.mask_position());
  if (o.has_mask()) {
    r.operands.push_back(o.operands[before]);
    r.set(Attr::mask, 1);
  }
  if (o.has_other() && other) {
    r.operands.push_back(o.operands[before + 1]);
    r.set(Attr::other, 1);
  }
  const size_t first = before + o.has_mask() + o.has_other();
  for (ir::Index& x : r.index) x.shift(static_cast<ptrdiff_t>(r.operands.size()) - static_cast<ptrdiff_t>(first));
  r.operands.insert(r.operands.end(), o.operands.begin() + static_cast<std::ptrdiff_t>(first), o.operands.end());
  return r;
}
}  // namespace

bool in_any_order(const ir::Kernel& k, const ir::Op& o, const std::vector<bool>& used) {
  if (o.code != Opcode::atomic_rmw || used[o.results[0].index]) return false;
  const DType t = k.type(o.operands[1]).dtype;
  return static_cast<Opcode>(o.attr(Attr::kind)) != Opcode::swap && is_int(t) && size_bytes(t) == 4 &&
         k.type(o.operands[0]).dtype == t;
}

std::optional<ParallelPlan> expand_atomics(ir::Kernel& k, const Target& target) {
  if (std::none_of(k.ops.begin(), k.ops.end(), [](const ir::Op& o) { return ir::is_atomic(o.code); }))
    return std::nullopt;
  ScalarAnalysis scalars(k);
  ParallelPlan plan = plan_parallel(k, scalars, target);
  const std::vector<bool> used = used_values(k);
  ir::Builder b(k);
  for (uint32_t r = 0; r < k.regions.size(); ++r) {
    const std::vector<ir::OpId> list = std::move(k.regions[r].ops);
    k.regions[r].ops.clear();
    b.set_region({r});
    for (ir::OpId id : list) {
      const ir::Op o = k.op(id);
      const auto ref = ir::is_atomic(o.code) ? static_cast<size_t>(ref_position(k, o.operands[0])) : 0;
      if (!ir::is_atomic(o.code) || (ref < k.blocks.size() && plan.concurrent[ref])) {
        k.regions[r].ops.push_back(id);
        continue;
      }
      b.set_loc(o.loc);
      const auto kind = o.code == Opcode::atomic_cas ? o.code : static_cast<Opcode>(o.attr(Attr::kind));
      const Value v = o.operands[1];
      const DType held = k.type(o.operands[0]).dtype, as = k.type(v).dtype;
      const auto cast = [&](Value x, DType t) {
        return k.type(x).dtype == t ? x : b.elementwise(Opcode::bitcast, {x}, t);
      };
      // Updates of one place go one after another. The op stays as it is if no other op says the same.
      if (must_scatter_in_order(k, o)) {
        const bool plain = !used[o.results[0].index] && !in_any_order(k, o, used) &&
                           (kind == Opcode::swap || (kind == Opcode::add && held == as));
        if (plain)
          b.append(at_the_place_of(o, kind == Opcode::add ? Opcode::addupdate : Opcode::store,
                                   {o.operands[0], cast(v, held)}, false));
        else k.regions[r].ops.push_back(id);
        continue;
      }
      // The load, or the swap, takes over the atomic's result, but where that is of another dtype.
      const bool swaps = kind == Opcode::swap;
      ir::Op first =
          at_the_place_of(o, swaps ? Opcode::swap : Opcode::load,
                          swaps ? std::vector{o.operands[0], cast(v, held)} : std::vector{o.operands[0]}, true);
      if (o.has_other()) {
        Value& other = first.operands[static_cast<size_t>(first.other_position())];
        other = cast(other, held);
      }
      Value old = o.results[0];
      if (held == as) {
        first.results = o.results;
        k.op(id) = std::move(first);
        k.regions[r].ops.push_back(id);
      } else {
        const Value bits = b.one(std::move(first));
        ir::Op back{.code = Opcode::bitcast, .operands = {bits}, .results = o.results, .loc = o.loc};
        k.op(id) = std::move(back);
        k.regions[r].ops.push_back(id);
      }
      if (swaps) continue;
      const Value now = kind == Opcode::atomic_cas
                            ? b.elementwise(Opcode::select, {b.elementwise(Opcode::eq, {old, o.operands[2]}), v, old})
                            : b.elementwise(kind, {old, v});
      b.append(at_the_place_of(o, Opcode::store, {o.operands[0], cast(now, held)}, false));
    }
  }
  return plan;
}

}  // namespace tessera::lowering
