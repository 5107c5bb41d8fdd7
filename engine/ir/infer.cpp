// Type inference: the rules of every row of ops.def, one function per family. builder.h says what `requested` is for.
#include <algorithm>
#include <span>

#include "engine/base/plural.h"
#include "engine/base/print_text.h"
#include "engine/ir/builder.h"

namespace tessera::ir {
namespace {

std::string show(const Type& t) { return to_string(t); }

class Inference {
 public:
  Inference(const Kernel& k, const Op& op, const Type& requested) : k_(k), op_(op), requested_(requested) {}
  std::vector<Type> run() {
    for (size_t i = 0; i < op_.operands.size(); ++i)
      if (op_.operands[i].index >= k_.values.size()) fail("operand " + std::to_string(i) + " is not a value of this kernel");
    for (size_t i = 0; i < op_.regions.size(); ++i)
      if (op_.regions[i].index >= k_.regions.size()) fail("region " + std::to_string(i) + " is not a region of this kernel");
    std::vector<Type> result = info(op_.code).elementwise ? elementwise() : structured();
    for (const Type& t : result) check_size(t);
    return result;
  }

 private:
  const Kernel& k_;
  const Op& op_;
  const Type& requested_;
  const Type i32_ = Type::array(DType::i32);

  [[noreturn]] void fail(const std::string& what, const std::string& note = {}) const {
    throw TraceError(k_.name + ": " + std::string(name(op_.code)) + ": " + what, op_.loc, note);
  }
  const Type& type(size_t operand) const { return k_.type(op_.operands[operand]); }
  void count(size_t wanted) const {
    if (op_.operands.size() != wanted)
      fail("takes " + std::to_string(wanted) + (wanted == 1 ? " operand" : " operands") + " but got " + std::to_string(op_.operands.size()));
  }
  void regions(size_t wanted) const {
    if (op_.regions.size() != wanted)
      fail("takes " + std::to_string(wanted) + (wanted == 1 ? " region" : " regions") + " but got " + std::to_string(op_.regions.size()));
  }
  /// An operand that must be an array, not a Ref.
  const Type& array(size_t operand) const {
    const Type& t = type(operand);
    if (t.is_ref) fail("operand " + std::to_string(operand) + " is a " + show(t), "load from the ref first");
    return t;
  }
  const std::vector<int64_t>& ints(Attr a) const {
    if (!op_.has(a)) fail("attribute " + std::string(name(a)) + " is missing");
    return op_.ints(a);
  }
  int64_t attr(Attr a) const {
    const auto& v = ints(a);
    if (v.size() != 1) fail("attribute " + std::string(name(a)) + " takes one number but got " + std::to_string(v.size()));
    return v[0];
  }
  int64_t flag(Attr a) const {
    if (!op_.has(a)) return 0;
    const int64_t v = attr(a);
    if (v != 0 && v != 1) fail("attribute " + std::string(name(a)) + " is " + std::to_string(v) + ", not 0 or 1");
    return v;
  }
  void in_range(const char* what, int64_t v, size_t rank) const {
    if (v < 0 || v >= static_cast<int64_t>(rank)) fail(std::string(what) + " " + std::to_string(v) + " is out of range for " + std::to_string(rank) + (rank == 1 ? " dim" : " dims"));
  }
  void check_requested() const {
    const Shape& shape = requested_.shape;
    for (int64_t d : shape)
      if (d < 0) fail("the result's shape " + to_string(shape) + " has a negative size");
    check_size(requested_);
  }
  void scalar(size_t operand, DType t, const char* what) const {
    if (type(operand) != Type::array(t)) fail(std::string(what) + " must be " + show(Type::array(t)) + " but is " + show(type(operand)));
  }

  void check_size(const Type& t) const {
    if (!within_limits(t.shape)) fail("the result " + show(t) + " is too large", "at most 32 dims and 2^40 elements are allowed");
  }

  bool allowed(OperandRule rule, DType t) const {
    switch (rule) {
      case OperandRule::num: return t != DType::boolean;
      case OperandRule::flt: return is_float(t);
      case OperandRule::int_: return is_int(t);
      case OperandRule::ibl: return !is_float(t);
      case OperandRule::any: case OperandRule::select: case OperandRule::none: return true;
    }
    return true;
  }
  void check_dtype(OperandRule rule, DType t) const {
    if (allowed(rule, t)) return;
    const char* wanted = rule == OperandRule::num ? "integers or floats" : rule == OperandRule::flt ? "floats" : rule == OperandRule::int_ ? "integers" : "integers or bool";
    fail("takes " + std::string(wanted) + " but the operand is " + std::string(name(t)));
  }

