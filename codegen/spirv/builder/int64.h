// 64-bit integers on devices without shaderInt64: two 32-bit words in a uvec2, low word first, as in memory. Private to
// function.cpp, whose operators call it if Function::emulates_int64() holds. Everything is total, no loop is emitted,
// and shifts by constants are short.
#pragma once
#include "codegen/spirv/builder/function.h"

namespace tessera::spirv::int64 {

inline bool is_pair(const V& a) { return a.reg == Reg::u64 && function(a).emulates_int64(); }

V add(V a, V b);
V sub(V a, V b);
V mul(V a, V b);
V bitwise(spv::Op code, V a, V b);
V complement(V a);
V shift_left(V a, V amount);  // amount: a word or a pair, below 64
V shift_right(V a, V amount, bool arithmetic);
V less(V a, V b, bool or_equal);
V equal(V a, V b);
V select(V c, V a, V b);
V divide(V a, V b);  // b not 0
V divide_signed(V a, V b);
V extend(V word, bool is_signed);
V low(V a);
/// Rounds as the device's conversion of a word does.
V to_float(V a, Reg r, bool is_signed);
/// Truncates; in range.
V from_float(V a, bool is_signed);

}  // namespace tessera::spirv::int64
