#include "codegen/expand/positive.h"

#include <algorithm>
#include <initializer_list>

#include "engine/ir/reference.h"

namespace tessera::expand {
namespace {

using ir::Opcode;

constexpr int kDepth = 12;  // of ops that are looked at, so that no kernel takes long

Sign of(const ir::Kernel& k, ir::Value v, int depth) {
  const DType t = k.type(v).dtype;
  if (!is_float(t) || depth == 0) return Sign::any;
  if (const auto bits = ir::constant_bits(k, v)) {
    const double x = reference::to_double(t, *bits);
    return x >= 0x1p-126 ? Sign::positive : x >= 0 ? Sign::not_negative : Sign::any;
  }
  const ir::Op* op = k.def(v);
  if (!op) return Sign::any;
  const auto operand = [&](size_t i) { return of(k, op->operands[i], depth - 1); };
  const auto is = [&](std::initializer_list<Opcode> codes) {
    return std::find(codes.begin(), codes.end(), op->code) != codes.end();
  };
  if (is({Opcode::abs, Opcode::exp, Opcode::exp2, Opcode::logistic})) return Sign::not_negative;
  if (is({Opcode::mul, Opcode::div, Opcode::add, Opcode::max, Opcode::min})) {
    const bool square = op->code == Opcode::mul && op->operands[0].index == op->operands[1].index;
    if (square) return Sign::not_negative;
    const Sign a = operand(0), b = operand(1);
    if (op->code == Opcode::max) return std::max(a, b);
    if (op->code == Opcode::min) return std::min(a, b);
    if (std::min(a, b) == Sign::any) return Sign::any;
    if (op->code == Opcode::add) return std::max(a, b);                    // not less than either
    if (op->code == Opcode::div && b != Sign::positive) return Sign::any;  // by -0 it may be -inf
    return Sign::not_negative;
  }
  if (op->code != Opcode::select) return Sign::any;
  const Sign a = operand(1), b = operand(2);
  return std::min(a, b);
}

}  // namespace

Sign sign_of(const ir::Kernel& k, ir::Value v) { return of(k, v, kDepth); }

}  // namespace tessera::expand
