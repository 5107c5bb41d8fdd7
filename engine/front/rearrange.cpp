#include "engine/front/rearrange.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "engine/front/trace.h"

namespace tessera {
using ir::Attr;
using ir::Opcode;

namespace {
/// Indices as i32, which wraps none: those too large for it are as far out of range as they were.
Value index_array(Emit& e, const Operand& o) {
  const DType t = e.dtype(o);
  if (!is_int(t)) e.fail("indices must be integers but are " + std::string(name(t)));
  const Value v = e.wrap(e.as(o, t));
  if (t == i32) return v;
  if (bits(t) < 32) return cast(v, i32);
  const int64_t most = std::numeric_limits<int32_t>::max();
  return cast(t == i64 ? clamp(-most - 1, v, most) : minimum(v, most), i32);
}

ir::Value at_least_rank(Emit& e, const Operand& x) {
  if (e.shape(x).empty()) e.fail("the operand is a scalar, which has no dims to index");
  return e.as_is(x);
}

/// Adds the size once to negative indices.
Value wrapped(const Value& i, int64_t n) {
  const Value behind = i + n;
  return where(i < 0, behind, i);
}

Value filler(Emit& e, DType t, const Shape& shape) {
  ir::Builder& b = e.builder();
  if (is_float(t)) return e.wrap(b.constant_float(t, std::numeric_limits<double>::quiet_NaN(), shape));
  if (t == boolean) return e.wrap(b.constant_int(t, 1, shape));
  return e.wrap(
      b.constant(t, is_signed_int(t) ? uint64_t{1} << (bits(t) - 1) : (uint64_t{1} << (bits(t) - 1)) * 2 - 1, shape));
}

/// NumPy's rule for x[i, :, j]: where each dim of x is in the result, whose shape this gives.
struct Layout {
  std::vector<int64_t> dims;  // per dim of x: the result's dim, or -1 for an indexed one
  Shape shape;
  size_t first = 0, count = 0;  // the result's dims that the indices' shape takes
};
Layout layout(const Shape& x, const std::vector<int64_t>& axes, const Shape& indices) {
  Layout l;
  std::vector<int64_t> sorted = axes;
  std::sort(sorted.begin(), sorted.end());
  const bool neighbours = sorted.back() - sorted.front() + 1 == static_cast<int64_t>(sorted.size());
  l.first = neighbours ? static_cast<size_t>(sorted.front()) : 0;
  l.count = indices.size();
  l.dims.assign(x.size(), -1);
  for (size_t d = 0; d <= x.size(); ++d) {
    if (l.shape.size() == l.first) l.shape.insert(l.shape.end(), indices.begin(), indices.end());
    if (d == x.size()) break;
    if (std::find(axes.begin(), axes.end(), static_cast<int64_t>(d)) != axes.end()) continue;
    l.dims[d] = static_cast<int64_t>(l.shape.size());
    l.shape.push_back(x[d]);
  }
  return l;
}

std::vector<int64_t> index_axes(Emit& e, const Operand& x, size_t indices, std::vector<int64_t> axes) {
  const size_t rank = e.shape(x).size();
  if (axes.empty())
    for (size_t i = 0; i < indices; ++i) axes.push_back(static_cast<int64_t>(i));
  if (indices == 0) e.fail("there are no indices");
  if (axes.size() != indices)
    e.fail("there are " + std::to_string(indices) + " indices for " + std::to_string(axes.size()) + " axes");
  if (axes.size() > rank)
    e.fail("there are " + std::to_string(indices) + " indices but the operand " + to_string(e.shape(x)) + " has " +
           std::to_string(rank) + (rank == 1 ? " dim" : " dims"));
  for (int64_t& a : axes) a = e.axis(a, rank);
  for (size_t i = 0; i < axes.size(); ++i)
    if (std::count(axes.begin(), axes.end(), axes[i]) > 1)
      e.fail("axis " + std::to_string(axes[i]) + " is listed twice");
  return axes;
}

/// The op, with `indices` in the order of the dims of x that they index.
Value gather_op(Emit& e, const Value& x, const std::vector<int64_t>& dims, const std::vector<int64_t>& axes,
                const std::vector<Value>& indices) {
  ir::Op op{.code = Opcode::gather, .operands = {e.use(x)}};
  for (size_t d = 0; d < dims.size(); ++d)
    for (size_t i = 0; i < axes.size(); ++i)
      if (axes[i] == static_cast<int64_t>(d)) op.operands.push_back(e.use(indices[i]));
  op.set(Attr::dims, dims);
  return e.wrap(e.builder().one(std::move(op)));
}

/// Indices that the mode has made good for the op, and which of them are in range (mode fill).
struct Prepared {
  Value index;
  std::optional<Value> inside;
};
Prepared prepare(const Value& i, int64_t n, IndexMode mode) {
  switch (mode) {
    case IndexMode::nearest: break;
    case IndexMode::clip: return {maximum(i, 0), std::nullopt};
    case IndexMode::wrap: {
      if (n == 0) break;
      return {wrapped(i % n, n), std::nullopt};
    }
    case IndexMode::fill: {
      const Value below = i < n;
      return {i, (i >= -n) & below};
    }
  }
  return {i, std::nullopt};
}

/// The indices' own shape broadcast into the result's.
Value placed(const Value& index, const Layout& l) {
  Shape s = index.shape();
  s.insert(s.end(), l.shape.size() - l.first - l.count, 1);
  s.insert(s.begin(), l.first, 1);
  return broadcast_to(reshape(index, s), l.shape);
}

Value gathered(Emit& e, const Operand& x, const std::vector<Operand>& indices, const std::vector<int64_t>& axes,
               IndexMode mode) {
  const Value v = e.wrap(at_least_rank(e, x));
  std::vector<const Operand*> all;
  for (const Operand& i : indices) all.push_back(&i);
  const Shape common = e.common_shape(all);
  const Layout l = layout(v.shape(), axes, common);
  std::vector<Value> list;
  std::optional<Value> inside;
  for (size_t i = 0; i < indices.size(); ++i) {
    const int64_t n = v.shape()[static_cast<size_t>(axes[i])];
    const Prepared p = prepare(broadcast_to(index_array(e, indices[i]), common), n, mode);
    if (p.inside) inside = inside ? *inside & *p.inside : *p.inside;
    list.push_back(placed(p.index, l));
  }
  // Nothing to read: every index is out of range.
  if (inside && num_elements(v.shape()) == 0 && num_elements(l.shape) != 0) return filler(e, v.dtype(), l.shape);
  const Value r = gather_op(e, v, l.dims, axes, list);
  if (!inside) return r;
  const Value other = filler(e, r.dtype(), r.shape());
  return where(placed(*inside, l), r, other);
}

/// The window's start along a dim: a negative one wraps once, then the window is moved to fit.
Value fitted(Emit& e, const Operand& start, int64_t n, int64_t size) {
  const Value i = index_array(e, start);
  if (!i.shape().empty()) e.fail("a start must be a scalar but has shape " + to_string(i.shape()));
  return clamp(0, wrapped(i, n), n - size);
}
void check_window(Emit& e, const Shape& x, size_t starts, const Shape& sizes, const char* what) {
  if (starts != x.size() || sizes.size() != x.size())
    e.fail("the operand " + to_string(x) + " has " + std::to_string(x.size()) + (x.size() == 1 ? " dim" : " dims") +
           " but there are " + std::to_string(starts) + " starts and " + what + " " + to_string(sizes));
  for (size_t d = 0; d < x.size(); ++d)
    if (sizes[d] < 0 || sizes[d] > x[d])
      e.fail(std::string(what) + " " + to_string(sizes) + " does not fit the operand " + to_string(x) + " along dim " +
             std::to_string(d));
}
}  // namespace

// -- sorting
std::vector<Value> sort(std::vector<Operand> operands, SortParams p) {
  Emit e("sort", operands.empty() ? Operand() : operands[0]);
  if (operands.empty()) e.fail("there is nothing to sort");
  const Shape shape = e.shape(operands[0]);
  if (shape.empty()) e.fail("the operand is a scalar, which has no axis to sort along");
  ir::Op op{.code = Opcode::sort};
  for (const Operand& o : operands) {
    if (e.shape(o) != shape)
      e.fail("operands have shapes " + to_string(shape) + " and " + to_string(e.shape(o)), "all must have one shape");
    op.operands.push_back(e.as_is(o));
  }
  op.set(Attr::axis, e.axis(p.axis, shape.size()));
  op.set(Attr::keys, p.num_keys);
  std::vector<Value> results;
  const ir::OpId id = e.builder().append(std::move(op));
  for (const ir::Value v : std::vector<ir::Value>(e.trace().kernel().op(id).results)) results.push_back(e.wrap(v));
  return results;
}
Value sort(Operand x, SortParams p) { return sort(std::vector<Operand>{std::move(x)}, p)[0]; }

Value argsort(Operand x, int64_t axis) {
  Emit e("argsort", x);
  const Shape shape = e.shape(x);
  if (shape.empty()) e.fail("the operand is a scalar, which has no axis to sort along");
  const int along = e.axis(axis, shape.size());
  const Value positions = iota(i32, shape, along, x.loc());
  return sort({x, Operand(positions, x.loc())}, {.axis = along})[1];
}

// -- gathers
Value gather(Operand x, std::vector<Operand> indices, std::vector<int64_t> axes, IndexMode mode) {
  Emit e("gather", x);
  if (mode == IndexMode::clip || mode == IndexMode::wrap)
    e.fail("the mode must be nearest or fill", "take() has clip and wrap too");
  axes = index_axes(e, x, indices.size(), std::move(axes));
  return gathered(e, x, indices, axes, mode);
}

Value take(Operand x, Operand indices, int64_t axis, IndexMode mode) {
  Emit e("take", x);
  at_least_rank(e, x);
  return gathered(e, x, {indices}, {e.axis(axis, e.shape(x).size())}, mode);
}

Value take_along_axis(Operand x, Operand indices, int64_t axis, IndexMode mode) {
  Emit e("take_along_axis", x);
  const Value v = e.wrap(at_least_rank(e, x)), given = index_array(e, indices);
  const Shape &xs = v.shape(), &is = given.shape();
  const auto along = static_cast<size_t>(e.axis(axis, xs.size()));
  Shape shape = is;
  bool good = xs.size() == is.size();
  for (size_t d = 0; good && d < xs.size(); ++d) {
    if (d == along) continue;
    good = xs[d] == is[d] || xs[d] == 1 || is[d] == 1;
    shape[d] = is[d] == 1 ? xs[d] : is[d];
  }
  if (!good)
    e.fail("indices of shape " + to_string(is) + " for an operand of shape " + to_string(xs),
           "but for axis " + std::to_string(along) + " the sizes must be equal or 1");
  const Prepared p =
      prepare(broadcast_to(given, shape), xs[along], mode == IndexMode::clip ? IndexMode::nearest : mode);
  if (p.inside && num_elements(xs) == 0 && num_elements(shape) != 0) return filler(e, v.dtype(), shape);
  Shape source = shape;
  source[along] = xs[along];
  std::vector<int64_t> dims(xs.size());
  std::iota(dims.begin(), dims.end(), int64_t{0});
  dims[along] = -1;
  const Value r = gather_op(e, broadcast_to(v, source), dims, {static_cast<int64_t>(along)}, {p.index});
  return p.inside ? where(*p.inside, r, filler(e, r.dtype(), shape)) : r;
}

// -- scatters
Value scatter(Operand x, std::vector<Operand> indices, Operand updates, Update update, std::vector<int64_t> axes) {
  Emit e("scatter", x);
  axes = index_axes(e, x, indices.size(), std::move(axes));
  const Value v = e.wrap(at_least_rank(e, x));
  std::vector<const Operand*> operands;
  for (const Operand& i : indices) operands.push_back(&i);
  const Shape common = e.common_shape(operands);
  const Layout l = layout(v.shape(), axes, common);
  const DType t = v.dtype();
  if (t == boolean && (update == Update::add || update == Update::multiply))
    e.fail("bools have neither sums nor products", "cast() them to an integer dtype first");
  if (t == boolean && update != Update::set) {
    const Value bytes = cast(updates, u8);
    return cast(scatter(cast(v, u8), std::move(indices), bytes, update, std::move(axes)), boolean);
  }
  ir::Value given = e.as(updates, t);
  given = e.broadcast(given, l.shape);
  ir::Op op{.code = Opcode::scatter, .operands = {e.use(v), given}};
  for (size_t d = 0; d < l.dims.size(); ++d)
    for (size_t i = 0; i < axes.size(); ++i)
      if (axes[i] == static_cast<int64_t>(d))
        op.operands.push_back(e.use(placed(broadcast_to(index_array(e, indices[i]), common), l)));
  op.set(Attr::dims, l.dims);
  constexpr Opcode kinds[] = {Opcode::add, Opcode::add, Opcode::mul, Opcode::min, Opcode::max};
  if (update != Update::set) op.set(Attr::kind, static_cast<int64_t>(kinds[static_cast<int>(update)]));
  return e.wrap(e.builder().one(std::move(op)));
}

// -- slices at computed positions
Value dynamic_slice(Operand x, std::vector<Operand> starts, Shape sizes) {
  Emit e("dynamic_slice", x);
  const Value v = e.wrap(e.as_is(x));
  check_window(e, v.shape(), starts.size(), sizes, "sizes");
  std::vector<int64_t> dims(sizes.size()), axes;
  std::vector<Value> indices;
  for (size_t d = 0; d < sizes.size(); ++d) {
    dims[d] = static_cast<int64_t>(d);
    if (sizes[d] == v.shape()[d]) continue;  // the window fits in one place only
    dims[d] = -1;
    axes.push_back(static_cast<int64_t>(d));
    const Value inside = iota(i32, sizes, static_cast<int64_t>(d), x.loc());
    indices.push_back(fitted(e, starts[d], v.shape()[d], sizes[d]) + inside);
  }
  return axes.empty() ? v : gather_op(e, v, dims, axes, indices);
}

Value dynamic_update_slice(Operand x, Operand update, std::vector<Operand> starts) {
  Emit e("dynamic_update_slice", x);
  const Value v = e.wrap(e.as_is(x));
  const Shape &shape = v.shape(), sizes = e.shape(update);
  check_window(e, shape, starts.size(), sizes, "an update of shape");
  const Value u = e.wrap(e.as(update, v.dtype()));
  if (num_elements(sizes) == 0) return v;
  std::vector<int64_t> dims(sizes.size()), axes;
  std::vector<Value> indices;
  std::optional<Value> inside;
  for (size_t d = 0; d < sizes.size(); ++d) {
    dims[d] = static_cast<int64_t>(d);
    if (sizes[d] == shape[d]) continue;
    dims[d] = -1;
    axes.push_back(static_cast<int64_t>(d));
    const Value start = fitted(e, starts[d], shape[d], sizes[d]);
    indices.push_back(iota(i32, shape, static_cast<int64_t>(d), x.loc()) - start);
    const Value below = indices.back() < sizes[d], here = (indices.back() >= 0) & below;
    inside = inside ? *inside & here : here;
  }
  if (axes.empty()) return u;
  return where(*inside, gather_op(e, u, dims, axes, indices), v);
}

Value dynamic_index_in_dim(Operand x, Operand index, int64_t axis, bool keepdims) {
  Emit e("dynamic_index_in_dim", x);
  Shape sizes = e.shape(x);
  const int along = e.axis(axis, sizes.size());
  if (sizes[static_cast<size_t>(along)] == 0)
    e.fail("dim " + std::to_string(along) + " of " + to_string(sizes) + " has no elements");
  std::vector<Operand> starts(sizes.size(), Operand(0, x.loc()));
  starts[static_cast<size_t>(along)] = index;
  sizes[static_cast<size_t>(along)] = 1;
  const Value v = dynamic_slice(x, starts, sizes);
  return keepdims ? v : squeeze(v, {along});
}

Value roll(Operand x, Operand shift, int64_t axis, int64_t stride, int64_t stride_axis) {
  Emit e("roll", x);
  const Value v = e.wrap(at_least_rank(e, x));
  const auto along = static_cast<size_t>(e.axis(axis, v.shape().size()));
  const int across = e.axis(stride_axis, v.shape().size());
  if (stride && across == static_cast<int>(along)) e.fail("axis and stride_axis are both " + std::to_string(across));
  const Value given = index_array(e, shift);
  if (!given.shape().empty()) e.fail("the shift must be a scalar but has shape " + to_string(given.shape()));
  const int64_t n = v.shape()[along];
  if (num_elements(v.shape()) == 0) return v;
  const Shape& s = v.shape();
  const Value by = given % n;
  Value moved = iota(i32, s, static_cast<int64_t>(along), x.loc()) - by;
  if (stride) moved = moved - iota(i32, s, across, x.loc()) * (stride % n) % n;
  moved = moved % n;
  std::vector<int64_t> dims(s.size());
  std::iota(dims.begin(), dims.end(), int64_t{0});
  dims[along] = -1;
  return gather_op(e, v, dims, {static_cast<int64_t>(along)}, {wrapped(moved, n)});
}

// -- shapes by name
namespace {
using Groups = std::vector<std::string>;
Groups groups_of(Emit& e, const std::string& side) {
  Groups groups;
  bool open = false;
  for (const char c : side) {
    if (c == ' ') continue;
    if (c == '(' || c == ')') {
      if (open == (c == '(')) e.fail("\"" + side + "\" has an unmatched parenthesis");
      open = c == '(';
      if (open) groups.emplace_back();
    } else if (open) groups.back() += c;
    else groups.emplace_back(1, c);
  }
  if (open) e.fail("\"" + side + "\" has an unmatched parenthesis");
  return groups;
}
}  // namespace

Value einshape(const std::string& equation, Operand x, const std::vector<std::pair<char, int64_t>>& sizes) {
  Emit e("einshape", x);
  const size_t arrow = equation.find("->");
  if (arrow == std::string::npos || equation.find("->", arrow + 2) != std::string::npos)
    e.fail("\"" + equation + "\" must have exactly one ->");
  const Groups left = groups_of(e, equation.substr(0, arrow)), right = groups_of(e, equation.substr(arrow + 2));
  const Shape shape = e.shape(x);
  if (left.size() != shape.size())
    e.fail("\"" + equation + "\" has " + std::to_string(left.size()) + " dims on the left but the operand " +
           to_string(shape) + " has " + std::to_string(shape.size()));
  std::string names, wanted;
  Shape split, merged;
  for (size_t d = 0; d < left.size(); ++d) {
    int64_t known = 1;
    char unknown = 0;
    for (const char c : left[d]) {
      const auto given = std::find_if(sizes.begin(), sizes.end(), [&](const auto& s) { return s.first == c; });
      if (names.find(c) != std::string::npos) e.fail("\"" + equation + "\" has the dim " + c + " twice on one side");
      names += c;
      split.push_back(given != sizes.end() ? given->second : -1);
      if (given != sizes.end()) known *= given->second;
      else if (unknown)
        e.fail("the sizes of " + std::string(1, unknown) + " and " + c + " are open, whose product is " +
                   std::to_string(shape[d]),
               "give one of them in sizes");
      else unknown = c;
    }
    const bool fits = known > 0 ? shape[d] % known == 0 && (unknown || shape[d] == known) : shape[d] == 0 && !unknown;
    if (!fits)
      e.fail("dim " + std::to_string(d) + " of " + to_string(shape) + " does not split into (" + left[d] +
             ") with the sizes given, whose product is " + std::to_string(known));
    for (size_t i = split.size() - left[d].size(); i < split.size(); ++i)
      if (split[i] < 0) split[i] = shape[d] / known;
  }
  std::vector<int64_t> perm;
  for (const std::string& group : right) {
    merged.push_back(1);
    for (const char c : group) {
      const size_t at = names.find(c);
      if (at == std::string::npos) e.fail("\"" + equation + "\" has the dim " + c + " on the right only");
      if (wanted.find(c) != std::string::npos) e.fail("\"" + equation + "\" has the dim " + c + " twice on one side");
      wanted += c;
      perm.push_back(static_cast<int64_t>(at));
      merged.back() *= split[at];
    }
  }
  if (wanted.size() != names.size())
    e.fail("\"" + equation + "\" drops a dim: the left names " + names + ", the right " + wanted);
  return reshape(transpose(reshape(x, split), perm), merged);
}

std::vector<Value> unstack(Operand x, int64_t axis) {
  Emit e("unstack", x);
  const Shape shape = e.shape(x);
  const int64_t along = e.axis(axis, shape.size());
  std::vector<Value> parts;
  if (shape[static_cast<size_t>(along)] == 0) return parts;
  for (const Value& v : split(x, static_cast<int>(shape[static_cast<size_t>(along)]), along))
    parts.push_back(squeeze(v, {along}));
  return parts;
}

}  // namespace tessera
