#include "tests/support/generator/values.h"

#include <algorithm>
#include <cmath>

#include "tests/support/generator/integers.h"

namespace tessera::fuzz {
using ir::Attr, ir::Op, ir::Opcode, ir::Type, ir::Value;

double epsilon(DType t) { return is_float(t) ? std::ldexp(1.0, -float_format(t).mantissa) : 0; }
double largest(DType t) {
  if (t == DType::boolean) return 1;
  return is_int(t) ? std::ldexp(1.0, is_signed_int(t) ? bits(t) - 1 : bits(t)) : 0;
}
double tame_limit(DType t) {
  return t == DType::f8e4m3fn ? 100 : t == DType::f8e5m2 || t == DType::f16 ? 4000 : t == DType::bf16 ? 1e5 : 1e6;
}

std::optional<Fact> rounded(DType t, double bound, double err, bool whole, bool dirty) {
  if (!is_float(t)) return Fact{std::min(bound, largest(t)), 0, true, dirty};
  if (whole && err == 0 && bound <= exact_limit(t)) return Fact{bound, 0, true, dirty};
  if (!(bound <= tame_limit(t))) return std::nullopt;
  return Fact{bound, err + epsilon(t) * bound, false, dirty};
}

double exact_limit(DType t) { return is_float(t) ? std::ldexp(1.0, float_format(t).mantissa + 1) : largest(t); }

Fact join(const Fact& a, const Fact& b) {
  return {std::max(a.bound, b.bound), std::max(a.err, b.err), a.whole && b.whole, a.dirty || b.dirty};
}

Value Values::note(Value v, const Fact& f) {
  if (facts_.size() < b.kernel().values.size()) facts_.resize(b.kernel().values.size());
  facts_[v.index] = f;
  return v;
}

// -- leaves

Value Values::constant(DType t, double v, const Shape& shape) {
  const Fact f{std::abs(v), 0, v == std::floor(v), false};
  if (is_float(t)) return note(b.constant_float(t, v, shape), f);
  Fact g = f;
  if (v < 0 && is_unsigned_int(t)) g.bound = largest(t);
  return note(b.constant_int(t, static_cast<int64_t>(v), shape), g);
}

Value Values::leaf(DType t, const Shape& shape) {
  if (!shape.empty() && random_.chance(0.5)) {
    const size_t axis = random_.below(shape.size());
    const DType base = t == DType::boolean ? DType::i32 : t;
    const double last = static_cast<double>(std::max<int64_t>(shape[axis] - 1, 0));
    if (last <= 120) {
      Op op{.code = Opcode::iota};
      op.set(Attr::axis, static_cast<int64_t>(axis));
      const Value v = note(b.one(std::move(op), Type::array(base, shape)), {last, 0, true, false});
      if (t != DType::boolean) return v;
      return *apply(random_.chance(0.5) ? Opcode::lt : Opcode::ge,
                    {v, constant(base, static_cast<double>(random_.in(0, shape[axis])), shape)});
    }
  }
  if (t == DType::boolean) return constant(t, static_cast<double>(random_.in(0, 1)), shape);
  if (is_int(t) && random_.chance(0.12)) {  // the least and the greatest
    const int64_t least = is_signed_int(t) ? static_cast<int64_t>(~uint64_t{0} << (bits(t) - 1)) : 0;
    return note(b.constant_int(t, random_.chance(0.5) ? least : ~least, shape), {largest(t), 0, true, false});
  }
  return constant(t, static_cast<double>(is_unsigned_int(t) ? random_.in(0, 6) : random_.in(-5, 6)), shape);
}

// -- conversions

std::optional<Value> Values::cast(Value v, DType t) {
  const DType from = type(v).dtype;
  if (from == t) return v;
  Fact f = fact(v);
  const auto out = [&](Fact g) { return note(b.elementwise(Opcode::convert, {v}, t), g); };
  if (t == DType::boolean) {
    if (f.err != 0) return std::nullopt;
    return out({1, 0, true, f.dirty});
  }
  if (is_float(from) && is_float(t)) {
    if (wild(f)) return out(f);  // exact, then rounded once
    if (f.bound > tame_limit(t)) return std::nullopt;
    const bool fits = f.whole && f.bound <= exact_limit(t);
    return out({f.bound * (1 + epsilon(t)), f.err == 0 ? 0 : f.err + epsilon(t) * f.bound, fits, f.dirty});
  }
  if (is_float(from)) {
    if (f.err != 0) return std::nullopt;
    // NaN becomes 0, other garbage something else: still dirty, but nothing is learnt
    if (f.dirty) return std::nullopt;
    return out({std::min(f.bound, largest(t)), 0, true, f.dirty});
  }
  if (is_int(t)) {
    const bool may_be_negative = is_signed_int(from);
    return out(
        {f.bound < largest(t) && !(may_be_negative && is_unsigned_int(t)) ? f.bound : largest(t), 0, true, f.dirty});
  }
  // int or bool to float: bring it into range first.
  const Shape shape = type(v).shape;
  if (from != DType::boolean && f.bound > 100) {
    const Value small = note(b.elementwise(Opcode::rem, {v, constant(from, 61, shape)}), {60, 0, true, f.dirty});
    return note(b.elementwise(Opcode::convert, {small}, t), {60, 0, true, f.dirty});
  }
  return out({f.bound, 0, true, f.dirty});
}

Value Values::broadcast(Value v, const Shape& shape, const std::vector<int64_t>& dims) {
  const Fact f = fact(v);
  return note(b.broadcast(v, shape, dims), f);
}
Value Values::reshape(Value v, const Shape& shape) {
  if (type(v).shape == shape) return v;
  const Fact f = fact(v);
  return note(b.one({.code = Opcode::reshape, .operands = {v}}, Type::array(type(v).dtype, shape)), f);
}
Value Values::transpose(Value v, const std::vector<int64_t>& perm) {
  const Fact f = fact(v);
  Op op{.code = Opcode::transpose, .operands = {v}};
  op.set(Attr::perm, perm);
  return note(b.one(std::move(op)), f);
}
Value Values::slice(Value v, const std::vector<int64_t>& start, const std::vector<int64_t>& limit,
                    const std::vector<int64_t>& stride) {
  const Fact f = fact(v);
  Op op{.code = Opcode::slice, .operands = {v}};
  op.set(Attr::start, start);
  op.set(Attr::limit, limit);
  op.set(Attr::stride, stride);
  return note(b.one(std::move(op)), f);
}
Value Values::concatenate(const std::vector<Value>& parts, int64_t axis) {
  Fact f = fact(parts[0]);
  for (const Value p : parts) f = join(f, fact(p));
  Op op{.code = Opcode::concatenate, .operands = parts};
  op.set(Attr::axis, axis);
  return note(b.one(std::move(op)), f);
}

Value Values::coerce(Value v, const Shape& shape) {
  if (type(v).shape == shape) return v;
  const DType t = type(v).dtype;
  if (num_elements(type(v).shape) == 0) return leaf(t, shape);
  if (num_elements(shape) == num_elements(type(v).shape) && random_.chance(0.7)) {
    // The same elements: a permutation where it is one, else a reshape that may mix dims.
    Shape a = shape, c = type(v).shape;
    std::sort(a.begin(), a.end()), std::sort(c.begin(), c.end());
    if (a == c && random_.chance(0.7)) {
      std::vector<int64_t> perm;
      std::vector<bool> used(shape.size());
      for (const int64_t d : shape)
        for (size_t i = 0; i < shape.size(); ++i)
          if (!used[i] && type(v).shape[i] == d) {
            used[i] = true;
            perm.push_back(static_cast<int64_t>(i));
            break;
          }
      return transpose(v, perm);
    }
    return reshape(v, shape);
  }
  // Drop leading dims by reduction or by taking one element of them, then fit dim by dim.
  while (type(v).shape.size() > shape.size()) {
    Shape s = type(v).shape;
    std::vector<int64_t> start(s.size(), 0), limit(s.begin(), s.end()), stride(s.size(), 1);
    if (!fact(v).dirty && t != DType::boolean && random_.chance(0.3)) {
      Op op{.code = random_.chance(0.5) ? Opcode::reduce_max : Opcode::reduce_min, .operands = {v}};
      op.set(Attr::axes, 0);
      const Fact f = fact(v);
      v = note(b.one(std::move(op)), f);
      continue;
    }
    start[0] = random_.in(0, s[0] - 1), limit[0] = start[0] + 1;
    v = slice(v, start, limit, stride);
    v = reshape(v, Shape(s.begin() + 1, s.end()));
  }
  const size_t lead = shape.size() - type(v).shape.size();
  std::vector<int64_t> dims;
  for (size_t d = lead; d < shape.size(); ++d) {
    const size_t at = d - lead;
    const int64_t have = type(v).shape[at], wanted = shape[d];
    dims.push_back(static_cast<int64_t>(d));
    if (have == wanted || have == 1) continue;
    const Shape s = type(v).shape;
    std::vector<int64_t> start(s.size(), 0), limit(s.begin(), s.end()), stride(s.size(), 1);
    if (have > wanted) {
      const int64_t step = wanted > 0 && random_.chance(0.4) ? std::max<int64_t>(1, have / wanted) : 1;
      const int64_t span = wanted == 0 ? 0 : (wanted - 1) * step + 1;
      start[at] = random_.in(0, have - span), limit[at] = start[at] + span, stride[at] = step;
      v = slice(v, start, limit, stride);
    } else if (wanted <= 3 * have && random_.chance(0.7)) {
      std::vector<Value> parts;
      int64_t left = wanted;
      for (; left >= have; left -= have) parts.push_back(v);
      if (left > 0) {
        limit[at] = left;
        parts.push_back(slice(v, start, limit, stride));
      }
      v = concatenate(parts, static_cast<int64_t>(at));
    } else {
      limit[at] = 1;
      v = slice(v, start, limit, stride);
    }
  }
  return broadcast(v, shape, dims);
}

// A value that has the shape already, or one to broadcast along some of its dims.
std::optional<Value> Values::plain_operand(DType t, const Shape& shape, bool clean) {
  std::vector<Value> fitting;
  for (const Value v : pool)
    if (type(v).shape == shape && !(clean && fact(v).dirty) && (type(v).dtype == t || random_.chance(0.3)))
      fitting.push_back(v);
  if (!fitting.empty() && random_.chance(0.85)) {
    const size_t n = fitting.size();
    return cast(random_.chance(0.5) ? fitting[n - 1 - random_.below(std::min<size_t>(n, 3))] : random_.pick(fitting),
                t);
  }
  for (int tries = 0; tries < 6 && !pool.empty(); ++tries) {
    const Value v = random_.pick(pool);
    const Shape have = type(v).shape;
    if ((clean && fact(v).dirty) || have.size() > shape.size()) continue;
    // The operand's dims in order among the result's, as many as fit.
    std::vector<int64_t> dims;
    for (size_t d = 0; d < shape.size() && dims.size() < have.size(); ++d)
      if (have[dims.size()] == shape[d] || have[dims.size()] == 1) dims.push_back(static_cast<int64_t>(d));
    if (dims.size() < have.size()) continue;
    const auto c = cast(v, t);
    if (c) return broadcast(*c, shape, dims);
  }
  return std::nullopt;
}

Value Values::want(DType t, const Shape& shape, bool clean) {
  if (plain && random_.chance(0.9))
    if (const auto v = plain_operand(t, shape, clean)) return *v;
  for (int tries = 0; tries < 4 && !pool.empty(); ++tries) {
    // Late values are the interesting ones.
    const size_t n = pool.size(),
                 at = random_.chance(0.6) ? n - 1 - random_.below(std::min<size_t>(n, 4)) : random_.below(n);
    const Value v = pool[at];
    if (clean && fact(v).dirty) continue;
    if (num_elements(type(v).shape) > 4096 && num_elements(shape) < 64 && random_.chance(0.5)) continue;
    const auto c = cast(v, t);
    if (!c) continue;
    return coerce(*c, shape);
  }
  return leaf(t, shape);
}

Value Values::conform(Value v, double bound) {
  const DType t = type(v).dtype;
  const Shape shape = type(v).shape;
  if (!is_float(t)) return v;
  if (!fact(v).whole) {
    const auto r = apply(random_.chance(0.5) ? Opcode::floor : Opcode::round_even, {v});
    if (!r) {
      const bool dirty = fact(v).dirty;
      v = leaf(t, shape);
      note(v, {fact(v).bound, 0, true, dirty});
      return v;
    }
    v = *r;
  }
  if (fact(v).bound <= bound) return v;
  if (wild(fact(v))) return leaf(t, shape);
  const Value c = b.elementwise(Opcode::clamp, {constant(t, -bound, shape), v, constant(t, bound, shape)});
  return note(c, {bound, 0, true, fact(v).dirty});
}

Value Values::scalar_int(int64_t low, int64_t high) {
  std::vector<Value> scalars;
  for (const Value v : pool)
    if (type(v).is_scalar() && type(v).dtype == DType::i32 && !fact(v).dirty) scalars.push_back(v);
  if (scalars.empty() || random_.chance(0.25)) return constant(DType::i32, static_cast<double>(random_.in(low, high)));
  Value v = random_.pick(scalars);
  if (random_.chance(0.3))
    v = binary(random_.chance(0.5) ? Opcode::add : Opcode::mul, v,
               constant(DType::i32, static_cast<double>(random_.in(-2, 3))));
  if (low == 0 && fact(v).bound <= static_cast<double>(high) && b.kernel().def(v) &&
      b.kernel().def(v)->code == Opcode::program_id)
    return v;
  const Value c = b.elementwise(Opcode::clamp, {constant(DType::i32, static_cast<double>(low)), v,
                                                constant(DType::i32, static_cast<double>(high))});
  return note(c, {static_cast<double>(std::max(std::abs(low), std::abs(high))), 0, true, false});
}

Value Values::any_int() {
  return !counters.empty() && random_.chance(0.8) ? random_.pick(counters).v : scalar_int(0, 9);
}
Value Values::wrapped_scalar(int64_t n) {
  const Value x = any_int(), y = any_int();
  return note(wrapped_int(b, Random(random_.next()), x, y, n), {exact_limit(DType::i32), 0, true, false});
}
Value Values::scalar_wrapped_bool() {
  const Value x = any_int(), y = any_int();
  return note(wrapped_bool(b, Random(random_.next()), x, y), {1, 0, true, false});
}

Value Values::counted_index(int64_t most) {
  Value sum;
  int64_t reach = 0;
  for (int64_t terms = random_.in(1, 2); terms-- > 0 && !counters.empty();) {
    const Counter& c = random_.chance(0.5) ? counters.back() : random_.pick(counters);
    if (c.most > most - reach) continue;
    const int64_t factor = c.most == 0           ? random_.in(1, 3)
                           : random_.chance(0.4) ? (most - reach) / c.most
                                                 : random_.in(1, (most - reach) / c.most);
    reach += factor * c.most;
    const Value term =
        factor == 1 ? c.v : b.elementwise(Opcode::mul, {c.v, constant(DType::i32, static_cast<double>(factor))});
    sum = sum ? b.elementwise(Opcode::add, {sum, term}) : term;
  }
  if (!sum || (reach < most && random_.chance(0.3))) {
    const int64_t rest = random_.in(0, most - reach);
    const Value c = constant(DType::i32, static_cast<double>(rest));
    reach += rest;
    sum = sum ? b.elementwise(Opcode::add, {sum, c}) : c;
  }
  return note(sum, {static_cast<double>(reach), 0, true, false});
}

Value Values::scalar_bool() {
  if (random_.chance(0.15)) return scalar_wrapped_bool();
  constexpr Opcode kOps[] = {Opcode::eq, Opcode::ne, Opcode::lt, Opcode::le, Opcode::gt, Opcode::ge};
  const Value x = scalar_int(0, 4), y = constant(DType::i32, static_cast<double>(random_.in(0, 3)));
  Value v = *apply(kOps[random_.below(6)], {x, y});
  if (random_.chance(0.2))
    v = *apply(random_.chance(0.5) ? Opcode::and_ : Opcode::or_, {v, want(DType::boolean, {}, true)});
  return v;
}

// -- random ops

Value Values::movement(Value v) {
  const Shape shape = type(v).shape;
  const size_t rank = shape.size();
  const bool rearranges = favourite == Opcode::gather || favourite == Opcode::scatter || favourite == Opcode::sort;
  if (random_.chance(rearranges ? 0.6 : plain ? 0.08 : 0.25))
    if (const auto r = rearranged(v)) return *r;
  if (random_.chance(plain ? 0.02 : 0.05))
    if (const auto r = chained(v)) return *r;
  static constexpr Opcode kMoves[] = {Opcode::transpose, Opcode::slice, Opcode::reshape, Opcode::concatenate,
                                      Opcode::broadcast};
  size_t which = plain && random_.chance(0.8)        ? (random_.chance(0.6) ? 0u : 5u)
                 : rank >= 2 && random_.chance(0.25) ? 0u
                                                     : random_.below(6);
  if (const auto liked = std::find(std::begin(kMoves), std::end(kMoves), favourite);
      liked != std::end(kMoves) && random_.chance(0.5))
    which = static_cast<size_t>(liked - std::begin(kMoves));
  switch (which) {
    case 0: {  // transpose
      if (rank < 2) break;
      std::vector<int64_t> perm;
      for (size_t i = 0; i < rank; ++i) perm.push_back(static_cast<int64_t>(i));
      random_.shuffle(perm);
      return transpose(v, perm);
    }
    case 1: {  // slice
      if (rank == 0) break;
      std::vector<int64_t> start, limit, stride;
      for (const int64_t n : shape) {
        start.push_back(n > 1 && random_.chance(0.4) ? random_.in(0, n - 1) : 0);
        limit.push_back(random_.chance(0.5) ? n : random_.in(std::min(start.back() + 1, n), n));
        stride.push_back(random_.chance(0.25) ? random_.in(1, 3) : 1);
      }
      return slice(v, start, limit, stride);
    }
    case 2: {  // reshape
      const int64_t n = num_elements(shape);
      if (n == 0) break;
      Shape s;
      int64_t left = n;
      while (left > 1 && s.size() < 3) {
        std::vector<int64_t> divisors;
        for (int64_t d = 1; d <= std::min<int64_t>(left, 64); ++d)
          if (left % d == 0) divisors.push_back(d);
        s.push_back(random_.pick(divisors));
        left /= s.back();
      }
      if (left > 1 || random_.chance(0.3)) s.push_back(left);
      return reshape(v, s);
    }
    case 3: {  // concatenate, or turn round
      if (rank > 0 && random_.chance(0.3)) {
        const Fact f = fact(v);
        Op op{.code = Opcode::rev, .operands = {v}};
        op.set(Attr::axes, static_cast<int64_t>(random_.below(rank)));
        return note(b.one(std::move(op)), f);
      }
      if (rank == 0 || num_elements(shape) > 600) break;
      const size_t axis = random_.below(rank);
      Shape other = shape;
      other[axis] = random_.in(1, 4);
      std::vector<Value> parts{v, want(type(v).dtype, other, false)};
      if (random_.chance(0.3)) parts.push_back(v);
      random_.shuffle(parts);
      return concatenate(parts, static_cast<int64_t>(axis));
    }
    case 4: {  // broadcast: a new dim
      if (rank >= 4 || num_elements(shape) > 300) break;
      Shape s = shape;
      const size_t at = random_.below(rank + 1);
      s.insert(s.begin() + static_cast<std::ptrdiff_t>(at), random_.in(1, 5));
      std::vector<int64_t> dims;
      for (size_t i = 0; i <= rank; ++i)
        if (i != at) dims.push_back(static_cast<int64_t>(i));
      return broadcast(v, s, dims);
    }
    default: break;
  }
  return elementwise(v);
}

std::optional<Value> Values::reduction(Value v) {
  const Shape shape = type(v).shape;
  const DType t = type(v).dtype;
  const Fact f = fact(v);
  if (f.dirty || shape.empty()) return std::nullopt;
  const size_t axis = random_.below(shape.size());
  const double n = static_cast<double>(shape[axis]);
  const auto liked = [&](Opcode op) { return op == favourite && random_.chance(0.6); };
  if (t != DType::boolean && (random_.chance(0.12) || liked(Opcode::argmax) || liked(Opcode::argmin)) && f.err == 0 &&
      shape[axis] > 0) {
    Op op{.code = favourite == Opcode::argmax || (favourite != Opcode::argmin && random_.chance(0.5)) ? Opcode::argmax
                                                                                                      : Opcode::argmin,
          .operands = {v}};
    op.set(Attr::axis, static_cast<int64_t>(axis));
    std::vector<DType> ints;
    for (const DType d : dtypes_)
      if (is_int(d) && n < largest(d)) ints.push_back(d);
    return note(b.one(std::move(op), Type::array(ints.empty() ? DType::i32 : random_.pick(ints))), {n, 0, true, false});
  }
  if (t != DType::boolean && (random_.chance(0.16) || liked(Opcode::cumsum))) {
    const auto g = rounded(t, f.bound * n, n * (f.err + (f.whole ? 0 : epsilon(t) * f.bound * n)), f.whole, false);
    if (!g) return std::nullopt;
    Op op{.code = Opcode::cumsum, .operands = {v}};
    Fact h = *g;
    if (random_.chance(0.4)) op.code = random_.chance(0.5) ? Opcode::cummax : Opcode::cummin, h = f;
    else if (is_int(t) && random_.chance(0.3)) op.code = Opcode::cumprod, h.bound = largest(t);
    op.set(Attr::axis, static_cast<int64_t>(axis));
    op.set(Attr::reverse, random_.in(0, 1));
    return note(b.one(std::move(op)), h);
  }
  std::vector<int64_t> axes;
  double count = 1;
  for (size_t i = 0; i < shape.size(); ++i)
    if (i == axis || random_.chance(0.3)) {
      axes.push_back(static_cast<int64_t>(i));
      count *= static_cast<double>(shape[i]);
    }
  std::vector<Opcode> kinds;
  if (t != DType::boolean) kinds = {Opcode::reduce_sum, Opcode::reduce_sum, Opcode::reduce_max, Opcode::reduce_min};
  if (is_int(t)) kinds.push_back(Opcode::reduce_prod);
  if (!is_float(t)) kinds.insert(kinds.end(), {Opcode::reduce_and, Opcode::reduce_or});
  const Opcode kind = liked(favourite) && std::find(kinds.begin(), kinds.end(), favourite) != kinds.end()
                          ? favourite
                          : random_.pick(kinds);
  Fact g = f;
  if (kind == Opcode::reduce_sum) {
    const auto r = rounded(t, f.bound * std::max(count, 1.0),
                           count * (f.err + (f.whole ? 0 : epsilon(t) * f.bound * count)), f.whole, false);
    if (!r) return std::nullopt;
    g = *r;
  } else if (kind != Opcode::reduce_max && kind != Opcode::reduce_min) {
    g.bound = largest(t);
  } else if (count == 0) {
    return std::nullopt;  // infinities
  }
  Op op{.code = kind, .operands = {v}};
  op.set(Attr::axes, axes);
  return note(b.one(std::move(op)), g);
}

std::optional<Value> Values::normalised(Value v) {
  const Shape shape = type(v).shape;
  const DType t = type(v).dtype;
  const Fact f = fact(v);
  if (f.dirty || shape.empty() || t == DType::boolean || num_elements(shape) == 0) return std::nullopt;
  const size_t axis = random_.chance(0.6) ? shape.size() - 1 : random_.below(shape.size());
  Fact g = f;
  Op op{.code = random_.pick(std::vector{Opcode::reduce_max, Opcode::reduce_min, Opcode::reduce_sum}), .operands = {v}};
  if (op.code == Opcode::reduce_sum) {
    const double n = static_cast<double>(shape[axis]);
    const auto r = rounded(t, f.bound * n, n * (f.err + (f.whole ? 0 : epsilon(t) * f.bound * n)), f.whole, false);
    if (!r) return std::nullopt;
    g = *r;
  }
  op.set(Attr::axes, static_cast<int64_t>(axis));
  Value r = note(b.one(std::move(op)), g);
  if (random_.chance(0.3)) pool.push_back(r);
  Shape one = shape;
  one[axis] = 1;
  std::vector<int64_t> dims, all;
  for (size_t d = 0; d < shape.size(); ++d) {
    all.push_back(static_cast<int64_t>(d));
    if (d != axis) dims.push_back(static_cast<int64_t>(d));
  }
  r = random_.chance(0.5) ? broadcast(r, shape, dims) : broadcast(reshape(r, one), shape, all);
  return binary(random_.pick(std::vector{Opcode::sub, Opcode::add, Opcode::max, Opcode::mul}), v, r);
}

Value Values::dot() {
  std::vector<DType> candidates;
  for (const DType d : dtypes_)
    if (d != DType::boolean) candidates.push_back(d);
  const DType t = random_.pick(candidates);
  DType to = t;
  for (const DType d : candidates)
    if (random_.chance(0.4) &&
        (is_float(t) ? is_float(d) && bits(d) > bits(t)
                     : is_int(d) && bits(d) >= bits(t) && (is_signed_int(d) || !is_signed_int(t))))
      to = d;
  // Labelled dims: batch, contracted, free of the left, free of the right; each side in its own order.
  struct Dim {
    char label;
    int number;
    int64_t size;
  };
  std::vector<Dim> left, right;
  int64_t work = 1;
  const auto size = [&](int64_t most) {
    const int64_t s = plain && random_.chance(0.9) ? random_.pick(sizes)
                      : random_.chance(0.15)       ? random_.in(1, 3 * most)
                                                   : random_.in(1, most);
    work *= s;
    if (work <= (plain ? 80000 : 40000)) return s;
    work /= s;
    return int64_t{1};
  };
  const int contracted = random_.chance(0.1) ? 0 : random_.chance(0.15) ? 2 : 1;
  for (int i = 0; i < contracted; ++i) {
    const int64_t s = size(contracted == 1 ? 12 : 5);
    left.push_back({'k', i, s}), right.push_back({'k', i, s});
  }
  for (int i = random_.chance(0.05) ? 2 : random_.chance(0.22) ? 1 : 0; i-- > 0;) {
    const int64_t s = size(3);
    left.push_back({'b', i, s}), right.push_back({'b', i, s});
  }
  for (int i = random_.chance(0.1) ? 2 : random_.chance(0.1) ? 0 : 1; i-- > 0;) left.push_back({'m', i, size(10)});
  for (int i = random_.chance(0.1) ? 2 : random_.chance(0.1) ? 0 : 1; i-- > 0;) right.push_back({'n', i, size(10)});
  if (!plain || random_.chance(0.5)) random_.shuffle(left), random_.shuffle(right);
  const auto shape = [](const std::vector<Dim>& dims) {
    Shape s;
    for (const Dim& d : dims) s.push_back(d.size);
    return s;
  };
  const auto positions = [](const std::vector<Dim>& dims, char label) {
    std::vector<int64_t> r;
    for (int n = 0; n < 2; ++n)
      for (size_t i = 0; i < dims.size(); ++i)
        if (dims[i].label == label && dims[i].number == n) r.push_back(static_cast<int64_t>(i));
    return r;
  };
  return product(want(t, shape(left), true), want(t, shape(right), true),
                 {positions(left, 'k'), positions(right, 'k'), positions(left, 'b'), positions(right, 'b')}, to);
}

// A dot of v itself: its dims become batch, contracted or free, so that they have one role here and another where v was
// made.
std::optional<Value> Values::dot_of(Value v) {
  const Shape from = type(v).shape;
  const DType t = type(v).dtype;
  if (t == DType::boolean || fact(v).dirty || from.empty() || from.size() > 3 || num_elements(from) == 0 ||
      num_elements(from) > 4000)
    return std::nullopt;
  DotDims dims;
  Shape other;
  int64_t work = num_elements(from);
  for (size_t d = 0; d < from.size(); ++d) {
    const double role = static_cast<double>(random_.below(100)) / 100;
    if (role < 0.3)
      dims.lhs_batch.push_back(static_cast<int64_t>(d)), dims.rhs_batch.push_back(static_cast<int64_t>(other.size())),
          other.push_back(from[d]);
    else if (role < 0.65)
      dims.lhs_contract.push_back(static_cast<int64_t>(d)),
          dims.rhs_contract.push_back(static_cast<int64_t>(other.size())), other.push_back(from[d]);
  }
  if (random_.chance(0.85)) {
    int64_t n = plain && random_.chance(0.9) ? random_.pick(sizes) : random_.in(1, 12);
    if (work * n > 80000) n = 1;
    if (random_.chance(0.5)) {
      other.push_back(n);
    } else {  // in front
      other.insert(other.begin(), n);
      for (auto* list : {&dims.rhs_batch, &dims.rhs_contract})
        for (int64_t& d : *list) ++d;
    }
  }
  const Value w = want(t, other, true);
  if (random_.chance(0.6)) return product(v, w, dims, t);
  return product(w, v, {dims.rhs_contract, dims.lhs_contract, dims.rhs_batch, dims.lhs_batch}, t);
}

Value Values::product(Value x, Value y, const DotDims& dims, DType to) {
  const DType t = type(x).dtype;
  double k = 1;
  for (const int64_t d : dims.lhs_contract) k *= static_cast<double>(type(x).shape[static_cast<size_t>(d)]);
  const auto outcome = [&]() -> std::optional<Fact> {
    const Fact f = fact(x), g = fact(y);
    if (wild(f) || wild(g)) return std::nullopt;
    const double bound = k * f.bound * g.bound, err = k * (f.bound * g.err + g.bound * f.err + f.err * g.err);
    const bool whole = f.whole && g.whole && (!is_float(t) || bound <= 0x1p24);
    return rounded(to, bound, whole ? 0 : err + k * 0x1p-23 * bound, whole, false);
  };
  auto f = outcome();
  if (!f) {
    x = conform(x, 4), y = conform(y, 4);
    f = outcome();
  }
  // Exact in the accumulator, then rounded once.
  if (!f) f = Fact{k * 16, 0, false, false};
  Op op{.code = Opcode::dot, .operands = {x, y}};
  op.set(Attr::lhs_contract, dims.lhs_contract);
  op.set(Attr::rhs_contract, dims.rhs_contract);
  op.set(Attr::lhs_batch, dims.lhs_batch);
  op.set(Attr::rhs_batch, dims.rhs_batch);
  return note(b.one(std::move(op), Type::array(to)), *f);
}

}  // namespace tessera::fuzz
