// Unrolling at lane level: an innermost for loop with a constant trip count and a small body runs several iterations as
// one. It pays where an iteration is expensive (lavapipe: as much as seven multiply-adds), and keeps loops far below a
// driver's limit on iterations.
#pragma once
#include <cstdint>

#include "engine/ir/kernel.h"

namespace tessera::lowering {

/// Bodies grow to at most `budget` instructions, as lane::op_weight has them. Those that load and update memory by
/// atomics, as counting does, have up to four iterations at once within `counting`: compilers let the loads of all of
/// them start together, but start none ahead of the atomics of an iteration of the loop. Returns true if something
/// changed.
bool unroll_loops(ir::Kernel& k, int budget, int counting = 0);

/// What CPU drivers branch for, each lane on its own: accesses to memory, and control flow.
int64_t count_branches(const ir::Kernel& k);

}  // namespace tessera::lowering
