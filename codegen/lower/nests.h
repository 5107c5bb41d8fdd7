// LoopNests: the loops over the elements of one root (a store, a reduction's result, ...). By layout: each coordinate
// is tagged with its axis and register, so that values in registers can be read. Or flat: elements are dealt to
// invocations in turn.
#pragma once
#include <map>
#include <set>

#include "codegen/lower/part.h"
#include "engine/base/function.h"

namespace tessera::lowering {

class LoopNests : public Part {
 public:
  using Part::Part;
  /// Emits what all nests need of the invocation's index: its place along each kind of axis. The first of all.
  void prepare();
  bool fits(const std::vector<int>& axes) const;
  /// Calls body once per element of the shape that this invocation owns. needs_layout: registers will be read; else
  /// `rolled` makes loops over an invocation's elements.
  void each(const Shape& shape, const std::vector<int>& axes, bool needs_layout, bool effects,
            FunctionRef<void(const NestPoint&)> body, bool rolled = false);
  void by_layout(const Shape& shape, const std::vector<int>& axes, bool effects,
                 FunctionRef<void(const NestPoint&)> body, bool rolled = false);
  void flat(const Shape& shape, const std::vector<int>& axes, FunctionRef<void(const NestPoint&)> body);
  /// Loops over the strips of the dims' axes, whose numbers are left in `strip` (none where there is one).
  void each_strip(const std::vector<int>& axes, std::vector<Value>& strip, FunctionRef<void()> body);
  void each_strip(const std::vector<int>& axes, const std::vector<size_t>& dims, std::vector<Value>& strip,
                  FunctionRef<void()> body);
  /// A sequential loop from 0 to n, unrolled when short; no barriers inside unless it is uniform.
  void counted(int64_t n, FunctionRef<void(Value)> body);
  Values counted(int64_t n, const Values& init, FunctionRef<Values(Value, const Values&)> body);
  /// Whether the parts of these axes that this unit of work has end inside the axes. No value if every unit's do, or
  /// none's.
  Value whole_tiles(const std::vector<int>& axes);
  /// Emits body, in which parts of the axes need no test.
  Values with_whole_tiles(const std::vector<int>& axes, FunctionRef<Values()> body);
  /// First element of this unit's part of an axis, i32.
  Value tile_base(int axis);
  void set_tile_base(int axis, Value v);
  /// The bits of an invocation's number that its place along these axes takes.
  int invocation_bits(const std::vector<int>& axes) const;
  /// The condition that this invocation is the one that stores where several hold the same element (none: always).
  Value first_invocation(int used_bits);
  /// Coordinate of register r of strip `strip` along an axis of extent n, clamped into range; `valid` receives the test
  /// if one is needed.
  Coord axis_coord(int axis, int64_t n, Value strip, int r, Value& valid);
  Value invocation_start(const AxisPlan& p);  ///< of the invocation's first register, along the tile
  /// min(e, n - 1). Registers that are neighbours in memory stay neighbours where the end does not part them, so that
  /// one load can bring them.
  Value clamp_along(Value e, Value n, int64_t divisor, int axis, int reg);

 private:
  /// Which of its elements along an axis an invocation is at: a register of a strip. `within`, if it is there, counts
  /// the elements of a vector, and reg is 0.
  struct OwnElement {
    Value strip;
    int reg = 0;
    Value within;
  };
  /// The same with a plan of its own.
  Coord axis_coord(const AxisPlan& p, int axis, int64_t n, const OwnElement& own, Value& valid);
  Value invocation_coord(const AxisPlan& p);

  std::map<std::pair<int, int>, Value> coords_;
  Values tile_base_;     // per axis (split axes only)
  std::set<int> whole_;  // axes whose part is known to end inside of them
};

/// All combinations of registers of some dims, the last fastest.
template <class F> void each_register(const std::vector<int>& counts, const F& f) {
  std::vector<int> r(counts.size(), 0);
  for (;;) {
    f(r);
    size_t i = counts.size();
    while (i-- > 0) {
      if (++r[i] < counts[i]) break;
      r[i] = 0;
    }
    if (i == SIZE_MAX) return;
  }
}

}  // namespace tessera::lowering
