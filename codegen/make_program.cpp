#include "codegen/make_program.h"

#include <algorithm>

#include "codegen/plan/parallel.h"
#include "engine/base/plural.h"
#include "engine/passes/cost.h"

namespace tessera {
namespace {

// What ends the loop over units (Program::units_extent), if nothing else reads it.
int32_t units_extent(const ir::Kernel& lanes) {
  if (lanes.lane.max_workgroups == 0) return -1;
  int32_t found = -1;
  for (const ir::Op& o : lanes.ops) {
    if (o.code != ir::Opcode::for_) continue;
    const ir::Op *end = lanes.def(o.operands[1]), *by = lanes.def(o.operands[2]), *from = lanes.def(o.operands[0]);
    if (!by || by->code != ir::Opcode::num_workgroups) continue;
    if (found >= 0 || !from || from->code != ir::Opcode::workgroup_index || !end || end->code != ir::Opcode::extent)
      return -1;
    found = static_cast<int32_t>(end->attr(ir::Attr::index));
  }
  int reads = 0;
  for (const ir::Op& o : lanes.ops)
    for (const ir::Value v : o.operands)
      if (const ir::Op* d = lanes.def(v); d && d->code == ir::Opcode::extent && d->attr(ir::Attr::index) == found)
        ++reads;
  return found >= 0 && reads == 1 ? found : -1;
}

}  // namespace

void describe_call(Program& program, const ir::Kernel& source, const ir::Kernel& tiles) {
  program.name = tiles.name;
  program.loc = tiles.loc;
  program.metadata = tiles.call.metadata;
  program.cost_estimate = tiles.call.cost_estimate ? *tiles.call.cost_estimate : estimate_cost(source);
  std::vector<bool> read(tiles.blocks.size(), false), written(tiles.blocks.size(), false);
  for (const ir::Op& o : tiles.ops) {
    if (!ir::accesses_ref(o.code)) continue;
    const auto i = static_cast<size_t>(lowering::memory_of(tiles, lowering::ref_position(tiles, o.operands[0])));
    if (i >= tiles.blocks.size()) continue;
    if (ir::reads_ref(o.code)) read[i] = true;
    if (ir::writes_ref(o.code)) written[i] = true;
  }
  for (size_t i = 0; i < tiles.blocks.size(); ++i) {
    const ir::BlockMapping& b = tiles.blocks[i];
    program.args.push_back({b.origin, b.dtype, b.array_shape, tiles.is_output(static_cast<int>(i)), read[i], written[i],
                            b.loc, b.alias, b.is_by_value()});
  }
  for (const ir::GridAxis& axis : tiles.grid) {
    program.grid.push_back(axis.size);
    program.axis_names.push_back(axis.name);
  }
}

void describe_dispatch(Program& program, const ir::Kernel& lanes) {
  const ir::LaneInfo& lane = lanes.lane;
  program.workgroup_size = lane.workgroup_size * lane.threads;
  program.required_subgroup_size = lane.subgroup_size;
  program.shared_bytes = lane.program_bytes + lane.threads * lane.shared_bytes;
  program.scratch_bytes = lane.threads * lane.scratch_bytes;
  program.report_bytes = lane.report_bytes;
  program.max_workgroups = static_cast<int32_t>(lane.max_workgroups);
  program.num_units = lane.num_units;
  program.extents = lane.extents;
  program.extent_is_64 = lane.extent_is_64;
  for (const ir::TensorBox& t : lane.tensors) program.tensors.push_back({t.array, t.box});
  program.units_extent = units_extent(lanes);
  program.steps_extent = lane.steps_extent;
  program.open_ended = lane.open_ended;
}

std::string explain_steps(const Program& p) {
  const std::optional<int64_t> total = p.extents[static_cast<size_t>(p.steps_extent) + 1].value();
  std::string text = "  loops cut: ";
  if (p.open_ended)
    text += "into dispatches of " +
            plural(static_cast<size_t>(steps_at_once(p, total.value_or(INT64_MAX), nullptr)), "step") +
            " each, until all workgroups are done, which data decides";
  else if (!total) text += "into as many dispatches as the sizes of the call ask for";
  else {
    const int64_t each = steps_at_once(p, *total, nullptr);
    text += plural(static_cast<size_t>(cdiv(*total, each)), "dispatch", "dispatches") + " of " +
            plural(static_cast<size_t>(each), "step") + " each, " + std::to_string(*total) + " in all";
  }
  return text + ", because the driver leaves all loops after " + std::to_string(p.max_loop_iterations) +
         " iterations\n";
}

}  // namespace tessera
