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
    std::vector<lowering::Kept> kept(k.values.size());
    for (bool chosen = general;;) {
      axes = std::make_unique<Axes>(k, resident);
      schedule = lowering::make_schedule(k, *axes, resident, parallel, scalars, target, general, smaller, kept);
      if (!chosen) {
        chosen = true;
        kept = lowering::choose_kept(k, [&](ir::Value v) { return keeping(k, target, v); });
        if (std::any_of(kept.begin(), kept.end(), [](const lowering::Kept& x) { return x.yes; })) schedule = lowering::make_schedule(k, *axes, resident, parallel, scalars, target, general, smaller, kept);
      }
      std::vector<size_t> failed;
      for (size_t i = 0; i < resident.size(); ++i)
        if (resident[i] && schedule.residency[i] != lowering::Residency::registers) failed.push_back(i);
      if (failed.empty()) return;
      const bool others = target.kind == Target::Kind::gpu && std::any_of(failed.begin(), failed.end(), [&](size_t i) { return !ahead[i]; });
      for (size_t i : failed)
        if (!others || !ahead[i]) resident[i] = false;
    }
  }
  /// What lacks an axis that would be split is computed by every slice; what is read at other positions and is large leaves shared memory; and a
  /// program that one invocation could have run takes a workgroup.
  lowering::Keeping keeping(const ir::Kernel& k, const Target& target, ir::Value v) const;
};

lowering::Keeping Plan::keeping(const ir::Kernel& k, const Target& target, ir::Value v) const {
  const ir::Type& t = k.type(v);
  const std::vector<int> dims = axes->of(v);
  const bool lacks_split = std::any_of(schedule.split_axes.begin(), schedule.split_axes.end(), [&](int a) { return std::find(dims.begin(), dims.end(), a) == dims.end(); });
  const bool mixed = std::any_of(dims.begin(), dims.end(), [&](int a) { return a != lowering::kNoAxis && axes->axes[static_cast<size_t>(a)].mixed; });
  return {mixed, lacks_split || (mixed && (schedule.group == 1 || num_elements(t.shape) * ir::arena_stride(t.dtype) > target.shared_bytes / 2))};
}

ir::Kernel emit_lanes(const ir::Kernel& k, const Target& target, Plan& plan, std::vector<std::string>& kept) {
  ir::Kernel out;
  lowering::Lowering engine(k, target, *plan.axes, plan.schedule, plan.parallel, plan.scalars, out);
  engine.run();
  plan.misfits = engine.misfits();
  plan.schedule.ahead_notes = engine.ahead_notes();
  kept.clear();
  engine.explain_kept(kept);
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
  std::vector<std::string> kept;
  ir::Kernel out = emit_lanes(k, target, plan, kept);
  // What does not fit shared memory lives in a global arena instead, all of it: one budget, one decision.
  if (out.lane.shared_bytes > target.shared_bytes) {
    plan.schedule.scratch_arena = true;
    plan.schedule.notes.push_back("the arena needs " + std::to_string(out.lane.shared_bytes) + " B of shared memory but the target has " + std::to_string(target.shared_bytes) + ": it lies in global memory");
    out = emit_lanes(k, target, plan, kept);
  }
  if (plan.misfits > 0)
    plan.schedule.notes.push_back(std::to_string(plan.misfits) + " values with a layout live in the arena: a nest that reads them finds two of its axes on the same invocations, or one without a layout");
  plan.schedule.notes.insert(plan.schedule.notes.end(), kept.begin(), kept.end());
  if (explain) *explain = lowering::explain(k, target, *plan.axes, plan.schedule, plan.parallel, plan.scalars, out);
  return out;
}

}  // namespace tessera
