// The elementwise rows as test cases (every op on every dtype it takes), and how far a device's answer is from the
// reference: integers, bools and exact float ops must agree bit for bit; others within the row's ulp of the reference
// in double. f32 and f64 subnormals may be flushed, in and out, to a zero of the same sign (those of f16 and the 8-bit
// floats may not: they are normal f32).
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "engine/ir/reference.h"

namespace tessera::test {
using ir::Opcode;

struct Case {
  Opcode op;
  DType operand, result;
};

inline std::vector<Case> cases_of(Opcode op) {
  const ir::OpInfo& row = ir::info(op);
  std::vector<Case> out;
  for (int d = 0; d < kNumDTypes; ++d) {
    const auto t = static_cast<DType>(d);
    if (!ir::takes(row.operands, t)) continue;
    if (row.result == ir::ResultRule::same) out.push_back({op, t, t});
    if (row.result == ir::ResultRule::pred) out.push_back({op, t, DType::boolean});
    for (int r = 0; row.result == ir::ResultRule::other && r < kNumDTypes; ++r) {
      const auto to = static_cast<DType>(r);
      if (op == Opcode::bitcast && (bits(t) != bits(to) || t == DType::boolean)) continue;
      if (t != to) out.push_back({op, t, to});
    }
  }
  return out;
}

inline bool is_nan_bits(DType t, uint64_t b) { return std::isnan(reference::to_double(t, b)); }
inline double least_normal(DType t) { return std::ldexp(1.0, float_format(t).least_exponent); }
inline uint64_t sign_mask(DType t) { return uint64_t{1} << (bits(t) - 1); }
inline bool flushable(DType t) { return is_float(t) && float_format(t).least_exponent <= -126; }
inline bool subnormal(DType t, uint64_t b) {
  return is_float(t) && std::fabs(reference::to_double(t, b)) < least_normal(t) && (b & ~sign_mask(t)) != 0;
}
inline uint64_t flush(DType t, uint64_t b) { return flushable(t) && subnormal(t, b) ? b & sign_mask(t) : b; }

inline double ulp_of(DType t, double x) {
  const int digits = float_format(t).mantissa + 1;
  int e = 0;
  std::frexp(std::max(std::fabs(x), least_normal(t)), &e);
  return std::ldexp(1.0, e - digits);
}

/// How far `got` is from what the reference says, in ulps of the result; 0 if right. Infinity if it is no neighbour at
/// all. Relaxed code may give either of two zeros where the row says so.
inline double device_distance(const Case& c, const uint64_t* operands, int arity, uint64_t got, bool relaxed = false) {
  const auto zero = [&](uint64_t b) { return (flush(c.result, b) & ~sign_mask(c.result)) == 0; };
  const auto one = [&](const uint64_t* a) -> double {
    const uint64_t want = reference::eval(c.op, c.operand, c.result, a);
    if (want == got) return 0;
    if (!is_float(c.result)) return HUGE_VAL;
    if (is_nan_bits(c.result, want)) return is_nan_bits(c.result, got) && c.op != Opcode::bitcast ? 0 : HUGE_VAL;
    if (flush(c.result, want) == flush(c.result, got) && c.op != Opcode::bitcast) return 0;
    if (is_nan_bits(c.result, got)) return HUGE_VAL;
    if (relaxed && !ir::info(c.op).relaxed_doc.empty() && zero(want) && zero(got)) return 0;
    double exact = reference::to_double(c.result, want);
    // In double where the reference has it: f32's rounding of its own answer is not the device's error.
    if (c.result == c.operand && c.result != DType::f64 && ir::info(c.op).ulp > 0) {
      uint64_t wide[3];
      for (int i = 0; i < arity; ++i)
        wide[i] =
            c.op == Opcode::select && i == 0 ? a[i] : std::bit_cast<uint64_t>(reference::to_double(c.operand, a[i]));
      exact = std::bit_cast<double>(reference::eval(c.op, DType::f64, DType::f64, wide));
    }
    double value = reference::to_double(c.result, got);
    // infinity stands for the next power of two
    const double top = std::ldexp(1.0, c.result == DType::f16 || c.result == DType::f8e5m2 ? 16 : 128);
    if (std::isinf(value) && c.result != DType::f64 && std::isfinite(exact)) value = std::copysign(top, value);
    if (std::isinf(exact) && c.result != DType::f64 && std::isfinite(value)) exact = std::copysign(top, exact);
    if (std::isinf(exact) || std::isinf(value)) return HUGE_VAL;
    const bool zeros = zero(want) && zero(got);
    if ((zeros || (exact != 0 && value != 0)) && std::signbit(exact) != std::signbit(value)) return HUGE_VAL;
    return std::fabs(value - exact) / ulp_of(c.result, exact);
  };
  double best = one(operands);
  if (c.op == Opcode::fma && best != 0) {
    // Fused or not: the product may have been rounded (for narrow floats to f32) before the sum.
    const DType inner = c.operand == DType::f64 ? DType::f64 : DType::f32;
    uint64_t a[3];
    for (int i = 0; i < 3; ++i) a[i] = reference::eval(Opcode::convert, c.operand, inner, &operands[i]);
    const uint64_t sum[] = {reference::eval(Opcode::mul, inner, inner, a), a[2]};
    const uint64_t apart = reference::eval(Opcode::add, inner, inner, sum);
    const uint64_t want = inner == c.result ? apart : reference::eval(Opcode::convert, inner, c.result, &apart);
    if (flush(c.result, want) == flush(c.result, got) || (is_nan_bits(c.result, want) && is_nan_bits(c.result, got)))
      return 0;
  }
  if (best == 0 || !flushable(c.operand)) return best;
  // Each subnormal operand may have been taken as zero.
  for (int mask = 1; mask < 1 << arity; ++mask) {
    uint64_t a[3];
    for (int i = 0; i < arity; ++i)
      a[i] = mask >> i & 1 && !(c.op == Opcode::select && i == 0) ? flush(c.operand, operands[i]) : operands[i];
    best = std::min(best, one(a));
  }
  return best;
}

/// How many ulps a device may be off, in relaxed code for GPUs or strict code.
inline double allowed_distance(const Case& c, bool relaxed = false) {
  const double ulp = !is_float(c.result) ? 0 : relaxed ? ir::info(c.op).relaxed_ulp : ir::info(c.op).ulp;
  return is_narrow_float(c.result) ? std::min(ulp, 1.0) : ulp;  // a rounded f32 result: at most the wrong neighbour
}

}  // namespace tessera::test
