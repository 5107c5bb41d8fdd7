// Random elementwise ops, and what is known of their results. Ops that need their operands in some range are written
// out; all others come from the table, so that a new row is generated without being told here.
#include <algorithm>
#include <cmath>

#include "engine/ir/reference.h"
#include "tests/support/generator/values.h"

namespace tessera::fuzz {
using ir::Attr, ir::Op, ir::Opcode, ir::Type, ir::Value;

namespace {
// predict() relies on an operand whose absolute value is at least 1.
bool wants_distance(Opcode op) {
  switch (op) {
    case Opcode::div:
    case Opcode::pow:
    case Opcode::sqrt:
    case Opcode::rsqrt:
    case Opcode::log:
    case Opcode::log2:
    case Opcode::log1p:
    case Opcode::cbrt: return true;
    default: return false;
  }
}
}  // namespace

// -- facts of elementwise ops; nothing: the op would not be tame here

std::optional<Fact> Values::predict(Opcode op, DType t, const std::vector<Fact>& f) const {
  Fact all = f[0];
  for (const Fact& x : f) all = join(all, x);
  const Fact x = f[0], y = f.size() > 1 ? f[1] : Fact{};
  const bool exact = all.err == 0;
  if (wild(all)) {
    switch (op) {
      // the sign of NaN is NaN
      case Opcode::neg:
      case Opcode::abs:
      case Opcode::sign:
      case Opcode::max:
      case Opcode::min:
      case Opcode::clamp: return all;
      // whatever lies between the operands' exponents
      case Opcode::rem: return exact ? std::optional(all) : std::nullopt;
      case Opcode::select:
      case Opcode::is_finite:
      case Opcode::eq:
      case Opcode::ne:
      case Opcode::lt:
      case Opcode::le:
      case Opcode::gt:
      case Opcode::ge: break;
      default: return std::nullopt;
    }
  }
  const auto by_function = [&](double bound, double slope) -> std::optional<Fact> {
    const double err = slope * x.err + 2 * ir::info(op).ulp * epsilon(t) * bound;
    return Fact{bound, err, false, all.dirty};
  };
  switch (op) {
    case Opcode::add:
    case Opcode::sub:
      if (op == Opcode::sub && is_unsigned_int(t)) return Fact{largest(t), 0, true, all.dirty};
      return rounded(t, x.bound + y.bound, x.err + y.err, all.whole, all.dirty);
    case Opcode::mul:
      return rounded(t, x.bound * y.bound, x.bound * y.err + y.bound * x.err + x.err * y.err, all.whole, all.dirty);
    case Opcode::div:
      if (is_int(t)) return Fact{largest(t), 0, true, all.dirty};
      // The caller keeps |y| >= 1.
      return Fact{x.bound, x.err + x.bound * y.err + 6 * epsilon(t) * x.bound, false, all.dirty};
    case Opcode::rem:
      if (!exact) return std::nullopt;
      return Fact{is_int(t) ? std::max(x.bound, y.bound) : x.bound, 0, all.whole, all.dirty};
    case Opcode::max:
    case Opcode::min:
    case Opcode::clamp: return all;
    case Opcode::select: {
      if (x.err != 0) return std::nullopt;
      Fact r = join(f[1], f[2]);
      r.dirty |= x.dirty;
      return r;
    }
    case Opcode::neg: return is_unsigned_int(t) ? Fact{largest(t), 0, true, all.dirty} : x;
    case Opcode::abs: return x;
    case Opcode::sign: return exact ? std::optional(Fact{1, 0, true, all.dirty}) : std::nullopt;
    case Opcode::floor:
    case Opcode::ceil:
    case Opcode::round:
    case Opcode::round_even:
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
    case Opcode::exp:
    case Opcode::exp2:
      if (x.bound > 4) return std::nullopt;
      return by_function(std::exp(x.bound), std::exp(x.bound));
    case Opcode::log1p: return by_function(std::log(std::max(x.bound + 1, 3.0)), 1);
    case Opcode::cbrt: return by_function(std::cbrt(std::max(x.bound, 1.0)), 0.4);
    case Opcode::expm1:
    case Opcode::sinh:
    case Opcode::cosh:
      if (x.bound > 4) return std::nullopt;
      return by_function(std::exp(x.bound), std::exp(x.bound));
    case Opcode::atan: return by_function(1.6, 1);
    case Opcode::asinh: return by_function(std::asinh(x.bound), 1);
    case Opcode::tanh:
    case Opcode::sin:
    case Opcode::cos:
    case Opcode::logistic: return by_function(1, 1);
    case Opcode::clz:
    case Opcode::population_count: return Fact{static_cast<double>(bits(t)), 0, true, all.dirty};
    case Opcode::erf: return by_function(1, 1.2);
    case Opcode::is_finite: return Fact{1, 0, true, all.dirty};
    case Opcode::eq:
    case Opcode::ne:
    case Opcode::lt:
    case Opcode::le:
    case Opcode::gt:
    case Opcode::ge: return exact ? std::optional(Fact{1, 0, true, all.dirty}) : std::nullopt;
    case Opcode::and_:
    case Opcode::or_:
    case Opcode::xor_:
    case Opcode::not_:
    case Opcode::shift_left:
    case Opcode::shift_right_logical:
    case Opcode::shift_right_arithmetic:
    case Opcode::mulhi: return Fact{largest(t), 0, true, all.dirty};
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

Value Values::elementwise(Value v) {
  const DType t = type(v).dtype;
  const Shape shape = type(v).shape;
  const auto operand = [&] { return want(t, shape, false); };
  if (ir::info(favourite).operands == ir::OperandRule::flt && !is_float(t) && !fact(v).dirty && random_.chance(0.3))
    if (const auto r = any_row(*cast(
            v, random_.chance(0.6) ? DType::f32 : random_.pick(std::vector{DType::f16, DType::bf16, DType::f64}))))
      return *r;
  if (random_.chance(0.3))
    if (const auto r = any_row(v)) return *r;
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
    constexpr Opcode kBinary[] = {Opcode::add,
                                  Opcode::sub,
                                  Opcode::mul,
                                  Opcode::div,
                                  Opcode::rem,
                                  Opcode::max,
                                  Opcode::min,
                                  Opcode::and_,
                                  Opcode::or_,
                                  Opcode::xor_,
                                  Opcode::shift_left,
                                  Opcode::shift_right_logical,
                                  Opcode::shift_right_arithmetic,
                                  Opcode::mulhi};
    constexpr Opcode kUnary[] = {Opcode::neg,  Opcode::abs, Opcode::sign,
                                 Opcode::not_, Opcode::clz, Opcode::population_count};
    if (random_.chance(0.2)) return *apply(kUnary[random_.below(std::size(kUnary))], {v});
    if (random_.chance(0.08)) return *apply(Opcode::clamp, {constant(t, 1, shape), v, operand()});
    return binary(kBinary[random_.below(std::size(kBinary))], v, operand());
  }
  if (random_.chance(0.45)) {
    constexpr Opcode kUnary[] = {Opcode::neg,   Opcode::abs,        Opcode::sign,     Opcode::floor, Opcode::ceil,
                                 Opcode::round, Opcode::round_even, Opcode::sqrt,     Opcode::rsqrt, Opcode::exp,
                                 Opcode::exp2,  Opcode::log,        Opcode::log2,     Opcode::tanh,  Opcode::sin,
                                 Opcode::cos,   Opcode::erf,        Opcode::logistic, Opcode::log1p, Opcode::cbrt,
                                 Opcode::expm1, Opcode::sinh,       Opcode::cosh,     Opcode::atan,  Opcode::asinh};
    const Opcode op = kUnary[random_.below(std::size(kUnary))];
    const Value x = wants_distance(op) ? binary(Opcode::add, *apply(Opcode::abs, {v}), constant(t, 1, shape)) : v;
    if (const auto r = apply(op, {x})) return *r;
    return *apply(Opcode::neg, {v});
  }
  const Value y = operand();
  if (wild(join(fact(v), fact(y))) && random_.chance(0.3))
    if (const auto r = apply(Opcode::rem, {v, y})) return *r;
  if (random_.chance(0.1)) {
    const Value divisor = binary(Opcode::add, *apply(Opcode::abs, {y}), constant(t, 1, shape));
    // max() took add's place where the sum would not be tame: then |y| >= 1 still holds.
    if (const auto r = apply(random_.chance(0.5) ? Opcode::div : Opcode::rem, {v, divisor})) return *r;
  }
  if (random_.chance(0.05))
    if (const auto r = apply(Opcode::pow, {conform(v, 4), *apply(Opcode::abs, {conform(y, 3)})})) return *r;
  constexpr Opcode kBinary[] = {Opcode::add, Opcode::add, Opcode::sub, Opcode::mul,
                                Opcode::mul, Opcode::max, Opcode::min};
  return binary(kBinary[random_.below(std::size(kBinary))], v, y);
}

// An op of any row that takes v's dtype; nothing where it would not be tame.
std::optional<Value> Values::any_row(Value v) {
  const DType t = type(v).dtype;
  std::vector<Opcode> rows;
  for (int i = 0; i < ir::kNumOpcodes; ++i) {
    const auto op = static_cast<Opcode>(i);
    const ir::OpInfo& row = ir::info(op);
    if (!is_elementwise(op) || !row.tile || op == Opcode::convert) continue;
    if (op == Opcode::bitcast
            ? t != DType::boolean
            : reference::scalar_function(op, t, row.result == ir::ResultRule::pred ? DType::boolean : t) != nullptr)
      rows.push_back(op);
  }
  const Opcode op = random_.chance(0.5) && std::find(rows.begin(), rows.end(), favourite) != rows.end()
                        ? favourite
                        : random_.pick(rows);
  if (op == Opcode::bitcast) return by_bits(v);
  if (op == Opcode::select)
    return apply(op, {want(DType::boolean, type(v).shape, true), v, want(t, type(v).shape, false)});
  const ir::OpInfo& row = ir::info(op);
  std::vector<Value> operands{v};
  while (static_cast<int>(operands.size()) < row.arity) operands.push_back(want(t, type(v).shape, false));
  if (row.result == ir::ResultRule::pred) return apply(op, operands);
  if (is_float(t)) {
    if (random_.chance(0.5) && !wants_distance(op))
      if (const auto r = apply(op, operands)) return r;
    const double middle = random_.chance(0.6) ? 0 : 1.5;
    const auto r = on_grid(op, operands, middle);
    return r ? r : on_grid(op, operands, 1.5 - middle);
  }
  bool dirty = false;
  for (const Value x : operands) dirty |= fact(x).dirty;
  return note(b.elementwise(op, operands), {largest(t), 0, true, dirty});
}

// A float function on few exact numbers, each operand a multiple of 1/8 within 1/2 of `middle`: what it gives there is
// known beforehand.
std::optional<Value> Values::on_grid(Opcode op, const std::vector<Value>& operands, double middle) {
  const DType t = type(operands[0]).dtype;
  double bound = 0;
  std::vector<int> at(operands.size(), -4);
  for (bool more = true; more;) {
    std::vector<uint64_t> bits;
    for (const int i : at) bits.push_back(reference::from_double(t, middle + i / 8.0));
    bound = std::max(bound, std::abs(reference::to_double(t, reference::eval(op, t, t, bits.data()))));
    if (!std::isfinite(bound)) return std::nullopt;
    more = false;
    for (int& i : at) {
      if (++i <= 4) {
        more = true;
        break;
      }
      i = -4;
    }
  }
  std::vector<Value> scaled;
  bool dirty = false;
  for (const Value v : operands) {
    const Value whole = conform(v, 4);
    dirty |= fact(whole).dirty;
    Value x = b.elementwise(Opcode::mul, {whole, constant(t, 0.125, type(v).shape)});
    if (middle != 0) x = b.elementwise(Opcode::add, {x, constant(t, middle, type(v).shape)});
    scaled.push_back(note(x, {middle + 0.5, 0, false, fact(whole).dirty}));
  }
  return note(b.elementwise(op, scaled), {bound, 2 * ir::info(op).ulp * epsilon(t) * bound, false, dirty});
}

std::optional<Value> Values::by_bits(Value v) {
  const DType from = type(v).dtype;
  const Shape shape = type(v).shape;
  const bool dirty = fact(v).dirty;
  std::vector<DType> others;
  for (int i = 0; i < kNumDTypes; ++i)
    if (const auto t = static_cast<DType>(i); t != from && t != DType::boolean && bits(t) == bits(from))
      others.push_back(t);
  const DType to = random_.pick(others);
  if (is_float(from)) {
    // Only what has the same bits everywhere: no NaN, and no zero, whose sign may differ.
    if (is_float(to) || fact(v).err != 0 || !fact(v).whole || fact(v).bound + 1 > exact_limit(from))
      return std::nullopt;
    v = *apply(Opcode::add, {*apply(Opcode::abs, {v}), constant(from, 1, shape)});
  } else if (is_float(to)) {
    // The mantissa of a number in [1, 2).
    const int mantissa = float_format(to).mantissa;
    const uint64_t one = reference::from_double(to, 1);
    const auto number = [&](uint64_t n) { return b.constant_int(from, static_cast<int64_t>(n), shape); };
    v = b.elementwise(Opcode::or_,
                      {b.elementwise(Opcode::and_, {v, number((uint64_t{1} << mantissa) - 1)}), number(one)});
    return note(b.elementwise(Opcode::bitcast, {v}, to), {2, 0, false, dirty});
  }
  return note(b.elementwise(Opcode::bitcast, {v}, to), {largest(to), 0, true, dirty});
}

}  // namespace tessera::fuzz
