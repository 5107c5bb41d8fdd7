#include "codegen/expand/elementwise.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "codegen/expand/expand.h"

namespace tessera::expand {
namespace {

using ir::Opcode;

/// The one quotient that has no room, of the least integer by -1.
V overflows(V a, V b, int64_t least) {
  const V lowest = eq(a, Literal(least));
  return eq(b, -1) & lowest;
}

V signed_div(V a, V b, const Bounds& ra, const Bounds& rb, int64_t least) {
  if (within(ra, 0) && within(rb, 1)) return udiv(a, b);
  const bool zero = contains(rb, 0), overflow = least <= INT32_MIN && contains(rb, -1) && contains(ra, least);
  if (!zero && !overflow) return sdiv(a, b);
  const V bad = eq(b, 0);
  const V unsafe = overflow ? bad | overflows(a, b, least) : bad;
  const V q = sdiv(a, select(unsafe, 1, b));  // MIN / 1 = MIN is what MIN / -1 wraps to
  return zero ? select(bad, -1, q) : q;
}

V signed_rem(V a, V b, const Bounds& ra, const Bounds& rb, int64_t least) {
  if (within(ra, 0) && within(rb, 1)) return umod(a, b);
  const bool zero = contains(rb, 0), overflow = least <= INT32_MIN && contains(rb, -1) && contains(ra, least);
  const V bad = eq(b, 0);
  V safe = b;
  if (overflow) safe = select(bad | overflows(a, b, least), 1, b);
  else if (zero) safe = select(bad, 1, b);
  const V r = a - sdiv(a, safe) * safe;  // OpSRem is undefined for negative operands in Vulkan
  return zero ? select(bad, a, r) : r;
}

V shift(Opcode op, DType t, V a, V b, const Bounds& rb) {
  const int w = bits(t);
  const bool in_range = within(rb, 0, w - 1);
  const V ok = in_range ? V{} : b < w;  // unsigned: a negative amount is a large one
  const V amount = in_range ? b : b & (static_cast<int>(width(a.reg)) - 1);
  if (op == Opcode::shift_right_arithmetic) {  // the top bit fills, of unsigned types too
    if (is_unsigned_int(t) && w < 32) a = sign_extend(a, w);
    return sar(a, in_range ? b : select(ok, b, static_cast<int>(width(a.reg)) - 1));
  }
  if (op != Opcode::shift_left && is_signed_int(t) && w < 32) a = a & ((1 << w) - 1);
  const V r = op == Opcode::shift_left ? a << amount : a >> amount;
  return in_range ? r : select(ok, r, 0);
}

/// The same with either of two zeros: the device's instruction for numbers, whose result for NaN is unspecified. Of
/// several in a row each takes the number of the one before; NaN is looked for in two elements at a time, by one
/// comparison, and the selections in between have no other use.
V relaxed_extreme(bool larger, V a, V b) {
  Sink& f = *a.fn;
  const bool preserve = a.reg == Reg::f64 ? f.target.preserve64 : f.target.preserve32;
  const auto test = [&](V x) { return preserve ? ne(x, x) : is_nan(x); };
  const auto either = [](V x, V y) { return !x.fn ? y : !y.fn ? x : x | y; };
  Sink::Extreme r{.larger = larger};
  std::vector<V> numbers, untested;
  for (const V& x : {a, b}) {
    const auto known = f.extremes.find({x.reg, x.id});
    const bool same = known != f.extremes.end() && known->second.larger == larger;
    numbers.push_back(same ? known->second.number : x);
    if (same) r.undefined = either(r.undefined, known->second.undefined);
    const V rest = same ? known->second.untested : x;
    if (rest.fn) untested.push_back(rest);
  }
  if (untested.size() == 2) {
    const V first = test(untested[0]), second = test(untested[1]), any = first | second;
    r.undefined = either(r.undefined, any);
  } else if (untested.size() == 1) {
    r.untested = untested[0];
  }
  r.number = f.apply(larger ? Prim::max_number : Prim::min_number, a.reg, numbers);
  const V undefined = r.untested.fn ? either(r.undefined, test(r.untested)) : r.undefined;
  const V is = nan(a), v = select(undefined, is, r.number);
  f.extremes[{v.reg, v.id}] = r;
  return v;
}

/// The larger or the smaller; a NaN operand makes a NaN, and of two zeros the larger is +0.
V extreme(bool larger, DType t, V a, V b) {
  const V own = a.fn->row(larger ? Opcode::max : Opcode::min, t, a.reg, {a, b});
  if (own.fn) return own;
  if (is_signed_int(t)) return select(larger ? slt(a, b) : slt(b, a), b, a);
  if (is_int(t)) return select(larger ? a < b : b < a, b, a);
  if (a.fn->relaxed) return relaxed_extreme(larger, a, b);
  const bool preserve = a.reg == Reg::f64 ? a.fn->target.preserve64 : a.fn->target.preserve32;
  const V nan_a = preserve ? ne(a, a) : is_nan(a);
  // True where b wins or either is NaN.
  V pick_b;
  if (preserve) {
    pick_b = a.fn->apply(larger ? Prim::unordered_lt : Prim::unordered_gt, Reg::boolean, {a, b});
  } else {
    const V nan_b = is_nan(b);
    pick_b = (larger ? a < b : b < a) | nan_b;
  }
  // Equal operands differ only if they are zeros of opposite signs: and keeps a common sign (max), or any sign (min).
  const V bits_b = bits(b), bits_a = bits(a), same = floating(larger ? bits_a & bits_b : bits_a | bits_b);
  const V unequal = select(pick_b, b, a);
  return select(nan_a, a, select(eq(a, b), same, unequal));
}

V float_round(V a, FunctionRef<V(V)> native) {
  const V r = native(a);
  // Without the execution mode the driver may drop the sign of a zero result.
  const bool preserve = a.reg == Reg::f64 ? a.fn->target.preserve64 : a.fn->target.preserve32;
  return preserve ? r : copy_sign(r, a);
}

/// Halves to even, of all sizes.
V round_to_even(V a) {
  if (a.reg != Reg::f64) return float_round(a, [](V x) { return round_even(x); });
  const V m = abs(a), whole = floor(m), rest = m - whole, half = whole * 0.5;  // exact; NaN and infinities stay whole
  const V odd = ne(floor(half), half), tie = eq(rest, 0.5) & odd, up = (rest > 0.5) | tie;
  return copy_sign(select(up, whole + 1.0, whole), a);
}

V sign(DType t, V a) {
  if (is_signed_int(t)) {
    const V one = sar(a, static_cast<int>(width(a.reg)) - 1) | 1;
    return select(eq(a, 0), 0, one);
  }
  if (is_int(t)) return select(eq(a, 0), a, 1);
  const V zero = eq(a, 0.0);
  return copy_sign(select(is_nan(a) | zero, a, 1.0), a);
}

/// Halves away from zero. GLSL's Round leaves the direction of halves to the driver.
V round_away(V a) {
  const V t = trunc(a);
  const V up = abs(a - t) >= 0.5;  // exact; NaN and infinities keep t
  return copy_sign(select(up, abs(t) + 1.0, t), a);
}

/// An elementwise op on register values.
struct Call {
  Opcode op;
  DType t, result;
  const std::vector<V>& a;
  const std::vector<Bounds>& r;
  bool flt() const { return tessera::is_float(t); }
  bool sgn() const { return is_signed_int(t); }
  bool boolean() const { return t == DType::boolean; }
  int64_t least() const { return sgn() ? values_of(t)->lo : 0; }
};
/// Rows that say EXPAND in a column of some backend.
constexpr std::array<bool, ir::kNumOpcodes> kExpands = [] {
  std::array<bool, ir::kNumOpcodes> t{};
#define TESSERA_ELEMENTWISE(name, arity, operands, result, flags, reference, flt, sint, uint, boolean, ptx_flt,      \
                            ptx_sint, ptx_uint, ptx_boolean, ...)                                                    \
  for (const std::string_view column : {#flt, #sint, #uint, #boolean, #ptx_flt, #ptx_sint, #ptx_uint, #ptx_boolean}) \
    t[static_cast<size_t>(Opcode::name)] |= column == "EXPAND";
#include "engine/ir/ops.def"
  return t;
}();
constexpr bool expands(Opcode op) { return kExpands[static_cast<size_t>(op)]; }
/// The sequence of a row that has EXPAND in one of its columns: neither compiles without the other.
template <Opcode op> V expand(const Call& c) = delete;

#define EXPANSION(name)                                                               \
  static_assert(expands(Opcode::name), "the row of " #name " has only instructions"); \
  template <> V expand<Opcode::name>(const Call& c)
EXPANSION(div) {
  if (c.flt()) return c.a[0] / c.a[1];
  if (c.sgn()) return signed_div(c.a[0], c.a[1], c.r[0], c.r[1], c.least());
  if (!contains(c.r[1], 0)) return udiv(c.a[0], c.a[1]);
  const V q = udiv(c.a[0], select(eq(c.a[1], 0), 1, c.a[1]));
  return select(eq(c.a[1], 0), -1, q);
}
EXPANSION(rem) {
  if (c.flt()) return float_rem(c.t, c.a[0], c.a[1]);
  if (c.sgn()) return signed_rem(c.a[0], c.a[1], c.r[0], c.r[1], c.least());
  if (!contains(c.r[1], 0)) return umod(c.a[0], c.a[1]);
  const V r = umod(c.a[0], select(eq(c.a[1], 0), 1, c.a[1]));
  return select(eq(c.a[1], 0), c.a[0], r);
}
EXPANSION(max) { return extreme(true, c.t, c.a[0], c.a[1]); }
EXPANSION(min) { return extreme(false, c.t, c.a[0], c.a[1]); }
EXPANSION(pow) { return pow(c.a[0], c.a[1]); }
EXPANSION(abs) {
  if (c.flt()) return floating(magnitude_bits(c.a[0]));
  if (!c.sgn()) return c.a[0];
  const V negated = -c.a[0];
  return select(slt(c.a[0], 0), negated, c.a[0]);
}
EXPANSION(sign) { return sign(c.t, c.a[0]); }
EXPANSION(floor) {
  return float_round(c.a[0], [](V x) { return floor(x); });
}
EXPANSION(ceil) {
  return float_round(c.a[0], [](V x) { return x.fn->apply(Prim::ceil, x.reg, {x}); });
}
EXPANSION(round) { return round_away(c.a[0]); }
EXPANSION(round_even) { return round_to_even(c.a[0]); }
EXPANSION(sqrt) { return sqrt(c.a[0]); }
EXPANSION(rsqrt) { return rsqrt(c.a[0]); }
EXPANSION(exp) { return exp(c.a[0]); }
EXPANSION(exp2) { return exp2(c.a[0]); }
EXPANSION(log) { return log(c.a[0]); }
EXPANSION(log2) { return log2(c.a[0]); }
EXPANSION(tanh) { return tanh(c.a[0]); }
EXPANSION(sin) { return sin(c.a[0]); }
EXPANSION(cos) { return cos(c.a[0]); }
EXPANSION(erf) { return erf(c.a[0]); }
EXPANSION(logistic) { return logistic(c.a[0]); }
EXPANSION(expm1) { return expm1(c.a[0]); }
EXPANSION(log1p) { return log1p(c.a[0]); }
EXPANSION(cbrt) { return cbrt(c.a[0]); }
EXPANSION(tan) { return tan(c.a[0]); }
EXPANSION(asin) { return asin(c.a[0]); }
EXPANSION(acos) { return acos(c.a[0]); }
EXPANSION(atan) { return atan(c.a[0]); }
EXPANSION(atan2) { return atan2(c.a[0], c.a[1]); }
EXPANSION(sinh) { return sinh(c.a[0]); }
EXPANSION(cosh) { return cosh(c.a[0]); }
EXPANSION(asinh) { return asinh(c.a[0]); }
EXPANSION(acosh) { return acosh(c.a[0]); }
EXPANSION(atanh) { return atanh(c.a[0]); }
EXPANSION(erf_inv) { return erf_inv(c.a[0]); }
EXPANSION(nextafter) { return nextafter(c.t, c.a[0], c.a[1]); }
EXPANSION(lt) { return ~c.a[0] & c.a[1]; }
EXPANSION(le) { return ~c.a[0] | c.a[1]; }
EXPANSION(gt) { return c.boolean() ? c.a[0] & ~c.a[1] : slt(c.a[1], c.a[0]); }
EXPANSION(ge) { return c.boolean() ? c.a[0] | ~c.a[1] : sle(c.a[1], c.a[0]); }
EXPANSION(is_finite) { return magnitude_bits(c.a[0]) < layout(c.a[0].reg).infinity; }
EXPANSION(shift_left) { return shift(c.op, c.t, c.a[0], c.a[1], c.r[1]); }
EXPANSION(shift_right_logical) { return shift(c.op, c.t, c.a[0], c.a[1], c.r[1]); }
EXPANSION(shift_right_arithmetic) { return shift(c.op, c.t, c.a[0], c.a[1], c.r[1]); }
EXPANSION(mulhi) { return mulhi(c.t, c.a[0], c.a[1]); }
EXPANSION(clz) { return count_leading_zeros(c.t, c.a[0]); }
EXPANSION(population_count) { return population_count(c.t, c.a[0]); }
EXPANSION(clamp) { return extreme(false, c.t, extreme(true, c.t, c.a[0], c.a[1]), c.a[2]); }
EXPANSION(convert) { return convert(c.a[0], c.t, c.result); }
EXPANSION(bitcast) { return from_memory_bits(memory_bits(c.a[0], c.t), c.result); }
EXPANSION(fma) { return fma(c.a[0], c.a[1], c.a[2]); }
#undef EXPANSION

using Expansion = V (*)(const Call&);
template <Opcode op> constexpr Expansion expansion() {
  if constexpr (expands(op)) return &expand<op>;
  else return nullptr;
}
constexpr std::array<Expansion, ir::kNumOpcodes> kExpansions = [] {
  std::array<Expansion, ir::kNumOpcodes> t{};
#define TESSERA_ELEMENTWISE(name, ...) t[static_cast<size_t>(Opcode::name)] = expansion<Opcode::name>();
#include "engine/ir/ops.def"
  return t;
}();

/// Whether the result may lie outside the dtype although the operands do not.
bool leaves_dtype(Opcode op, DType t) {
  if (op == Opcode::not_) return is_unsigned_int(t);
  if (op == Opcode::neg || op == Opcode::abs) return !tessera::is_float(t);
  return !ir::info(op).keeps_dtype;
}

}  // namespace

V unrounded(Opcode op, DType operand, DType result, const std::vector<V>& a, const std::vector<Bounds>& ranges) {
  const V v = a[0].fn->row(op, operand, reg_of(result), a);
  return v.fn ? v : kExpansions[static_cast<size_t>(op)]({op, operand, result, a, ranges});
}

V elementwise(Opcode op, DType operand, DType result, const std::vector<V>& a, const std::vector<Bounds>& ranges) {
  const V v = unrounded(op, operand, result, a, ranges);
  return leaves_dtype(op, operand) ? normalize(v, result) : v;
}

bool takes_unrounded(Opcode op) {
  constexpr Opcode kPlain[] = {Opcode::add,  Opcode::sub,   Opcode::mul,  Opcode::div,    Opcode::max,
                               Opcode::min,  Opcode::neg,   Opcode::abs,  Opcode::select, Opcode::fma,
                               Opcode::sqrt, Opcode::rsqrt, Opcode::clamp};
  return ir::info(op).transcendental || std::find(std::begin(kPlain), std::end(kPlain), op) != std::end(kPlain);
}

}  // namespace tessera::expand
