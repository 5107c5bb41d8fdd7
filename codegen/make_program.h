// The Program of a kernel: the data that a launch needs besides the code. The last step of compile().
#pragma once
#include "codegen/program/program.h"
#include "engine/ir/kernel.h"

namespace tessera {

/// Sets what the call sees (`source`: the kernel as it was given; `tiles`: as it was lowered): name, cost, arguments,
/// grid.
void describe_call(Program& program, const ir::Kernel& source, const ir::Kernel& tiles);
/// Sets what a dispatch needs, from the finished lane-level kernel.
void describe_dispatch(Program& program, const ir::Kernel& lanes);
/// "into 3 dispatches of 2 steps each, ...": for explain, of a program whose loops are cut.
std::string explain_steps(const Program& program);

}  // namespace tessera