  std::vector<Type> elementwise() const {
    const OpInfo& row = info(op_.code);
    count(static_cast<size_t>(row.arity));
    for (size_t i = 0; i < op_.operands.size(); ++i) array(i);
    const size_t first = row.operands == OperandRule::select ? 1 : 0;
    const Type& t = type(first);
    if (first && type(0).dtype != DType::boolean) fail("the predicate must be bool but is " + std::string(name(type(0).dtype)));
    bool same_shape = true, same_dtype = true;
    for (size_t i = 0; i < op_.operands.size(); ++i) {
      same_shape &= type(i).shape == t.shape;
      same_dtype &= i < first || type(i).dtype == t.dtype;
    }
    if (!same_dtype) fail("operands have dtypes " + each(first, [](const Type& x) { return std::string(name(x.dtype)); }), "convert one of them first");
    if (!same_shape) fail("operands have shapes " + each(0, [](const Type& x) { return to_string(x.shape); }), "shapes must be equal or broadcast to one shape");
    check_dtype(row.operands, t.dtype);
    switch (row.result) {
      case ResultRule::same: return {t};
      case ResultRule::pred: return {Type::array(DType::boolean, t.shape)};
      case ResultRule::other: break;
      case ResultRule::structured: throw InternalError("elementwise op without a result rule");
    }
    if (op_.code == Opcode::bitcast && (t.dtype == DType::boolean || requested_.dtype == DType::boolean || bits(t.dtype) != bits(requested_.dtype)))
      fail("cannot reinterpret " + std::string(name(t.dtype)) + " as " + std::string(name(requested_.dtype)), "both must have the same width, and neither may be bool");
    return {Type::array(requested_.dtype, t.shape)};
  }
  template <class F> std::string each(size_t first, F print) const {
    std::string s;
    for (size_t i = first; i < op_.operands.size(); ++i)
      s += (i == first ? "" : i + 1 == op_.operands.size() ? " and " : ", ") + print(type(i));
    return s;
  }

