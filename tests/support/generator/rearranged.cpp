// Random gathers, scatters and sorts, and chains of values used at several positions. Which elements they pick hangs on
// indices and keys that every correct evaluation agrees on.
#include <algorithm>

#include "tests/support/generator/values.h"

namespace tessera::fuzz {
using ir::Attr, ir::Op, ir::Opcode, ir::Type, ir::Value;

namespace {
constexpr int64_t kMostElements = 600;
}

std::optional<Value> Values::rearranged(Value v) {
  const Type t = type(v);
  if (t.shape.empty() || num_elements(t.shape) == 0 || num_elements(t.shape) > kMostElements) return std::nullopt;
  const Opcode which = favourite == Opcode::gather || favourite == Opcode::scatter || favourite == Opcode::sort
                           ? favourite
                       : random_.chance(0.45) ? Opcode::gather
                       : random_.chance(0.5)  ? Opcode::scatter
                                              : Opcode::sort;
  if (which == Opcode::sort) {
    const Fact f = fact(v);
    if (f.dirty || f.err != 0) return std::nullopt;
    Op op{.code = Opcode::sort, .operands = {v}};
    if (random_.chance(0.5)) op.operands.push_back(want(some_dtype(), t.shape, false));
    const Fact second = fact(op.operands.back());
    const bool two_keys = op.operands.size() == 2 && !second.dirty && second.err == 0 && random_.chance(0.5);
    op.set(Attr::axis, static_cast<int64_t>(random_.below(t.shape.size())));
    op.set(Attr::keys, two_keys ? 2 : 1);
    const size_t result = random_.below(op.operands.size());
    const ir::OpId id = b.append(std::move(op));
    const Value first = b.kernel().op(id).results[0], last = b.kernel().op(id).results.back();
    note(first, f);
    note(last, second);
    return result == 0 ? first : last;
  }
  // The dims of the other side: those that follow keep their size, the others and perhaps one more are free.
  std::vector<int64_t> dims, order;
  Shape at;
  for (size_t d = 0; d < t.shape.size(); ++d) dims.push_back(random_.chance(0.5) ? -1 : 0);
  if (std::find(dims.begin(), dims.end(), -1) == dims.end()) dims[random_.below(dims.size())] = -1;
  for (size_t d = 0; d < dims.size(); ++d)
    if (dims[d] == 0 || random_.chance(0.6)) order.push_back(dims[d] == 0 ? static_cast<int64_t>(d) : -1);
  random_.shuffle(order);
  for (const int64_t d : order) {
    if (d >= 0) dims[static_cast<size_t>(d)] = static_cast<int64_t>(at.size());
    at.push_back(d >= 0 ? t.shape[static_cast<size_t>(d)] : random_.in(1, 6));
  }
  if (num_elements(at) > kMostElements) return std::nullopt;
  std::vector<Value> indices;
  for (size_t d = 0; d < dims.size(); ++d) {
    if (dims[d] >= 0) continue;
    Value i = want(DType::i32, at, true);
    // Mostly in range or just beyond it, below zero too.
    const double n = static_cast<double>(t.shape[d]);
    if (random_.chance(0.8))
      if (const auto near = apply(Opcode::rem, {i, constant(DType::i32, 2 * n + 1, at)})) i = *near;
    if (random_.chance(0.3))
      if (const auto lower = apply(Opcode::sub, {i, constant(DType::i32, n, at)})) i = *lower;
    indices.push_back(i);
  }
  Op op{.code = which, .operands = {v}};
  op.set(Attr::dims, dims);
  Fact f = fact(v);
  if (which == Opcode::scatter) {
    const Value updates = want(t.dtype, at, false);
    op.operands.push_back(updates);
    const Fact u = fact(updates);
    const bool combines = t.dtype != DType::boolean && !f.dirty && !u.dirty && random_.chance(0.6);
    f = join(f, u);
    if (combines && (is_int(t.dtype) || random_.chance(0.3))) {
      constexpr Opcode kKinds[] = {Opcode::max, Opcode::min, Opcode::add, Opcode::mul};
      const Opcode kind = kKinds[random_.below(is_int(t.dtype) ? 4 : 2)];
      op.set(Attr::kind, static_cast<int64_t>(kind));
      if (kind == Opcode::add || kind == Opcode::mul) f.bound = largest(t.dtype);
    }
  }
  op.operands.insert(op.operands.end(), indices.begin(), indices.end());
  return note(b.one(std::move(op)), f);
}

// v's own elements, or nearly all of them, in other places of the same shape.
std::optional<Value> Values::shifted(Value v) {
  const Type t = type(v);
  const size_t rank = t.shape.size(), d = random_.below(rank);
  const int64_t n = t.shape[d];
  const Fact f = fact(v);
  const auto part = [&](int64_t from, int64_t to) {
    std::vector<int64_t> start(rank, 0), limit = t.shape, stride(rank, 1);
    start[d] = from, limit[d] = to;
    return slice(v, start, limit, stride);
  };
  const auto turned = [&](Value x, size_t axis) {
    Op op{.code = Opcode::rev, .operands = {x}};
    op.set(Attr::axes, static_cast<int64_t>(axis));
    return note(b.one(std::move(op)), f);
  };
  const int64_t by = n > 1 ? random_.in(1, n - 1) : 0;
  switch (random_.below(6)) {
    case 0:
    case 1:
      return n > 1 ? std::optional(concatenate({part(n - by, n), part(0, n - by)}, static_cast<int64_t>(d)))
                   : std::nullopt;
    case 2: {  // with something else in place of what falls out
      if (n < 2) return std::nullopt;
      Shape rest = t.shape;
      rest[d] = by;
      return concatenate({constant(t.dtype, 1, rest), part(0, n - by)}, static_cast<int64_t>(d));
    }
    case 3: {  // halves of stretches change places
      std::vector<int64_t> halves;
      for (int64_t half = 1; half <= n / 2; ++half)
        if (n % (2 * half) == 0) halves.push_back(half);
      if (halves.empty()) return turned(v, d);
      const int64_t half = random_.pick(halves);
      Shape pairs = t.shape;
      pairs[d] = n / (2 * half);
      pairs.insert(pairs.begin() + static_cast<std::ptrdiff_t>(d) + 1, {2, half});
      return reshape(turned(reshape(v, pairs), d + 1), t.shape);
    }
    case 4: {
      std::vector<int64_t> perm(rank);
      for (size_t i = 0; i < rank; ++i) perm[i] = static_cast<int64_t>(i);
      random_.shuffle(perm);
      const Value moved = transpose(v, perm);
      return type(moved).shape == t.shape ? moved : reshape(moved, t.shape);
    }
    default: return turned(v, d);
  }
}

std::optional<Value> Values::chained(Value v) {
  const Type t = type(v);
  if (t.shape.empty() || num_elements(t.shape) < 2 || num_elements(t.shape) > kMostElements / 4) return std::nullopt;
  const int64_t steps = random_.chance(0.3) ? random_.in(16, 40) : random_.in(2, 10);
  for (int64_t i = 0; i < steps; ++i) {
    const auto moved = shifted(v), other = random_.chance(0.4) ? shifted(v) : std::optional(v);
    if (!moved || !other) continue;
    std::optional<Value> next;
    if (random_.chance(0.3)) {
      next = apply(Opcode::select, {leaf(DType::boolean, t.shape), *moved, *other});
    } else if (t.dtype == DType::boolean) {
      next = apply(random_.chance(0.5) ? Opcode::ne : Opcode::or_, {*moved, *other});
    } else {
      constexpr Opcode kJoins[] = {Opcode::max, Opcode::min, Opcode::add, Opcode::sub, Opcode::mul};
      next = apply(kJoins[random_.below(is_int(t.dtype) ? 5 : random_.chance(0.8) ? 2 : 4)], {*moved, *other});
    }
    if (next) v = *next;
  }
  return v;
}

}  // namespace tessera::fuzz
