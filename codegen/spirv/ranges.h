// Intervals of integer values, found while a kernel is emitted in order: what lets a division, remainder or shift drop its guard, and an
// index division become unsigned. Only what is certain: an operation that may wrap gives the whole range of its dtype.
#pragma once
#include <cstdint>
#include <vector>

#include "engine/ir/kernel.h"

namespace tessera::spirv {

/// Both ends included. Values of u64 beyond INT64_MAX make the range unknown (lo > hi never happens).
struct Range {
  int64_t lo = INT64_MIN, hi = INT64_MAX;
  bool known = false;  // false: any value of the dtype
  bool contains(int64_t v) const { return !known || (lo <= v && v <= hi); }
  bool nonnegative() const { return known && lo >= 0; }
  bool within(int64_t low, int64_t high) const { return known && lo >= low && hi <= high; }
};

/// Every value of the dtype.
Range full_range(DType t);
/// [lo, hi] if every value of it fits dtype t, else full_range(t).
Range range_in(DType t, __int128 lo, __int128 hi);
/// Of an elementwise op's integer result, from its operands' ranges and dtype.
Range result_range(ir::Opcode op, DType operand, DType result, const std::vector<Range>& operands);

}  // namespace tessera::spirv
