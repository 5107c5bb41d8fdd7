#include "codegen/plan/plan.h"

#include <algorithm>

#include "codegen/plan/residency.h"

namespace tessera::lowering {
namespace {

// What lacks an axis that would be split is computed by every slice; what is read at other positions and is large
// leaves shared memory; and a program that one invocation could have run takes a workgroup.
Keeping keeping(const ir::Kernel& k, const Target& target, const Plan& plan, ir::Value v) {
  const ir::Type& t = k.type(v);
  const std::vector<int> dims = plan.axes->of(v);
  const bool lacks_split = std::any_of(plan.schedule.split_axes.begin(), plan.schedule.split_axes.end(),
                                       [&](int a) { return std::find(dims.begin(), dims.end(), a) == dims.end(); });
  const bool mixed = std::any_of(dims.begin(), dims.end(),
                                 [&](int a) { return a != kNoAxis && plan.axes->axes[static_cast<size_t>(a)].mixed; });
  return {mixed,
          lacks_split || (mixed && (plan.schedule.group == 1 ||
                                    num_elements(t.shape) * ir::arena_stride(t.dtype) > target.shared_bytes / 2))};
}

}  // namespace

Plan::Plan(const ir::Kernel& k, const Target& target, bool general, int smaller, bool relaxed,
           const std::optional<ParallelPlan>& with_atomics)
    : scalars(k), parallel(plan_parallel(k, scalars, target)), resident(resident_candidates(k)) {
  if (with_atomics) {
    parallel.axes = with_atomics->axes;
    parallel.concurrent = with_atomics->concurrent;
    for (size_t i = 0; i < k.blocks.size(); ++i)
      parallel.commuting[i] = with_atomics->commuting[i] && with_atomics->concurrent[i];
  }
  if (general) resident.assign(resident.size(), false);
  // Where programs may share a block, only what a program stores may be written.
  for (size_t i = 0; i < k.blocks.size() && parallel.declared; ++i)
    resident[i] = resident[i] && always_stored_whole(k, static_cast<int>(i));
  // A Ref that does not get registers no longer ties its dims to the values': schedule again without it. What a copy
  // prefetches may only have failed with the buffer that it moves on to, so on GPUs it gets another try.
  const std::vector<bool> direct = loaded_directly(k);
  std::vector<Kept> kept(k.values.size());
  std::vector<CarriedSum> carried;
  if (target.kind == Target::Kind::gpu && !general) carried = carried_sums(k, relaxed);
  for (bool chosen = general;;) {
    axes = std::make_unique<Axes>(k, resident, target.kind == Target::Kind::gpu && !general);
    const ScheduleInput input{k, target, *axes, resident, parallel, scalars, general, smaller, carried};
    schedule = make_schedule(input, kept);
    if (!chosen) {
      chosen = true;
      kept = choose_kept(k, [&](ir::Value v) { return keeping(k, target, *this, v); });
      if (std::any_of(kept.begin(), kept.end(), [](const Kept& x) { return x.yes; }))
        schedule = make_schedule(input, kept);
    }
    std::vector<size_t> failed;
    for (size_t i = 0; i < resident.size(); ++i)
      if (resident[i] && schedule.residency[i] != Residency::registers) failed.push_back(i);
    if (failed.empty()) return;
    const bool others = target.kind == Target::Kind::gpu &&
                        std::any_of(failed.begin(), failed.end(), [&](size_t i) { return !direct[i]; });
    for (size_t i : failed)
      if (!others || !direct[i]) resident[i] = false;
  }
}

std::vector<bool> loaded_directly(const ir::Kernel& k) {
  const std::vector<ir::Value>& args = k.region(k.body).args;
  std::vector<bool> found(args.size(), false);
  for (const ir::Op& op : k.ops) {
    if (op.code != ir::Opcode::store || k.value(op.operands[0]).region != k.body ||
        k.type(op.operands[1]).shape.empty())
      continue;
    const size_t ref = k.value(op.operands[0]).number;
    const ir::Op* load = k.def(op.operands[1]);
    if (ref < args.size() - static_cast<size_t>(k.num_private_scratch) || !load || load->code != ir::Opcode::load ||
        k.value(load->operands[0]).region != k.body)
      continue;
    bool whole = true;
    for (size_t d = 0; d < op.index.size(); ++d)
      whole = whole && op.index[d] == ir::Index::all(k.type(op.operands[0]).shape[d]);
    if (whole && k.value(load->operands[0]).number < k.blocks.size()) found[ref] = true;
  }
  return found;
}

}  // namespace tessera::lowering
