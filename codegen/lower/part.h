// The parts of lowering. Each emits one kind of code, over one Emission that they share; a call between parts names the
// part that is called. This file has the terms that all parts use, and Part, which gives each access to the others.
//
// Every tile value has a placement. *Lazy* values (element-wise ops, broadcasts, transposes, slices, loads of unwritten
// memory, ...) are index functions: elements_.of(v, coords) emits the code for one element, wherever it is needed;
// those that plan/keep.h chooses are evaluated once instead. *Scalars* live in one lane value, equal in all invocations
// of the group. Results of reductions, products, scans and control flow, and loads of memory that is written, are
// evaluated where they stand: into *registers*, spread over invocations by the schedule's layout, or into the *arena*.
// In the general form everything but scalars, constants and iotas lives in the arena. Read next: emission.h, which
// lists the parts.
#pragma once
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "codegen/lane/arena_allocator.h"
#include "codegen/lane/lane_builder.h"
#include "codegen/plan/plan.h"

namespace tessera::lowering {

/// One coordinate of an element. With an axis it is this invocation's element number `reg` along that axis.
struct Coord {
  Value v;
  int axis = kNoAxis;
  int reg = 0;
};
using Coords = std::vector<Coord>;
using Values = std::vector<Value>;

enum class Kind : uint8_t { lazy, scalar, registers, arena };

/// A piece of the arena holding (this unit's part of) a tile value.
struct Slot {
  int64_t offset = -1, bytes = 0;
  Value ref;
  DType dtype = DType::f32;
  Shape shape;            // extents held: the tile of a split axis, else all
  std::vector<int> axes;  // per dim, for the base of a split axis
  MemoryRange range;
};

/// Elements of a tile value in registers, by its axes' layout.
struct Registers {
  Values regs;
  // Of a sum that stays matrices (matrix_sums.h): those; its registers are what reads it here and now needs.
  Values sums = {};
  Values& held() { return sums.empty() ? regs : sums; }
  const Values& held() const { return sums.empty() ? regs : sums; }
};

/// Where a tile value is once it is made: nowhere (it is lazy), one lane value, registers, or a piece of the arena.
using Place = std::variant<std::monostate, Value, Registers, Slot>;

/// An element that a nest comes to.
struct NestPoint {
  Coords c;
  Value valid;            // none: always
  std::vector<int> regs;  // register per dim
};

struct Emission;
struct MatrixForm;
class LoopNests;
class Arena;
class Placement;
class Elements;
class RefWindows;
class Prefetch;
class AtomicEmitter;
class ReduceEmitter;
class RearrangeEmitter;
class DotEmitter;
class MatrixSums;
class PrintEmitter;
class ControlEmitter;

class Part {
 public:
  explicit Part(Emission& e);
  Part(const Part&) = delete;

 protected:
  const AxisPlan& plan(int a) const { return s_.plans[static_cast<size_t>(a)]; }
  const Shape& shape(Value v) const { return k_.type(v).shape; }
  bool uniform_group() const { return s_.group > 1; }
  Coord at(int64_t i) { return {b_.i32(i)}; }
  Value extent_value(const Extent& e, DType t);
  Value pushed_extent(const Extent& e, DType t);  // one more, whatever there is
  Value grid_size(size_t a) { return extent_value(k_.grid[a].size, DType::i32); }
  Value linear(const Coords& c, const Shape& shape);
  Coords unravel(Value e, const Shape& shape);

  Emission& e_;
  const ir::Kernel& k_;
  const Target& target_;
  const Axes& axes_;
  const Schedule& s_;
  const ParallelPlan& parallel_;
  ScalarAnalysis& scalars_;
  ir::Kernel& out_;
  LaneBuilder& b_;
  Values& pid_;
  Value &invocation_, &lane_;

  LoopNests& nests_;
  Arena& arena_;
  Placement& placement_;
  Elements& elements_;
  RefWindows& refs_;
  Prefetch& prefetch_;
  AtomicEmitter& atomics_;
  ReduceEmitter& reduces_;
  RearrangeEmitter& rearranges_;
  DotEmitter& dots_;
  MatrixSums& sums_;
  PrintEmitter& prints_;
  ControlEmitter& control_;
};

}  // namespace tessera::lowering
