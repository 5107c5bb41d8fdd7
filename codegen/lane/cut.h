// Cutting: a lane-level kernel whose loops run longer than its target allows in one dispatch becomes one that runs in
// successive dispatches, each with a part of the iterations; values that live across dispatches are kept in scratch.
// This file and Program::steps_extent decide which loops are cut and what a dispatch runs; runtime/launch/bound.h
// plans the dispatches of a call. codegen/loops.md says when loops are cut. Not a watchdog's slices, which cut between
// workgroups.
#pragma once
#include <optional>

#include "codegen/program/target.h"
#include "engine/ir/kernel.h"

namespace tessera::lane {

struct CutLoops {
  Extent steps;                   // of the whole kernel
  std::optional<Extent> at_most;  // iterations that a dispatch runs more than it has steps; none: data decides
};

/// Numbers the iterations of the kernel's loops, in the order in which a workgroup runs them: these are its steps.
/// Makes each dispatch run those from the first to the end that it is given (LaneInfo::steps_extent); loops that are
/// short, or inside of which nothing can be cut, run whole in their first one. One workgroup runs one unit of work.
/// None, and nothing changed, where no loop can be cut.
std::optional<CutLoops> cut_loops(ir::Kernel& k, const Target& target);

}  // namespace tessera::lane
