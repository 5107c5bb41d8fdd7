#include "engine/front/ops.h"

#include <algorithm>
#include <utility>

#include "engine/base/plural.h"
#include "engine/front/elementwise.h"
#include "engine/front/trace.h"

namespace tessera {
using ir::Attr;
using ir::Opcode;
using ir::Type;

Value full(Shape shape, Operand value, std::optional<DType> dtype) {
  Emit e("full", value);
  const DType t = dtype.value_or(e.dtype(value));
  if (value.number() && std::holds_alternative<double>(*value.number()) && !is_float(t))
    return e.wrap(e.broadcast(e.builder().convert(e.as_is(value), t), shape));
  return e.wrap(e.as(value, t, shape));
}
Value zeros(Shape shape, DType dtype, Loc loc) {
  Emit e("zeros", loc);
  return e.wrap(e.builder().constant_int(dtype, 0, std::move(shape)));
}
Value ones(Shape shape, DType dtype, Loc loc) {
  Emit e("ones", loc);
  return e.wrap(e.builder().constant_int(dtype, 1, std::move(shape)));
}

Value iota(DType dtype, Shape shape, int64_t axis, Loc loc) {
  Emit e("iota", loc);
  ir::Op op{.code = Opcode::iota};
  op.set(Attr::axis, e.axis(axis, shape.size()));
  return e.wrap(e.builder().one(std::move(op), Type::array(dtype, std::move(shape))));
}

Value broadcast_to(Operand x, Shape shape) {
  Emit e("broadcast_to", x);
  return e.wrap(e.broadcast(e.as_is(x), shape));
}

namespace {
ir::Value reshaped(Emit& e, ir::Value v, Shape shape) {
  const Type t = e.trace().kernel().type(v);
  if (t.shape == shape) return v;
  return e.builder().one({.code = Opcode::reshape, .operands = {v}}, Type::array(t.dtype, std::move(shape)));
}
}  // namespace

Value reshape(Operand x, Shape shape) {
  Emit e("reshape", x);
  const auto open = std::count(shape.begin(), shape.end(), -1);
  if (open > 1) e.fail("shape " + to_string(shape) + " leaves more than one size open");
  if (open == 1) {
    int64_t known = 1;
    for (int64_t d : shape) known *= d == -1 ? 1 : d;
    const int64_t total = num_elements(e.shape(x));
    if (known <= 0 || total % known)
      e.fail("shape " + to_string(e.shape(x)) + " does not divide into " + to_string(shape));
    *std::find(shape.begin(), shape.end(), -1) = total / known;
  }
  return e.wrap(reshaped(e, e.as_is(x), std::move(shape)));
}

Value transpose(Operand x, std::vector<int64_t> perm) {
  Emit e("transpose", x);
  const size_t rank = e.shape(x).size();
  if (perm.size() != rank)
    e.fail("perm " + to_string(perm) + " has " + plural(perm.size(), "entry", "entries") + " but the operand " +
           to_string(e.shape(x)) + " has " + std::to_string(rank) + (rank == 1 ? " dim" : " dims"));
  for (int64_t& p : perm) p = e.axis(p, rank);
  ir::Op op{.code = Opcode::transpose, .operands = {e.as_is(x)}};
  op.set(Attr::perm, std::move(perm));
  return e.wrap(e.builder().one(std::move(op)));
}
Value transpose(Operand x) {
  std::vector<int64_t> perm(x.value() ? x.value()->shape().size() : 0);
  for (size_t i = 0; i < perm.size(); ++i) perm[i] = static_cast<int64_t>(perm.size() - 1 - i);
  return transpose(std::move(x), std::move(perm));
}

Value slice(Operand x, std::vector<int64_t> start, std::vector<int64_t> limit, std::vector<int64_t> strides) {
  Emit e("slice", x);
  if (strides.empty()) strides.assign(start.size(), 1);
  ir::Op op{.code = Opcode::slice, .operands = {e.as_is(x)}};
  op.set(Attr::start, std::move(start));
  op.set(Attr::limit, std::move(limit));
  op.set(Attr::stride, std::move(strides));
  return e.wrap(e.builder().one(std::move(op)));
}

Value concatenate(std::vector<Operand> parts, int64_t axis) {
  Emit e("concatenate", parts.empty() ? Operand() : parts[0]);
  if (parts.empty()) e.fail("there is nothing to concatenate");
  DType t = e.dtype(parts[0]);
  for (const Operand& p : parts) t = p.value() ? e.promote(t, p.value()->dtype()) : t;
  ir::Op op{.code = Opcode::concatenate};
  for (const Operand& p : parts) op.operands.push_back(e.as(p, t));
  op.set(Attr::axis, e.axis(axis, e.shape(parts[0]).size()));
  return e.wrap(e.builder().one(std::move(op)));
}

namespace {
/// The dtype to which operands of two dtypes are converted for a product with a result of dtype `asked`; nothing: the
/// one that they promote to. JAX converts both to the result's dtype. Here, for a float result, a float operand's dtype
/// will do if it holds the other operand's numbers.
std::optional<DType> meeting_dtype(DType l, DType r, DType asked) {
  if (l == r || asked == DType::boolean) return std::nullopt;
  if (is_int(asked) && (is_float(l) || is_float(r))) return asked;
  if (l == DType::boolean || r == DType::boolean) return std::nullopt;
  if (is_float(l) && is_float(r)) {
    if (is_float8(l) == is_float8(r)) return std::nullopt;
    return is_float8(l) ? r : l;
  }
  if (is_int(l) && is_int(r)) {
    const auto t = promote_types(l, r);
    const bool promoted = t && (is_float(asked) || (is_int(*t) && bits(asked) >= bits(*t)));
    const bool narrower = is_int(asked) && bits(asked) < std::max(bits(l), bits(r));  // which is refused
    return promoted || narrower ? std::nullopt : std::optional(asked);
  }
  const DType f = is_float(l) ? l : r, i = is_float(l) ? r : l;
  const bool holds = bits(i) - is_signed_int(i) <= float_format(f).mantissa + 1;
  return !holds && bits(asked) >= bits(f) ? asked : f;
}
DType meeting_dtype(const Emit& e, const Operand& a, const Operand& b, const DotParams& p) {
  const std::optional<DType> asked = p.preferred_element_type;
  const auto t = asked ? meeting_dtype(e.dtype(a), e.dtype(b), *asked) : std::nullopt;
  return t ? *t : e.common_dtype({&a, &b});
}
}  // namespace

Value dot(Operand a, Operand b, DotParams p) {
  Emit e("dot", a);
  if (const DType l = e.dtype(a), r = e.dtype(b); is_float8(l) && is_float8(r) && l != r) {  // f16 holds both
    const auto to = p.preferred_element_type;
    if (!to || !is_float(*to) || is_float8(*to))
      e.fail("of " + std::string(name(l)) + " and " + std::string(name(r)) + " there is no product in " +
                 (to ? std::string(name(*to)) : "either"),
             "set preferred_element_type to f16, bf16, f32 or f64");
    const Value right = cast(b, DType::f16);
    return dot(cast(a, DType::f16), right, p);
  }
  DType t = meeting_dtype(e, a, b, p);
  if (t == DType::boolean) {  // or of ands; a number of them where one is asked for
    const auto to = std::exchange(p.preferred_element_type, std::nullopt);
    const Value right = cast(b, DType::i32), count = dot(cast(a, DType::i32), right, p);
    return cast(count, to.value_or(DType::boolean));
  }
  const DType asked = p.preferred_element_type.value_or(t);
  if (is_int(t) && is_float(asked)) t = asked;  // of integers as floats, which are products and sums of floats
  // The op's own result: the asked dtype where it holds the sum, else the operands' (or, of two narrow floats, f32)
  // before a conversion.
  DType sum = asked;
  if (is_float(t) && asked != t && !(is_float(asked) && bits(asked) > bits(t))) sum = bits(t) == 16 ? DType::f32 : t;
  else if (is_signed_int(t) && is_unsigned_int(asked) && bits(asked) >= bits(t))
    sum = static_cast<DType>(static_cast<int>(asked) - static_cast<int>(DType::u8) + static_cast<int>(DType::i8));
  ir::Value x = e.as(a, t), y = e.as(b, t);
  Shape xs = e.shape(a), ys = e.shape(b), result_shape;
  bool reshape_result = false;
  if (p.lhs_contract.empty() && p.rhs_contract.empty() && p.lhs_batch.empty() && p.rhs_batch.empty()) {
    if (xs.empty() || ys.empty())
      e.fail("a scalar operand: shapes " + to_string(xs) + " and " + to_string(ys), "use * to scale");
    const Shape original_x = xs, original_y = ys;
    const bool row = xs.size() == 1, column = ys.size() == 1;
    if (row) xs.insert(xs.begin(), 1);
    if (column) ys.push_back(1);
    if (xs.back() != ys[ys.size() - 2])
      e.fail("shapes " + to_string(original_x) + " and " + to_string(original_y) + ": " + std::to_string(xs.back()) +
             " columns on the left meet " + std::to_string(ys[ys.size() - 2]) + " rows on the right");
    x = reshaped(e, x, xs);
    y = reshaped(e, y, ys);
    Shape batch(std::max(xs.size(), ys.size()) - 2);
    for (size_t i = 0; i < batch.size(); ++i) {
      const auto size = [&](const Shape& s) { return i + 2 < s.size() ? s[s.size() - 3 - i] : int64_t{1}; };
      const int64_t m = size(xs), n = size(ys);
      if (m != n && m != 1 && n != 1)
        e.fail("shapes " + to_string(original_x) + " and " + to_string(original_y) +
               ": the batch dims do not broadcast");
      batch[batch.size() - 1 - i] = m == 1 ? n : m;
    }
    const auto with_batch = [&](ir::Value v, const Shape& s) {
      Shape full = batch;
      full.insert(full.end(), s.end() - 2, s.end());
      return e.broadcast(v, full);
    };
    const int64_t nb = static_cast<int64_t>(batch.size());
    result_shape = batch;
    if (!row) result_shape.push_back(xs[xs.size() - 2]);
    if (!column) result_shape.push_back(ys.back());
    x = with_batch(x, xs);
    y = with_batch(y, ys);
    for (int64_t i = 0; i < nb; ++i) p.lhs_batch.push_back(i);
    p.rhs_batch = p.lhs_batch;
    p.lhs_contract = {nb + 1};
    p.rhs_contract = {nb};
    reshape_result = row || column;
  } else {
    for (auto* dims : {&p.lhs_contract, &p.lhs_batch})
      for (int64_t& d : *dims) d = e.axis(d, xs.size());
    for (auto* dims : {&p.rhs_contract, &p.rhs_batch})
      for (int64_t& d : *dims) d = e.axis(d, ys.size());
  }
  ir::Op op{.code = Opcode::dot, .operands = {x, y}};
  op.set(Attr::lhs_contract, p.lhs_contract);
  op.set(Attr::rhs_contract, p.rhs_contract);
  op.set(Attr::lhs_batch, p.lhs_batch);
  op.set(Attr::rhs_batch, p.rhs_batch);
  ir::Value v = e.builder().convert(e.builder().one(std::move(op), Type::array(sum)), asked);
  if (reshape_result) v = reshaped(e, v, std::move(result_shape));
  return e.wrap(v);
}

namespace {
Value reduce(Opcode code, std::string_view name, const Operand& x, const ReduceParams& p, DType t) {
  Emit e(name, x);
  const Shape shape = e.shape(x);
  std::vector<int64_t> axes;
  if (p.axis.list()) {
    for (int64_t a : *p.axis.list()) axes.push_back(e.axis(a, shape.size()));
    std::sort(axes.begin(), axes.end());
    if (const auto twice = std::adjacent_find(axes.begin(), axes.end()); twice != axes.end())
      e.fail("axis " + std::to_string(*twice) + " is listed twice");
  } else {
    for (size_t i = 0; i < shape.size(); ++i) axes.push_back(static_cast<int64_t>(i));
  }
  ir::Value v = e.builder().convert(e.as_is(x), t);
  if (!axes.empty()) {
    ir::Op op{.code = code, .operands = {v}};
    op.set(Attr::axes, axes);
    v = e.builder().one(std::move(op));
  }
  if (p.keepdims) {
    Shape kept = shape;
    for (int64_t a : axes) kept[static_cast<size_t>(a)] = 1;
    v = reshaped(e, v, std::move(kept));
  }
  return e.wrap(v);
}
/// As jnp.sum without 64-bit types: bools and narrow ints in 32 bits of the same sign.
DType sum_dtype(DType t) {
  if (t == DType::boolean || (is_signed_int(t) && bits(t) < 32)) return DType::i32;
  return is_unsigned_int(t) && bits(t) < 32 ? DType::u32 : t;
}
DType own_dtype(std::string_view name, const Operand& x) { return Emit(name, x).dtype(x); }
Value extreme(Opcode code, Opcode for_bool, std::string_view name, const Operand& x, const ReduceParams& p) {
  const DType t = own_dtype(name, x);
  return reduce(t == DType::boolean ? for_bool : code, name, x, p, t);
}
Value position(Opcode code, const Operand& x, const ArgParams& p) {
  Emit e(ir::name(code), x);
  const Shape shape = e.shape(x);
  ir::Value v = e.as_is(x);
  if (e.dtype(x) == DType::boolean) v = e.builder().convert(v, DType::u8);
  if (!p.axis) v = reshaped(e, v, {num_elements(shape)});
  const int axis = p.axis ? e.axis(*p.axis, shape.size()) : 0;
  ir::Op op{.code = code, .operands = {v}};
  op.set(Attr::axis, axis);
  if (!is_int(p.index_dtype)) e.fail("the index dtype must be integers but is " + std::string(name(p.index_dtype)));
  v = e.builder().one(std::move(op), Type::array(p.index_dtype));
  if (p.keepdims) {
    Shape kept = p.axis ? shape : Shape(shape.size(), 1);
    if (p.axis) kept[static_cast<size_t>(axis)] = 1;
    v = reshaped(e, v, std::move(kept));
  }
  return e.wrap(v);
}
}  // namespace

Value sum(Operand x, ReduceParams p) { return reduce(Opcode::reduce_sum, "sum", x, p, sum_dtype(own_dtype("sum", x))); }
Value prod(Operand x, ReduceParams p) {
  return reduce(Opcode::reduce_prod, "prod", x, p, sum_dtype(own_dtype("prod", x)));
}
Value max(Operand x, ReduceParams p) { return extreme(Opcode::reduce_max, Opcode::reduce_or, "max", x, p); }
Value min(Operand x, ReduceParams p) { return extreme(Opcode::reduce_min, Opcode::reduce_and, "min", x, p); }
Value reduce_and(Operand x, ReduceParams p) {
  return reduce(Opcode::reduce_and, "reduce_and", x, p, own_dtype("reduce_and", x));
}
Value reduce_or(Operand x, ReduceParams p) {
  return reduce(Opcode::reduce_or, "reduce_or", x, p, own_dtype("reduce_or", x));
}
Value argmax(Operand x, ArgParams p) { return position(Opcode::argmax, x, p); }
Value argmin(Operand x, ArgParams p) { return position(Opcode::argmin, x, p); }

namespace {
Value scan(Opcode code, const Operand& x, const ScanParams& p) {
  Emit e(ir::name(code), x);
  const DType t = e.dtype(x);
  const bool counts = t == DType::boolean && ir::info(ir::combining_op(code)).operands == ir::OperandRule::num;
  ir::Op op{.code = code, .operands = {e.builder().convert(e.as_is(x), counts ? DType::i32 : t)}};
  op.set(Attr::axis, e.axis(p.axis, e.shape(x).size()));
  op.set(Attr::reverse, p.reverse);
  return e.wrap(e.builder().one(std::move(op)));
}
}  // namespace

Value cumsum(Operand x, ScanParams p) { return scan(Opcode::cumsum, x, p); }
Value cumprod(Operand x, ScanParams p) { return scan(Opcode::cumprod, x, p); }
Value cummax(Operand x, ScanParams p) { return scan(Opcode::cummax, x, p); }
Value cummin(Operand x, ScanParams p) { return scan(Opcode::cummin, x, p); }

namespace {
Value grid_index(Opcode code, int64_t axis, Loc loc) {
  Emit e(ir::name(code), loc);
  Trace& t = e.trace();
  const Trace::InnerGrid* inner = t.inner_grid();
  int64_t axes = inner ? static_cast<int64_t>(inner->ids.size()) : 0;
  if (!inner)
    for (const ir::GridAxis& g : t.kernel().grid) axes += !g.vmapped;
  if (axis < 0 || axis >= axes)
    e.fail("axis " + std::to_string(axis) + " is out of range for a grid of " + std::to_string(axes) +
           (axes == 1 ? " axis" : " axes"));
  if (inner) return (code == Opcode::program_id ? inner->ids : inner->num_programs)[static_cast<size_t>(axis)];
  // An index map has the program ids as its arguments already.
  if (code == Opcode::program_id && !t.index_map_origin().empty())
    return t.argument(t.outermost_region(), static_cast<size_t>(axis));
  ir::Op op{.code = code};
  op.set(Attr::axis, axis);
  return e.wrap(e.builder().one(std::move(op)));
}
}  // namespace

namespace {
Value read_size(const Extent& size, Loc loc) {
  Emit e("dim", loc);
  Trace& t = e.trace();
  if (const auto n = size.value()) return e.wrap(e.constant(Operand::Number(*n), DType::i32));
  if (t.calls())
    e.fail("the run-time size " + to_string(size) + " is read outside of a kernel", "read it inside of one");
  if (!t.index_map_origin().empty())
    e.fail("the run-time size " + to_string(size) + " is read in an index map",
           "an index map sees program ids, num_programs and scalar-prefetch Refs");
  std::vector<Extent>& sizes = t.kernel().sizes;
  const auto known = std::find(sizes.begin(), sizes.end(), size);
  ir::Op op{.code = Opcode::size};
  op.set(Attr::index, known - sizes.begin());
  if (known == sizes.end()) sizes.push_back(size);
  return e.wrap(e.builder().one(std::move(op)));
}
}  // namespace

Value Value::of_size(const Extent& size, Loc l) { return read_size(size, l); }

Value program_id(int64_t axis, Loc loc) { return grid_index(Opcode::program_id, axis, loc); }
Value num_programs(int64_t axis, Loc loc) { return grid_index(Opcode::num_programs, axis, loc); }

}  // namespace tessera
