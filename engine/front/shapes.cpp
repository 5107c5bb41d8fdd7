// Functions of shape that are compositions: reshapes, slices and concatenations.
#include <algorithm>

#include "engine/base/function.h"
#include "engine/front/ops.h"
#include "engine/front/trace.h"

namespace tessera {
namespace {
/// The elements [begin, end) of x along one axis.
Value part(const Value& x, size_t axis, int64_t begin, int64_t end) {
  std::vector<int64_t> start(x.shape().size(), 0), limit(x.shape().begin(), x.shape().end());
  start[axis] = begin;
  limit[axis] = end;
  return slice(x, start, limit);
}
Value value_of(Emit& e, const Operand& x) { return e.wrap(e.as_is(x)); }
}  // namespace

Value expand_dims(Operand x, std::vector<int64_t> axes) {
  Emit e("expand_dims", x);
  Shape shape = e.shape(x);
  const size_t rank = shape.size() + axes.size();
  for (int64_t& a : axes) a = e.axis(a, rank);
  std::sort(axes.begin(), axes.end());
  if (const auto twice = std::adjacent_find(axes.begin(), axes.end()); twice != axes.end())
    e.fail("axis " + std::to_string(*twice) + " is listed twice");
  for (const int64_t a : axes) shape.insert(shape.begin() + a, 1);
  return reshape(x, shape);
}

Value squeeze(Operand x, std::vector<int64_t> axes) {
  Emit e("squeeze", x);
  Shape shape = e.shape(x);
  for (int64_t& a : axes) {
    a = e.axis(a, shape.size());
    if (shape[static_cast<size_t>(a)] != 1)
      e.fail("dim " + std::to_string(a) + " of " + to_string(shape) + " is not of size 1");
  }
  std::sort(axes.begin(), axes.end());
  axes.erase(std::unique(axes.begin(), axes.end()), axes.end());
  for (size_t i = axes.size(); i-- > 0;) shape.erase(shape.begin() + axes[i]);
  return reshape(x, shape);
}

Value stack(std::vector<Operand> parts, int64_t axis) {
  Emit e("stack", parts.empty() ? Operand() : parts[0]);
  if (parts.empty()) e.fail("there is nothing to stack");
  const Shape shape = e.shape(parts[0]);
  for (Operand& p : parts) {
    if (e.shape(p) != shape) e.fail("shapes " + to_string(shape) + " and " + to_string(e.shape(p)) + " differ");
    p = expand_dims(p, {axis});
  }
  return concatenate(std::move(parts), axis);
}

std::vector<Value> split(Operand x, std::vector<int64_t> sizes, int64_t axis) {
  Emit e("split", x);
  const Value v = value_of(e, x);
  const auto d = static_cast<size_t>(e.axis(axis, v.shape().size()));
  int64_t at = 0;
  for (const int64_t n : sizes) at += n;
  if (at != v.shape()[d] || std::any_of(sizes.begin(), sizes.end(), [](int64_t n) { return n < 0; }))
    e.fail("sizes " + to_string(sizes) + " do not add up to the " + std::to_string(v.shape()[d]) + " elements of dim " +
           std::to_string(d));
  std::vector<Value> parts;
  at = 0;
  for (const int64_t n : sizes) {
    parts.push_back(part(v, d, at, at + n));
    at += n;
  }
  return parts;
}
std::vector<Value> split(Operand x, int parts, int64_t axis) {
  Emit e("split", x);
  const int64_t n = e.shape(x)[static_cast<size_t>(e.axis(axis, e.shape(x).size()))];
  if (parts < 1 || n % parts)
    e.fail(std::to_string(n) + " elements do not split into " + std::to_string(parts) + " equal parts");
  return split(x, std::vector<int64_t>(static_cast<size_t>(parts), n / parts), axis);
}

Value tile(Operand x, std::vector<int64_t> repeats) {
  Emit e("tile", x);
  Shape shape = e.shape(x);
  for (const int64_t r : repeats)
    if (r < 0) e.fail("repeats " + to_string(repeats) + " have a negative entry");
  while (repeats.size() < shape.size()) repeats.insert(repeats.begin(), 1);
  while (shape.size() < repeats.size()) shape.insert(shape.begin(), 1);
  // Every dim gets one before it, of size 1, that repeats.
  Shape paired, repeated, joined;
  for (size_t d = 0; d < shape.size(); ++d) {
    paired.insert(paired.end(), {1, shape[d]});
    repeated.insert(repeated.end(), {repeats[d], shape[d]});
    joined.push_back(repeats[d] * shape[d]);
  }
  return reshape(broadcast_to(reshape(x, paired), repeated), joined);
}

Value rev(Operand x, std::vector<int64_t> axes) {
  Emit e("rev", x);
  for (int64_t& a : axes) a = e.axis(a, e.shape(x).size());
  std::sort(axes.begin(), axes.end());
  if (const auto twice = std::adjacent_find(axes.begin(), axes.end()); twice != axes.end())
    e.fail("axis " + std::to_string(*twice) + " is listed twice");
  ir::Op op{.code = ir::Opcode::rev, .operands = {e.as_is(x)}};
  op.set(ir::Attr::axes, std::move(axes));
  return e.wrap(e.builder().one(std::move(op)));
}

Value roll(Operand x, int64_t shift, int64_t axis) {
  Emit e("roll", x);
  const Value v = value_of(e, x);
  const auto d = static_cast<size_t>(e.axis(axis, v.shape().size()));
  const int64_t n = v.shape()[d];
  const int64_t back = n == 0 ? 0 : (shift % n + n) % n;
  if (back == 0) return v;
  return concatenate({part(v, d, n - back, n), part(v, d, 0, n - back)}, axis);
}

Value pad(Operand x, Operand value, std::vector<Padding> dims) {
  Emit e("pad", x);
  Value v = value_of(e, x);
  if (dims.size() != v.shape().size())
    e.fail("there are " + std::to_string(dims.size()) + " paddings but the operand " + to_string(v.shape()) + " has " +
           std::to_string(v.shape().size()) + " dims");
  if (!e.shape(value).empty()) e.fail("the padding value must be a scalar but has shape " + to_string(e.shape(value)));
  const DType t = v.dtype();
  const auto filler = [&](Shape shape) { return e.wrap(e.as(value, t, shape)); };
  for (size_t d = 0; d < dims.size(); ++d) {
    const Padding& p = dims[d];
    const auto axis = static_cast<int64_t>(d);
    if (p.interior < 0)
      e.fail("dim " + std::to_string(d) + " has the negative interior padding " + std::to_string(p.interior));
    const int64_t n = v.shape()[d], spread = n + std::max<int64_t>(n - 1, 0) * p.interior;
    if (spread + p.low + p.high < 0)
      e.fail("dim " + std::to_string(d) + " of " + std::to_string(spread) + " elements is cut by " +
             std::to_string(-p.low - p.high));
    if (p.interior > 0 && n > 1) {
      // Behind every element its padding, as a dim of its own; the last one's goes again.
      Shape apart = v.shape(), gaps, joined = v.shape();
      apart.insert(apart.begin() + axis + 1, 1);
      gaps = apart;
      gaps[d + 1] = p.interior;
      joined[d] = n * (p.interior + 1);
      v = part(reshape(concatenate({reshape(v, apart), filler(gaps)}, axis + 1), joined), d, 0, spread);
    }
    Shape edge = v.shape();
    const auto edge_of = [&](int64_t size) {
      edge[d] = size;
      return filler(edge);
    };
    std::vector<Operand> parts;
    if (p.low > 0) parts.push_back(edge_of(p.low));
    parts.push_back(v);
    if (p.high > 0) parts.push_back(edge_of(p.high));
    if (parts.size() > 1) v = concatenate(std::move(parts), axis);
    const int64_t begin = std::max<int64_t>(-p.low, 0), end = v.shape()[d] - std::max<int64_t>(-p.high, 0);
    if (begin > 0 || end < v.shape()[d]) v = part(v, d, begin, end);
  }
  return v;
}

Value associative_scan(FunctionRef<Value(Value, Value)> f, Operand x, ScanParams p) {
  Emit e("associative_scan", x);
  Value v = value_of(e, x);
  const auto d = static_cast<size_t>(e.axis(p.axis, v.shape().size()));
  const int64_t n = v.shape()[d];
  // After the round with `step` every element has met the 2 step - 1 before it.
  for (int64_t step = 1; step < n; step *= 2) {
    const Value front = part(v, d, 0, n - step), back = part(v, d, step, n);
    if (p.reverse) v = concatenate({f(front, back), part(v, d, n - step, n)}, p.axis);
    else v = concatenate({part(v, d, 0, step), f(front, back)}, p.axis);
  }
  return v;
}

Value cumlogsumexp(Operand x, ScanParams p) {
  Emit e("cumlogsumexp", x);
  const DType t = e.dtype(x);
  return associative_scan([](Value a, Value b) { return logaddexp(a, b); },
                          e.wrap(e.as(x, is_float(t) ? t : DType::f32)), p);
}

}  // namespace tessera
