// The reference arithmetic: one total function per elementwise op, on the bits of elements. The interpreter, the
// constant folder and the lane-level interpreter all call these, so they cannot disagree. Floats narrower than f32
// compute in float and round once to nearest even; their transcendental functions and those of f32 compute in double
// and round once (narrow_math.h has vector code for arrays); those of f64 are the C library's. Nothing is flushed:
// subnormal operands and results are kept.
#pragma once
#include <cstdint>

#include "engine/base/number.h"
#include "engine/ir/kernel.h"

namespace tessera::reference {

/// The result's bits (zero-extended) of elementwise `op` on operand bits. `operand` is the operands' dtype (for select
/// that of operands 1 and 2), `result` the result's. Never undefined: see the rows of ops.def. InternalError if the op
/// is not defined for the dtypes.
uint64_t eval(ir::Opcode op, DType operand, DType result, const uint64_t* operands);

/// eval() over n elements that lie one after another in memory, size_bytes(dtype) apart (the first operand of select is
/// bool). `out` may be one of the operands if its elements have the same size, else it must not overlap them.
void eval_array(ir::Opcode op, DType operand, DType result, const void* const* operands, void* out, int64_t n);

/// The function behind eval() and eval_array(), to look it up once outside a hot loop; null if the op is not defined
/// for the dtypes.
using ScalarFunction = uint64_t (*)(const uint64_t* operands);
using ArrayFunction = void (*)(const void* const* operands, void* out, int64_t n);
ScalarFunction scalar_function(ir::Opcode op, DType operand, DType result);
ArrayFunction array_function(ir::Opcode op, DType operand, DType result);

/// The lane level's dot4: c + the products of the four elements in a and in b, modulo 2^32.
uint32_t dot4(uint32_t a, bool a_signed, uint32_t b, bool b_signed, uint32_t c);

/// The value that leaves every element of dtype t unchanged where `combiner` (a TESSERA_COMBINER of ops.def) combines
/// it with one, as bits.
uint64_t identity(ir::Opcode combiner, DType t);

}  // namespace tessera::reference
