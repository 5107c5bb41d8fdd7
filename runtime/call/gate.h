// Gates of a GraphPlan as kernels. A gate sets its state, and writes for every dispatch that it guards the workgroup
// counts that vkCmdDispatchIndirect reads: the planned ones (checked against the device's limits) if its body runs,
// else zeros. So a value selects one of the planned sizes, and is never used as a size itself. Internal to
// runtime/call. Read next: recording.h.
#pragma once
#include <array>
#include <string>
#include <vector>

#include "engine/graph/plan.h"

namespace tessera {

/// Of a command that sets a gate: inputs what decides (bool[] or i32[]), a state that has to be a certain body, the
/// numbers; outputs the gate's state and groups. Where that state is the gate's own, the first output is aliased to it.
struct GateKernel {
  ir::Kernel kernel;
  std::string key;  // equal kernels have equal ones
};
GateKernel gate_kernel(const GraphPlan& plan, const GraphPlan::Command& command);

/// The third input: `groups` by member of the gate.
Array gate_numbers(const GraphPlan& plan, const GraphPlan::Command& command,
                   const std::vector<std::array<uint32_t, 3>>& groups);

}  // namespace tessera
