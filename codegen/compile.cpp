#include "codegen/compile.h"

#include <algorithm>
#include <memory>

#include "codegen/lane/verify.h"
#include "codegen/lower/explain.h"
#include "codegen/lower/lowering.h"
#include "codegen/spirv/emit.h"
#include "engine/ir/verify.h"
#include "engine/passes/passes.h"

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

ir::Kernel lower(const ir::Kernel& k, const Target& target, const CompileOptions& options, std::string* explain) {
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

Program compile(const ir::Kernel& source, const Target& target, const CompileOptions& options) {
  ir::Kernel k = source;
  ir::verify(k, "input");
  auto dump = [&](const std::string& step, const ir::Kernel& kernel, bool changed) {
    if (options.dump) options.dump(step, kernel, changed);
  };
  passes::optimize(k, [&](const passes::Pass& p, const ir::Kernel& kernel, bool changed) { dump("tile/" + std::string(p.name), kernel, changed); });
  Program program;
  ir::Kernel lanes = lower(k, target, options, &program.explain);
  dump("lower", lanes, true);
  passes::optimize(lanes, [&](const passes::Pass& p, const ir::Kernel& kernel, bool changed) { dump("lane/" + std::string(p.name), kernel, changed); });
  lane::verify_lane(lanes, "lowering");

  program.name = k.name;
  program.loc = k.loc;
  std::vector<bool> read(k.blocks.size(), false), written(k.blocks.size(), false);
  for (const ir::Op& o : k.ops) {
    if (o.code != ir::Opcode::load && o.code != ir::Opcode::store && o.code != ir::Opcode::swap) continue;
    const auto i = static_cast<size_t>(lowering::ref_position(k, o.operands[0]));
    if (i >= k.blocks.size()) continue;
    if (o.code != ir::Opcode::store) read[i] = true;
    if (o.code != ir::Opcode::load) written[i] = true;
  }
  for (size_t i = 0; i < k.blocks.size(); ++i)
    program.args.push_back({k.blocks[i].origin, k.blocks[i].dtype, k.blocks[i].array_shape, k.is_output(static_cast<int>(i)), read[i], written[i]});
  program.workgroup_size = lanes.lane.workgroup_size;
  program.required_subgroup_size = lanes.lane.subgroup_size;
  program.shared_bytes = lanes.lane.shared_bytes;
  program.scratch_bytes = lanes.lane.scratch_bytes;
  program.max_workgroups = static_cast<int32_t>(lanes.lane.max_workgroups);
  program.num_units = lanes.lane.num_units;
  program.extents = lanes.lane.extents;
  program.extent_is_64 = lanes.lane.extent_is_64;
  program.indirect_table = program.push_bytes() > target.push_constant_bytes;
  program.spirv = spirv::emit(lanes, target, program.indirect_table);
  return program;
}

}  // namespace tessera
