// Values of dtypes in registers: the form that a dtype has there, constants, conversions between dtypes, and the bits
// that lie in memory. Not arithmetic (sink.h). Read next: codegen/expand/elementwise.h, the rows that use these.
#pragma once
#include "codegen/expand/sink.h"
#include "engine/base/dtype.h"

namespace tessera::expand {

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

/// The constant of dtype t with these bits, in register form.
V constant(Sink& f, DType t, uint64_t bits);
/// Brings a u32 or f32 result back to what dtype t can hold: sign- or zero-extends, rounds to nearest even.
V normalize(V v, DType t);
/// Conversion between dtypes, as the row of convert.
V convert(V v, DType from, DType to);
/// The 16 bits of the bf16 next to an f32, in u32.
V bf16_bits(V v);
/// The value's bits as it lies in memory, in u32 (zero-extended) or u64; and back. NaNs keep their bits where integer
/// code converts.
V memory_bits(V v, DType t);
V from_memory_bits(V raw, DType t);

}  // namespace tessera::expand
