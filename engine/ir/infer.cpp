// Type inference: the rules of every row of ops.def, one function per family. builder.h says what `requested` is for.
#include <algorithm>

#include "engine/base/plural.h"
#include "engine/base/print_text.h"
#include "engine/ir/inference.h"

namespace tessera::ir {

std::vector<Type> Inference::run() {
  for (size_t i = 0; i < op_.operands.size(); ++i)
    if (op_.operands[i].index >= k_.values.size())
      fail("operand " + std::to_string(i) + " is not a value of this kernel");
  for (size_t i = 0; i < op_.regions.size(); ++i)
    if (op_.regions[i].index >= k_.regions.size())
      fail("region " + std::to_string(i) + " is not a region of this kernel");
  std::vector<Type> result = is_elementwise(op_.code) ? elementwise() : structured();
  for (const Type& t : result) check_size(t);
  return result;
}

void Inference::count(size_t wanted) const {
  if (op_.operands.size() != wanted)
    fail("takes " + std::to_string(wanted) + (wanted == 1 ? " operand" : " operands") + " but got " +
         std::to_string(op_.operands.size()));
}

void Inference::regions(size_t wanted) const {
  if (op_.regions.size() != wanted)
    fail("takes " + std::to_string(wanted) + (wanted == 1 ? " region" : " regions") + " but got " +
         std::to_string(op_.regions.size()));
}

const Type& Inference::array(size_t operand) const {
  const Type& t = type(operand);
  if (t.is_ref) fail("operand " + std::to_string(operand) + " is a " + to_string(t), "load from the ref first");
  return t;
}

const std::vector<int64_t>& Inference::ints(Attr a) const {
  if (!op_.has(a)) fail("attribute " + std::string(name(a)) + " is missing");
  return op_.ints(a);
}

int64_t Inference::attr(Attr a) const {
  const auto& v = ints(a);
  if (v.size() != 1)
    fail("attribute " + std::string(name(a)) + " takes one number but got " + std::to_string(v.size()));
  return v[0];
}

int64_t Inference::flag(Attr a) const {
  if (!op_.has(a)) return 0;
  const int64_t v = attr(a);
  if (v != 0 && v != 1) fail("attribute " + std::string(name(a)) + " is " + std::to_string(v) + ", not 0 or 1");
  return v;
}

void Inference::in_range(const char* what, int64_t v, size_t rank) const {
  if (v < 0 || v >= static_cast<int64_t>(rank))
    fail(std::string(what) + " " + std::to_string(v) + " is out of range for " + std::to_string(rank) +
         (rank == 1 ? " dim" : " dims"));
}

void Inference::check_requested() const {
  const Shape& shape = requested_.shape;
  for (int64_t d : shape)
    if (d < 0) fail("the result's shape " + to_string(shape) + " has a negative size");
  check_size(requested_);
}

void Inference::scalar(size_t operand, DType t, const char* what) const {
  if (type(operand) != Type::array(t))
    fail(std::string(what) + " must be " + to_string(Type::array(t)) + " but is " + to_string(type(operand)));
}

void Inference::check_size(const Type& t) const {
  if (!within_limits(t.shape))
    fail("the result " + to_string(t) + " is too large", "at most 32 dims and 2^40 elements are allowed");
}

void Inference::check_dtype(OperandRule rule, DType t) const {
  if (takes(rule, t)) return;
  const char* wanted = rule == OperandRule::num    ? "integers or floats"
                       : rule == OperandRule::flt  ? "floats"
                       : rule == OperandRule::int_ ? "integers"
                                                   : "integers or bool";
  fail("takes " + std::string(wanted) + " but the operand is " + std::string(name(t)));
}

std::vector<Type> Inference::elementwise() const {
  const OpInfo& row = info(op_.code);
  count(static_cast<size_t>(row.arity));
  for (size_t i = 0; i < op_.operands.size(); ++i) array(i);
  const size_t first = row.operands == OperandRule::select ? 1 : 0;
  const Type& t = type(first);
  if (first && type(0).dtype != DType::boolean)
    fail("the predicate must be bool but is " + std::string(name(type(0).dtype)));
  bool same_shape = true, same_dtype = true;
  for (size_t i = 0; i < op_.operands.size(); ++i) {
    same_shape &= type(i).shape == t.shape;
    same_dtype &= i < first || type(i).dtype == t.dtype;
  }
  if (!same_dtype)
    fail("operands have dtypes " + each(first, [](const Type& x) { return std::string(name(x.dtype)); }),
         "convert one of them first");
  if (!same_shape)
    fail("operands have shapes " + each(0, [](const Type& x) { return to_string(x.shape); }),
         "shapes must be equal or broadcast to one shape");
  check_dtype(row.operands, t.dtype);
  switch (row.result) {
    case ResultRule::same: return {t};
    case ResultRule::pred: return {Type::array(DType::boolean, t.shape)};
    case ResultRule::other: break;
    case ResultRule::structured: throw InternalError("elementwise op without a result rule");
  }
  if (op_.code == Opcode::bitcast &&
      (t.dtype == DType::boolean || requested_.dtype == DType::boolean || bits(t.dtype) != bits(requested_.dtype)))
    fail("cannot reinterpret " + std::string(name(t.dtype)) + " as " + std::string(name(requested_.dtype)),
         "both must have the same width, and neither may be bool");
  return {Type::array(requested_.dtype, t.shape)};
}

std::vector<Type> Inference::constant() const {
  count(0);
  if (requested_.is_ref) fail("the result cannot be a " + to_string(requested_));
  check_requested();
  const uint64_t b = static_cast<uint64_t>(attr(Attr::bits));
  if (const int n = bits(requested_.dtype); n < 64 && b >> n)
    fail("the bits do not fit " + std::string(name(requested_.dtype)));
  return {requested_};
}

std::vector<Type> Inference::iota() const {
  count(0);
  check_requested();
  in_range("axis", attr(Attr::axis), requested_.shape.size());
  if (requested_.dtype == DType::boolean || requested_.is_ref)
    fail("the result must be integers or floats but is " + to_string(requested_));
  return {requested_};
}

std::vector<Type> Inference::broadcast() const {
  count(1);
  const Type& t = array(0);
  check_requested();
  const auto& dims = ints(Attr::dims);
  if (dims.size() != t.shape.size())
    fail("the operand " + to_string(t.shape) + " has " + std::to_string(t.shape.size()) + " dims but dims lists " +
         std::to_string(dims.size()));
  for (size_t i = 0; i < dims.size(); ++i) {
    in_range("result dim", dims[i], requested_.shape.size());
    if (i && dims[i] <= dims[i - 1]) fail("dims " + to_string(dims) + " do not increase");
    const int64_t to = requested_.shape[static_cast<size_t>(dims[i])];
    if (t.shape[i] != 1 && t.shape[i] != to)
      fail("shape " + to_string(t.shape) + " does not broadcast to " + to_string(requested_.shape) + " along dims " +
           to_string(dims));
  }
  return {Type::array(t.dtype, requested_.shape)};
}

std::vector<Type> Inference::reshape() const {
  count(1);
  const Type& t = array(0);
  check_requested();
  if (num_elements(t.shape) != num_elements(requested_.shape))
    fail("shape " + to_string(t.shape) + " has " + std::to_string(num_elements(t.shape)) + " elements but " +
         to_string(requested_.shape) + " has " + std::to_string(num_elements(requested_.shape)));
  return {Type::array(t.dtype, requested_.shape)};
}

std::vector<Type> Inference::transpose() const {
  count(1);
  const Type& t = array(0);
  const auto& perm = ints(Attr::perm);
  std::vector<bool> seen(t.shape.size());
  bool good = perm.size() == t.shape.size();
  for (int64_t p : perm) {
    if (!good || p < 0 || p >= static_cast<int64_t>(seen.size()) || seen[static_cast<size_t>(p)]) {
      good = false;
      break;
    }
    seen[static_cast<size_t>(p)] = true;
  }
  if (!good) fail("perm " + to_string(perm) + " is not a permutation of the dims of " + to_string(t.shape));
  Shape shape;
  for (int64_t p : perm) shape.push_back(t.shape[static_cast<size_t>(p)]);
  return {Type::array(t.dtype, shape)};
}

std::vector<Type> Inference::slice() const {
  count(1);
  const Type& t = array(0);
  const auto &start = ints(Attr::start), &limit = ints(Attr::limit), &stride = ints(Attr::stride);
  const size_t rank = t.shape.size();
  if (start.size() != rank || limit.size() != rank || stride.size() != rank)
    fail("the operand " + to_string(t.shape) + " has " + std::to_string(rank) +
         " dims but start, limit and stride list " + std::to_string(start.size()) + ", " +
         std::to_string(limit.size()) + " and " + std::to_string(stride.size()));
  Shape shape;
  for (size_t i = 0; i < rank; ++i) {
    if (start[i] < 0 || limit[i] < start[i] || limit[i] > t.shape[i] || stride[i] < 1)
      fail("dim " + std::to_string(i) + ": " + std::to_string(start[i]) + ":" + std::to_string(limit[i]) + ":" +
           std::to_string(stride[i]) + " is not a slice of " + std::to_string(t.shape[i]) + " elements");
    const int64_t n = limit[i] - start[i];
    shape.push_back(n / stride[i] + (n % stride[i] != 0));
  }
  return {Type::array(t.dtype, shape)};
}

std::vector<Type> Inference::concatenate() const {
  if (op_.operands.empty()) fail("takes at least one operand");
  Type result = array(0);
  const int64_t axis = attr(Attr::axis);
  in_range("axis", axis, result.shape.size());
  for (size_t i = 1; i < op_.operands.size(); ++i) {
    const Type& t = array(i);
    if (t.dtype != result.dtype)
      fail("operands have dtypes " + each(0, [](const Type& x) { return std::string(name(x.dtype)); }),
           "convert them to one dtype first");
    bool fits = t.shape.size() == result.shape.size();
    for (size_t d = 0; fits && d < t.shape.size(); ++d)
      fits = d == static_cast<size_t>(axis) || t.shape[d] == result.shape[d];
    if (!fits)
      fail("operands have shapes " + each(0, [](const Type& x) { return to_string(x.shape); }) +
           " which differ outside axis " + std::to_string(axis));
    result.shape[static_cast<size_t>(axis)] += t.shape[static_cast<size_t>(axis)];
  }
  return {result};
}

void Inference::dims_of(const Type& t, const char* side, const std::vector<int64_t>& contract,
                        const std::vector<int64_t>& batch) const {
  std::vector<bool> seen(t.shape.size());
  for (const auto* list : {&contract, &batch})
    for (int64_t d : *list) {
      in_range(side, d, t.shape.size());
      if (seen[static_cast<size_t>(d)]) fail(std::string(side) + " " + std::to_string(d) + " is listed twice");
      seen[static_cast<size_t>(d)] = true;
    }
}

std::vector<Type> Inference::dot() const {
  const bool accumulates = op_.operands.size() == 3;
  if (!accumulates) count(2);
  const Type &l = array(0), &r = array(1);
  if (l.dtype != r.dtype)
    fail("operands have dtypes " + each(0, [](const Type& x) { return std::string(name(x.dtype)); }),
         "convert one of them first");
  check_dtype(OperandRule::num, l.dtype);
  const DType to = requested_.dtype;
  const bool wide_enough = bits(to) > bits(l.dtype) || to == l.dtype;
  const bool good = is_float(l.dtype)
                        ? is_float(to) && wide_enough
                        : is_int(to) && bits(to) >= bits(l.dtype) && (is_signed_int(to) || !is_signed_int(l.dtype));
  if (!good)
    fail("operands of " + std::string(name(l.dtype)) + " cannot give a result of " + std::string(name(to)),
         "the result has the operands' dtype or a wider one of its kind");
  for (const Attr a : {Attr::lhs_contract, Attr::rhs_contract, Attr::lhs_batch, Attr::rhs_batch})
    ints(a);  // or says so
  const DotDims dims = dot_dims(op_, l.shape.size(), r.shape.size());
  const auto &lc = dims.lhs_contract, &rc = dims.rhs_contract, &lb = dims.lhs_batch, &rb = dims.rhs_batch;
  if (lc.size() != rc.size())
    fail("contracts " + plural(lc.size(), "dim") + " of the left operand but " + std::to_string(rc.size()) +
         " of the right");
  if (lb.size() != rb.size())
    fail("has " + std::to_string(lb.size()) + " batch dims of the left operand but " + std::to_string(rb.size()) +
         " of the right");
  dims_of(l, "left dim", lc, lb);
  dims_of(r, "right dim", rc, rb);
  const auto size = [](const Type& t, int64_t d) { return t.shape[static_cast<size_t>(d)]; };
  for (size_t i = 0; i < lc.size(); ++i)
    if (size(l, lc[i]) != size(r, rc[i]))
      fail("contracts dim " + std::to_string(lc[i]) + " of " + to_string(l.shape) + " with dim " +
           std::to_string(rc[i]) + " of " + to_string(r.shape));
  Shape shape;
  for (size_t i = 0; i < lb.size(); ++i) {
    if (size(l, lb[i]) != size(r, rb[i]))
      fail("batches dim " + std::to_string(lb[i]) + " of " + to_string(l.shape) + " with dim " + std::to_string(rb[i]) +
           " of " + to_string(r.shape));
    shape.push_back(size(l, lb[i]));
  }
  for (int64_t i : dims.lhs_free) shape.push_back(size(l, i));
  for (int64_t i : dims.rhs_free) shape.push_back(size(r, i));
  const Type result = Type::array(to, shape);
  if (accumulates && array(2) != result)
    fail("adds to " + to_string(array(2)) + " but the product is " + to_string(result));
  return {result};
}

std::vector<Type> Inference::reduce() const {
  count(1);
  const Type& t = array(0);
  check_dtype(info(combining_op(op_.code)).operands, t.dtype);
  sorted_axes(t);
  const auto& axes = ints(Attr::axes);
  Shape shape = t.shape;
  for (size_t i = axes.size(); i-- > 0;) shape.erase(shape.begin() + axes[i]);
  return {Type::array(t.dtype, shape)};
}

std::vector<Type> Inference::argument() const {
  count(1);
  const Type& t = array(0);
  check_dtype(OperandRule::num, t.dtype);
  const int64_t axis = attr(Attr::axis);
  in_range("axis", axis, t.shape.size());
  if (!is_int(requested_.dtype)) fail("the result must be integers but is " + std::string(name(requested_.dtype)));
  if (t.shape[static_cast<size_t>(axis)] == 0)
    fail("axis " + std::to_string(axis) + " of " + to_string(t.shape) + " has no elements");
  Shape shape = t.shape;
  shape.erase(shape.begin() + axis);
  return {Type::array(requested_.dtype, shape)};
}

void Inference::positions(const Type& x, const Shape& at, size_t first_index, const char* what) const {
  const auto& dims = ints(Attr::dims);
  if (dims.size() != x.shape.size())
    fail("the operand " + to_string(x.shape) + " has " + std::to_string(x.shape.size()) + " dims but dims lists " +
         std::to_string(dims.size()));
  const auto indices = static_cast<size_t>(std::count(dims.begin(), dims.end(), -1));
  if (op_.operands.size() != first_index + indices)
    fail("dims " + to_string(dims) + " asks for " + std::to_string(indices) + (indices == 1 ? " index" : " indices") +
         " but there are " + std::to_string(op_.operands.size() - first_index));
  for (size_t i = first_index; i < op_.operands.size(); ++i)
    if (array(i) != Type::array(DType::i32, at))
      fail("an index must be " + to_string(Type::array(DType::i32, at)) + " but is " + to_string(type(i)));
  for (size_t d = 0; d < dims.size(); ++d) {
    if (dims[d] == -1) continue;
    in_range(what, dims[d], at.size());
    if (std::count(dims.begin(), dims.end(), dims[d]) > 1)
      fail(std::string(what) + " " + std::to_string(dims[d]) + " is listed twice");
    if (x.shape[d] != at[static_cast<size_t>(dims[d])])
      fail("dim " + std::to_string(d) + " of " + to_string(x.shape) + " cannot follow dim " + std::to_string(dims[d]) +
           " of " + to_string(at));
  }
}

std::vector<Type> Inference::gather() const {
  if (op_.operands.size() < 2) fail("takes at least 2 operands but got " + std::to_string(op_.operands.size()));
  const Type& x = array(0);
  const Shape at = array(1).shape;
  positions(x, at, 1, "result dim");
  if (num_elements(x.shape) == 0 && num_elements(at) != 0)
    fail("reads " + to_string(at) + " elements of " + to_string(x.shape) + ", which has none");
  return {Type::array(x.dtype, at)};
}

std::vector<Type> Inference::scatter() const {
  if (op_.operands.size() < 3) fail("takes at least 3 operands but got " + std::to_string(op_.operands.size()));
  const Type &x = array(0), &updates = array(1);
  if (x.dtype != updates.dtype)
    fail("operands have dtypes " + std::string(name(x.dtype)) + " and " + std::string(name(updates.dtype)),
         "convert one of them first");
  positions(x, updates.shape, 2, "updates' dim");
  if (op_.has(Attr::kind)) {
    const int64_t kind = attr(Attr::kind);
    if (kind < 0 || kind >= kNumOpcodes || !info(static_cast<Opcode>(kind)).associative)
      fail("kind " + std::to_string(kind) + " is not an associative op");
    check_dtype(info(static_cast<Opcode>(kind)).operands, x.dtype);
  }
  return {x};
}

std::vector<Type> Inference::sort() const {
  if (op_.operands.empty()) fail("takes at least one operand");
  std::vector<Type> result;
  for (size_t i = 0; i < op_.operands.size(); ++i) {
    result.push_back(array(i));
    if (result.back().shape != result[0].shape)
      fail("operands have shapes " + each(0, [](const Type& x) { return to_string(x.shape); }),
           "all must have one shape");
  }
  in_range("axis", attr(Attr::axis), result[0].shape.size());
  if (const int64_t keys = attr(Attr::keys); keys < 1 || keys > static_cast<int64_t>(result.size()))
    fail("sorts " + std::to_string(result.size()) + (result.size() == 1 ? " operand" : " operands") + " by " +
         std::to_string(keys) + " keys");
  return result;
}

std::vector<Type> Inference::rev() const {
  count(1);
  const Type& t = array(0);
  sorted_axes(t);
  return {t};
}

void Inference::sorted_axes(const Type& t) const {
  const auto& axes = ints(Attr::axes);
  for (size_t i = 0; i < axes.size(); ++i) {
    in_range("axis", axes[i], t.shape.size());
    if (i && axes[i] <= axes[i - 1]) fail("axes " + to_string(axes) + " do not increase");
  }
}

std::vector<Type> Inference::scan() const {
  count(1);
  const Type& t = array(0);
  check_dtype(info(combining_op(op_.code)).operands, t.dtype);
  in_range("axis", attr(Attr::axis), t.shape.size());
  flag(Attr::reverse);
  return {t};
}

std::vector<Type> Inference::grid_index() const {
  count(0);
  const int64_t axes = std::count_if(k_.grid.begin(), k_.grid.end(), [](const GridAxis& g) { return !g.vmapped; });
  const int64_t axis = attr(Attr::axis);
  if (axis < 0 || axis >= axes)
    fail("axis " + std::to_string(axis) + " is out of range for a grid of " + std::to_string(axes) +
         (axes == 1 ? " axis" : " axes"));
  return {Type::array(DType::i32)};
}

std::vector<Type> Inference::size() const {
  count(0);
  const int64_t at = attr(Attr::index);
  if (at < 0 || at >= static_cast<int64_t>(k_.sizes.size()))
    fail("index " + std::to_string(at) + " is out of range for " + plural(k_.sizes.size(), "size"));
  return {Type::array(DType::i32)};
}

std::vector<Type> Inference::alloc(MemorySpace space) const {
  count(0);
  check_requested();
  if (attr(Attr::offset) < 0) fail("the offset " + std::to_string(attr(Attr::offset)) + " is negative");
  if (!requested_.is_ref || requested_.space != space || requested_.shape.size() != 1)
    fail("the result must be a ref of rank 1 to " + std::string(name(space)) + " memory but is " +
         to_string(requested_));
  return {requested_};
}

std::vector<Type> Inference::subgroup(size_t operands) const {
  count(operands);
  const Type& t = array(0);
  if (!t.is_scalar()) fail("takes a scalar but the operand is " + to_string(t));
  if (op_.code == Opcode::subgroup_reduce || op_.code == Opcode::subgroup_scan) {
    const int64_t kind = attr(Attr::kind);
    if (kind < 0 || kind >= kNumOpcodes || !info(static_cast<Opcode>(kind)).associative)
      fail("kind " + std::to_string(kind) + " is not an associative op");
    check_dtype(info(static_cast<Opcode>(kind)).operands, t.dtype);
  }
  if (op_.code == Opcode::subgroup_shuffle) scalar(1, DType::i32, "the lane");
  if (op_.code == Opcode::subgroup_shuffle_xor && attr(Attr::mask) < 0)
    fail("the mask " + std::to_string(attr(Attr::mask)) + " is negative");
  return {t};
}

std::vector<Type> Inference::packed() const {
  const size_t n = op_.code == Opcode::pack4 ? 4 : 3;
  count(n);
  const DType t = array(0).dtype;
  const auto is = [&](size_t i, DType a, DType b) {
    if (!array(i).is_scalar() || (array(i).dtype != a && array(i).dtype != b))
      fail("operand " + std::to_string(i) + " must be " + to_string(Type::array(a)) + " or " +
           to_string(Type::array(b)) + " but is " + to_string(array(i)));
  };
  for (size_t i = 0; i < n; ++i) {
    if (op_.code == Opcode::dot4) is(i, DType::i32, DType::u32);
    else if (i == 0) is(i, DType::i8, DType::u8);
    else is(i, t, t);
  }
  if (op_.code == Opcode::dot4) return {array(2)};
  return {Type::array(t == DType::i8 ? DType::i32 : DType::u32)};
}

std::vector<Type> Inference::warpgroup() const {
  const int64_t lefts = attr(Attr::count), operands = static_cast<int64_t>(op_.operands.size()),
                sums = operands - 1 - lefts;
  if (lefts < 1 || sums < 1)
    fail("takes a right matrix, left ones and accumulators, but count is " + std::to_string(lefts) + " of " +
         std::to_string(operands) + " operands");
  for (int64_t i = 0; i < operands; ++i)
    if (const Type& t = array(static_cast<size_t>(i)); t.shape.size() != 2)
      fail("operand " + std::to_string(i) + " must be a matrix but is " + to_string(t));
  const Type &right = array(0), &left = array(1), &sum = array(static_cast<size_t>(1 + lefts));
  for (int64_t i = 2; i < operands; ++i)
    if (const Type& t = array(static_cast<size_t>(i)); !(t == (i <= lefts ? left : sum)))
      fail("operand " + std::to_string(i) + " is " + to_string(t) + ", unlike those before it");
  const int64_t depth = right.shape[0], columns = right.shape[1];
  const bool own = left.shape[0] == sum.shape[0], whole = left.shape[0] == 4 * sum.shape[0] && left.shape[1] == depth;
  if (depth == 0 || columns == 0 || num_elements(left.shape) == 0 || num_elements(sum.shape) == 0 || !(own || whole) ||
      depth % left.shape[1] != 0 || columns % sum.shape[1] != 0 || lefts % (depth / left.shape[1]) != 0 ||
      lefts / (depth / left.shape[1]) * (columns / sum.shape[1]) != sums)
    fail(std::to_string(lefts) + " of " + to_string(left) + " times " + to_string(right) + " do not give " +
         std::to_string(sums) + " of " + to_string(sum));
  return std::vector<Type>(static_cast<size_t>(sums), sum);
}

// What a lane holds of a matrix, and a matrix of what its lanes hold.
std::vector<Type> Inference::of_lanes() const {
  const bool takes = op_.code == Opcode::matrix_elements,
             left = !takes && attr(Attr::kind) == static_cast<int64_t>(MatrixUse::left);
  if (takes) count(1);
  const Type t = takes ? array(0) : requested_;
  if (t.is_ref || t.shape.size() != 2 || t.shape[0] != 16 || t.shape[1] % 8 != 0 || (left && size_bytes(t.dtype) != 2))
    fail("a matrix of 16 rows and eights of columns is wanted, of a factor with 16 bits an element, not " +
         to_string(t));
  const int64_t held = num_elements(t.shape) / 32;
  if (takes) return std::vector<Type>(static_cast<size_t>(held), Type::array(t.dtype));
  if (!left && attr(Attr::kind) != static_cast<int64_t>(MatrixUse::accumulator))
    fail("kind " + std::to_string(attr(Attr::kind)) + " is neither a left factor nor an accumulator");
  count(static_cast<size_t>(left ? held / 2 : held));
  for (size_t i = 0; i < op_.operands.size(); ++i) scalar(i, left ? DType::u32 : t.dtype, "a part");
  return {t};
}

std::vector<Type> Inference::matrix() const {
  const auto is_matrix = [](const Type& t) { return !t.is_ref && t.shape.size() == 2; };
  const auto operand = [&](size_t i) {
    const Type& t = array(i);
    if (!is_matrix(t)) fail("operand " + std::to_string(i) + " must be a matrix but is " + to_string(t));
    return t;
  };
  const auto made = [&] {
    if (!is_matrix(requested_)) fail("the result must be a matrix but is " + to_string(requested_));
    return std::vector<Type>{requested_};
  };
  const auto words = [&] {
    if (!type(0).is_ref || type(0).dtype != DType::u32 || type(0).space != MemorySpace::shared)
      fail("operand 0 must be a Ref to u32 in shared memory but is " + to_string(type(0)));
    // Of a load by columns 0 too: all of them are the first.
    const bool repeats = op_.code == Opcode::matrix_load && op_.attr_or(Attr::reverse, 0) != 0;
    if (attr(Attr::stride) < (repeats ? 0 : 1))
      fail("the stride " + std::to_string(attr(Attr::stride)) + " is not positive");
  };
  switch (Matrix(op_.code)) {
    case Matrix::pack: {
      if (op_.operands.size() < 2) fail("takes two or four elements");
      const Type t = array(0);
      if (!t.is_scalar() || t.dtype == DType::boolean || is_int4(t.dtype) ||
          size_bytes(t.dtype) * static_cast<int64_t>(op_.operands.size()) != 4)
        fail("takes as many elements of 8 or 16 bits as fill a word, but operand 0 is " + to_string(t));
      for (size_t i = 1; i < op_.operands.size(); ++i) scalar(i, t.dtype, "an element");
      return {Type::array(DType::u32)};
    }
    case Matrix::matrix_fill:
      count(1);
      scalar(0, made()[0].dtype, "the element");
      return made();
    case Matrix::matrix_load:
      count(2);
      words();
      scalar(1, DType::i32, "the first word");
      if (attr(Attr::kind) < 0 || attr(Attr::kind) > 2)
        fail("kind " + std::to_string(attr(Attr::kind)) + " is no use of a matrix");
      return made();
    case Matrix::matrix_store:
      count(3);
      words();
      operand(1);
      scalar(2, DType::i32, "the first word");
      return {};
    case Matrix::matrix_multiply_add: {
      count(3);
      const Type a = operand(0), b = operand(1), c = operand(2);
      if (a.shape[1] != b.shape[0] || c.shape != Shape{a.shape[0], b.shape[1]})
        fail(to_string(a) + " times " + to_string(b) + " does not give " + to_string(c));
      return {c};
    }
    case Matrix::warpgroup_multiply_add: return warpgroup();
    case Matrix::warpgroup_wait: {
      std::vector<Type> all;
      for (size_t i = 0; i < op_.operands.size(); ++i) all.push_back(operand(i));
      if (attr(Attr::count) < 0 || (attr(Attr::count) > 0 && !all.empty()))
        fail("count " + std::to_string(attr(Attr::count)) + " is negative, or leaves some of its operands under way");
      return all;
    }
    case Matrix::matrix_multiply: {
      count(2);
      const Type a = operand(0), b = operand(1);
      if (!(a == b) || !is_float(a.dtype))
        fail("takes two matrices of one float type but they are " + to_string(a) + " and " + to_string(b));
      return {a};
    }
    case Matrix::matrix_elements:
    case Matrix::matrix_of: return of_lanes();
  }
  return {};
}

std::vector<Type> Inference::structured() const {
  switch (op_.code) {
    case Opcode::constant: return constant();
    case Opcode::iota: return iota();
    case Opcode::broadcast: return broadcast();
    case Opcode::reshape: return reshape();
    case Opcode::transpose: return transpose();
    case Opcode::slice: return slice();
    case Opcode::concatenate: return concatenate();
    case Opcode::dot: return dot();
#define TESSERA_REDUCE(n, ...) \
  case Opcode::n: return reduce();
#define TESSERA_ARGREDUCE(n, ...) \
  case Opcode::n: return argument();
#define TESSERA_SCAN(n, ...) \
  case Opcode::n: return scan();
#define TESSERA_ELEMENTWISE(n, ...) \
  case Opcode::n: break;
#include "engine/ir/ops.def"
    case Opcode::rev: return rev();
    case Opcode::gather: return gather();
    case Opcode::scatter: return scatter();
    case Opcode::sort: return sort();
    case Opcode::program_id:
    case Opcode::num_programs: return grid_index();
    case Opcode::size: return size();
    case Opcode::load: return load();
    case Opcode::store:
      if (k_.level == Level::lane && is_vector_access(op_)) vector_store();
      else stored();
      flag(Attr::unordered);
      flag(Attr::late);
      return {};
    case Opcode::swap: return {stored()};
    case Opcode::addupdate:
      if (stored().dtype == DType::boolean) fail("bool has no sum", "or it to what is there: store(load | value)");
      return {};
    case Opcode::atomic_rmw:
    case Opcode::atomic_cas: return {atomic()};
    case Opcode::debug_print: text(0); return {};
    case Opcode::check:
      if (op_.operands.empty()) fail("takes a condition");
      scalar(0, DType::boolean, "the condition");
      text(1);
      return {};
    case Opcode::report_memory: count(0); return {Type::ref(DType::u32, {-1}, MemorySpace::global)};
    case Opcode::run_scoped: return run_scoped();
    case Opcode::semaphore_signal:
    case Opcode::semaphore_wait:
    case Opcode::semaphore_read: return semaphore();
    case Opcode::copy_start:
    case Opcode::copy_wait: copy(); return {};
#define TESSERA_THREAD(n, ...) case Opcode::n:
#include "engine/ir/ops.def"
      thread_op();
      return {};
    case Opcode::for_: return for_loop();
    case Opcode::while_: return while_loop();
    case Opcode::if_: return choice(true);
    case Opcode::switch_: return choice(false);
    case Opcode::yield:
      for (size_t i = 0; i < op_.operands.size(); ++i) array(i);
      return {};
    case Opcode::workgroup_index:
    case Opcode::num_workgroups:
    case Opcode::local_index:
    case Opcode::subgroup_id:
    case Opcode::lane_id:
    case Opcode::thread_index: count(0); return {Type::array(DType::i32)};
    case Opcode::extent:
      count(0);
      if (attr(Attr::index) < 0) fail("the index " + std::to_string(attr(Attr::index)) + " is negative");
      if (!requested_.is_scalar() || (requested_.dtype != DType::i32 && requested_.dtype != DType::i64))
        fail("the result must be i32[] or i64[] but is " + to_string(requested_));
      return {requested_};
    case Opcode::alloc_shared: return alloc(MemorySpace::shared);
    case Opcode::alloc_scratch:
    case Opcode::alloc_program: return alloc(MemorySpace::global);
    case Opcode::view:
      count(2);
      if (!type(0).is_ref) fail("operand 0 must be a ref but is " + to_string(type(0)));
      scalar(1, DType::i64, "the offset");
      return {type(0)};
    case Opcode::barrier:
    case Opcode::subgroup_barrier: count(0); return {};
    case Opcode::async_wait:
      count(0);
      if (attr(Attr::count) < 0) fail("count " + std::to_string(attr(Attr::count)) + " is negative");
      return {};
    case Opcode::program_barrier:
      count(0);
      if (attr(Attr::index) < 0 || attr(Attr::count) < 0)
        fail("index " + std::to_string(attr(Attr::index)) + " or count " + std::to_string(attr(Attr::count)) +
             " is negative");
      return {};
    case Opcode::mbarrier_arrive:
    case Opcode::mbarrier_copies:
    case Opcode::mbarrier_wait:
    case Opcode::tensor_wait:
      count(1);
      scalar(0, DType::i32, "the number of the barrier");
      return {};
    case Opcode::tensor_load:
      if (op_.operands.size() < 5 || !type(0).is_ref || !type(1).is_ref || type(1).dtype != DType::u32 ||
          type(1).space != MemorySpace::shared)
        fail("takes a Ref to an array, one to u32 in shared memory, a word, a barrier and coordinates");
      for (size_t i = 2; i < op_.operands.size(); ++i) scalar(i, DType::i32, "a place");
      if (attr(Attr::index) < 0 || attr(Attr::count) < 1)
        fail("index " + std::to_string(attr(Attr::index)) + " or count " + std::to_string(attr(Attr::count)) +
             " is too small");
      return {};
    case Opcode::pack4:
    case Opcode::dot4: return packed();
    case Opcode::pack:
    case Opcode::matrix_fill:
    case Opcode::matrix_load:
    case Opcode::matrix_store:
    case Opcode::matrix_multiply_add:
    case Opcode::warpgroup_multiply_add:
    case Opcode::warpgroup_wait:
    case Opcode::matrix_multiply:
    case Opcode::matrix_elements:
    case Opcode::matrix_of: return matrix();
    case Opcode::loops_cut: count(0); return {Type::array(DType::boolean)};
    case Opcode::report:
      if (op_.operands.empty()) fail("takes a condition but got no operands");
      scalar(0, DType::boolean, "the condition");
      for (size_t i = 1; i < op_.operands.size(); ++i) scalar(i, DType::i32, "a word of the report");
      if (attr(Attr::mask) <= 0 || attr(Attr::mask) > INT32_MAX)
        fail("the mask " + std::to_string(attr(Attr::mask)) + " is not one of bits 0 to 30");
      return {};
    case Opcode::subgroup_reduce:
    case Opcode::subgroup_scan:
    case Opcode::subgroup_shuffle_xor: return subgroup(1);
    case Opcode::subgroup_shuffle: return subgroup(2);
  }
  throw InternalError(k_.name + ": no type rule for " + std::string(name(op_.code)), op_.loc);
}

std::vector<Type> infer(const Kernel& k, const Op& op, const Type& requested) {
  return Inference(k, op, requested).run();
}

}  // namespace tessera::ir
