// Tile level to lane level: plan, then emit.
#include <algorithm>
#include <memory>

#include "codegen/compile.h"
#include "codegen/lower/atomics.h"
#include "codegen/lower/explain.h"
#include "codegen/lower/indexed.h"
#include "codegen/lower/lowering.h"
#include "codegen/lower/scopes.h"
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
  int misfits = 0;  // values in the arena because of a nest without a layout

  Plan(const ir::Kernel& k, const Target& target, bool general, int smaller, const std::optional<lowering::ParallelPlan>& with_atomics) : scalars(k), parallel(lowering::plan_parallel(k, scalars, target)), resident(lowering::resident_candidates(k)) {
    if (with_atomics) {
      parallel.axes = with_atomics->axes;
      parallel.concurrent = with_atomics->concurrent;
      for (size_t i = 0; i < k.blocks.size(); ++i) parallel.commuting[i] = with_atomics->commuting[i] && with_atomics->concurrent[i];
    }
    if (general) resident.assign(resident.size(), false);
    // Where programs may share a block, only what a program stores may be written.
    for (size_t i = 0; i < k.blocks.size() && parallel.declared; ++i) resident[i] = resident[i] && lowering::always_stored_whole(k, static_cast<int>(i));
    // A Ref that does not get registers no longer ties its dims to the values': schedule again without it. What a copy loads ahead may only have
    // failed with the buffer that it moves on to, so on GPUs it gets another try.
    const std::vector<bool> ahead = lowering::loaded_directly(k);
    for (;;) {
      axes = std::make_unique<Axes>(k, resident);
      schedule = lowering::make_schedule(k, *axes, resident, parallel, scalars, target, general, smaller);
      std::vector<size_t> failed;
      for (size_t i = 0; i < resident.size(); ++i)
        if (resident[i] && schedule.residency[i] != lowering::Residency::registers) failed.push_back(i);
      if (failed.empty()) return;
      const bool others = target.kind == Target::Kind::gpu && std::any_of(failed.begin(), failed.end(), [&](size_t i) { return !ahead[i]; });
      for (size_t i : failed)
        if (!others || !ahead[i]) resident[i] = false;
    }
  }
};

ir::Kernel emit_lanes(const ir::Kernel& k, const Target& target, Plan& plan) {
  ir::Kernel out;
  lowering::Lowering engine(k, target, *plan.axes, plan.schedule, plan.parallel, plan.scalars, out);
  engine.run();
  plan.misfits = engine.misfits();
  plan.schedule.ahead_notes = engine.ahead_notes();
  return out;
}

}  // namespace

ir::Kernel lower(const ir::Kernel& source, const Target& target, const CompileOptions& options, std::string* explain, int smaller) {
  ir::Kernel k = source;
  lowering::expand_updates(k);
  ir::compact(k);
  const std::optional<lowering::ParallelPlan> with_atomics = lowering::expand_atomics(k, target);
  if (with_atomics) ir::compact(k);
  Plan plan(k, target, options.general, smaller, with_atomics);
  ir::Kernel out = emit_lanes(k, target, plan);
  // What does not fit shared memory lives in a global arena instead, all of it: one budget, one decision.
  if (out.lane.shared_bytes > target.shared_bytes) {
    plan.schedule.scratch_arena = true;
    plan.schedule.notes.push_back("the arena needs " + std::to_string(out.lane.shared_bytes) + " B of shared memory but the target has " + std::to_string(target.shared_bytes) + ": it lies in global memory");
    out = emit_lanes(k, target, plan);
  }
  if (plan.misfits > 0)
    plan.schedule.notes.push_back(std::to_string(plan.misfits) + " values with a layout live in the arena: a nest that reads them finds two of its axes on the same invocations, or one without a layout");
  if (explain) *explain = lowering::explain(k, target, *plan.axes, plan.schedule, plan.parallel, plan.scalars, out);
  return out;
}

}  // namespace tessera
