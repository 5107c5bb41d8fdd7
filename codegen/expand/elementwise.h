// The op table's elementwise rows: total on every input, as the rows' documentation and engine/ir/reference.h say.
// Values are in register form (sink.h). Read next: expand.h, the sequences.
#pragma once
#include <vector>

#include "codegen/expand/convert.h"
#include "engine/ir/kernel.h"
#include "engine/passes/interval.h"

namespace tessera::expand {

/// `op` on `a`, all of dtype `operand` (select: operands 1 and 2). `ranges` has one entry per operand.
V elementwise(ir::Opcode op, DType operand, DType result, const std::vector<V>& a, const std::vector<Bounds>& ranges);
/// The same before it is rounded or wrapped to the result's dtype.
V unrounded(ir::Opcode op, DType operand, DType result, const std::vector<V>& a, const std::vector<Bounds>& ranges);
/// Rows that relaxed code may compute on narrow floats which are not rounded yet, and whose results it need not round:
/// what they make of a number hardly changes with it.
bool takes_unrounded(ir::Opcode op);

}  // namespace tessera::expand
