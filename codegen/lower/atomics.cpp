#include "codegen/lower/atomics.h"

#include "codegen/lower/emission.h"
#include "codegen/plan/expand_atomics.h"
#include "codegen/plan/indexed.h"
#include "engine/ir/reference.h"

namespace tessera::lowering {
using ir::Attr;
using ir::Opcode;

// What the element at c was, and its new value in its place; instead() if the element is not there, or masked out.
// Arrays that programs running at once update are updated by the device's atomics, all else by whoever comes to the
// element.
Value AtomicEmitter::update_element(const ir::Op& o, const Coords& c, Value predicate, FunctionRef<Value()> instead) {
  const auto ref = static_cast<size_t>(ref_position(k_, o.operands[0]));
  const RefState& r = refs_.state(static_cast<int>(ref));
  const bool used = placement_.used(o.results[0]);
  if (r.dead) return instead();
  const Address a = refs_.address(r, o, c);
  Value valid = b_.both(a.valid, predicate);
  if (o.has_mask()) valid = b_.both(valid, elements_.of(o.operands[static_cast<size_t>(o.mask_position())], c));
  if (valid && b_.known(valid) == 0) return instead();  // a position that memory of a known size does not have
  const Value x = elements_.of(o.operands[1], c),
              compare = o.code == Opcode::atomic_cas ? elements_.of(o.operands[2], c) : Value{};
  const auto kind = o.code == Opcode::atomic_cas ? o.code : static_cast<Opcode>(o.attr(Attr::kind));
  const DType as = k_.type(o.operands[1]).dtype;
  const bool at_once = concurrent(ref) || (uniform_group() && in_any_order(k_, o, placement_.used()));
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
Value AtomicEmitter::nearest_element(const ir::Op& o, const Coords& c, Value predicate) {
  const auto ref = static_cast<size_t>(ref_position(k_, o.operands[0]));
  const RefState& r = refs_.state(static_cast<int>(ref));
  const DType as = k_.type(o.operands[1]).dtype;
  const Address there = refs_.address(r, o, c), a = refs_.address(r, o, c, false, true);
  if (r.dead || !there.valid || b_.known(there.valid) == 1) return b_.zero(as);
  const Value wanted = b_.both(b_.both(b_.op(Opcode::not_, {there.valid}, DType::boolean), a.valid), predicate);
  return b_.if_else(
      wanted,
      [&] {
        const Value from = a.wide ? b_.view(r.ref, a.wide) : r.ref;
        const Value least = b_.constant(as, reference::identity(is_float(as) ? Opcode::max : Opcode::or_, as));
        // changes nothing
        if (concurrent(ref))
          return Values{b_.atomic(is_float(as) ? Opcode::max : Opcode::or_, from, a.narrow, least, {})};
        const Value held = b_.load(from, a.narrow);
        return Values{r.dtype == as ? held : b_.op(Opcode::bitcast, {held}, as)};
      },
      [&] { return Values{b_.zero(as)}; })[0];
}

// Each element is updated by one invocation, which has the old value; that goes to the arena where others use it.
void AtomicEmitter::update(ir::OpId id) {
  const ir::Op& o = k_.op(id);
  const auto ref = static_cast<size_t>(ref_position(k_, o.operands[0]));
  const RefState& r = refs_.state(static_cast<int>(ref));
  const Value v = o.operands[1], result = o.results[0];
  const DType t = k_.type(result).dtype;
  const bool used = placement_.used(result);
  const std::vector<Value> roots = refs_.values_read(o);
  std::vector<MemoryRange> reads = placement_.arena_reads(roots), writes;
  if (!r.owned) writes.push_back(r.range);
  // In the value's order, unless every order gives an allowed result.
  const bool ordered = must_scatter_in_order(k_, o) && !(concurrent(ref) && parallel_.commuting[ref]) &&
                       !in_any_order(k_, o, placement_.used());
  const bool nearest = used && !o.has_mask() && ir::access_dims(k_, o).per_element;

  const auto otherwise = [&](const Coords& c) {
    return o.has_other() && used ? elements_.of(o.operands[static_cast<size_t>(o.other_position())], c) : b_.zero(t);
  };
  if (shape(v).empty()) {
    const auto update = [&](Value predicate) {
      return update_element(o, {}, predicate, [&] { return otherwise({}); });
    };
    arena_.order(reads, writes);
    if (used) placement_.of(result) = arena_.broadcast_from_first(t, [&] { return update({}); });
    else b_.when(nests_.first_invocation(0), [&] { update({}); });
    return;
  }
  bool layout = false;
  for (Value x : roots) layout = layout || placement_.reads_registers(x);
  if (used && placement_.kind(result) == Kind::registers) {  // packed programs: one invocation has all elements
    arena_.order(reads, writes);
    Values before, old;
    if (nearest)
      nests_.by_layout(shape(v), axes_.of(v), true,
                       [&](const NestPoint& p) { before.push_back(nearest_element(o, p.c, p.valid)); });
    nests_.by_layout(shape(v), axes_.of(v), true, [&](const NestPoint& p) {
      old.push_back(update_element(o, p.c, p.valid, [&] { return nearest ? before[old.size()] : otherwise(p.c); }));
    });
    placement_.of(result) = Registers{old};
    return;
  }
  Slot slot;
  if (used) {
    slot = arena_.make(t, shape(v), axes_.of(result));
    writes.push_back(slot.range);
    placement_.of(result) = slot;
  }
  arena_.order(reads, writes);
  const auto each = [&](FunctionRef<void(const Coords&, Value)> body) {
    if (ordered) refs_.in_order(o, body);
    else nests_.each(shape(v), axes_.of(v), layout, true, [&](const NestPoint& p) { body(p.c, p.valid); });
  };
  if (nearest) {
    each([&](const Coords& c, Value predicate) {
      const Value e = nearest_element(o, c, predicate);
      b_.when(predicate, [&] { arena_.store(slot, c, e); });
    });
    arena_.order(reads, writes);  // what was nearest may be another invocation's to update
  }
  each([&](const Coords& c, Value predicate) {
    if (nearest) {  // beyond the value's end the clamped position is in the slot, but another invocation's
      b_.when(predicate,
              [&] { arena_.store(slot, c, update_element(o, c, {}, [&] { return arena_.load(slot, c); })); });
      return;
    }
    const Value old = update_element(o, c, predicate, [&] { return otherwise(c); });
    if (used) b_.when(predicate, [&] { arena_.store(slot, c, old); });
  });
}

}  // namespace tessera::lowering
