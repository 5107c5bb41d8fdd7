// The op table's elementwise rows in SPIR-V: total on every input, as the rows' documentation and engine/ir/reference.h
// say. Values are in register form (function.h). Read next: expand.h for the transcendental rows.
#pragma once
#include <vector>

#include "codegen/spirv/function.h"
#include "engine/ir/kernel.h"
#include "engine/passes/interval.h"

namespace tessera::spirv {

constexpr Reg reg_of(DType t) {
  switch (t) {
    case DType::boolean: return Reg::boolean;
    case DType::i64:
    case DType::u64: return Reg::u64;
    case DType::f8e4m3fn:
    case DType::f8e5m2:
    case DType::f16:
    case DType::bf16:
    case DType::f32: return Reg::f32;
    case DType::f64: return Reg::f64;
    default: return Reg::u32;
  }
}

/// True if f32 <-> f16 may use the device's own conversion: it rounds to nearest even, with subnormals, infinities and
/// NaN.
inline bool native_f16(const Target& t) { return t.float16 && t.int16 && t.rte16 && t.preserve16; }

/// `op` on `a`, all of dtype `operand` (select: operands 1 and 2). `ranges` has one entry per operand.
V elementwise(ir::Opcode op, DType operand, DType result, const std::vector<V>& a, const std::vector<Bounds>& ranges);

// expand_bits.cpp: rows that depend on the dtype's own width. mulhi and the counts may leave the dtype's sign extension
// to normalize().
V mulhi(DType t, V a, V b);
V count_leading_zeros(DType t, V a);
V population_count(DType t, V a);
V nextafter(DType t, V from, V to);

/// The constant of dtype t with these bits, in register form.
V constant(Function& f, DType t, uint64_t bits);
/// Brings a u32 or f32 result back to what dtype t can hold: sign- or zero-extends, rounds to nearest even.
V normalize(V v, DType t);
/// Conversion between dtypes, as the row of convert.
V convert(V v, DType from, DType to);
/// The value's bits as it lies in memory, in u32 (zero-extended) or u64; and back. NaNs keep their bits where integer
/// code converts.
V memory_bits(V v, DType t);
V from_memory_bits(V raw, DType t);

}  // namespace tessera::spirv
