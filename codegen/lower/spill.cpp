// Values that cannot stay in registers.
#include <algorithm>

#include "codegen/lower/emission.h"
#include "codegen/plan/expand_atomics.h"
#include "codegen/plan/indexed.h"
#include "engine/ir/walk.h"

namespace tessera::lowering {
using ir::Attr;
using ir::Family;
using ir::Opcode;

// Carried values change place together: what a loop yields is what its region receives and what it results in. Per
// value the next of its group, round and round.
std::vector<Value> Placement::carried_together() const {
  std::vector<Value> next_in_group(k_.values.size());
  for (uint32_t i = 0; i < next_in_group.size(); ++i) next_in_group[i] = {i};
  auto tie = [&](Value a, Value b) { std::swap(next_in_group[a.index], next_in_group[b.index]); };
  for (const ir::Op& o : k_.ops)
    for (size_t i = 0; i < o.results.size() && ir::is_loop(o.code); ++i)
      for (ir::RegionId r : o.regions) tie(o.results[i], k_.region(r).args[ir::first_carried(o) + i]);
  return next_in_group;
}

// A value in registers can be read by a nest over axes that have a common layout. Each axis got its layout where it
// mattered most, so a lighter nest may find two of its axes on the same invocations: the values that it reads then live
// in the arena instead. Packed programs have no arena and no need of this: one invocation holds everything.
void Placement::spill() {
  if (s_.general || !uniform_group()) return;
  next_carried_ = carried_together();
  // A spilled value is evaluated by a nest of its own now, over axes that it had before: nothing new can need it, but
  // one walk may spill what an earlier op of the same walk relied on.
  while (spill_in(k_.body)) {
  }
}

bool Placement::spill_in(ir::RegionId region) {
  bool changed = false;
  for (ir::OpId id : k_.region(region).ops) {
    for (ir::RegionId inner : k_.op(id).regions) changed |= spill_in(inner);
    changed |= spill_for(k_.op(id));
  }
  return changed;
}

// What computing root reads in registers goes to the arena, with what is carried together with it.
bool Placement::to_arena(Value root) {
  std::set<uint32_t> seen;
  std::vector<Value> found;
  each_placed(root, seen, [&](Value v) {
    if (kinds_[v.index] == Kind::registers && has_axes(v)) found.push_back(v);
  });
  for (Value v : found)
    for (Value x = v;;) {
      kinds_[x.index] = Kind::arena;
      ++spills_;
      x = next_carried_[x.index];
      if (x == v) break;
    }
  return !found.empty();
}

// Of what the nests of this op read. True if anything was spilled.
bool Placement::spill_for(const ir::Op& o) {
  bool changed = false;
  // A nest over the dims of `root` (and what has the same dims) reads v.
  const auto read = [&](Value root, Value v) {
    if (!nests_.fits(axes_.of(root))) changed |= to_arena(v);
  };
  const auto where_used = [&] {  // index functions are evaluated there, unless they are kept
    if (o.results.size() != 1 || k_.type(o.results[0]).shape.empty() || kinds_[o.results[0].index] == Kind::lazy)
      return;
    for (Value v : o.operands) {
      read(o.results[0], v);
      // each part has a nest of its own
      if (o.code == Opcode::concatenate && kinds_[o.results[0].index] == Kind::arena) read(v, v);
    }
  };
  switch (ir::family(o.code)) {
    case Family::memory:
      for (Value v : refs_.values_read(o)) {
        // an invocation walks all elements of the arrays
        if (must_scatter_in_order(k_, o) && !in_any_order(k_, o, used_)) changed |= to_arena(v);
        else read(o.code == Opcode::load ? o.results[0] : o.operands[1], v);
      }
      break;
    case Family::contract:  // stages the operand that it cannot read in place, by a nest over that operand
    case Family::reduce:
    case Family::argreduce:
    case Family::print:
    case Family::end:  // into the place of a result or a carried value
    case Family::control:
      for (Value v : o.operands) read(v, v);
      break;
    case Family::scan:  // by layout, or each invocation walks a line
      if (shape(o.results[0])[static_cast<size_t>(o.attr(Attr::axis))] == 1 ||
          s_.enumerable(axes_, axes_.of(o.results[0])))
        read(o.operands[0], o.operands[0]);
      else changed |= to_arena(o.operands[0]);
      break;
    case Family::rearrange:  // each invocation walks lines, or elements as they come
      if (!ir::is_rearranged(o.code)) where_used();
      else
        for (Value v : o.operands) changed |= to_arena(v);
      break;
    case Family::elementwise:
    case Family::source:
    case Family::move:
    case Family::grid:
    case Family::async:
    case Family::launch:
    case Family::ref:
    case Family::group:
    case Family::packed:
    case Family::report: where_used();
  }
  return changed;
}

}  // namespace tessera::lowering
