// Index functions: what computes one element of a lazy tile value.
#include <algorithm>

#include "codegen/lower/emission.h"
#include "codegen/plan/keep.h"

namespace tessera::lowering {
using ir::Attr;
using ir::Opcode;

Value Elements::scalar(Value v) {
  Place& h = placement_.of(v);
  if (!h.scalar) throw InternalError(k_.name + ": scalar used before it is made");
  return h.scalar;
}

// Ops with a rank-0 result are evaluated where they stand: every invocation of the group holds the value.
void Elements::compute_scalar(ir::OpId id) {
  const ir::Op& o = k_.op(id);
  const Value v = o.results[0];
  Place& h = placement_.of(v);
  h.kind = Kind::scalar;
  if (ir::info(o.code).elementwise) {
    Values in;
    for (Value x : o.operands) in.push_back(scalar(x));
    h.scalar = b_.op(o.code, in, k_.type(v).dtype);
    return;
  }
  if (o.code == Opcode::constant) h.scalar = b_.constant(k_.type(v).dtype, static_cast<uint64_t>(o.attr(Attr::bits)));
  else if (o.code == Opcode::program_id) h.scalar = pid_[static_cast<size_t>(scalars_.grid_axis(o.attr(Attr::axis)))];
  else if (o.code == Opcode::num_programs)
    h.scalar = grid_size(static_cast<size_t>(scalars_.grid_axis(o.attr(Attr::axis))));
  else if (o.code == Opcode::load)
    h.scalar = refs_.load_element(o, {});  // of an index map: scalar-prefetch operands are never written
  else if (o.code == Opcode::gather) {
    arena_.order(placement_.arena_reads(o.operands), {});
    h.scalar = compute(v, o, {});
  } else if (ir::is_move_of_one(o.code)) {  // of rank 0, or of a single element
    const Value x = o.operands[0];
    if (shape(x).empty()) {
      h.scalar = scalar(x);
      return;
    }
    arena_.order(placement_.arena_reads({x}), {});
    h.scalar = of(x, Coords(shape(x).size(), at(0)));
  } else {
    throw InternalError(k_.name + ": " + std::string(name(o.code)) + " is no scalar op", o.loc);
  }
}

Value Elements::of(Value v, const Coords& c) {
  if (shape(v).empty()) return scalar(v);
  const Place& h = placement_.of(v);
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
    if (h.regs.empty()) throw InternalError(k_.name + ": value in registers used before it is made");
    return h.regs[i];
  }
  std::vector<uint32_t> key{v.index, step_};
  for (size_t d = 0; d < c.size(); ++d) {
    key.push_back(c[d].v.index);
    key.push_back(static_cast<uint32_t>(c[d].axis + 1) << 16 | static_cast<uint32_t>(c[d].reg));
  }
  if (const Value* known = b_.recall(key)) return *known;
  Value r;
  if (kind == Kind::arena) {
    if (h.slot.offset < 0) throw InternalError(k_.name + ": arena value used before it is made");
    return arena_.load(h.slot, c);  // its contents change, so it is not remembered
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

Values Elements::in_another_step(const std::function<Values()>& f) {
  const uint32_t outer = std::exchange(step_, ++steps_);
  Values result = f();
  step_ = outer;
  return result;
}

// A coordinate of a slice's operand.
Coord Elements::sliced(const ir::Op& slice, size_t d, Coord c) {
  if (shape(slice.operands[0])[d] == shape(slice.results[0])[d]) return c;
  const Value start = b_.i32(slice.ints(Attr::start)[d]);
  return {b_.add(b_.mul(c.v, b_.i32(slice.ints(Attr::stride)[d])), start)};
}

Value Elements::compute(Value v, const ir::Op& o, const Coords& c) {
  const DType t = k_.type(v).dtype;
  if (ir::info(o.code).elementwise) {
    Values in;
    for (Value x : o.operands) in.push_back(of(x, c));
    return b_.op(o.code, in, t);
  }
  if (o.code == Opcode::constant) return b_.constant(t, static_cast<uint64_t>(o.attr(Attr::bits)));
  if (o.code == Opcode::iota) return b_.op(Opcode::convert, {c[static_cast<size_t>(o.attr(Attr::axis))].v}, t);
  if (o.code == Opcode::gather) return gathered(o, c);
  if (o.code == Opcode::load) return refs_.load_element(o, c);
  switch (ir::Move(o.code)) {
    case ir::Move::broadcast: {
      const Value x = o.operands[0];
      Coords in;
      const auto& dims = o.ints(Attr::dims);
      for (size_t i = 0; i < dims.size(); ++i)
        in.push_back(shape(x)[i] == shape(v)[static_cast<size_t>(dims[i])] ? c[static_cast<size_t>(dims[i])] : at(0));
      return of(x, in);
    }
    case ir::Move::reshape: {
      const Value x = o.operands[0];
      std::vector<std::pair<size_t, size_t>> pairs;
      if (reshape_keeps_dims(shape(x), shape(v), &pairs)) {
        Coords in(shape(x).size(), at(0));
        for (auto [i, j] : pairs) in[i] = c[j];
        return of(x, in);
      }
      return of(x, unravel(linear(c, shape(v)), shape(x)));
    }
    case ir::Move::transpose: {
      const auto& perm = o.ints(Attr::perm);
      Coords in(perm.size());
      for (size_t d = 0; d < perm.size(); ++d) in[static_cast<size_t>(perm[d])] = c[d];
      return of(o.operands[0], in);
    }
    case ir::Move::slice: {
      Coords in(c.size());
      for (size_t d = 0; d < c.size(); ++d) in[d] = sliced(o, d, c[d]);
      return of(o.operands[0], in);
    }
    case ir::Move::rev: {
      Coords in = c;
      for (const int64_t axis : o.ints(Attr::axes)) {
        const auto d = static_cast<size_t>(axis);
        if (shape(v)[d] != 1) in[d] = {b_.sub(b_.i32(shape(v)[d] - 1), c[d].v)};
      }
      return of(o.operands[0], in);
    }
    case ir::Move::concatenate: return concatenated(v, o, c);
  }
  throw InternalError(k_.name + ": " + std::string(name(o.code)) + " has no index function", o.loc);
}

Value Elements::concatenated(Value v, const ir::Op& o, const Coords& c) {
  const auto axis = static_cast<size_t>(o.attr(Attr::axis));
  if (const auto slices = slices_of_one(k_, o, [&](Value part) { return placement_.kind(part) == Kind::lazy; });
      !slices.empty()) {
    Coords in = c;
    for (size_t d = 0; d < in.size(); ++d)
      if (d != axis) in[d] = sliced(*slices[0], d, c[d]);
    int64_t end = shape(v)[axis];
    Value chosen;
    for (size_t i = slices.size(); i-- > 0;) {
      const ir::Op& part = *slices[i];
      const int64_t n = shape(part.results[0])[axis], begin = end - n;
      end = begin;
      if (n == 0) continue;
      const Value start = b_.i32(part.ints(Attr::start)[axis]), stride = b_.i32(part.ints(Attr::stride)[axis]);
      const Value e = b_.add(b_.mul(b_.add(c[axis].v, b_.i32(-begin)), stride), start);
      chosen = chosen ? b_.select(b_.lt(c[axis].v, b_.i32(begin + n)), e, chosen) : e;
    }
    in[axis] = {chosen};
    return of(slices[0]->operands[0], in);
  }
  // Every part is read at a clamped position, so that the choice between them needs no branch.
  Value r;
  int64_t end = shape(v)[axis];
  for (size_t i = o.operands.size(); i-- > 0;) {
    const Value x = o.operands[i];
    const int64_t n = shape(x)[axis], begin = end - n;
    end = begin;
    if (n == 0) continue;
    Coords in = c;
    const Value last = b_.i32(n - 1), zero = b_.i32(0);
    in[axis] = {b_.clamp(b_.sub(c[axis].v, b_.i32(begin)), zero, last)};
    if (n == 1) in[axis] = at(0);
    const Value e = of(x, in);
    r = r ? b_.select(b_.lt(c[axis].v, b_.i32(begin + n)), e, r) : e;
  }
  return r;
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
