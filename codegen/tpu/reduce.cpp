// Reductions, argreductions and scans. vector.multi_reduction takes f32 and i32 and gives vectors: other dtypes are
// converted, a scalar is the one element of a vector. What it has not is done by halves.
#include <algorithm>

#include "codegen/tpu/emitter.h"
#include "engine/base/error.h"
#include "engine/ir/reference.h"

namespace tessera::tpu {
using ir::Attr;
using ir::Opcode;

Val Emitter::reduce_by(const std::string& kind, const Val& x, uint64_t identity, const std::vector<int64_t>& axes) {
  const bool to_scalar = axes.size() == x.shape.size();
  Val from = x;
  std::vector<int64_t> over = axes;
  if (to_scalar) {
    Shape shape = x.shape;
    shape.insert(shape.begin(), 1);
    from = t_.shape_cast(x, shape);
    for (int64_t& a : over) ++a;
  }
  Shape shape;
  for (size_t d = 0; d < from.shape.size(); ++d)
    if (std::find(over.begin(), over.end(), static_cast<int64_t>(d)) == over.end()) shape.push_back(from.shape[d]);
  const Val start = t_.constant(x.dtype, identity, shape);
  const Val r = t_.make("vector.multi_reduction <" + kind + ">, " + from.name + ", " + start.name + " " + list(over) +
                            " : " + type_of(from) + " to " + value_type(x.dtype, shape),
                        x.dtype, shape);
  if (!to_scalar) return r;
  const Val one = t_.shape_cast(r, Shape(from.shape.size(), 1));
  return t_.extract(one);
}

Val Emitter::reduce_in_halves(const ir::Op& op, Opcode combiner, Val x, std::vector<int64_t> axes) {
  const bool of_bools = x.dtype == DType::boolean;
  if (of_bools) x = convert(x, DType::i32);
  for (const int64_t a : axes) {
    const auto axis = static_cast<size_t>(a);
    while (x.shape[axis] > 1) {
      const int64_t n = x.shape[axis], half = n / 2;
      const Val low = t_.slice(x, axis, 0, half), high = t_.slice(x, axis, half, half);
      Val r = combine(op, combiner, low, high);
      if (n % 2) {
        const Val rest = t_.slice(x, axis, n - 1, 1);
        const Val first = t_.slice(r, axis, 0, 1);
        const Val both = combine(op, combiner, first, rest);
        r = half == 1 ? both : t_.concatenate({both, t_.slice(r, axis, 1, half - 1)}, axis);
      }
      x = r;
    }
  }
  Shape shape;
  for (size_t d = 0; d < x.shape.size(); ++d)
    if (std::find(axes.begin(), axes.end(), static_cast<int64_t>(d)) == axes.end()) shape.push_back(x.shape[d]);
  const Val r = reshape(x, shape);
  return of_bools ? convert(r, DType::boolean) : r;
}

// Of x, whose dtype is f32, i32, u32 or bool.
Val Emitter::reduce_wide(const ir::Op& op, Opcode combiner, const Val& x, const std::vector<int64_t>& axes) {
  if (axes.empty()) return x;
  const bool least = combiner == Opcode::min || combiner == Opcode::and_;
  if (x.dtype == DType::boolean && (combiner == Opcode::and_ || combiner == Opcode::or_)) {
    const Val one = t_.number(DType::f32, 1, x.shape), none = t_.number(DType::f32, 0, x.shape);
    const Val number = t_.select(x, one, none);
    const Val r = reduce_wide(op, least ? Opcode::min : Opcode::max, number, axes);
    return t_.compare("ogt", r, t_.number(DType::f32, 0, r.shape));
  }
  if (combiner != Opcode::add && combiner != Opcode::max && combiner != Opcode::min)
    return reduce_in_halves(op, combiner, x, axes);
  if (x.dtype == DType::u32 && combiner != Opcode::add) {  // signed, with the upper bit changed, they lie in order
    const Val upper = t_.integer(DType::i32, INT32_MIN, x.shape);
    const Val moved = t_.binary("arith.xori", Val{x.name, DType::i32, x.shape}, upper);
    const Val r = reduce_wide(op, combiner, moved, axes);
    const Val back = t_.binary("arith.xori", r, t_.integer(DType::i32, INT32_MIN, r.shape));
    return {back.name, DType::u32, back.shape};
  }
  const std::string kind =
      combiner == Opcode::add ? "add" : std::string(least ? "min" : "max") + (is_float(x.dtype) ? "imumf" : "si");
  return reduce_by(kind, x, reference::identity(combiner, x.dtype), axes);
}

void Emitter::reduce(const ir::Op& op) {
  const Val& x = value(op.operands[0]);
  const Opcode combiner = ir::combining_op(op.code);
  const DType t = x.dtype;
  const DType wide = t == DType::boolean ? t : is_float(t) ? DType::f32 : is_unsigned_int(t) ? DType::u32 : DType::i32;
  const Val from = convert(x, wide);
  const Val r = reduce_wide(op, combiner, from, op.ints(Attr::axes));
  set(op, convert(r, t));
}

void Emitter::argreduce(const ir::Op& op) {
  const Val& x = value(op.operands[0]);
  const ir::Type& type = k_.type(op.results[0]);
  const bool greatest = op.code == Opcode::argmax;
  const DType wide = is_float(x.dtype) ? DType::f32 : is_unsigned_int(x.dtype) ? DType::u32 : DType::i32;
  Val from = convert(x, wide);
  auto axis = static_cast<size_t>(op.attr(Attr::axis));
  if (from.shape.size() == 1) {
    from = t_.shape_cast(from, {1, from.shape[0]});
    axis = 1;
  }
  Shape shape = from.shape;
  shape.erase(shape.begin() + static_cast<ptrdiff_t>(axis));
  Val r;
  if (is_float(wide)) {
    r = t_.make("tpu.reduce_index " + from.name + " {axis = " + std::to_string(axis) +
                    " : i32, kind = #tpu.reduction_kind<" + (greatest ? "arg_max" : "arg_min") +
                    ">} : " + type_of(from) + " -> " + value_type(DType::i32, shape),
                DType::i32, shape);
  } else {  // the first place that holds the greatest
    const std::vector<int64_t> axes{static_cast<int64_t>(axis)};
    const Val most = reduce_wide(op, greatest ? Opcode::max : Opcode::min, from, axes);
    Shape kept = from.shape;
    kept[axis] = 1;
    const Val column = t_.shape_cast(most, kept);
    const Val spread = t_.broadcast(column, from.shape);
    const Val holds = t_.compare("eq", from, spread);
    const Val place = t_.iota(from.shape, axis);
    const Val none = t_.integer(DType::i32, from.shape[axis], from.shape);
    const Val candidate = t_.select(holds, place, none);
    r = reduce_wide(op, Opcode::min, candidate, axes);
  }
  const Val shaped = type.shape.empty() ? t_.extract(r) : r;
  set(op, convert(shaped, type.dtype));
}

// In log2(n) steps: each adds what lies 1, 2, 4, ... places before.
void Emitter::scan(const ir::Op& op) {
  const Val& x = value(op.operands[0]);
  const Opcode combiner = ir::combining_op(op.code);
  const DType t = x.dtype, wide = is_float(t) ? DType::f32 : is_unsigned_int(t) ? DType::u32 : DType::i32;
  const auto axis = static_cast<size_t>(op.attr(Attr::axis));
  const bool reverse = op.attr_or(Attr::reverse, 0) != 0;
  Val r = convert(x, wide);
  const int64_t n = r.shape[axis];
  for (int64_t by = 1; by < n; by *= 2) {
    Shape shape = r.shape;
    shape[axis] = by;
    const Val edge = t_.constant(wide, reference::identity(combiner, wide), shape);
    const Val inner = t_.slice(r, axis, reverse ? by : 0, n - by);
    const Val moved = t_.concatenate(reverse ? std::vector<Val>{inner, edge} : std::vector<Val>{edge, inner}, axis);
    r = combine(op, combiner, r, moved);
  }
  set(op, convert(r, t));
}

}  // namespace tessera::tpu
