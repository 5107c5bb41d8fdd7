// Values as bits: reinterpreted at other widths, packed several to a word, rounded by random bits.
// Read next: ops.h, whose bitcast() this extends; random.h for random bits.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "engine/front/ops.h"

namespace tessera {

/// The same bits as another dtype along one axis: the size there is multiplied or divided by the ratio of the widths,
/// the lowest bits first. pltpu.bitcast(x, dtype) is bitcast_along(x, dtype, -2).
Value bitcast_along(Operand x, DType dtype, int64_t axis);

/// pltpu.pack_elementwise: one unsigned integer of the operands' width per element, which holds the operands' elements
/// as packed_dtype, the first in the lowest bits. f32 become bf16, rounded to nearest even; integers are cut to
/// packed_dtype's width.
Value pack_elementwise(std::vector<Operand> parts, DType packed_dtype);
/// pltpu.unpack_elementwise: part `index` of packed words, converted to unpacked_dtype, which is as wide as the words.
Value unpack_elementwise(Operand x, int index, DType packed_dtype, DType unpacked_dtype);

/// x (f32) rounded to bf16 up or down, up as often as x is near to the upper neighbour: the lower 16 of random_bits
/// (u32, of x's shape) are added to x's bits, then the lower 16 bits are dropped. Infinities stay, NaN stays NaN. A
/// TPU's own choice of random bits is not documented.
Value stochastic_round(Operand x, Operand random_bits, DType dtype);

/// The row-major position of each element of `shape` as a 64-bit number: its upper and its lower halves, u32
/// (jax.random's counters).
std::pair<Value, Value> iota_2x32(Shape shape, Loc loc = Loc::here());

// -- accepted for the sake of kernels that have them; they do nothing
void delay(Operand nanoseconds);  ///< pl.delay: kernels' results hang on no clock
/// plgpu.debug_barrier: barriers are placed by the compiler
void debug_barrier(Loc loc = Loc::here());
/// pltpu.trace_value: does nothing, since there is no profiler
void trace_value(const std::string& label, Operand value);
/// plgpu.elementwise_inline_asm: always a TraceError. Assembly is one vendor's.
[[noreturn]] void elementwise_inline_asm(const std::string& assembly, Loc loc = Loc::here());

}  // namespace tessera