  // -- values
  std::vector<Type> constant() const {
    count(0);
    if (requested_.is_ref) fail("the result cannot be a " + show(requested_));
    check_requested();
    const uint64_t b = static_cast<uint64_t>(attr(Attr::bits));
    if (const int n = bits(requested_.dtype); n < 64 && b >> n) fail("the bits do not fit " + std::string(name(requested_.dtype)));
    return {requested_};
  }
  std::vector<Type> iota() const {
    count(0);
    check_requested();
    in_range("axis", attr(Attr::axis), requested_.shape.size());
    if (requested_.dtype == DType::boolean || requested_.is_ref) fail("the result must be integers or floats but is " + show(requested_));
    return {requested_};
  }
  std::vector<Type> broadcast() const {
    count(1);
    const Type& t = array(0);
    check_requested();
    const auto& dims = ints(Attr::dims);
    if (dims.size() != t.shape.size())
      fail("the operand " + to_string(t.shape) + " has " + std::to_string(t.shape.size()) + " dims but dims lists " + std::to_string(dims.size()));
    for (size_t i = 0; i < dims.size(); ++i) {
      in_range("result dim", dims[i], requested_.shape.size());
      if (i && dims[i] <= dims[i - 1]) fail("dims " + to_string(dims) + " do not increase");
      const int64_t to = requested_.shape[static_cast<size_t>(dims[i])];
      if (t.shape[i] != 1 && t.shape[i] != to) fail("shape " + to_string(t.shape) + " does not broadcast to " + to_string(requested_.shape) + " along dims " + to_string(dims));
    }
    return {Type::array(t.dtype, requested_.shape)};
  }
  std::vector<Type> reshape() const {
    count(1);
    const Type& t = array(0);
    check_requested();
    if (num_elements(t.shape) != num_elements(requested_.shape))
      fail("shape " + to_string(t.shape) + " has " + std::to_string(num_elements(t.shape)) + " elements but " + to_string(requested_.shape) + " has " + std::to_string(num_elements(requested_.shape)));
    return {Type::array(t.dtype, requested_.shape)};
  }
  std::vector<Type> transpose() const {
    count(1);
    const Type& t = array(0);
    const auto& perm = ints(Attr::perm);
    std::vector<bool> seen(t.shape.size());
    bool good = perm.size() == t.shape.size();
    for (int64_t p : perm) {
      if (!good || p < 0 || p >= static_cast<int64_t>(seen.size()) || seen[static_cast<size_t>(p)]) { good = false; break; }
      seen[static_cast<size_t>(p)] = true;
    }
    if (!good) fail("perm " + to_string(perm) + " is not a permutation of the dims of " + to_string(t.shape));
    Shape shape;
    for (int64_t p : perm) shape.push_back(t.shape[static_cast<size_t>(p)]);
    return {Type::array(t.dtype, shape)};
  }
  std::vector<Type> slice() const {
    count(1);
    const Type& t = array(0);
    const auto &start = ints(Attr::start), &limit = ints(Attr::limit), &stride = ints(Attr::stride);
    const size_t rank = t.shape.size();
    if (start.size() != rank || limit.size() != rank || stride.size() != rank)
      fail("the operand " + to_string(t.shape) + " has " + std::to_string(rank) + " dims but start, limit and stride list " + std::to_string(start.size()) + ", " + std::to_string(limit.size()) + " and " + std::to_string(stride.size()));
    Shape shape;
    for (size_t i = 0; i < rank; ++i) {
      if (start[i] < 0 || limit[i] < start[i] || limit[i] > t.shape[i] || stride[i] < 1)
        fail("dim " + std::to_string(i) + ": " + std::to_string(start[i]) + ":" + std::to_string(limit[i]) + ":" + std::to_string(stride[i]) + " is not a slice of " + std::to_string(t.shape[i]) + " elements");
      const int64_t n = limit[i] - start[i];
      shape.push_back(n / stride[i] + (n % stride[i] != 0));
    }
    return {Type::array(t.dtype, shape)};
  }
  std::vector<Type> concatenate() const {
    if (op_.operands.empty()) fail("takes at least one operand");
    Type result = array(0);
    const int64_t axis = attr(Attr::axis);
    in_range("axis", axis, result.shape.size());
    for (size_t i = 1; i < op_.operands.size(); ++i) {
      const Type& t = array(i);
      if (t.dtype != result.dtype) fail("operands have dtypes " + each(0, [](const Type& x) { return std::string(name(x.dtype)); }), "convert them to one dtype first");
      bool fits = t.shape.size() == result.shape.size();
      for (size_t d = 0; fits && d < t.shape.size(); ++d) fits = d == static_cast<size_t>(axis) || t.shape[d] == result.shape[d];
      if (!fits) fail("operands have shapes " + each(0, [](const Type& x) { return to_string(x.shape); }) + " which differ outside axis " + std::to_string(axis));
      result.shape[static_cast<size_t>(axis)] += t.shape[static_cast<size_t>(axis)];
    }
    return {result};
  }
  void dims_of(const Type& t, const char* side, const std::vector<int64_t>& contract, const std::vector<int64_t>& batch) const {
    std::vector<bool> seen(t.shape.size());
    for (const auto* list : {&contract, &batch})
      for (int64_t d : *list) {
        in_range(side, d, t.shape.size());
        if (seen[static_cast<size_t>(d)]) fail(std::string(side) + " " + std::to_string(d) + " is listed twice");
        seen[static_cast<size_t>(d)] = true;
      }
  }
  std::vector<Type> dot() const {
    const bool accumulates = op_.operands.size() == 3;
    if (!accumulates) count(2);
    const Type &l = array(0), &r = array(1);
    if (l.dtype != r.dtype) fail("operands have dtypes " + each(0, [](const Type& x) { return std::string(name(x.dtype)); }), "convert one of them first");
    check_dtype(OperandRule::num, l.dtype);
    const DType to = requested_.dtype;
    const bool wide_enough = bits(to) > bits(l.dtype) || to == l.dtype;
    const bool good = is_float(l.dtype) ? is_float(to) && wide_enough : is_int(to) && bits(to) >= bits(l.dtype) && (is_signed_int(to) || !is_signed_int(l.dtype));
    if (!good) fail("operands of " + std::string(name(l.dtype)) + " cannot give a result of " + std::string(name(to)), "the result has the operands' dtype or a wider one of its kind");
    const auto &lc = ints(Attr::lhs_contract), &rc = ints(Attr::rhs_contract), &lb = ints(Attr::lhs_batch), &rb = ints(Attr::rhs_batch);
    if (lc.size() != rc.size()) fail("contracts " + plural(lc.size(), "dim") + " of the left operand but " + std::to_string(rc.size()) + " of the right");
    if (lb.size() != rb.size()) fail("has " + std::to_string(lb.size()) + " batch dims of the left operand but " + std::to_string(rb.size()) + " of the right");
    dims_of(l, "left dim", lc, lb);
    dims_of(r, "right dim", rc, rb);
    const auto size = [](const Type& t, int64_t d) { return t.shape[static_cast<size_t>(d)]; };
    for (size_t i = 0; i < lc.size(); ++i)
      if (size(l, lc[i]) != size(r, rc[i]))
        fail("contracts dim " + std::to_string(lc[i]) + " of " + to_string(l.shape) + " with dim " + std::to_string(rc[i]) + " of " + to_string(r.shape));
    Shape shape;
    for (size_t i = 0; i < lb.size(); ++i) {
      if (size(l, lb[i]) != size(r, rb[i]))
        fail("batches dim " + std::to_string(lb[i]) + " of " + to_string(l.shape) + " with dim " + std::to_string(rb[i]) + " of " + to_string(r.shape));
      shape.push_back(size(l, lb[i]));
    }
    const auto free_dims = [&](const Type& t, const std::vector<int64_t>& c, const std::vector<int64_t>& b) {
      for (int64_t d = 0; d < static_cast<int64_t>(t.shape.size()); ++d)
        if (std::find(c.begin(), c.end(), d) == c.end() && std::find(b.begin(), b.end(), d) == b.end()) shape.push_back(size(t, d));
    };
    free_dims(l, lc, lb);
    free_dims(r, rc, rb);
    const Type result = Type::array(to, shape);
    if (accumulates && array(2) != result) fail("adds to " + show(array(2)) + " but the product is " + show(result));
    return {result};
  }
  std::vector<Type> reduce() const {
    count(1);
    const Type& t = array(0);
    check_dtype(info(combining_op(op_.code)).operands, t.dtype);
    sorted_axes(t);
    const auto& axes = ints(Attr::axes);
    Shape shape = t.shape;
    for (size_t i = axes.size(); i-- > 0;) shape.erase(shape.begin() + axes[i]);
    return {Type::array(t.dtype, shape)};
  }
  std::vector<Type> argument() const {
    count(1);
    const Type& t = array(0);
    check_dtype(OperandRule::num, t.dtype);
    const int64_t axis = attr(Attr::axis);
    in_range("axis", axis, t.shape.size());
    if (!is_int(requested_.dtype)) fail("the result must be integers but is " + std::string(name(requested_.dtype)));
    if (t.shape[static_cast<size_t>(axis)] == 0) fail("axis " + std::to_string(axis) + " of " + to_string(t.shape) + " has no elements");
    Shape shape = t.shape;
    shape.erase(shape.begin() + axis);
    return {Type::array(requested_.dtype, shape)};
  }
  /// Which dim of `at` (a gather's result, a scatter's updates) each dim of x follows, or -1 where the next index operand tells; true if all is well
  /// but for the operands' number, which is checked here too.
  void positions(const Type& x, const Shape& at, size_t first_index, const char* what) const {
    const auto& dims = ints(Attr::dims);
    if (dims.size() != x.shape.size())
      fail("the operand " + to_string(x.shape) + " has " + std::to_string(x.shape.size()) + " dims but dims lists " + std::to_string(dims.size()));
    const auto indices = static_cast<size_t>(std::count(dims.begin(), dims.end(), -1));
    if (op_.operands.size() != first_index + indices)
      fail("dims " + to_string(dims) + " asks for " + std::to_string(indices) + (indices == 1 ? " index" : " indices") + " but there are " + std::to_string(op_.operands.size() - first_index));
    for (size_t i = first_index; i < op_.operands.size(); ++i)
      if (array(i) != Type::array(DType::i32, at)) fail("an index must be " + show(Type::array(DType::i32, at)) + " but is " + show(type(i)));
    for (size_t d = 0; d < dims.size(); ++d) {
      if (dims[d] == -1) continue;
      in_range(what, dims[d], at.size());
      if (std::count(dims.begin(), dims.end(), dims[d]) > 1) fail(std::string(what) + " " + std::to_string(dims[d]) + " is listed twice");
      if (x.shape[d] != at[static_cast<size_t>(dims[d])])
        fail("dim " + std::to_string(d) + " of " + to_string(x.shape) + " cannot follow dim " + std::to_string(dims[d]) + " of " + to_string(at));
    }
  }
  std::vector<Type> gather() const {
    if (op_.operands.size() < 2) fail("takes at least 2 operands but got " + std::to_string(op_.operands.size()));
    const Type& x = array(0);
    const Shape at = array(1).shape;
    positions(x, at, 1, "result dim");
    if (num_elements(x.shape) == 0 && num_elements(at) != 0) fail("reads " + to_string(at) + " elements of " + to_string(x.shape) + ", which has none");
    return {Type::array(x.dtype, at)};
  }
  std::vector<Type> scatter() const {
    if (op_.operands.size() < 3) fail("takes at least 3 operands but got " + std::to_string(op_.operands.size()));
    const Type &x = array(0), &updates = array(1);
    if (x.dtype != updates.dtype) fail("operands have dtypes " + std::string(name(x.dtype)) + " and " + std::string(name(updates.dtype)), "convert one of them first");
    positions(x, updates.shape, 2, "updates' dim");
    if (op_.has(Attr::kind)) {
      const int64_t kind = attr(Attr::kind);
      if (kind < 0 || kind >= kNumOpcodes || !info(static_cast<Opcode>(kind)).associative) fail("kind " + std::to_string(kind) + " is not an associative op");
      check_dtype(info(static_cast<Opcode>(kind)).operands, x.dtype);
    }
    return {x};
  }
  std::vector<Type> sort() const {
    if (op_.operands.empty()) fail("takes at least one operand");
    std::vector<Type> result;
    for (size_t i = 0; i < op_.operands.size(); ++i) {
      result.push_back(array(i));
      if (result.back().shape != result[0].shape) fail("operands have shapes " + each(0, [](const Type& x) { return to_string(x.shape); }), "all must have one shape");
    }
    in_range("axis", attr(Attr::axis), result[0].shape.size());
    if (const int64_t keys = attr(Attr::keys); keys < 1 || keys > static_cast<int64_t>(result.size()))
      fail("sorts " + std::to_string(result.size()) + (result.size() == 1 ? " operand" : " operands") + " by " + std::to_string(keys) + " keys");
    return result;
  }
  std::vector<Type> rev() const {
    count(1);
    const Type& t = array(0);
    sorted_axes(t);
    return {t};
  }
  void sorted_axes(const Type& t) const {
    const auto& axes = ints(Attr::axes);
    for (size_t i = 0; i < axes.size(); ++i) {
      in_range("axis", axes[i], t.shape.size());
      if (i && axes[i] <= axes[i - 1]) fail("axes " + to_string(axes) + " do not increase");
    }
  }
  std::vector<Type> scan() const {
    count(1);
    const Type& t = array(0);
    check_dtype(info(combining_op(op_.code)).operands, t.dtype);
    in_range("axis", attr(Attr::axis), t.shape.size());
    flag(Attr::reverse);
    return {t};
  }
  std::vector<Type> grid_index() const {
    count(0);
    const int64_t axes = std::count_if(k_.grid.begin(), k_.grid.end(), [](const GridAxis& g) { return !g.vmapped; });
    const int64_t axis = attr(Attr::axis);
    if (axis < 0 || axis >= axes) fail("axis " + std::to_string(axis) + " is out of range for a grid of " + std::to_string(axes) + (axes == 1 ? " axis" : " axes"));
    return {Type::array(DType::i32)};
  }

