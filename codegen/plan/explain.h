// The decisions and their reasons, for `tessera explain`. The last line, on memory and registers, needs the finished
// lane-level kernel.
#pragma once
#include <string>

#include "codegen/plan/plan.h"

namespace tessera::lowering {
std::string explain(const ir::Kernel& k, const Target& target, Plan& plan, const ir::Kernel& lanes);

/// 32-bit registers that an invocation of a lane-level kernel holds at once, at most: values that are live, 64-bit ones
/// and views counting twice, constants and arguments not. An estimate: drivers reorder, rematerialise and need
/// temporaries of their own.
int64_t live_registers(const ir::Kernel& lanes);
}  // namespace tessera::lowering
