// Intervals: bounds on the integers and bools of a dtype, and the bounds of each elementwise op's result. Arithmetic
// wraps in its dtype, and only this code decides when: a result that may wrap has the bounds of its dtype. Read next:
// ranges.h.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "engine/ir/kernel.h"

namespace tessera {

struct Interval {
  int64_t lo = 0, hi = 0;  // both included
  bool operator==(const Interval&) const = default;
};

/// What a value may be. Nothing: any value of its dtype, which is a float or u64.
using Bounds = std::optional<Interval>;

/// It may be v.
inline bool contains(const Bounds& b, int64_t v) { return !b || (b->lo <= v && v <= b->hi); }
/// It is at least lo, and at most hi.
inline bool within(const Bounds& b, int64_t lo, int64_t hi = INT64_MAX) { return b && b->lo >= lo && b->hi <= hi; }
/// Every value of the dtype.
Bounds values_of(DType t);
/// [lo, hi] if dtype t holds all of it, else values_of(t).
Bounds held(DType t, __int128 lo, __int128 hi);
/// Of an elementwise op's result. `operand` is its operands' dtype (for select that of operands 1 and 2, as for
/// reference::eval).
Bounds result_bounds(ir::Opcode op, DType operand, DType result, const std::vector<Bounds>& operands);
/// Of the counter of a for from `lower` to `upper`, in its iterations: stepping beyond i32 ends it.
inline Interval counter_bounds(const Interval& lower, const Interval& upper) {
  return {lower.lo, upper.hi - 1 > lower.lo ? upper.hi - 1 : lower.lo};
}
/// The add, sub or mul of integers of dtype t does not wrap.
bool never_wraps(ir::Opcode op, DType t, const Bounds& a, const Bounds& b);

}  // namespace tessera