  // -- memory
  /// Checks everything but the stored value and returns the shape that the index selects.
  Shape access(size_t before_mask, std::optional<DType> as = std::nullopt) const {
    if (op_.operands.empty() || !type(0).is_ref) fail("operand 0 must be a ref" + (op_.operands.empty() ? std::string() : " but is " + show(type(0))));
    const Type& ref = type(0);
    if (is_semaphore(ref.space) && info(op_.code).effect != Effect::ordered) fail("the ref is a semaphore, " + show(ref), "semaphores are signalled, waited for and read");
    const bool mask = flag(Attr::mask), other = flag(Attr::other);
    const size_t first_start = before_mask + mask + other;
    if (op_.operands.size() < first_start) fail("takes at least " + std::to_string(first_start) + " operands but got " + std::to_string(op_.operands.size()));
    if (op_.index.size() != ref.shape.size())
      fail("the index has " + std::to_string(op_.index.size()) + (op_.index.size() == 1 ? " entry" : " entries") + " but the ref " + show(ref) + " has " + std::to_string(ref.shape.size()) + (ref.shape.size() == 1 ? " dim" : " dims"));
    std::vector<bool> used(op_.operands.size() - first_start);
    const Shape* arrays = nullptr;
    size_t first_array = 0;
    for (size_t d = 0; d < op_.index.size(); ++d) {
      const Index& x = op_.index[d];
      if (!x.is_static()) {
        const size_t at = static_cast<size_t>(x.start_operand);
        if (at < first_start || at >= op_.operands.size()) fail("dim " + std::to_string(d) + ": the start is operand " + std::to_string(at) + ", which is not one of the dynamic starts");
        used[at - first_start] = true;
        if (x.kind == Index::Kind::array) {
          const Type& t = type(at);
          const std::string place = "dim " + std::to_string(d) + ": ";
          if (k_.level == Level::lane) fail(place + "an index array is legal at tile level only");
          if (t.is_ref || t.dtype != DType::i32 || t.shape.empty()) fail(place + "an index array must be i32 and have dims but is " + show(t));
          if (arrays && *arrays != t.shape)
            fail(place + "the index array has shape " + to_string(t.shape) + " but that of dim " + std::to_string(first_array) + " has " + to_string(*arrays), "arrays of an index have one shape");
          if (ref.shape[d] == 0 && num_elements(t.shape) != 0) fail(place + "an index array into 0 elements");
          if (!arrays) first_array = d;
          arrays = &t.shape;
          continue;
        }
        if (type(at) != i32_) scalar(at, DType::i32, ("dim " + std::to_string(d) + ": a dynamic start").c_str());
      } else if (x.kind == Index::Kind::array) {
        fail("dim " + std::to_string(d) + ": the index array is missing");
      }
      bounds(d, x, ref.shape[d], mask);
    }
    const Shape shape = access_dims(k_, op_).shape;
    for (size_t i = 0; i < used.size(); ++i)
      if (!used[i]) fail("operand " + std::to_string(first_start + i) + " is not used by the index");
    if (mask && type(before_mask) != Type::array(DType::boolean, shape))
      fail("the mask must be " + show(Type::array(DType::boolean, shape)) + " but is " + show(type(before_mask)));
    if (other && !mask) fail("has other but no mask");
    if (const Type wanted = Type::array(as.value_or(ref.dtype), shape); other && type(before_mask + 1) != wanted)
      fail("other must be " + show(wanted) + " but is " + show(type(before_mask + 1)));
    return shape;
  }
  void bounds(size_t d, const Index& x, int64_t dim, bool mask, const std::string& role = {}) const {
    const auto place = [&] { return role + "dim " + std::to_string(d) + ": "; };
    const auto elements = [&] { return dim < 0 ? std::string("an array") : std::to_string(dim) + (dim == 1 ? " element" : " elements"); };
    if (x.kind == Index::Kind::integer) {
      if (x.is_static() ? x.start < 0 || (dim >= 0 && x.start >= dim) : dim == 0)
        fail(place() + "index " + (x.is_static() ? std::to_string(x.start) + " " : std::string()) + "is out of range for " + elements());
      return;
    }
    if (x.size < 0 || x.step < 1) fail(place() + "a slice needs a size of at least 0 and a step of at least 1, not " + std::to_string(x.size) + " and " + std::to_string(x.step));
    const bool vector = dim < 0 && k_.level == Level::lane && op_.code == Opcode::load;
    if (dim < 0 && !vector) fail(place() + "the ref " + show(type(0)) + " takes one integer index, not a slice");
    using Wide = __int128;
    const Wide window = x.size == 0 ? 0 : Wide{x.size - 1} * x.step + 1;
    if (x.is_static() ? x.start < 0 || (Wide{x.start} + window > dim && !vector) : !mask && window > dim && !vector) {
      const std::string step = x.step == 1 ? "" : ", step " + std::to_string(x.step);
      fail(place() + "slice of " + std::to_string(x.size) + (x.is_static() ? " from " + std::to_string(x.start) : std::string()) + step + " is out of range for " + elements());
    }
  }
  std::vector<Type> load() const {
    Shape shape = access(1);
    // At lane level a slice is a vector load: one scalar per element.
    if (k_.level == Level::lane && shape.size() == 1) {
      if ((shape[0] != 2 && shape[0] != 4) || op_.index[0].step != 1 || op_.has_mask()) fail("a vector load takes 2 or 4 elements with step 1 and no mask");
      return std::vector<Type>(static_cast<size_t>(shape[0]), Type::array(type(0).dtype));
    }
    return {Type::array(type(0).dtype, std::move(shape))};
  }
  Type stored() const {
    if (op_.operands.size() < 2) fail("takes at least 2 operands but got " + std::to_string(op_.operands.size()));
    const Type wanted = Type::array(type(0).dtype, access(2));
    if (type(1) != wanted) fail("the value must be " + show(wanted) + " but is " + show(type(1)));
    return wanted;
  }
  Type atomic() const {
    const size_t first = op_.code == Opcode::atomic_cas ? 3 : 2;
    if (op_.operands.size() < first) fail("takes at least " + std::to_string(first) + " operands but got " + std::to_string(op_.operands.size()));
    const DType held = type(0).dtype, as = flag(Attr::bits) ? type(1).dtype : held;
    if (as != held && (bits(as) != bits(held) || as == DType::boolean || held == DType::boolean))
      fail("attribute bits takes elements for numbers of another dtype and of their width, not " + std::string(name(held)) + " for " + std::string(name(as)));
    const Type wanted = Type::array(as, access(first, as));
    if (type(1) != wanted) fail("the value must be " + show(wanted) + " but is " + show(type(1)));
    if (first == 3 && type(2) != wanted) fail("what the elements are compared with must be " + show(wanted) + " but is " + show(type(2)));
    if (first == 3) return wanted;
    flag(Attr::unordered);
    const int64_t kind = attr(Attr::kind);
    const bool is_op = kind >= 0 && kind < kNumOpcodes;
    const Opcode by = is_op ? static_cast<Opcode>(kind) : Opcode::yield;
    if (by == Opcode::swap) return wanted;
    if (const Combiner* row = combiner(by); !row || !row->atomic)
      fail("kind " + (is_op ? std::string(name(by)) : std::to_string(kind)) + " is not one of add, max, min, and, or, xor and swap");
    check_dtype(info(by).operands, wanted.dtype);
    return wanted;
  }

