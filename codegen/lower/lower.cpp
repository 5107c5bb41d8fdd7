#include "codegen/lower/lower.h"

#include <optional>
#include <vector>

#include "codegen/lower/emission.h"
#include "codegen/plan/expand_atomics.h"
#include "codegen/plan/explain.h"
#include "codegen/plan/indexed.h"
#include "codegen/plan/plan.h"
#include "engine/ir/compact.h"

namespace tessera {
namespace {

// What only the emitted kernel tells, as lines for explain.
struct Remarks {
  int spills = 0;  // values in the arena because of a nest without a layout
  std::vector<std::string> kept;
};

ir::Kernel emit_lanes(const ir::Kernel& k, const Target& target, lowering::Plan& plan, Remarks& remarks) {
  ir::Kernel out;
  lowering::Emission emission(k, target, plan, out);
  emission.units.run();
  plan.schedule.prefetch_remarks = emission.prefetch.remarks();
  remarks = {emission.placement.spills(), {}};
  emission.placement.explain_kept(remarks.kept);
  emission.sums.explain(remarks.kept);
  return out;
}

}  // namespace

ir::Kernel lower(const ir::Kernel& source, const Target& target, bool general, int smaller, std::string* explain,
                 bool relaxed) {
  ir::Kernel k = source;
  lowering::expand_updates(k);
  ir::compact(k);
  const std::optional<lowering::ParallelPlan> with_atomics = lowering::expand_atomics(k, target);
  if (with_atomics) ir::compact(k);
  lowering::Plan plan(k, target, general, smaller, relaxed, with_atomics);
  std::vector<std::string>& lines = plan.schedule.remarks;
  Remarks remarks;
  ir::Kernel out = emit_lanes(k, target, plan, remarks);
  const lowering::DotForm form = plan.schedule.wide_dot;
  // What saves barriers takes room. Where there is none, one after another is left out.
  const bool gpu = target.kind == Target::Kind::gpu, matrices = form == lowering::DotForm::matrix,
             staged = matrices || form == lowering::DotForm::staged;
  const auto too_large = [&](const ir::Kernel& lanes) {
    const int64_t barriers = lanes.lane.tensors.empty() ? 0 : lanes.lane.program_bytes;
    return lanes.lane.shared_bytes + barriers > target.shared_bytes;
  };
  for (const auto& [does, saves] : {std::pair{gpu, &lowering::Schedule::slots_apart},
                                    {staged, &lowering::Schedule::double_buffer},
                                    {matrices, &lowering::Schedule::whole_depth}}) {
    if (!does || !too_large(out)) continue;
    plan.schedule.*saves = false;
    out = emit_lanes(k, target, plan, remarks);
  }
  // If the arena does not fit shared memory, all of it is global memory instead: one budget, one decision.
  if (too_large(out)) {
    plan.schedule.scratch_arena = true;
    lines.push_back("the arena needs " + std::to_string(out.lane.shared_bytes) +
                    " B of shared memory but the target has " + std::to_string(target.shared_bytes) +
                    ": it lies in global memory");
    out = emit_lanes(k, target, plan, remarks);
  }
  if (const size_t n = out.lane.tensors.size())
    lines.push_back(
        "dots: " + std::to_string(n) + (n == 1 ? " operand comes" : " operands come") +
        " from its array by copies of boxes (TMA), swizzled, into a ring of tiles; the products of a chunk go "
        "on while the next one's begin");
  if (remarks.spills > 0)
    lines.push_back(std::to_string(remarks.spills) +
                    " values with a layout live in the arena: a nest that reads them finds two of its axes on the same "
                    "invocations, or one without a layout");
  lines.insert(lines.end(), remarks.kept.begin(), remarks.kept.end());
  if (explain) *explain = lowering::explain(k, target, plan, out);
  return out;
}

}  // namespace tessera
