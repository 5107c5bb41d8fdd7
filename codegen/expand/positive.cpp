#include "codegen/expand/positive.h"

#include <algorithm>

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
  switch (op->code) {
    case Opcode::abs:
    case Opcode::exp:
    case Opcode::exp2:
    case Opcode::logistic: return Sign::not_negative;
    case Opcode::mul:
      if (op->operands[0].index == op->operands[1].index) return Sign::not_negative;
      return std::min({operand(0), operand(1), Sign::not_negative});
    case Opcode::div:  // by -0 is -inf
      return operand(1) == Sign::positive ? std::min(operand(0), Sign::not_negative) : Sign::any;
    case Opcode::add: {  // not less than either
      const Sign a = operand(0), b = operand(1);
      return std::min(a, b) == Sign::any ? Sign::any : std::max(a, b);
    }
    case Opcode::max: return std::max(operand(0), operand(1));
    case Opcode::min: return std::min(operand(0), operand(1));
    case Opcode::select: return std::min(operand(1), operand(2));
    default: return Sign::any;
  }
}

}  // namespace

Sign sign_of(const ir::Kernel& k, ir::Value v) { return of(k, v, kDepth); }

}  // namespace tessera::expand