  void text(size_t first) const {
    const int64_t at = attr(Attr::text);
    if (at < 0 || at >= static_cast<int64_t>(k_.texts.size()))
      fail("text " + std::to_string(at) + " is out of range for " + std::to_string(k_.texts.size()) + (k_.texts.size() == 1 ? " text" : " texts"));
    std::vector<std::pair<DType, Shape>> arguments;
    for (size_t i = first; i < op_.operands.size(); ++i) arguments.emplace_back(array(i).dtype, type(i).shape);
    if (const std::string problem = format_problem(k_.texts[static_cast<size_t>(at)], arguments); !problem.empty()) fail(problem);
  }

  // -- semaphores and copies
  std::vector<Type> semaphore() const {
    const bool read = op_.code == Opcode::semaphore_read;
    const size_t fixed = read ? 1 : 2;
    if (op_.operands.size() < fixed) fail("takes at least " + std::to_string(fixed) + (fixed == 1 ? " operand" : " operands") + " but got " + std::to_string(op_.operands.size()));
    const Shape shape = access(fixed);
    if (!is_semaphore(type(0).space)) fail("the ref must be a semaphore but is " + show(type(0)));
    if (!shape.empty()) fail("the index selects " + to_string(shape) + " of the semaphores " + show(type(0)), "one semaphore at a time: index every dim with an integer");
    if (read) return {i32_};
    if (type(0).space == MemorySpace::dma_semaphore) fail("the ref is a " + show(type(0)), "copies alone count there: wait for the copy, or take a regular semaphore");
    scalar(1, DType::i32, op_.code == Opcode::semaphore_signal ? "the increment" : "what is waited for");
    return {};
  }
  void copy() const {
    constexpr const char* kRoles[] = {"source", "target", "semaphore"};
    if (op_.operands.size() < 3) fail("takes a source, a target and a semaphore but got " + std::to_string(op_.operands.size()) + " operands");
    size_t dims = 0;
    for (size_t i = 0; i < 3; ++i) {
      if (!type(i).is_ref) fail(std::string("the ") + kRoles[i] + " must be a ref but is " + show(type(i)));
      if (is_semaphore(type(i).space) != (i == 2)) fail(std::string("the ") + kRoles[i] + (i == 2 ? " must be a dma_semaphore but is " : " is a semaphore, ") + show(type(i)));
      dims += type(i).shape.size();
    }
    if (type(2).space != MemorySpace::dma_semaphore) fail("the semaphore must be a dma_semaphore but is " + show(type(2)), "regular semaphores are signalled, copies count in DMA semaphores");
    if (op_.index.size() != dims) fail("the index has " + std::to_string(op_.index.size()) + (op_.index.size() == 1 ? " entry" : " entries") + " but the three refs have " + std::to_string(dims) + (dims == 1 ? " dim" : " dims"));
    const bool clip = flag(Attr::clip);
    std::vector<bool> used(op_.operands.size() - 3);
    Shape shapes[3];
    const std::array<CopyPlace, 3> places = copy_places(k_, op_);
    for (size_t i = 0; i < 3; ++i)
      for (size_t d = 0; d < places[i].rank; ++d) {
        const Index& x = op_.index[places[i].first + d];
        if (!x.is_static()) {
          const auto at = static_cast<size_t>(x.start_operand);
          if (at < 3 || at >= op_.operands.size()) fail(std::string("the ") + kRoles[i] + ": dim " + std::to_string(d) + ": the start is operand " + std::to_string(at) + ", which is not one of the dynamic starts");
          if (type(at) != i32_) scalar(at, DType::i32, ("dim " + std::to_string(d) + " of the " + kRoles[i] + ": a dynamic start").c_str());
          used[at - 3] = true;
        }
        bounds(d, x, type(i).shape[d], clip && i < 2, std::string("the ") + kRoles[i] + ": ");
        if (x.kind == Index::Kind::slice) shapes[i].push_back(x.size);
      }
    for (size_t i = 0; i < used.size(); ++i)
      if (!used[i]) fail("operand " + std::to_string(3 + i) + " is not used by the index");
    if (shapes[0] != shapes[1]) fail("the source is " + to_string(shapes[0]) + " but the target is " + to_string(shapes[1]), "a copy does not change shapes");
    if (type(0).dtype != type(1).dtype) fail("the source holds " + std::string(name(type(0).dtype)) + " but the target " + std::string(name(type(1).dtype)), "a copy does not convert");
    if (!shapes[2].empty()) fail("the index selects " + to_string(shapes[2]) + " of the semaphores " + show(type(2)), "one semaphore at a time: index every dim with an integer");
    constexpr int64_t kMostBytes = INT32_MAX;
    if (within_limits(shapes[0]) && num_elements(shapes[0]) > kMostBytes / size_bytes(type(0).dtype))
      fail("copies " + std::to_string(num_elements(shapes[0]) * size_bytes(type(0).dtype)) + " bytes, and a semaphore counts to " + std::to_string(kMostBytes), "copy it in pieces");
  }
  std::vector<Type> run_scoped() const {
    count(0);
    regions(1);
    for (Value v : k_.region(op_.regions[0]).args) {
      const Type& t = k_.type(v);
      if (!t.is_ref || !is_for_scratch(t.space)) fail("region 0 takes " + show(t) + ", no ref to scratch", "refs to any, vmem, smem, semaphore and dma_semaphore are");
      if (is_semaphore(t.space) && t.dtype != DType::i32) fail("region 0 takes " + show(t) + ", but semaphores are i32");
    }
    std::vector<Type> result;
    for (Value v : terminator(0).operands) result.push_back(k_.type(v));
    return result;
  }

