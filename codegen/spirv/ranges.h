// Intervals of integer values, found while a kernel is emitted in order: what lets a division, remainder or shift drop
// its guard, and an index division become unsigned. What ops make of them is engine/passes/interval.h's.
#pragma once
#include <cstdint>
#include <vector>

#include "engine/passes/interval.h"

namespace tessera::spirv {

/// Both ends included. Values of u64 beyond INT64_MAX make the range unknown (lo > hi never happens).
struct Range {
  int64_t lo = INT64_MIN, hi = INT64_MAX;
  bool known = false;  // false: any value of the dtype
  Range() = default;
  Range(int64_t low, int64_t high, bool is_known) : lo(low), hi(high), known(is_known) {}
  Range(const Bounds& b) : known(b.has_value()) {
    if (b) lo = b->lo, hi = b->hi;
  }
  Bounds bounds() const { return known ? Bounds(Interval{lo, hi}) : Bounds(); }
  bool contains(int64_t v) const { return !known || (lo <= v && v <= hi); }
  bool nonnegative() const { return known && lo >= 0; }
  bool within(int64_t low, int64_t high) const { return known && lo >= low && hi <= high; }
};

/// Every value of the dtype.
inline Range full_range(DType t) { return values_of(t); }
/// Of an elementwise op's integer result, from its operands' ranges and dtype.
inline Range result_range(ir::Opcode op, DType operand, DType result, const std::vector<Range>& operands) {
  std::vector<Bounds> b;
  for (const Range& r : operands) b.push_back(r.bounds());
  return result_bounds(op, operand, result, b);
}

}  // namespace tessera::spirv
