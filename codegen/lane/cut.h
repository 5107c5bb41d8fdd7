// Cutting: a lane-level kernel whose loops run longer than its target allows in one dispatch becomes one that runs in successive dispatches, a piece of its
// loops in each, with what lives from one to the next in scratch. Which loops, and what a dispatch runs, is decided here and in Program::steps_extent;
// who issues the dispatches: runtime/launch.cpp. README.md ("Drivers that cut loops") says when. Not a watchdog's slices, which cut between workgroups.
#pragma once
#include "codegen/target.h"
#include "engine/ir/kernel.h"

namespace tessera::lane {

/// Numbers the steps of the kernel's long loops, in the order in which a workgroup runs them, and makes each dispatch run those from the first to the end that it is given
/// (LaneInfo::steps_extent). One workgroup runs one unit of work. What takes at most `share` iterations is one step. False, and nothing changed, where no loop can be cut.
bool cut_loops(ir::Kernel& k, const Target& target, int64_t share);

}  // namespace tessera::lane