  // -- control flow
  const Op& terminator(size_t region) const {
    const Region& r = k_.region(op_.regions[region]);
    if (r.ops.empty() || k_.op(r.ops.back()).code != Opcode::yield) fail("region " + std::to_string(region) + " does not end in a yield");
    return k_.op(r.ops.back());
  }
  template <class Values> std::string types(const Values& values) const {
    std::string s = "(";
    for (size_t i = 0; i < values.size(); ++i) s += (i ? ", " : "") + show(k_.type(values[i]));
    return s + ")";
  }
  std::string types(const std::vector<Type>& list) const {
    std::string s = "(";
    for (size_t i = 0; i < list.size(); ++i) s += (i ? ", " : "") + show(list[i]);
    return s + ")";
  }
  bool match(const std::vector<Value>& values, const std::vector<Type>& wanted) const {
    return std::equal(values.begin(), values.end(), wanted.begin(), wanted.end(), [&](Value v, const Type& t) { return k_.type(v) == t; });
  }
  void region_takes(size_t region, const std::vector<Type>& wanted) const {
    const auto& args = k_.region(op_.regions[region]).args;
    if (!match(args, wanted)) fail("region " + std::to_string(region) + " must take " + types(wanted) + " but takes " + types(args));
  }
  void region_yields(size_t region, const std::vector<Type>& wanted) const {
    const auto& values = terminator(region).operands;
    if (!match(values, wanted)) fail("region " + std::to_string(region) + " must yield " + types(wanted) + " but yields " + types(values));
  }
  std::vector<Type> carries(size_t first) const {
    std::vector<Type> result;
    for (size_t i = first; i < op_.operands.size(); ++i) result.push_back(array(i));
    return result;
  }
  std::vector<Type> for_loop() const {
    if (op_.operands.size() < 3) fail("takes lower, upper and step but got " + std::to_string(op_.operands.size()) + " operands");
    regions(1);
    scalar(0, DType::i32, "the lower bound");
    scalar(1, DType::i32, "the upper bound");
    scalar(2, DType::i32, "the step");
    if (const auto step = constant_int(k_, op_.operands[2]); step && *step <= 0) fail("the step is " + std::to_string(*step) + ", not positive");
    std::vector<Type> result = carries(3), args{Type::array(DType::i32)};
    args.insert(args.end(), result.begin(), result.end());
    region_takes(0, args);
    region_yields(0, result);
    return result;
  }
  std::vector<Type> while_loop() const {
    regions(2);
    std::vector<Type> result = carries(0);
    region_takes(0, result);
    region_yields(0, {Type::array(DType::boolean)});
    region_takes(1, result);
    region_yields(1, result);
    return result;
  }
  std::vector<Type> choice(bool is_if) const {
    count(1);
    if (is_if) {
      regions(2);
      scalar(0, DType::boolean, "the predicate");
    } else {
      if (op_.regions.empty()) fail("takes at least one region");
      scalar(0, DType::i32, "the index");
    }
    std::vector<Type> result;
    for (size_t i = 0; i < op_.regions.size(); ++i) {
      region_takes(i, {});
      if (i == 0)
        for (Value v : terminator(0).operands) result.push_back(k_.type(v));
      else if (const auto& values = terminator(i).operands; !match(values, result))
        fail("region 0 yields " + types(result) + " but region " + std::to_string(i) + " yields " + types(values));
    }
    return result;
  }

