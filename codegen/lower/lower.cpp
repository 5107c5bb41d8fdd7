// Tile level to lane level: plan, then emit.
#include <memory>

#include "codegen/compile.h"
#include "codegen/lower/explain.h"
#include "codegen/lower/lowering.h"
#include "engine/ir/compact.h"

namespace tessera {
namespace {
using lowering::Axes;
using lowering::Schedule;

struct Plan {
  lowering::ScalarAnalysis scalars;
  lowering::ParallelPlan parallel;
  std::vector<bool> resident;
  std::unique_ptr<Axes> axes;
  Schedule schedule;

  Plan(const ir::Kernel& k, const Target& target, bool general) : scalars(k), parallel(lowering::plan_parallel(k, scalars)), resident(lowering::resident_candidates(k)) {
    if (general) resident.assign(resident.size(), false);
    // A Ref that does not get registers no longer ties its dims to the values': schedule again without it.
    for (;;) {
      axes = std::make_unique<Axes>(k, resident);
      schedule = lowering::make_schedule(k, *axes, resident, parallel, scalars, target, general);
      bool settled = true;
      for (size_t i = 0; i < resident.size(); ++i)
        if (resident[i] && schedule.residency[i] != lowering::Residency::registers) resident[i] = settled = false;
      if (settled) return;
    }
  }
};

ir::Kernel emit_lanes(const ir::Kernel& k, const Target& target, Plan& plan) {
  ir::Kernel out;
  lowering::Lowering engine(k, target, *plan.axes, plan.schedule, plan.parallel, plan.scalars, out);
  engine.run();
  return out;
}

ir::Kernel lower_as(const ir::Kernel& k, const Target& target, bool general, std::string* explain) {
  Plan plan(k, target, general);
  ir::Kernel out = emit_lanes(k, target, plan);
  // What does not fit shared memory lives in a global arena instead, all of it: one budget, one decision.
  if (out.lane.shared_bytes > target.shared_bytes) {
    plan.schedule.scratch_arena = true;
    plan.schedule.notes.push_back("the arena needs " + std::to_string(out.lane.shared_bytes) + " B of shared memory but the target has " + std::to_string(target.shared_bytes) + ": it lies in global memory");
    out = emit_lanes(k, target, plan);
  }
  if (explain) *explain = lowering::explain(k, target, *plan.axes, plan.schedule, plan.parallel, plan.scalars, out);
  return out;
}
}  // namespace

ir::Kernel lower(const ir::Kernel& source, const Target& target, const CompileOptions& options, std::string* explain) {
  ir::Kernel k = source;
  ir::compact(k);
  ir::Kernel out;
  if (options.general) {
    out = lower_as(k, target, true, explain);
  } else {
    // The fast form keeps values in registers by layout; where a use turns out not to fit its value's layout, the general form is right.
    try {
      out = lower_as(k, target, false, explain);
    } catch (const InternalError& e) {
      if (options.strict) throw;
      out = lower_as(k, target, true, explain);
      if (explain) *explain += std::string("  general form, because: ") + e.what() + "\n";
    }
  }
  return out;
}

}  // namespace tessera
