// Elementwise functions: one row of the op table each, and compositions of rows.
#include <limits>

#include "engine/front/elementwise.h"
#include "engine/front/ops.h"
#include "engine/front/trace.h"

namespace tessera {
using ir::Opcode;

namespace {
Value rounded(Opcode code, const Operand& x) {
  Emit e(ir::name(code), x);
  const DType t = e.dtype(x);
  const ir::Value v = e.as(x, t);
  return e.wrap(is_float(t) ? e.builder().elementwise(code, {v}) : v);
}

/// As binary, integers and bools converted to f32 first.
Value binary_float(Opcode code, const Operand& a, const Operand& b) {
  Emit e(ir::name(code), a);
  const DType common = e.common_dtype({&a, &b}), t = is_float(common) ? common : DType::f32;
  const Shape shape = e.common_shape({&a, &b});
  const ir::Value x = e.as(a, t, shape), y = e.as(b, t, shape);
  return e.wrap(e.builder().elementwise(code, {x, y}));
}

/// As unary_float for tests, which integers and bools answer with `of_integers`.
Value float_test(std::string_view name, const Operand& x, bool of_integers,
                 ir::Value (*test)(ir::Builder&, ir::Value)) {
  Emit e(name, x);
  const DType t = e.dtype(x);
  const ir::Value v = e.as(x, t);
  return e.wrap(is_float(t) ? test(e.builder(), v) : e.builder().constant_int(DType::boolean, of_integers, e.shape(x)));
}

/// x multiplied with itself, by squaring; below zero the inverse of that.
Value power(Emit& e, const Operand& x, int64_t exponent) {
  const DType t = e.dtype(x) == DType::boolean ? DType::i32 : e.dtype(x);
  ir::Builder& b = e.builder();
  ir::Value base = e.as(x, t), result;
  if (exponent < 0 && !is_float(t))
    e.fail("an integer cannot be raised to the negative power " + std::to_string(exponent),
           "cast() it to a float first");
  for (uint64_t left = exponent < 0 ? uint64_t{0} - static_cast<uint64_t>(exponent) : static_cast<uint64_t>(exponent);
       left; left >>= 1) {
    if (left & 1) result = result ? b.elementwise(Opcode::mul, {result, base}) : base;
    if (left > 1) base = b.elementwise(Opcode::mul, {base, base});
  }
  const ir::Value one = b.constant_int(t, 1, e.shape(x));
  if (!result) return e.wrap(one);
  return e.wrap(exponent < 0 ? b.elementwise(Opcode::div, {one, result}) : result);
}
}  // namespace

Value exp(Operand x) { return unary_float(Opcode::exp, x, "exp"); }
Value exp2(Operand x) { return unary_float(Opcode::exp2, x, "exp2"); }
Value expm1(Operand x) { return unary_float(Opcode::expm1, x, "expm1"); }
Value log(Operand x) { return unary_float(Opcode::log, x, "log"); }
Value log2(Operand x) { return unary_float(Opcode::log2, x, "log2"); }
Value log1p(Operand x) { return unary_float(Opcode::log1p, x, "log1p"); }
Value sqrt(Operand x) { return unary_float(Opcode::sqrt, x, "sqrt"); }
Value rsqrt(Operand x) { return unary_float(Opcode::rsqrt, x, "rsqrt"); }
Value cbrt(Operand x) { return unary_float(Opcode::cbrt, x, "cbrt"); }
Value sin(Operand x) { return unary_float(Opcode::sin, x, "sin"); }
Value cos(Operand x) { return unary_float(Opcode::cos, x, "cos"); }
Value tan(Operand x) { return unary_float(Opcode::tan, x, "tan"); }
Value asin(Operand x) { return unary_float(Opcode::asin, x, "asin"); }
Value acos(Operand x) { return unary_float(Opcode::acos, x, "acos"); }
Value atan(Operand x) { return unary_float(Opcode::atan, x, "atan"); }
Value atan2(Operand y, Operand x) { return binary_float(Opcode::atan2, y, x); }
Value sinh(Operand x) { return unary_float(Opcode::sinh, x, "sinh"); }
Value cosh(Operand x) { return unary_float(Opcode::cosh, x, "cosh"); }
Value tanh(Operand x) { return unary_float(Opcode::tanh, x, "tanh"); }
Value asinh(Operand x) { return unary_float(Opcode::asinh, x, "asinh"); }
Value acosh(Operand x) { return unary_float(Opcode::acosh, x, "acosh"); }
Value atanh(Operand x) { return unary_float(Opcode::atanh, x, "atanh"); }
Value erf(Operand x) { return unary_float(Opcode::erf, x, "erf"); }
Value erf_inv(Operand x) { return unary_float(Opcode::erf_inv, x, "erf_inv"); }
Value logistic(Operand x) { return unary_float(Opcode::logistic, x, "logistic"); }
Value nextafter(Operand x, Operand to) { return binary_float(Opcode::nextafter, x, to); }
Value sign(Operand x) { return unary(Opcode::sign, x, "sign"); }
Value floor(Operand x) { return rounded(Opcode::floor, x); }
Value ceil(Operand x) { return rounded(Opcode::ceil, x); }
Value round(Operand x) { return rounded(Opcode::round, x); }
Value round_even(Operand x) { return rounded(Opcode::round_even, x); }
Value maximum(Operand a, Operand b) { return binary(Opcode::max, a, b, "maximum", Opcode::or_); }
Value minimum(Operand a, Operand b) { return binary(Opcode::min, a, b, "minimum", Opcode::and_); }
Value shift_right_logical(Operand a, Operand b) {
  return binary(Opcode::shift_right_logical, a, b, "shift_right_logical");
}
Value mulhi(Operand a, Operand b) { return binary(Opcode::mulhi, a, b, "mulhi"); }
Value clz(Operand x) { return unary(Opcode::clz, x, "clz"); }
Value population_count(Operand x) { return unary(Opcode::population_count, x, "population_count"); }

Value is_finite(Operand x) {
  return float_test("is_finite", x, true,
                    [](ir::Builder& b, ir::Value v) { return b.elementwise(Opcode::is_finite, {v}); });
}
Value is_nan(Operand x) {
  return float_test("is_nan", x, false, [](ir::Builder& b, ir::Value v) { return b.elementwise(Opcode::ne, {v, v}); });
}
Value is_inf(Operand x) {
  return float_test("is_inf", x, false, [](ir::Builder& b, ir::Value v) {
    const ir::Type t = b.kernel().type(v);
    return b.elementwise(Opcode::eq, {b.elementwise(Opcode::abs, {v}),
                                      b.constant_float(t.dtype, std::numeric_limits<double>::infinity(), t.shape)});
  });
}

Value logaddexp(Operand a, Operand b) {
  const Value larger = maximum(a, b),
              apart = unary_float(Opcode::abs, binary(Opcode::sub, a, b, "logaddexp"), "logaddexp");
  const Value ordinary = larger + log1p(exp(-apart)), sum = binary(Opcode::add, a, b, "logaddexp");
  return where(is_nan(apart), sum, ordinary);  // equal infinities have no difference, and NaN stays
}

Value abs(Operand x) {
  Emit e("abs", x);
  const DType t = e.dtype(x);
  const ir::Value v = e.as(x, t);
  return e.wrap(t == DType::boolean ? v : e.builder().elementwise(Opcode::abs, {v}));
}

Value pow(Operand x, Operand y) {
  Emit e("pow", x);
  const auto& n = y.number();
  if (n && !std::holds_alternative<double>(*n))
    return power(e, x,
                 std::holds_alternative<bool>(*n)      ? std::get<bool>(*n)
                 : std::holds_alternative<int64_t>(*n) ? std::get<int64_t>(*n)
                                                       : static_cast<int64_t>(std::get<uint64_t>(*n)));
  const DType t = e.common_dtype({&x, &y});
  if (!is_float(t))
    e.fail("the power of " + std::string(name(t)) + " Values is not defined",
           "cast() one side to a float, or give the exponent as a number");
  return binary(Opcode::pow, x, y, "pow");
}

Value integer_pow(Operand x, int64_t exponent) {
  Emit e("integer_pow", x);
  return power(e, x, exponent);
}
Value square(Operand x) {
  Emit e("square", x);
  return power(e, x, 2);
}
Value reciprocal(Operand x) {
  Emit e("reciprocal", x);
  const DType t = is_float(e.dtype(x)) ? e.dtype(x) : DType::f32;
  return e.wrap(e.builder().elementwise(Opcode::div, {e.builder().constant_int(t, 1, e.shape(x)), e.as(x, t)}));
}

Value reduce_precision(Operand x, int exponent_bits, int mantissa_bits) {
  Emit e("reduce_precision", x);
  if (exponent_bits < 1 || mantissa_bits < 0)
    e.fail("a format with " + std::to_string(exponent_bits) + " exponent bits and " + std::to_string(mantissa_bits) +
           " mantissa bits is none");
  // as XLA on the CPU
  const DType given = is_float(e.dtype(x)) ? e.dtype(x) : DType::f32, t = is_float8(given) ? DType::f16 : given;
  const DType u = bits(t) == 64 ? DType::u64 : bits(t) == 32 ? DType::u32 : DType::u16;
  const int mantissa = float_format(t).mantissa, exponent = bits(t) - 1 - mantissa;
  ir::Builder& b = e.builder();
  const Shape shape = e.shape(x);
  const auto number = [&](uint64_t n) { return b.constant(u, n, shape); };
  const auto op = [&](Opcode c, ir::Value p, ir::Value q) { return b.elementwise(c, {p, q}); };
  const ir::Value v = e.as(x, t), original = b.elementwise(Opcode::bitcast, {v}, u);
  ir::Value r = original;
  if (const int dropped = mantissa - mantissa_bits; dropped > 0) {
    // To nearest even: half of the last kept bit less one, plus that bit itself, then cut.
    const uint64_t last = uint64_t{1} << dropped;
    const ir::Value one = number(1), by = number(static_cast<uint64_t>(dropped));
    const ir::Value odd = op(Opcode::and_, op(Opcode::shift_right_logical, r, by), one);
    r = op(Opcode::add, r, op(Opcode::add, odd, number(last / 2 - 1)));
    r = op(Opcode::and_, r, number(((uint64_t{1} << (bits(t) - 1)) * 2 - 1) & ~(last - 1)));
  }
  const uint64_t sign = uint64_t{1} << (bits(t) - 1), infinity = ((uint64_t{1} << exponent) - 1) << mantissa;
  if (exponent_bits < exponent) {
    const uint64_t bias = (uint64_t{1} << (exponent - 1)) - 1, reduced = (uint64_t{1} << (exponent_bits - 1)) - 1;
    const ir::Value its_exponent = op(Opcode::and_, r, number(infinity)), its_sign = op(Opcode::and_, r, number(sign));
    const ir::Value above = op(Opcode::gt, its_exponent, number((bias + reduced) << mantissa));
    const ir::Value below = op(Opcode::le, its_exponent, number((bias - reduced) << mantissa));
    r = b.elementwise(Opcode::select, {above, op(Opcode::or_, its_sign, number(infinity)), r});
    r = b.elementwise(Opcode::select, {below, its_sign, r});
  }
  const ir::Value nan = b.elementwise(Opcode::ne, {v, v});  // whose bits rounding has changed
  return e.wrap(
      b.convert(b.elementwise(Opcode::bitcast, {b.elementwise(Opcode::select, {nan, original, r})}, t), given));
}

Value clamp(Operand low, Operand x, Operand high) {
  Emit e("clamp", x);
  const DType t = e.common_dtype({&low, &x, &high});
  const Shape shape = e.common_shape({&low, &x, &high});
  const ir::Value a = e.as(low, t, shape), b = e.as(x, t, shape), c = e.as(high, t, shape);
  return e.wrap(e.builder().elementwise(Opcode::clamp, {a, b, c}));
}

Value where(Operand condition, Operand a, Operand b) {
  Emit e("where", condition);
  const DType t = e.common_dtype({&a, &b});
  const Shape shape = e.common_shape({&condition, &a, &b});
  const ir::Value c = e.broadcast(e.truth(condition), shape), x = e.as(a, t, shape), y = e.as(b, t, shape);
  return e.wrap(e.builder().elementwise(Opcode::select, {c, x, y}));
}

Value select_n(Operand which, std::vector<Operand> cases) {
  Emit e("select_n", which);
  if (cases.empty()) e.fail("there are no cases to select from");
  const DType by = e.dtype(which);
  if (is_float(by)) e.fail("the selector must be bool or integers but is " + std::string(name(by)));
  if (by == DType::boolean && cases.size() > 2)
    e.fail("a bool selects from 2 cases but there are " + std::to_string(cases.size()), "select by an integer");
  std::vector<const Operand*> operands;
  for (const Operand& c : cases) operands.push_back(&c);
  const DType t = e.common_dtype(operands);
  operands.push_back(&which);
  const Shape shape = e.common_shape(operands);
  ir::Builder& b = e.builder();
  const ir::Value selector = e.broadcast(e.as(which, by), shape);
  ir::Value r = e.as(cases.back(), t, shape);
  for (size_t i = cases.size() - 1; i-- > 0;) {
    const ir::Value here =
        by == DType::boolean
            ? b.elementwise(Opcode::not_, {selector})
            : b.elementwise(Opcode::le, {selector, b.constant_int(by, static_cast<int64_t>(i), shape)});
    r = b.elementwise(Opcode::select, {here, e.as(cases[i], t, shape), r});
  }
  return e.wrap(r);
}

Value cast(Operand x, DType dtype) {
  Emit e("cast", x);
  return e.wrap(e.builder().convert(e.as_is(x), dtype));
}

Value multiple_of(Operand x, int64_t n) {
  Emit e("multiple_of", x);
  if (!is_int(e.dtype(x))) e.fail("the operand must be integers but is " + std::string(name(e.dtype(x))));
  if (n < 1) e.fail(std::to_string(n) + " is not a positive number");
  return e.wrap(e.as_is(x));
}
Value max_contiguous(Operand x, int64_t n) {
  Emit e("max_contiguous", x);
  if (!is_int(e.dtype(x))) e.fail("the operand must be integers but is " + std::string(name(e.dtype(x))));
  if (n < 1) e.fail(std::to_string(n) + " is not a positive number");
  return e.wrap(e.as_is(x));
}

}  // namespace tessera