  // -- lane level
  std::vector<Type> alloc(MemorySpace space) const {
    count(0);
    check_requested();
    if (attr(Attr::offset) < 0) fail("the offset " + std::to_string(attr(Attr::offset)) + " is negative");
    if (!requested_.is_ref || requested_.space != space || requested_.shape.size() != 1)
      fail("the result must be a ref of rank 1 to " + std::string(name(space)) + " memory but is " + show(requested_));
    return {requested_};
  }
  std::vector<Type> subgroup(size_t operands) const {
    count(operands);
    const Type& t = array(0);
    if (!t.is_scalar()) fail("takes a scalar but the operand is " + show(t));
    if (op_.code == Opcode::subgroup_reduce) {
      const int64_t kind = attr(Attr::kind);
      if (kind < 0 || kind >= kNumOpcodes || !info(static_cast<Opcode>(kind)).associative) fail("kind " + std::to_string(kind) + " is not an associative op");
      check_dtype(info(static_cast<Opcode>(kind)).operands, t.dtype);
    }
    if (op_.code == Opcode::subgroup_shuffle) scalar(1, DType::i32, "the lane");
    if (op_.code == Opcode::subgroup_shuffle_xor && attr(Attr::mask) < 0) fail("the mask " + std::to_string(attr(Attr::mask)) + " is negative");
    return {t};
  }

