#include "codegen/lower/atomics.h"

#include <algorithm>

#include "codegen/lower/lowering.h"
#include "engine/ir/builder.h"

namespace tessera::lowering {
using ir::Attr;
using ir::Opcode;

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
  for (ir::Index& x : r.index)
    if (!x.is_static()) x.start_operand += static_cast<int32_t>(r.operands.size()) - static_cast<int32_t>(first);
  r.operands.insert(r.operands.end(), o.operands.begin() + static_cast<std::ptrdiff_t>(first), o.operands.end());
  return r;
}
}  // namespace

std::optional<ParallelPlan> expand_atomics(ir::Kernel& k, const Target& target) {
  if (std::none_of(k.ops.begin(), k.ops.end(), [](const ir::Op& o) { return ir::is_atomic(o.code); })) return std::nullopt;
  ScalarAnalysis scalars(k);
  ParallelPlan plan = plan_parallel(k, scalars, target);
  ir::Builder b(k);
  for (uint32_t r = 0; r < k.regions.size(); ++r) {
    const std::vector<ir::OpId> list = std::move(k.regions[r].ops);
    k.regions[r].ops.clear();
    b.set_region({r});
    for (ir::OpId id : list) {
      k.regions[r].ops.push_back(id);
      const ir::Op o = k.op(id);
      if (!ir::is_atomic(o.code)) continue;
      const auto ref = static_cast<size_t>(ref_position(k, o.operands[0]));
      if (ref < k.blocks.size() && plan.concurrent[ref]) continue;
      const auto kind = o.code == Opcode::atomic_cas ? o.code : static_cast<Opcode>(o.attr(Attr::kind));
      const Value old = o.results[0], v = o.operands[1];
      // The load, or the swap, takes over the atomic's result.
      const bool swaps = kind == Opcode::swap;
      ir::Op first = at_the_place_of(o, swaps ? Opcode::swap : Opcode::load, swaps ? std::vector{o.operands[0], v} : std::vector{o.operands[0]}, true);
      first.results = o.results;
      k.op(id) = std::move(first);
      if (swaps) continue;
      b.set_loc(o.loc);
      const Value now = kind == Opcode::atomic_cas ? b.elementwise(Opcode::select, {b.elementwise(Opcode::eq, {old, o.operands[2]}), v, old}) : b.elementwise(kind, {old, v});
      b.append(at_the_place_of(o, Opcode::store, {o.operands[0], now}, false));
    }
  }
  return plan;
}

// Each element by one invocation, which knows what it was; so that goes to the arena where others want it.
void Lowering::atomic_op(ir::OpId id) {
  const ir::Op& o = k_.op(id);
  const RefState& r = refs_[static_cast<size_t>(ref_position(k_, o.operands[0]))];
  const Value v = o.operands[1], result = o.results[0];
  const bool used = used_[result.index];
  const std::vector<Value> roots = values_read(o);
  std::vector<MemoryRange> reads = arena_reads(roots), writes;
  if (!r.owned) writes.push_back(r.range);

  const auto update = [&](const Coords& c, Value predicate) -> Value {
    const Value instead = o.has_other() && used ? element(o.operands[static_cast<size_t>(o.other_position())], c) : b_.zero(r.dtype);
    if (r.dead) return instead;
    const Address a = address(r, o, c);
    Value valid = b_.both(a.valid, predicate);
    if (o.has_mask()) valid = b_.both(valid, element(o.operands[static_cast<size_t>(o.mask_position())], c));
    const Value x = element(v, c), compare = o.code == Opcode::atomic_cas ? element(o.operands[2], c) : Value{};
    const auto now = [&] { return b_.atomic(o.code == Opcode::atomic_cas ? o.code : static_cast<Opcode>(o.attr(Attr::kind)), a.wide ? b_.view(r.ref, a.wide) : r.ref, a.narrow, x, compare); };
    if (!valid || b_.known(valid) == 1) return now();
    if (!used) {
      b_.when(valid, [&] { now(); });
      return instead;
    }
    return b_.if_else(valid, [&] { return Values{now()}; }, [&] { return Values{instead}; })[0];
  };

  if (shape(v).empty()) {
    order(reads, writes);
    if (used) home(result).scalar = broadcast_from_first(r.dtype, [&] { return update({}, {}); });
    else b_.when(first_thread(0), [&] { update({}, {}); });
    return;
  }
  bool layout = false;
  for (Value x : roots) layout = layout || reads_registers(x);
  Home& h = home(result);
  if (used && kinds_[result.index] == Kind::registers) {  // packed programs: one invocation has all elements
    order(reads, writes);
    layout_nest(shape(v), axes_.of(v), true, [&](const NestPoint& p) { h.regs.push_back(update(p.c, p.valid)); });
    return;
  }
  if (used) {
    h.slot = new_slot(r.dtype, shape(v), axes_.of(result));
    writes.push_back(h.slot.range);
  }
  order(reads, writes);
  nest(shape(v), axes_.of(v), layout, true, [&](const NestPoint& p) {
    const Value old = update(p.c, p.valid);
    if (used) b_.when(p.valid, [&] { slot_store(h.slot, p.c, old); });
  });
}

}  // namespace tessera::lowering
