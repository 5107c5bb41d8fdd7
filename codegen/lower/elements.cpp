// Index functions: what computes one element of a lazy tile value.
#include <algorithm>

#include "codegen/lower/emission.h"
#include "codegen/plan/keep.h"
#include "engine/ir/moves.h"

namespace tessera::lowering {
using ir::Attr;
using ir::Opcode;

Value Elements::scalar(Value v) {
  const Value* const made = std::get_if<Value>(&placement_.of(v));
  if (!made || !*made) throw InternalError(k_.name + ": scalar used before it is made");
  return *made;
}

// Ops with a rank-0 result are evaluated where they stand: every invocation of the group holds the value.
void Elements::compute_scalar(ir::OpId id) {
  const ir::Op& o = k_.op(id);
  placement_.of(o.results[0]) = scalar_result(o);
}

Value Elements::scalar_result(const ir::Op& o) {
  const Value v = o.results[0];
  if (ir::is_elementwise(o.code)) {
    Values in;
    for (Value x : o.operands) in.push_back(scalar(x));
    return b_.op(o.code, in, k_.type(v).dtype);
  }
  if (o.code == Opcode::constant) return b_.constant(k_.type(v).dtype, static_cast<uint64_t>(o.attr(Attr::bits)));
  if (o.code == Opcode::program_id) return pid_[static_cast<size_t>(scalars_.grid_axis(o.attr(Attr::axis)))];
  if (o.code == Opcode::num_programs) return grid_size(static_cast<size_t>(scalars_.grid_axis(o.attr(Attr::axis))));
  if (o.code == Opcode::size) return extent_value(k_.sizes[static_cast<size_t>(o.attr(Attr::index))], DType::i32);
  if (o.code == Opcode::load)
    return refs_.load_element(o, {});  // of an index map: scalar-prefetch operands are never written
  if (o.code == Opcode::gather) {
    arena_.order(placement_.arena_reads(o.operands), {});
    return compute(v, o, {});
  }
  if (!ir::is_move_of_one(o.code))
    throw InternalError(k_.name + ": " + std::string(name(o.code)) + " is no scalar op", o.loc);
  const Value x = o.operands[0];  // of rank 0, or of a single element
  if (shape(x).empty()) return scalar(x);
  arena_.order(placement_.arena_reads({x}), {});
  return of(x, Coords(shape(x).size(), at(0)));
}

Value Elements::of(Value v, const Coords& c) {
  if (shape(v).empty()) return scalar(v);
  const Place& place = placement_.of(v);
  const Kind kind = placement_.kind(v);
  if (kind == Kind::registers) {
    size_t i = 0;
    for (size_t d = 0; d < c.size(); ++d) {
      const int a = axes_.of(v, d);
      if (a == kNoAxis) continue;
      if (c[d].axis != a)
        throw InternalError(k_.name + ": a value in registers is read at a position that its layout does not own");
      i = i * static_cast<size_t>(plan(a).reg) + static_cast<size_t>(c[d].reg);
    }
    const Registers* const held = std::get_if<Registers>(&place);
    if (!held || held->regs.empty()) throw InternalError(k_.name + ": value in registers used before it is made");
    return held->regs[i];
  }
  std::vector<uint32_t> key{v.index, step_};
  for (size_t d = 0; d < c.size(); ++d) {
    key.push_back(c[d].v.index);
    key.push_back(static_cast<uint32_t>(c[d].axis + 1) << 16 | static_cast<uint32_t>(c[d].reg));
  }
  if (const Value* known = b_.recall(key)) return *known;
  Value r;
  if (kind == Kind::arena) {
    const Slot* const slot = std::get_if<Slot>(&place);
    if (!slot || slot->offset < 0) throw InternalError(k_.name + ": arena value used before it is made");
    return arena_.load(*slot, c);  // its contents change, so it is not remembered
  }
  const ir::Op* o = k_.def(v);
  if (!o) throw InternalError(k_.name + ": lazy region argument");
  const Loc outer = b_.raw().loc();
  b_.raw().set_loc(o->loc);
  r = compute(v, *o, c);
  b_.raw().set_loc(outer);
  b_.remember(std::move(key), r);
  return r;
}

Values Elements::in_another_step(FunctionRef<Values()> f) {
  const uint32_t outer = std::exchange(step_, ++steps_);
  Values result = f();
  step_ = outer;
  return result;
}

// A coordinate of a move's operand.
Coord Elements::source(const ir::DimSource& s, const Coords& c) {
  if (s.dim < 0) return at(0);
  const Coord& from = c[static_cast<size_t>(s.dim)];
  if (s.whole) return from;
  if (s.stride == 1 && s.offset < 0) return {b_.sub(from.v, b_.i32(-s.offset))};
  const Value offset = b_.i32(s.offset);
  if (s.stride == -1) return {b_.sub(offset, from.v)};
  return {b_.add(b_.mul(from.v, b_.i32(s.stride)), offset)};
}

Value Elements::compute(Value v, const ir::Op& o, const Coords& c) {
  const DType t = k_.type(v).dtype;
  if (ir::is_elementwise(o.code)) {
    Values in;
    for (Value x : o.operands) in.push_back(of(x, c));
    return b_.op(o.code, in, t);
  }
  if (o.code == Opcode::constant) return b_.constant(t, static_cast<uint64_t>(o.attr(Attr::bits)));
  if (o.code == Opcode::iota) return b_.op(Opcode::convert, {c[static_cast<size_t>(o.attr(Attr::axis))].v}, t);
  if (o.code == Opcode::gather) return gathered(o, c);
  if (o.code == Opcode::load) return refs_.load_element(o, c);
  if (ir::is_move(o.code)) return moved(v, o, c);
  throw InternalError(k_.name + ": " + std::string(name(o.code)) + " has no index function", o.loc);
}

Value Elements::moved(Value v, const ir::Op& o, const Coords& c) {
  const std::optional<ir::MoveMap> map = ir::move_map(k_, o);
  if (!map) return of(o.operands[0], unravel(linear(c, shape(v)), shape(o.operands[0])));
  if (const auto slices = slices_of_one(k_, o, [&](Value part) { return placement_.kind(part) == Kind::lazy; });
      !slices.empty())
    return from_slices(*map, slices, c);
  const std::vector<ir::MovePiece>& pieces = map->pieces;
  if (pieces.size() == 1) {
    Coords in;
    for (const ir::DimSource& s : pieces[0].dims) in.push_back(source(s, c));
    return of(pieces[0].operand, in);
  }
  // Every piece is read at a clamped position, so that the choice between them needs no branch.
  Value r;
  for (size_t i = pieces.size(); i-- > 0;) {
    const ir::MovePiece& p = pieces[i];
    if (p.begin == p.end) continue;
    Coords in;
    for (const ir::DimSource& s : p.dims) {
      if (s.dim != static_cast<int>(map->axis)) {
        in.push_back(source(s, c));
        continue;
      }
      const auto [first, last] = std::minmax({s.offset + s.stride * p.begin, s.offset + s.stride * (p.end - 1)});
      const Value most = b_.i32(last), least = b_.i32(first);
      const Coord clamped{b_.clamp(source(s, c).v, least, most)};
      in.push_back(first == last ? at(first) : clamped);
    }
    const Value e = of(p.operand, in);
    r = r ? b_.select(b_.lt(c[map->axis].v, b_.i32(p.end)), e, r) : e;
  }
  return r;
}

// Pieces that are slices of one value: that value is read once, at the position that the element's piece says.
Value Elements::from_slices(const ir::MoveMap& map, const std::vector<const ir::Op*>& slices, const Coords& c) {
  const size_t axis = map.axis;
  const auto dims = *ir::move_dims(k_, *slices[0]);
  Coords in = c;
  for (size_t d = 0; d < in.size(); ++d)
    if (d != axis) in[d] = source(dims[d], c);
  Value chosen;
  for (size_t i = slices.size(); i-- > 0;) {
    const ir::MovePiece& p = map.pieces[i];
    if (p.begin == p.end) continue;
    const ir::Op& part = *slices[i];
    const Value start = b_.i32(part.ints(Attr::start)[axis]), stride = b_.i32(part.ints(Attr::stride)[axis]);
    const Value e = b_.add(b_.mul(b_.add(c[axis].v, b_.i32(-p.begin)), stride), start);
    chosen = chosen ? b_.select(b_.lt(c[axis].v, b_.i32(p.end)), e, chosen) : e;
  }
  in[axis] = {chosen};
  return of(slices[0]->operands[0], in);
}

Value Elements::gathered(const ir::Op& o, const Coords& c) {
  const Value x = o.operands[0];
  const auto& dims = o.ints(Attr::dims);
  Coords in;
  size_t next = 1;
  for (size_t d = 0; d < dims.size(); ++d) {
    const int64_t n = shape(x)[d];
    if (dims[d] >= 0) {
      in.push_back(n == 1 ? at(0) : c[static_cast<size_t>(dims[d])]);
      continue;
    }
    const Value i = o.operands[next++];
    if (n == 1) {
      in.push_back(at(0));
      continue;
    }
    const Value p = of(i, c);
    const Value last = b_.i32(n - 1), zero = b_.i32(0);
    in.push_back({b_.clamp(b_.wrap(p, b_.i32(n)), zero, last)});
  }
  return of(x, in);
}

}  // namespace tessera::lowering
