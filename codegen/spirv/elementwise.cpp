#include "codegen/spirv/elementwise.h"

#include <string>

#include "codegen/spirv/expand.h"
#include "engine/base/error.h"

namespace tessera::spirv {
namespace {

using ir::Opcode;

V signed_div(V a, V b, const Range& ra, const Range& rb, int64_t least) {
  if (ra.nonnegative() && rb.known && rb.lo > 0) return udiv(a, b);
  const bool zero = rb.contains(0), overflow = least <= INT32_MIN && rb.contains(-1) && ra.contains(least);
  if (!zero && !overflow) return sdiv(a, b);
  const V bad = eq(b, 0);
  const V unsafe = overflow ? bad | (eq(b, -1) & eq(a, Literal(least))) : bad;
  const V q = sdiv(a, select(unsafe, 1, b));  // MIN / 1 = MIN is what MIN / -1 wraps to
  return zero ? select(bad, -1, q) : q;
}

V signed_rem(V a, V b, const Range& ra, const Range& rb, int64_t least) {
  if (ra.nonnegative() && rb.known && rb.lo > 0) return umod(a, b);
  const bool zero = rb.contains(0), overflow = least <= INT32_MIN && rb.contains(-1) && ra.contains(least);
  const V bad = eq(b, 0);
  V safe = b;
  if (overflow) safe = select(bad | (eq(b, -1) & eq(a, Literal(least))), 1, b);
  else if (zero) safe = select(bad, 1, b);
  const V r = a - sdiv(a, safe) * safe;  // OpSRem is undefined for negative operands in Vulkan
  return zero ? select(bad, a, r) : r;
}

V shift(Opcode op, DType t, V a, V b, const Range& rb) {
  const int w = bits(t);
  const bool in_range = rb.within(0, w - 1);
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

/// The larger or the smaller; a NaN operand is the result, and of two zeros the larger is +0.
V extreme(bool larger, DType t, V a, V b) {
  if (is_signed_int(t)) return select(larger ? slt(a, b) : slt(b, a), b, a);
  if (is_int(t)) return select(larger ? a < b : b < a, b, a);
  const bool preserve = a.reg == Reg::f64 ? a.fn->target.preserve64 : a.fn->target.preserve32;
  const V nan_a = preserve ? ne(a, a) : is_nan(a);
  // True where b wins or either is NaN.
  const V pick_b = preserve ? a.fn->emit(larger ? spv::OpFUnordLessThan : spv::OpFUnordGreaterThan, Reg::boolean, {a, b})
                            : (larger ? a < b : b < a) | is_nan(b);
  // Equal operands differ only if they are zeros of opposite signs: and keeps a common sign (max), or any sign (min).
  const V same = floating(larger ? bits(a) & bits(b) : bits(a) | bits(b));
  return select(nan_a, a, select(eq(a, b), same, select(pick_b, b, a)));
}

V float_round(V a, const std::function<V(V)>& native) {
  const V r = native(a);
  // Without the execution mode the driver may drop the sign of a zero result.
  const bool preserve = a.reg == Reg::f64 ? a.fn->target.preserve64 : a.fn->target.preserve32;
  return preserve ? r : floating(magnitude_bits(r) | sign_bit(a));
}

/// Halves to even, of all sizes.
V round_to_even(V a) {
  if (a.reg != Reg::f64) return float_round(a, [](V x) { return round_even(x); });
  const V m = abs(a), whole = floor(m), rest = m - whole, half = whole * 0.5;  // exact; NaN and infinities stay whole
  const V up = (rest > 0.5) | (eq(rest, 0.5) & ne(floor(half), half));
  return copy_sign(select(up, whole + 1.0, whole), a);
}

V sign(DType t, V a) {
  if (is_signed_int(t)) return select(eq(a, 0), 0, sar(a, static_cast<int>(width(a.reg)) - 1) | 1);
  if (is_int(t)) return select(eq(a, 0), a, 1);
  return copy_sign(select(is_nan(a) | eq(a, 0.0), a, 1.0), a);
}

/// Halves away from zero. GLSL's Round leaves the direction of halves to the driver.
V round_away(V a) {
  const V t = trunc(a);
  const V up = abs(a - t) >= 0.5;  // exact; NaN and infinities keep t
  return copy_sign(select(up, abs(t) + 1.0, t), a);
}

V undefined(Opcode op, DType t) {
  throw InternalError("spirv: " + std::string(ir::name(op)) + " of dtype " + std::string(tessera::name(t)));
}

V raw(Opcode op, DType t, DType result, const std::vector<V>& a, const std::vector<Range>& r) {
  const bool flt = tessera::is_float(t), sgn = is_signed_int(t), boolean = t == DType::boolean;
  const int64_t least = sgn ? full_range(t).lo : 0;
  switch (op) {
    case Opcode::add: return a[0] + a[1];
    case Opcode::sub: return a[0] - a[1];
    case Opcode::mul: return a[0] * a[1];
    case Opcode::div:
      if (flt) return a[0] / a[1];
      if (sgn) return signed_div(a[0], a[1], r[0], r[1], least);
      return r[1].contains(0) ? select(eq(a[1], 0), -1, udiv(a[0], select(eq(a[1], 0), 1, a[1]))) : udiv(a[0], a[1]);
    case Opcode::rem:
      if (flt) return float_rem(t, a[0], a[1]);
      if (sgn) return signed_rem(a[0], a[1], r[0], r[1], least);
      return r[1].contains(0) ? select(eq(a[1], 0), a[0], umod(a[0], select(eq(a[1], 0), 1, a[1]))) : umod(a[0], a[1]);
    case Opcode::max: return extreme(true, t, a[0], a[1]);
    case Opcode::min: return extreme(false, t, a[0], a[1]);
    case Opcode::pow: return pow(a[0], a[1]);
    case Opcode::neg: return -a[0];
    case Opcode::abs:
      if (flt) return floating(magnitude_bits(a[0]));
      return sgn ? select(slt(a[0], 0), -a[0], a[0]) : a[0];
    case Opcode::sign: return sign(t, a[0]);
    case Opcode::floor: return float_round(a[0], [](V x) { return floor(x); });
    case Opcode::ceil: return float_round(a[0], [](V x) { return x.fn->glsl(GLSLstd450Ceil, x.reg, {x}); });
    case Opcode::round: return round_away(a[0]);
    case Opcode::round_even: return round_to_even(a[0]);
    case Opcode::sqrt: return sqrt(a[0]);
    case Opcode::rsqrt: return rsqrt(a[0]);
    case Opcode::exp: return exp(a[0]);
    case Opcode::exp2: return exp2(a[0]);
    case Opcode::log: return log(a[0]);
    case Opcode::log2: return log2(a[0]);
    case Opcode::tanh: return tanh(a[0]);
    case Opcode::sin: return sin(a[0]);
    case Opcode::cos: return cos(a[0]);
    case Opcode::erf: return erf(a[0]);
    case Opcode::logistic: return logistic(a[0]);
    case Opcode::expm1: return expm1(a[0]);
    case Opcode::log1p: return log1p(a[0]);
    case Opcode::cbrt: return cbrt(a[0]);
    case Opcode::tan: return tan(a[0]);
    case Opcode::asin: return asin(a[0]);
    case Opcode::acos: return acos(a[0]);
    case Opcode::atan: return atan(a[0]);
    case Opcode::atan2: return atan2(a[0], a[1]);
    case Opcode::sinh: return sinh(a[0]);
    case Opcode::cosh: return cosh(a[0]);
    case Opcode::asinh: return asinh(a[0]);
    case Opcode::acosh: return acosh(a[0]);
    case Opcode::atanh: return atanh(a[0]);
    case Opcode::erf_inv: return erf_inv(a[0]);
    case Opcode::nextafter: return nextafter(t, a[0], a[1]);
    case Opcode::eq: return eq(a[0], a[1]);
    case Opcode::ne: return ne(a[0], a[1]);
    case Opcode::lt: return boolean ? ~a[0] & a[1] : sgn ? slt(a[0], a[1]) : a[0] < a[1];
    case Opcode::le: return boolean ? ~a[0] | a[1] : sgn ? sle(a[0], a[1]) : a[0] <= a[1];
    case Opcode::gt: return boolean ? a[0] & ~a[1] : sgn ? slt(a[1], a[0]) : a[0] > a[1];
    case Opcode::ge: return boolean ? a[0] | ~a[1] : sgn ? sle(a[1], a[0]) : a[0] >= a[1];
    case Opcode::is_finite: return magnitude_bits(a[0]) < layout(a[0].reg).infinity;
    case Opcode::and_: return a[0] & a[1];
    case Opcode::or_: return a[0] | a[1];
    case Opcode::xor_: return a[0] ^ a[1];
    case Opcode::not_: return ~a[0];
    case Opcode::shift_left:
    case Opcode::shift_right_logical:
    case Opcode::shift_right_arithmetic: return shift(op, t, a[0], a[1], r[1]);
    case Opcode::mulhi: return mulhi(t, a[0], a[1]);
    case Opcode::clz: return count_leading_zeros(t, a[0]);
    case Opcode::population_count: return population_count(t, a[0]);
    case Opcode::select: return select(a[0], a[1], a[2]);
    case Opcode::clamp: return extreme(false, t, extreme(true, t, a[0], a[1]), a[2]);
    case Opcode::convert: return convert(a[0], t, result);
    case Opcode::bitcast: return from_memory_bits(memory_bits(a[0], t), result);
    case Opcode::fma: return fma(a[0], a[1], a[2]);
#define TESSERA_STRUCTURED(name, ...) case Opcode::name:
#include "engine/ir/ops.def"
      break;
  }
  return undefined(op, t);
}

/// Ops whose result may lie outside the dtype although the operands do not.
bool leaves_dtype(Opcode op, DType t) {
  switch (op) {
    case Opcode::and_:
    case Opcode::or_:
    case Opcode::xor_:
    case Opcode::not_: return op == Opcode::not_ && is_unsigned_int(t);
    case Opcode::max:
    case Opcode::min:
    case Opcode::select:
    case Opcode::clamp:
    case Opcode::sign:
    case Opcode::floor:
    case Opcode::ceil:
    case Opcode::round:
    case Opcode::round_even:
    case Opcode::convert:
    case Opcode::bitcast:
    case Opcode::nextafter:
    case Opcode::clz:
    case Opcode::population_count:
    case Opcode::rem: return false;
    case Opcode::neg:
    case Opcode::abs: return !tessera::is_float(t);
    default: return true;
  }
}

}  // namespace

V elementwise(Opcode op, DType operand, DType result, const std::vector<V>& a, const std::vector<Range>& ranges) {
  const V v = raw(op, operand, result, a, ranges);
  return leaves_dtype(op, operand) ? normalize(v, result) : v;
}

}  // namespace tessera::spirv
