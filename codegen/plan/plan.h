// The plan of one kernel: everything that is decided before an op is emitted. lower() makes it, emits by it, and
// explains it. Read next: schedule.h, parallel.h, axes.h, keep.h.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "codegen/plan/affine.h"
#include "codegen/plan/axes.h"
#include "codegen/plan/parallel.h"
#include "codegen/plan/schedule.h"
#include "codegen/program/target.h"
#include "engine/ir/kernel.h"

namespace tessera::lowering {

struct Plan {
  ScalarAnalysis scalars;
  ParallelPlan parallel;
  std::vector<bool> resident;  // per body argument: whether it may live in registers
  std::unique_ptr<Axes> axes;
  Schedule schedule;

  /// k outlives it. `with_atomics`: what expand_atomics returned. `smaller`, `relaxed`: see
  /// lower().
  Plan(const ir::Kernel& k, const Target& target, bool general, int smaller, bool relaxed,
       const std::optional<ParallelPlan>& with_atomics);
  Plan(const Plan&) = delete;  // axes refers to resident
};

/// Arguments of the body that are private scratch and get, whole, what a load from an array brings: what copies became.
std::vector<bool> loaded_directly(const ir::Kernel& k);

}  // namespace tessera::lowering
