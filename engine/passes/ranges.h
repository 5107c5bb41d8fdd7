// Bounds on the elements of integer and bool values, from constants, grid and workgroup sizes, loop bounds and
// arithmetic (interval.h). Passes, affine forms (codegen/plan/affine.h) and the SPIR-V emitter all use this analysis.
#pragma once
#include <vector>

#include "engine/base/function.h"
#include "engine/passes/interval.h"

namespace tessera::passes {

/// Dispatches differ in it (LaneInfo::steps_extent): it is from 0 to the number of all steps.
inline bool tells_steps(const ir::LaneInfo& lane, int64_t extent) {
  return lane.steps_extent >= 0 && (extent == lane.steps_extent || extent == int64_t{lane.steps_extent} + 1);
}

/// Bounds of op's single result, of type t; `of` gives those of its operands.
Bounds bounds_of_result(const ir::Kernel& k, const ir::Op& op, const ir::Type& t, FunctionRef<Bounds(ir::Value)> of);

/// Bounds of each value, computed once, when a walk reaches its definition.
class Ranges {
 public:
  explicit Ranges(const ir::Kernel& k) : k_(k) {}
  Bounds of(ir::Value v) const;
  /// Bounds of a single result of type t; `op`'s operands have theirs.
  Bounds compute(const ir::Op& op, const ir::Type& t) const {
    return bounds_of_result(k_, op, t, [this](ir::Value v) { return of(v); });
  }
  void set(ir::Value v, Bounds r);
  /// The add, sub or mul does not wrap in dtype t, for all elements.
  bool exact(ir::Opcode code, ir::Value a, ir::Value b, DType t) const { return never_wraps(code, t, of(a), of(b)); }

 private:
  const ir::Kernel& k_;
  std::vector<Bounds> known_;
};

}  // namespace tessera::passes
