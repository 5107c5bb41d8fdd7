// Elementwise ops: instructions.def says which are one instruction of Mosaic; the others are sequences. Integers have
// no sign in MLIR: their dtype here chooses the instruction. All sequences are total where the instruction is not.
#include <algorithm>
#include <array>
#include <numbers>

#include "codegen/tpu/emitter.h"
#include "engine/base/error.h"

namespace tessera::tpu {
namespace {
using ir::Opcode;

struct Row {
  Opcode code = Opcode::yield;
  std::string_view of_float, of_signed, of_unsigned, of_bool;
  Val (Emitter::*expand)(const ir::Op&, const Emitter::Operands&) = nullptr;

  std::string_view instruction(DType t) const {
    return is_float(t) ? of_float : t == DType::boolean ? of_bool : is_signed_int(t) ? of_signed : of_unsigned;
  }
};
constexpr std::array kRows = {
#define TESSERA_MOSAIC(name, f, s, u, b, sequence) Row{Opcode::name, f, s, u, b, sequence},
#include "codegen/tpu/instructions.def"
#undef TESSERA_MOSAIC
};
constexpr int kNumElementwise = 0
#define TESSERA_ELEMENTWISE(...) +1
#include "engine/ir/ops.def"
    ;
static_assert(kRows.size() == kNumElementwise, "instructions.def has a row for every elementwise op");

const Row& row(Opcode code) {
  const auto* const at = std::find_if(kRows.begin(), kRows.end(), [&](const Row& r) { return r.code == code; });
  if (at == kRows.end()) throw InternalError("instructions.def has no row " + std::string(ir::name(code)));
  return *at;
}
}  // namespace

void Emitter::elementwise(const ir::Op& op) {
  Operands x;
  for (const ir::Value v : op.operands) x.push_back(value(v));
  set(op, elementwise(op, op.code, x));
}

// What code makes of x, for op: its own code, or one that it consists of.
Val Emitter::elementwise(const ir::Op& op, Opcode code, const Operands& x) {
  const Row& r = row(code);
  const DType t = x.back().dtype;
  const std::string_view instruction = r.instruction(t);
  if (!instruction.empty()) return x.size() == 1 ? t_.unary(instruction, x[0]) : t_.binary(instruction, x[0], x[1]);
  if (!r.expand) fail(op, "it has no " + std::string(ir::name(code)) + " of " + std::string(name(t)));
  return (this->*r.expand)(op, x);
}

Val Emitter::combine(const ir::Op& op, Opcode code, const Val& a, const Val& b) {
  return elementwise(op, code, {a, b});
}

// Integers: x / 0 is -1, and MIN / -1 is MIN, of which MLIR promises nothing.
Val Emitter::expand_div(const ir::Op& op, const Operands& x) {
  const Val &a = x[0], &b = x[1];
  const bool is_signed = is_signed_int(a.dtype);
  const bool positive = op.code == Opcode::div && ranges_.of(op.operands[1]).value_or(Interval{}).lo > 0;
  if (positive) return t_.binary(is_signed ? "arith.divsi" : "arith.divui", a, b);
  const Val zero = t_.integer(a.dtype, 0, a.shape), one = t_.integer(a.dtype, 1, a.shape),
            ones = t_.integer(a.dtype, -1, a.shape);
  const Val by_zero = t_.compare("eq", b, zero);
  Val instead = by_zero, by_minus = by_zero;
  if (is_signed) {
    by_minus = t_.compare("eq", b, ones);
    instead = t_.binary("arith.ori", by_zero, by_minus);
  }
  const Val safe = t_.select(instead, one, b);
  Val q = t_.binary(is_signed ? "arith.divsi" : "arith.divui", a, safe);
  if (is_signed) {
    const Val negated = t_.binary("arith.subi", zero, a);
    q = t_.select(by_minus, negated, q);
  }
  return t_.select(by_zero, ones, q);
}

// Integers: x % 0 is x, and x % -1 is 0.
Val Emitter::expand_rem(const ir::Op& op, const Operands& x) {
  const Val &a = x[0], &b = x[1];
  const bool is_signed = is_signed_int(a.dtype);
  const Bounds divisor = op.code == Opcode::rem ? ranges_.of(op.operands[1]) : std::nullopt;
  const std::string_view instruction = is_signed ? "arith.remsi" : "arith.remui";
  if (divisor && divisor->lo > 0) return t_.binary(instruction, a, b);
  const Val zero = t_.integer(a.dtype, 0, a.shape), one = t_.integer(a.dtype, 1, a.shape);
  const Val by_zero = t_.compare("eq", b, zero);
  Val instead = by_zero;
  if (is_signed) {
    const Val minus = t_.integer(a.dtype, -1, a.shape);
    const Val by_minus = t_.compare("eq", b, minus);
    instead = t_.binary("arith.ori", by_zero, by_minus);
  }
  const Val safe = t_.select(instead, one, b);
  const Val r = t_.binary(instruction, a, safe);
  return t_.select(by_zero, a, r);
}

// Mosaic takes unsigned integers for signed ones in some places, so that these compare and choose.
Val Emitter::expand_maximum(const ir::Op&, const Operands& x) {
  const Val greater = t_.compare("ugt", x[0], x[1]);
  return t_.select(greater, x[0], x[1]);
}
Val Emitter::expand_minimum(const ir::Op&, const Operands& x) {
  const Val less = t_.compare("ult", x[0], x[1]);
  return t_.select(less, x[0], x[1]);
}

Val Emitter::expand_neg(const ir::Op&, const Operands& x) {
  return t_.binary("arith.subi", t_.integer(x[0].dtype, 0, x[0].shape), x[0]);
}

Val Emitter::expand_abs(const ir::Op& op, const Operands& x) {
  if (is_unsigned_int(x[0].dtype)) return x[0];
  const Val minus = expand_neg(op, x);
  return t_.binary("arith.maxsi", x[0], minus);
}

Val Emitter::expand_sign(const ir::Op&, const Operands& x) {
  const Val& a = x[0];
  const Val zero = t_.number(a.dtype, 0, a.shape), one = t_.number(a.dtype, 1, a.shape);
  if (is_unsigned_int(a.dtype)) return t_.select(t_.compare("ne", a, zero), one, zero);
  const Val minus = is_float(a.dtype) ? t_.number(a.dtype, -1, a.shape) : t_.integer(a.dtype, -1, a.shape);
  const Val above = t_.compare(is_float(a.dtype) ? "ogt" : "sgt", a, zero);
  const Val below = t_.compare(is_float(a.dtype) ? "olt" : "slt", a, zero);
  const Val otherwise = t_.select(below, minus, a);  // NaN and zeros stay
  return t_.select(above, one, otherwise);
}

Val Emitter::expand_log2(const ir::Op&, const Operands& x) {
  const Val ln = t_.unary("math.log", x[0]);
  return t_.binary("arith.mulf", ln, t_.number(x[0].dtype, std::numbers::log2e, x[0].shape));
}

Val Emitter::expand_logistic(const ir::Op&, const Operands& x) {
  const Val minus = t_.unary("arith.negf", x[0]);
  const Val power = t_.unary("math.exp", minus);
  const Val one = t_.number(x[0].dtype, 1, x[0].shape);
  const Val sum = t_.binary("arith.addf", one, power);
  return t_.binary("arith.divf", one, sum);
}

// tanh(a / 2) (e^a + 1), which is exact near 0; where e^a is infinite or 0 the limits.
Val Emitter::expand_expm1(const ir::Op& op, const Operands& x) {
  if (x[0].dtype != DType::f32) {
    const Val wide = convert(x[0], DType::f32);
    const Val r = expand_expm1(op, {wide});
    return convert(r, x[0].dtype);
  }
  const Val &a = x[0], half = t_.number(a.dtype, 0.5, a.shape), one = t_.number(a.dtype, 1, a.shape);
  const Val power = t_.unary("math.exp", a);
  const Val middle = t_.binary("arith.mulf", a, half);
  const Val t = t_.unary("math.tanh", middle);
  const Val sum = t_.binary("arith.addf", power, one);
  const Val product = t_.binary("arith.mulf", t, sum);
  const Val difference = t_.binary("arith.subf", power, one);
  const Val magnitude = t_.unary("math.absf", a);
  const Val near = t_.compare("olt", magnitude, one);
  return t_.select(near, product, difference);
}

Val Emitter::expand_cbrt(const ir::Op& op, const Operands& x) {
  if (x[0].dtype != DType::f32) {
    const Val wide = convert(x[0], DType::f32);
    const Val r = expand_cbrt(op, {wide});
    return convert(r, x[0].dtype);
  }
  const Val &a = x[0], zero = t_.number(a.dtype, 0, a.shape), third = t_.number(a.dtype, 1.0 / 3, a.shape),
            inf = t_.constant(a.dtype, 0x7f800000, a.shape);
  const Val magnitude = t_.unary("math.absf", a);
  const Val ln = t_.unary("math.log", magnitude);
  const Val part = t_.binary("arith.mulf", ln, third);
  const Val guess = t_.unary("math.exp", part);
  // one step of Newton: y - (y - m / y^2) / 3
  const Val square = t_.binary("arith.mulf", guess, guess);
  const Val other = t_.binary("arith.divf", magnitude, square);
  const Val difference = t_.binary("arith.subf", guess, other);
  const Val step = t_.binary("arith.mulf", difference, third);
  const Val root = t_.binary("arith.subf", guess, step);
  const Val minus = t_.unary("arith.negf", root);
  const Val negative = t_.compare("olt", a, zero);
  const Val signed_root = t_.select(negative, minus, root);
  const Val is_zero = t_.compare("oeq", a, zero), is_inf = t_.compare("oeq", magnitude, inf);
  const Val as_is = t_.binary("arith.ori", is_zero, is_inf);
  return t_.select(as_is, a, signed_root);
}

// By atan2, of which JAX relies on the same.
Val Emitter::expand_atan(const ir::Op&, const Operands& x) {
  return t_.binary("math.atan2", x[0], t_.number(x[0].dtype, 1, x[0].shape));
}
Val Emitter::expand_asin(const ir::Op& op, const Operands& x) {
  const Val one = t_.number(x[0].dtype, 1, x[0].shape);
  const Val above = t_.binary("arith.subf", one, x[0]), below = t_.binary("arith.addf", one, x[0]);
  const Val product = t_.binary("arith.mulf", above, below);
  const Val other = t_.unary("math.sqrt", product);
  return op.code == Opcode::acos ? t_.binary("math.atan2", other, x[0]) : t_.binary("math.atan2", x[0], other);
}
Val Emitter::expand_acos(const ir::Op& op, const Operands& x) { return expand_asin(op, x); }

// (m + m / (m + 1)) / 2 with m = e^|a| - 1.
Val Emitter::expand_sinh(const ir::Op& op, const Operands& x) {
  if (x[0].dtype != DType::f32) {
    const Val wide = convert(x[0], DType::f32);
    const Val r = expand_sinh(op, {wide});
    return convert(r, x[0].dtype);
  }
  const Val &a = x[0], one = t_.number(a.dtype, 1, a.shape), half = t_.number(a.dtype, 0.5, a.shape),
            zero = t_.number(a.dtype, 0, a.shape);
  const Val magnitude = t_.unary("math.absf", a);
  const Val m = expand_expm1(op, {magnitude});
  const Val below = t_.binary("arith.addf", m, one);
  const Val quotient = t_.binary("arith.divf", m, below);
  const Val sum = t_.binary("arith.addf", m, quotient);
  const Val near = t_.binary("arith.mulf", sum, half);
  // e^(|a| - ln 2) where m / (m + 1) would be infinite by infinite
  const Val lowered = t_.binary("arith.subf", magnitude, t_.number(a.dtype, std::numbers::ln2, a.shape));
  const Val far = t_.unary("math.exp", lowered);
  const Val is_near = t_.compare("olt", magnitude, t_.number(a.dtype, 20, a.shape));
  const Val r = t_.select(is_near, near, far);
  const Val minus = t_.unary("arith.negf", r);
  const Val negative = t_.compare("olt", a, zero), is_zero = t_.compare("oeq", a, zero);
  const Val with_sign = t_.select(negative, minus, r);
  return t_.select(is_zero, a, with_sign);
}

Val Emitter::expand_cosh(const ir::Op&, const Operands& x) {
  const Val ln2 = t_.number(x[0].dtype, std::numbers::ln2, x[0].shape);
  const Val minus = t_.unary("arith.negf", x[0]);
  const Val a = t_.binary("arith.subf", x[0], ln2), b = t_.binary("arith.subf", minus, ln2);
  const Val up = t_.unary("math.exp", a), down = t_.unary("math.exp", b);
  return t_.binary("arith.addf", up, down);
}

Val Emitter::expand_compare(const ir::Op& op, const Operands& x) {
  static const std::array<std::pair<Opcode, std::array<const char*, 3>>, 6> kPredicates = {
      {{Opcode::eq, {"oeq", "eq", "eq"}},
       {Opcode::ne, {"une", "ne", "ne"}},
       {Opcode::lt, {"olt", "slt", "ult"}},
       {Opcode::le, {"ole", "sle", "ule"}},
       {Opcode::gt, {"ogt", "sgt", "ugt"}},
       {Opcode::ge, {"oge", "sge", "uge"}}}};
  const auto* const p =
      std::find_if(kPredicates.begin(), kPredicates.end(), [&](const auto& q) { return q.first == op.code; });
  const DType t = x[0].dtype;
  if (t != DType::boolean) return t_.compare(p->second[is_float(t) ? 0 : is_signed_int(t) ? 1 : 2], x[0], x[1]);
  const Val yes = t_.constant(t, 1, x[0].shape);
  const bool first = op.code == Opcode::lt || op.code == Opcode::le;
  if (op.code == Opcode::eq || op.code == Opcode::ne) {
    const Val differ = t_.binary("arith.xori", x[0], x[1]);
    return op.code == Opcode::ne ? differ : t_.binary("arith.xori", differ, yes);
  }
  const Val a = first ? t_.binary("arith.xori", x[0], yes) : x[0];
  const Val b = first ? x[1] : t_.binary("arith.xori", x[1], yes);
  return t_.binary(op.code == Opcode::lt || op.code == Opcode::gt ? "arith.andi" : "arith.ori", a, b);
}

Val Emitter::expand_is_finite(const ir::Op&, const Operands& x) {
  const Val a = convert(x[0], DType::f32);
  const Val magnitude = t_.unary("math.absf", a);
  return t_.compare("olt", magnitude, t_.constant(DType::f32, 0x7f800000, a.shape));
}

Val Emitter::expand_not(const ir::Op&, const Operands& x) {
  return t_.binary("arith.xori", x[0], t_.integer(x[0].dtype, -1, x[0].shape));
}

// MLIR promises nothing of shifts by the width and more.
Val Emitter::expand_shift(const ir::Op& op, const Operands& x) {
  const Val &a = x[0], &by = x[1];
  const int width = bits(a.dtype);
  const std::string_view instruction = op.code == Opcode::shift_left            ? "arith.shli"
                                       : op.code == Opcode::shift_right_logical ? "arith.shrui"
                                                                                : "arith.shrsi";
  if (within(ranges_.of(op.operands[1]), 0, width - 1)) return t_.binary(instruction, a, by);
  const Val fits = t_.compare("ult", by, t_.integer(a.dtype, width, a.shape));
  const bool arithmetic = op.code == Opcode::shift_right_arithmetic;
  const Val safe = t_.select(fits, by, t_.integer(a.dtype, arithmetic ? width - 1 : 0, a.shape));
  const Val r = t_.binary(instruction, a, safe);
  return arithmetic ? r : t_.select(fits, r, t_.integer(a.dtype, 0, a.shape));
}

// By halves of 16 bits; narrower integers in 32.
Val Emitter::expand_mulhi(const ir::Op& op, const Operands& x) {
  const DType t = x[0].dtype;
  const int width = bits(t);
  if (width < 32) {
    const DType wide = is_signed_int(t) ? DType::i32 : DType::u32;
    const Val a = convert(x[0], wide), b = convert(x[1], wide);
    const Val product = t_.binary("arith.muli", a, b);
    const Val high = t_.binary("arith.shrui", product, t_.integer(wide, width, a.shape));
    return convert(high, t);
  }
  const Shape& s = x[0].shape;
  const Val sixteen = t_.integer(t, 16, s), mask = t_.integer(t, 0xffff, s);
  const Val al = t_.binary("arith.andi", x[0], mask), ah = t_.binary("arith.shrui", x[0], sixteen);
  const Val bl = t_.binary("arith.andi", x[1], mask), bh = t_.binary("arith.shrui", x[1], sixteen);
  const Val ll = t_.binary("arith.muli", al, bl), lh = t_.binary("arith.muli", al, bh),
            hl = t_.binary("arith.muli", ah, bl), hh = t_.binary("arith.muli", ah, bh);
  const Val carry = t_.binary("arith.shrui", ll, sixteen);
  const Val m = t_.binary("arith.addi", hl, carry);
  const Val m_low = t_.binary("arith.andi", m, mask), m_high = t_.binary("arith.shrui", m, sixteen);
  const Val n = t_.binary("arith.addi", lh, m_low);
  const Val n_high = t_.binary("arith.shrui", n, sixteen);
  const Val high = t_.binary("arith.addi", hh, m_high);
  Val r = t_.binary("arith.addi", high, n_high);
  if (op.code != Opcode::mulhi || !is_signed_int(t)) return r;
  const Val zero = t_.integer(t, 0, s);
  for (const int i : {0, 1}) {  // of signed numbers: less the other one where this one is negative
    const Val negative = t_.compare("slt", x[static_cast<size_t>(i)], zero);
    const Val less = t_.select(negative, x[static_cast<size_t>(1 - i)], zero);
    r = t_.binary("arith.subi", r, less);
  }
  return r;
}

// Mosaic counts bits in vectors of 32-bit integers.
Val Emitter::expand_bits(const ir::Op& op, const Operands& x) {
  const DType t = x[0].dtype;
  const Val unsigned_bits = {x[0].name, unsigned_of(bits(t)), x[0].shape};
  const Val wide = convert(unsigned_bits, DType::u32);
  const Val vector = wide.shape.empty() ? t_.broadcast(wide, {1, 1}) : wide;
  Val n = t_.unary(op.code == Opcode::clz ? "math.ctlz" : "math.ctpop", vector);
  if (op.code == Opcode::clz && bits(t) < 32)
    n = t_.binary("arith.subi", n, t_.integer(n.dtype, 32 - bits(t), n.shape));
  if (wide.shape.empty()) n = t_.extract(n);
  return convert(n, t);
}

Val Emitter::expand_select(const ir::Op&, const Operands& x) { return t_.select(x[0], x[1], x[2]); }

Val Emitter::expand_clamp(const ir::Op& op, const Operands& x) {
  const Val above = elementwise(op, Opcode::max, {x[1], x[0]});
  return elementwise(op, Opcode::min, {above, x[2]});
}

Val Emitter::expand_fma(const ir::Op&, const Operands& x) {
  const Val product = t_.binary("arith.mulf", x[0], x[1]);
  return t_.binary("arith.addf", product, x[2]);
}

}  // namespace tessera::tpu
