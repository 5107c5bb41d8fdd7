#include "codegen/lower/lower.h"

#include <optional>
#include <vector>

#include "codegen/lower/atomics.h"
#include "codegen/lower/lowering.h"
#include "codegen/plan/explain.h"
#include "codegen/plan/indexed.h"
#include "codegen/plan/plan.h"
#include "engine/ir/compact.h"

namespace tessera {
namespace {

// What only the emitted kernel tells, as lines for explain.
struct Remarks {
  int misfits = 0;  // values in the arena because of a nest without a layout
  std::vector<std::string> kept;
};

ir::Kernel emit_lanes(const ir::Kernel& k, const Target& target, lowering::Plan& plan, Remarks& remarks) {
  ir::Kernel out;
  lowering::Lowering lowering(k, target, plan, out);
  lowering.run();
  plan.schedule.ahead_notes = lowering.ahead_notes();
  remarks = {lowering.misfits(), {}};
  lowering.explain_kept(remarks.kept);
  return out;
}

}  // namespace

ir::Kernel lower(const ir::Kernel& source, const Target& target, bool general, int smaller, std::string* explain) {
  ir::Kernel k = source;
  lowering::expand_updates(k);
  ir::compact(k);
  const std::optional<lowering::ParallelPlan> with_atomics = lowering::expand_atomics(k, target);
  if (with_atomics) ir::compact(k);
  lowering::Plan plan(k, target, general, smaller, with_atomics);
  std::vector<std::string>& notes = plan.schedule.notes;
  Remarks remarks;
  ir::Kernel out = emit_lanes(k, target, plan, remarks);
  // What does not fit shared memory lives in a global arena instead, all of it: one budget, one decision.
  if (out.lane.shared_bytes > target.shared_bytes) {
    plan.schedule.scratch_arena = true;
    notes.push_back("the arena needs " + std::to_string(out.lane.shared_bytes) +
                    " B of shared memory but the target has " + std::to_string(target.shared_bytes) +
                    ": it lies in global memory");
    out = emit_lanes(k, target, plan, remarks);
  }
  if (remarks.misfits > 0)
    notes.push_back(std::to_string(remarks.misfits) +
                    " values with a layout live in the arena: a nest that reads them finds two of its axes on the same "
                    "invocations, or one without a layout");
  notes.insert(notes.end(), remarks.kept.begin(), remarks.kept.end());
  if (explain) *explain = lowering::explain(k, target, plan, out);
  return out;
}

}  // namespace tessera
