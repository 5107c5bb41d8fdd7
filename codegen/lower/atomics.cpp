#include "codegen/lower/atomics.h"

#include <algorithm>

#include "codegen/lower/lowering.h"
#include "codegen/plan/indexed.h"
#include "engine/ir/builder.h"
#include "engine/ir/reference.h"

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
      // Elements that meet go one after another: as they are where no op says just that.
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

// What the element at c was, and its new value in its place; instead() if the element is not there, or masked out.
// Arrays that programs running at once update are updated by the device's atomics, all else by whoever comes to the
// element.
Value Lowering::atomic_element(const ir::Op& o, const Coords& c, Value predicate,
                               const std::function<Value()>& instead) {
  const auto ref = static_cast<size_t>(ref_position(k_, o.operands[0]));
  const RefState& r = refs_[ref];
  const bool used = used_[o.results[0].index];
  if (r.dead) return instead();
  const Address a = address(r, o, c);
  Value valid = b_.both(a.valid, predicate);
  if (o.has_mask()) valid = b_.both(valid, element(o.operands[static_cast<size_t>(o.mask_position())], c));
  const Value x = element(o.operands[1], c),
              compare = o.code == Opcode::atomic_cas ? element(o.operands[2], c) : Value{};
  const auto kind = o.code == Opcode::atomic_cas ? o.code : static_cast<Opcode>(o.attr(Attr::kind));
  const DType as = k_.type(o.operands[1]).dtype;
  const bool at_once =
      (ref < k_.blocks.size() && parallel_.concurrent[ref]) || (uniform_group() && in_any_order(k_, o, used_));
  const auto now = [&]() -> Value {
    const Value to = a.wide ? b_.view(r.ref, a.wide) : r.ref;
    if (at_once) return b_.atomic(kind, to, a.narrow, x, compare);
    const auto cast = [&](Value v, DType t) {
      return k_.type(o.operands[0]).dtype == as ? v : b_.op(Opcode::bitcast, {v}, t);
    };
    const Value old = cast(b_.load(to, a.narrow), as);
    const Value next = kind == Opcode::atomic_cas ? b_.select(b_.op(Opcode::eq, {old, compare}, DType::boolean), x, old)
                       : kind == Opcode::swap     ? x
                                                  : b_.op(kind, {old, x}, as);
    b_.store(to, a.narrow, cast(next, r.dtype));
    return old;
  };
  if (!valid || b_.known(valid) == 1) return now();
  if (!used) {
    b_.when(valid, [&] { now(); });
    return instead();
  }
  return b_.if_else(valid, [&] { return Values{now()}; }, [&] { return Values{instead()}; })[0];
}

// What the nearest element holds where the position is outside, and garbage elsewhere. Others may be updating it.
Value Lowering::nearest_element(const ir::Op& o, const Coords& c, Value predicate) {
  const auto ref = static_cast<size_t>(ref_position(k_, o.operands[0]));
  const RefState& r = refs_[ref];
  const DType as = k_.type(o.operands[1]).dtype;
  const Address there = address(r, o, c), a = address(r, o, c, false, true);
  if (r.dead || !there.valid || b_.known(there.valid) == 1) return b_.zero(as);
  const Value wanted = b_.both(b_.both(b_.op(Opcode::not_, {there.valid}, DType::boolean), a.valid), predicate);
  return b_.if_else(
      wanted,
      [&] {
        const Value from = a.wide ? b_.view(r.ref, a.wide) : r.ref;
        const bool concurrent = ref < k_.blocks.size() && parallel_.concurrent[ref];
        const Value least = b_.constant(as, reference::identity(is_float(as) ? Opcode::max : Opcode::or_, as));
        // changes nothing
        if (concurrent) return Values{b_.atomic(is_float(as) ? Opcode::max : Opcode::or_, from, a.narrow, least, {})};
        const Value held = b_.load(from, a.narrow);
        return Values{r.dtype == as ? held : b_.op(Opcode::bitcast, {held}, as)};
      },
      [&] { return Values{b_.zero(as)}; })[0];
}

// Each element by one invocation, which knows what it was; so that goes to the arena where others want it.
void Lowering::atomic_op(ir::OpId id) {
  const ir::Op& o = k_.op(id);
  const auto ref = static_cast<size_t>(ref_position(k_, o.operands[0]));
  const RefState& r = refs_[ref];
  const Value v = o.operands[1], result = o.results[0];
  const DType t = k_.type(result).dtype;
  const bool used = used_[result.index];
  const std::vector<Value> roots = values_read(o);
  std::vector<MemoryRange> reads = arena_reads(roots), writes;
  if (!r.owned) writes.push_back(r.range);
  // In the value's order, unless nobody can tell.
  const bool ordered = must_scatter_in_order(k_, o) &&
                       !(ref < k_.blocks.size() && parallel_.concurrent[ref] && parallel_.commuting[ref]) &&
                       !in_any_order(k_, o, used_);
  const bool nearest = used && !o.has_mask() && ir::access_dims(k_, o).per_element;

  const auto otherwise = [&](const Coords& c) {
    return o.has_other() && used ? element(o.operands[static_cast<size_t>(o.other_position())], c) : b_.zero(t);
  };
  if (shape(v).empty()) {
    const auto update = [&](Value predicate) {
      return atomic_element(o, {}, predicate, [&] { return otherwise({}); });
    };
    order(reads, writes);
    if (used) home(result).scalar = broadcast_from_first(t, [&] { return update({}); });
    else b_.when(first_thread(0), [&] { update({}); });
    return;
  }
  bool layout = false;
  for (Value x : roots) layout = layout || reads_registers(x);
  Home& h = home(result);
  if (used && kinds_[result.index] == Kind::registers) {  // packed programs: one invocation has all elements
    order(reads, writes);
    Values before;
    if (nearest)
      layout_nest(shape(v), axes_.of(v), true,
                  [&](const NestPoint& p) { before.push_back(nearest_element(o, p.c, p.valid)); });
    layout_nest(shape(v), axes_.of(v), true, [&](const NestPoint& p) {
      h.regs.push_back(
          atomic_element(o, p.c, p.valid, [&] { return nearest ? before[h.regs.size()] : otherwise(p.c); }));
    });
    return;
  }
  if (used) {
    h.slot = new_slot(t, shape(v), axes_.of(result));
    writes.push_back(h.slot.range);
  }
  order(reads, writes);
  const auto each = [&](const std::function<void(const Coords&, Value)>& body) {
    if (ordered) in_order(o, body);
    else nest(shape(v), axes_.of(v), layout, true, [&](const NestPoint& p) { body(p.c, p.valid); });
  };
  if (nearest) {
    each([&](const Coords& c, Value predicate) {
      const Value e = nearest_element(o, c, predicate);
      b_.when(predicate, [&] { slot_store(h.slot, c, e); });
    });
    order(reads, writes);  // what was nearest may be another invocation's to update
  }
  each([&](const Coords& c, Value predicate) {
    const Value old = atomic_element(o, c, predicate, [&] { return nearest ? slot_load(h.slot, c) : otherwise(c); });
    if (used) b_.when(predicate, [&] { slot_store(h.slot, c, old); });
  });
}

}  // namespace tessera::lowering
