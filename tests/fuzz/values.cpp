#include "tests/fuzz/values.h"

#include <algorithm>
#include <cmath>

namespace tessera::fuzz {
namespace {
using ir::Attr, ir::Op, ir::Opcode, ir::Type, ir::Value;

double epsilon(DType t) {
  switch (t) {
    case DType::f16: return 0x1p-10;
    case DType::bf16: return 0x1p-7;
    case DType::f32: return 0x1p-23;
    case DType::f64: return 0x1p-52;
    default: return 0;
  }
}
double largest(DType t) {  // of ints: of the absolute value
  if (t == DType::boolean) return 1;
  return is_int(t) ? std::ldexp(1.0, is_signed_int(t) ? bits(t) - 1 : bits(t)) : 0;
}
// Floats beyond this are not made.
double tame_limit(DType t) { return t == DType::f16 ? 4000 : t == DType::bf16 ? 1e5 : 1e6; }

// The fact of a result of at most `bound`, `err` off before rounding.
std::optional<Fact> rounded(DType t, double bound, double err, bool whole, bool dirty) {
  if (!is_float(t)) return Fact{std::min(bound, largest(t)), 0, true, dirty};
  if (whole && err == 0 && bound <= exact_limit(t)) return Fact{bound, 0, true, dirty};
  if (!(bound <= tame_limit(t))) return std::nullopt;
  return Fact{bound, err + epsilon(t) * bound, false, dirty};
}
}  // namespace

double exact_limit(DType t) {
  switch (t) {
    case DType::f16: return 2048;
    case DType::bf16: return 256;
    case DType::f32: return 0x1p24;
    case DType::f64: return 0x1p53;
    default: return largest(t);
  }
}

Fact join(const Fact& a, const Fact& b) { return {std::max(a.bound, b.bound), std::max(a.err, b.err), a.whole && b.whole, a.dirty || b.dirty}; }

Value Values::note(Value v, const Fact& f) {
  if (facts_.size() < b.kernel().values.size()) facts_.resize(b.kernel().values.size());
  facts_[v.index] = f;
  return v;
}

// -- facts of elementwise ops; nothing: the op would not be tame here

std::optional<Fact> Values::predict(Opcode op, DType t, const std::vector<Fact>& f) const {
  Fact all = f[0];
  for (const Fact& x : f) all = join(all, x);
  const Fact x = f[0], y = f.size() > 1 ? f[1] : Fact{};
  const bool exact = all.err == 0;
  const auto by_function = [&](double bound, double slope) -> std::optional<Fact> {
    const double err = slope * x.err + 2 * ir::info(op).ulp * epsilon(t) * bound;
    return Fact{bound, err, false, all.dirty};
  };
  switch (op) {
    case Opcode::add: case Opcode::sub:
      if (op == Opcode::sub && is_unsigned_int(t)) return Fact{largest(t), 0, true, all.dirty};
      return rounded(t, x.bound + y.bound, x.err + y.err, all.whole, all.dirty);
    case Opcode::mul: return rounded(t, x.bound * y.bound, x.bound * y.err + y.bound * x.err + x.err * y.err, all.whole, all.dirty);
    case Opcode::div:
      if (is_int(t)) return Fact{largest(t), 0, true, all.dirty};
      // The caller keeps |y| >= 1.
      return Fact{x.bound, x.err + x.bound * y.err + 6 * epsilon(t) * x.bound, false, all.dirty};
    case Opcode::rem:
      if (!exact) return std::nullopt;
      return Fact{is_int(t) ? std::max(x.bound, y.bound) : x.bound, 0, all.whole, all.dirty};
    case Opcode::max: case Opcode::min: case Opcode::clamp: return all;
    case Opcode::select: {
      if (x.err != 0) return std::nullopt;
      Fact r = join(f[1], f[2]);
      r.dirty |= x.dirty;
      return r;
    }
    case Opcode::neg: return is_unsigned_int(t) ? Fact{largest(t), 0, true, all.dirty} : x;
    case Opcode::abs: return x;
    case Opcode::sign: return exact ? std::optional(Fact{1, 0, true, all.dirty}) : std::nullopt;
    case Opcode::floor: case Opcode::ceil: case Opcode::round: case Opcode::round_even:
      if (!exact || x.bound + 1 > exact_limit(t)) return std::nullopt;
      return Fact{x.bound + 1, 0, true, all.dirty};
    case Opcode::pow:
      if (!exact || !all.whole || x.bound > 4 || y.bound > 3) return std::nullopt;
      return Fact{64, 32 * epsilon(t) * 64, false, all.dirty};
    // The caller adds 1 to the absolute value first.
    case Opcode::sqrt: return by_function(std::sqrt(x.bound), 0.5);
    case Opcode::rsqrt: return by_function(1, 0.5);
    case Opcode::log: return by_function(std::log(std::max(x.bound, 3.0)), 1);
    case Opcode::log2: return by_function(std::log2(std::max(x.bound, 2.0)), 1.5);
    case Opcode::exp: case Opcode::exp2:
      if (x.bound > 4) return std::nullopt;
      return by_function(std::exp(x.bound), std::exp(x.bound));
    case Opcode::log1p: return by_function(std::log(std::max(x.bound + 1, 3.0)), 1);
    case Opcode::cbrt: return by_function(std::cbrt(std::max(x.bound, 1.0)), 0.4);
    case Opcode::expm1: case Opcode::sinh: case Opcode::cosh:
      if (x.bound > 4) return std::nullopt;
      return by_function(std::exp(x.bound), std::exp(x.bound));
    case Opcode::atan: return by_function(1.6, 1);
    case Opcode::asinh: return by_function(std::asinh(x.bound), 1);
    case Opcode::tanh: case Opcode::sin: case Opcode::cos: case Opcode::logistic: return by_function(1, 1);
    case Opcode::clz: case Opcode::population_count: return Fact{static_cast<double>(bits(t)), 0, true, all.dirty};
    case Opcode::erf: return by_function(1, 1.2);
    case Opcode::is_finite: return Fact{1, 0, true, all.dirty};
    case Opcode::eq: case Opcode::ne: case Opcode::lt: case Opcode::le: case Opcode::gt: case Opcode::ge:
      return exact ? std::optional(Fact{1, 0, true, all.dirty}) : std::nullopt;
    case Opcode::and_: case Opcode::or_: case Opcode::xor_: case Opcode::not_:
    case Opcode::shift_left: case Opcode::shift_right_logical: case Opcode::shift_right_arithmetic: case Opcode::mulhi:
      return Fact{largest(t), 0, true, all.dirty};
    default: return std::nullopt;
  }
}

std::optional<Value> Values::apply(Opcode op, const std::vector<Value>& operands) {
  std::vector<Fact> facts;
  for (const Value v : operands) facts.push_back(fact(v));
  const DType t = type(operands[op == Opcode::select ? 1 : 0]).dtype;
  const auto f = predict(op, t, facts);
  if (!f) return std::nullopt;
  return note(b.elementwise(op, operands), *f);
}
Value Values::binary(Opcode op, Value x, Value y) {
  if (const auto r = apply(op, {x, y})) return *r;
  return *apply(Opcode::max, {x, y});
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
      return *apply(random_.chance(0.5) ? Opcode::lt : Opcode::ge, {v, constant(base, static_cast<double>(random_.in(0, shape[axis])), shape)});
    }
  }
  if (t == DType::boolean) return constant(t, static_cast<double>(random_.in(0, 1)), shape);
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
    if (f.bound > tame_limit(t)) return std::nullopt;
    const bool fits = f.whole && f.bound <= exact_limit(t);
    return out({f.bound * (1 + epsilon(t)), f.err == 0 ? 0 : f.err + epsilon(t) * f.bound, fits, f.dirty});
  }
  if (is_float(from)) {
    if (f.err != 0) return std::nullopt;
    if (f.dirty) return std::nullopt;  // NaN becomes 0, other garbage something else: still dirty, but nothing is learnt
    return out({is_unsigned_int(t) ? std::min(f.bound, largest(t)) : std::min(f.bound, largest(t)), 0, true, f.dirty});
  }
  if (is_int(t)) {
    const bool may_be_negative = is_signed_int(from);
    return out({f.bound < largest(t) && !(may_be_negative && is_unsigned_int(t)) ? f.bound : largest(t), 0, true, f.dirty});
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
Value Values::slice(Value v, const std::vector<int64_t>& start, const std::vector<int64_t>& limit, const std::vector<int64_t>& stride) {
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
    if (type(v).shape == shape && !(clean && fact(v).dirty) && (type(v).dtype == t || random_.chance(0.3))) fitting.push_back(v);
  if (!fitting.empty() && random_.chance(0.85)) {
    const size_t n = fitting.size();
    return cast(random_.chance(0.5) ? fitting[n - 1 - random_.below(std::min<size_t>(n, 3))] : random_.pick(fitting), t);
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
    const size_t n = pool.size(), at = random_.chance(0.6) ? n - 1 - random_.below(std::min<size_t>(n, 4)) : random_.below(n);
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
  const Value c = b.elementwise(Opcode::clamp, {constant(t, -bound, shape), v, constant(t, bound, shape)});
  return note(c, {bound, 0, true, fact(v).dirty});
}

Value Values::scalar_int(int64_t low, int64_t high) {
  std::vector<Value> scalars;
  for (const Value v : pool)
    if (type(v).is_scalar() && type(v).dtype == DType::i32 && !fact(v).dirty) scalars.push_back(v);
  if (scalars.empty() || random_.chance(0.25)) return constant(DType::i32, static_cast<double>(random_.in(low, high)));
  Value v = random_.pick(scalars);
  if (random_.chance(0.3)) v = binary(random_.chance(0.5) ? Opcode::add : Opcode::mul, v, constant(DType::i32, static_cast<double>(random_.in(-2, 3))));
  if (low == 0 && fact(v).bound <= static_cast<double>(high) && b.kernel().def(v) && b.kernel().def(v)->code == Opcode::program_id) return v;
  const Value c = b.elementwise(Opcode::clamp, {constant(DType::i32, static_cast<double>(low)), v, constant(DType::i32, static_cast<double>(high))});
  return note(c, {static_cast<double>(std::max(std::abs(low), std::abs(high))), 0, true, false});
}

Value Values::scalar_bool() {
  constexpr Opcode kOps[] = {Opcode::eq, Opcode::ne, Opcode::lt, Opcode::le, Opcode::gt, Opcode::ge};
  const Value x = scalar_int(0, 4), y = constant(DType::i32, static_cast<double>(random_.in(0, 3)));
  Value v = *apply(kOps[random_.below(6)], {x, y});
  if (random_.chance(0.2)) v = *apply(random_.chance(0.5) ? Opcode::and_ : Opcode::or_, {v, want(DType::boolean, {}, true)});
  return v;
}

// -- random ops

Value Values::elementwise(Value v) {
  const DType t = type(v).dtype;
  const Shape shape = type(v).shape;
  const auto operand = [&] { return want(t, shape, false); };
  if (random_.chance(0.12)) {
    const Value c = want(DType::boolean, shape, true);
    return *apply(Opcode::select, {c, v, operand()});
  }
  if (random_.chance(0.15)) {
    const auto c = cast(v, some_dtype());
    if (c) return *c;
  }
  if (t == DType::boolean) {
    constexpr Opcode kOps[] = {Opcode::and_, Opcode::or_, Opcode::xor_, Opcode::eq, Opcode::ne, Opcode::lt, Opcode::ge};
    if (random_.chance(0.2)) return *apply(Opcode::not_, {v});
    return binary(kOps[random_.below(std::size(kOps))], v, operand());
  }
  if (random_.chance(0.12) && fact(v).err == 0) {
    constexpr Opcode kOps[] = {Opcode::eq, Opcode::ne, Opcode::lt, Opcode::le, Opcode::gt, Opcode::ge};
    const Value y = operand();
    if (fact(y).err == 0) return *apply(kOps[random_.below(6)], {v, y});
  }
  if (is_int(t)) {
    constexpr Opcode kBinary[] = {Opcode::add, Opcode::sub, Opcode::mul, Opcode::div, Opcode::rem, Opcode::max, Opcode::min, Opcode::and_, Opcode::or_,
                                  Opcode::xor_, Opcode::shift_left, Opcode::shift_right_logical, Opcode::shift_right_arithmetic, Opcode::mulhi};
    constexpr Opcode kUnary[] = {Opcode::neg, Opcode::abs, Opcode::sign, Opcode::not_, Opcode::clz, Opcode::population_count};
    if (random_.chance(0.2)) return *apply(kUnary[random_.below(std::size(kUnary))], {v});
    if (random_.chance(0.08)) return *apply(Opcode::clamp, {constant(t, 1, shape), v, operand()});
    return binary(kBinary[random_.below(std::size(kBinary))], v, operand());
  }
  if (random_.chance(0.45)) {
    constexpr Opcode kUnary[] = {Opcode::neg, Opcode::abs, Opcode::sign, Opcode::floor, Opcode::ceil, Opcode::round, Opcode::round_even, Opcode::sqrt,
                                 Opcode::rsqrt, Opcode::exp, Opcode::exp2, Opcode::log, Opcode::log2, Opcode::tanh, Opcode::sin, Opcode::cos,
                                 Opcode::erf, Opcode::logistic, Opcode::log1p, Opcode::cbrt, Opcode::expm1, Opcode::sinh, Opcode::cosh,
                                 Opcode::atan, Opcode::asinh};
    const Opcode op = kUnary[random_.below(std::size(kUnary))];
    Value x = v;
    if (op == Opcode::sqrt || op == Opcode::rsqrt || op == Opcode::log || op == Opcode::log2 || op == Opcode::log1p || op == Opcode::cbrt)
      x = binary(Opcode::add, *apply(Opcode::abs, {v}), constant(t, 1, shape));
    if (const auto r = apply(op, {x})) return *r;
    return *apply(Opcode::neg, {v});
  }
  const Value y = operand();
  if (random_.chance(0.1)) {
    const Value divisor = binary(Opcode::add, *apply(Opcode::abs, {y}), constant(t, 1, shape));
    // max() took add's place where the sum would not be tame: then |y| >= 1 still holds.
    if (const auto r = apply(random_.chance(0.7) ? Opcode::div : Opcode::rem, {v, divisor})) return *r;
  }
  if (random_.chance(0.05))
    if (const auto r = apply(Opcode::pow, {conform(v, 4), *apply(Opcode::abs, {conform(y, 3)})})) return *r;
  constexpr Opcode kBinary[] = {Opcode::add, Opcode::add, Opcode::sub, Opcode::mul, Opcode::mul, Opcode::max, Opcode::min};
  return binary(kBinary[random_.below(std::size(kBinary))], v, y);
}

Value Values::movement(Value v) {
  const Shape shape = type(v).shape;
  const size_t rank = shape.size();
  switch (plain && random_.chance(0.8) ? (random_.chance(0.6) ? 0u : 5u) : random_.below(6)) {
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
  if (t != DType::boolean && random_.chance(0.12) && f.err == 0 && shape[axis] > 0) {
    Op op{.code = random_.chance(0.5) ? Opcode::argmax : Opcode::argmin, .operands = {v}};
    op.set(Attr::axis, static_cast<int64_t>(axis));
    std::vector<DType> ints;
    for (const DType d : dtypes_)
      if (is_int(d) && n < largest(d)) ints.push_back(d);
    return note(b.one(std::move(op), Type::array(ints.empty() ? DType::i32 : random_.pick(ints))), {n, 0, true, false});
  }
  if (t != DType::boolean && random_.chance(0.12)) {
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
  const Opcode kind = random_.pick(kinds);
  Fact g = f;
  if (kind == Opcode::reduce_sum) {
    const auto r = rounded(t, f.bound * std::max(count, 1.0), count * (f.err + (f.whole ? 0 : epsilon(t) * f.bound * count)), f.whole, false);
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
    if (random_.chance(0.4) && (is_float(t) ? is_float(d) && bits(d) > bits(t) : is_int(d) && bits(d) >= bits(t) && (is_signed_int(d) || !is_signed_int(t)))) to = d;
  // Labelled dims: batch, contracted, free of the left, free of the right; each side in its own order.
  struct Dim { char label; int number; int64_t size; };
  std::vector<Dim> left, right;
  int64_t work = 1;
  const auto size = [&](int64_t most) {
    const int64_t s = plain && random_.chance(0.9) ? random_.pick(sizes) : random_.chance(0.15) ? random_.in(1, 3 * most) : random_.in(1, most);
    work *= s;
    if (work <= 40000) return s;
    work /= s;
    return int64_t{1};
  };
  const int contracted = random_.chance(0.1) ? 0 : random_.chance(0.15) ? 2 : 1;
  double k = 1;
  for (int i = 0; i < contracted; ++i) {
    const int64_t s = size(contracted == 1 ? 12 : 5);
    k *= static_cast<double>(s);
    left.push_back({'k', i, s}), right.push_back({'k', i, s});
  }
  if (random_.chance(0.25)) {
    const int64_t s = size(3);
    left.push_back({'b', 0, s}), right.push_back({'b', 0, s});
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
  Value x = want(t, shape(left), true), y = want(t, shape(right), true);
  const auto outcome = [&] {
    const Fact f = fact(x), g = fact(y);
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
  op.set(Attr::lhs_contract, positions(left, 'k'));
  op.set(Attr::rhs_contract, positions(right, 'k'));
  op.set(Attr::lhs_batch, positions(left, 'b'));
  op.set(Attr::rhs_batch, positions(right, 'b'));
  return note(b.one(std::move(op), Type::array(to)), *f);
}

}  // namespace tessera::fuzz