  std::vector<Type> structured() const {
    switch (op_.code) {
      case Opcode::constant: return constant();
      case Opcode::iota: return iota();
      case Opcode::broadcast: return broadcast();
      case Opcode::reshape: return reshape();
      case Opcode::transpose: return transpose();
      case Opcode::slice: return slice();
      case Opcode::concatenate: return concatenate();
      case Opcode::dot: return dot();
#define TESSERA_REDUCE(n, ...) case Opcode::n: return reduce();
#define TESSERA_ARGREDUCE(n, ...) case Opcode::n: return argument();
#define TESSERA_SCAN(n, ...) case Opcode::n: return scan();
#define TESSERA_ELEMENTWISE(n, ...) case Opcode::n: break;
#include "engine/ir/ops.def"
      case Opcode::rev: return rev();
      case Opcode::gather: return gather();
      case Opcode::scatter: return scatter();
      case Opcode::sort: return sort();
      case Opcode::program_id: case Opcode::num_programs: return grid_index();
      case Opcode::load: return load();
      case Opcode::store: stored(); flag(Attr::unordered); return {};
      case Opcode::swap: return {stored()};
      case Opcode::addupdate:
        if (stored().dtype == DType::boolean) fail("bool has no sum", "or it to what is there: store(load | value)");
        return {};
      case Opcode::atomic_rmw: case Opcode::atomic_cas: return {atomic()};
      case Opcode::debug_print: text(0); return {};
      case Opcode::check:
        if (op_.operands.empty()) fail("takes a condition");
        scalar(0, DType::boolean, "the condition");
        text(1);
        return {};
      case Opcode::report_memory: count(0); return {Type::ref(DType::u32, {-1}, MemorySpace::global)};
      case Opcode::run_scoped: return run_scoped();
      case Opcode::semaphore_signal: case Opcode::semaphore_wait: case Opcode::semaphore_read: return semaphore();
      case Opcode::copy_start: case Opcode::copy_wait: copy(); return {};
      case Opcode::for_: return for_loop();
      case Opcode::while_: return while_loop();
      case Opcode::if_: return choice(true);
      case Opcode::switch_: return choice(false);
      case Opcode::yield:
        for (size_t i = 0; i < op_.operands.size(); ++i) array(i);
        return {};
      case Opcode::workgroup_index: case Opcode::num_workgroups: case Opcode::local_index: case Opcode::subgroup_id: case Opcode::lane_id:
        count(0);
        return {Type::array(DType::i32)};
      case Opcode::extent:
        count(0);
        if (attr(Attr::index) < 0) fail("the index " + std::to_string(attr(Attr::index)) + " is negative");
        if (!requested_.is_scalar() || (requested_.dtype != DType::i32 && requested_.dtype != DType::i64)) fail("the result must be i32[] or i64[] but is " + show(requested_));
        return {requested_};
      case Opcode::alloc_shared: return alloc(MemorySpace::shared);
      case Opcode::alloc_scratch: return alloc(MemorySpace::global);
      case Opcode::view:
        count(2);
        if (!type(0).is_ref) fail("operand 0 must be a ref but is " + show(type(0)));
        scalar(1, DType::i64, "the offset");
        return {type(0)};
      case Opcode::barrier: count(0); return {};
      case Opcode::loops_cut: count(0); return {Type::array(DType::boolean)};
      case Opcode::report:
        if (op_.operands.empty()) fail("takes a condition but got no operands");
        scalar(0, DType::boolean, "the condition");
        for (size_t i = 1; i < op_.operands.size(); ++i) scalar(i, DType::i32, "a word of the report");
        if (attr(Attr::mask) <= 0 || attr(Attr::mask) > INT32_MAX) fail("the mask " + std::to_string(attr(Attr::mask)) + " is not one of bits 0 to 30");
        return {};
      case Opcode::subgroup_reduce: case Opcode::subgroup_shuffle_xor: return subgroup(1);
      case Opcode::subgroup_shuffle: return subgroup(2);
    }
    throw InternalError(k_.name + ": no type rule for " + std::string(name(op_.code)), op_.loc);
  }
};
}  // namespace

std::vector<Type> infer(const Kernel& k, const Op& op, const Type& requested) { return Inference(k, op, requested).run(); }

}  // namespace tessera::ir
