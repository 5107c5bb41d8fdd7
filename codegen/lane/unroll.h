// Unrolling at lane level: innermost for loops with a constant trip count and a small body run several rounds per
// iteration. Pays where an iteration is dear (lavapipe: as much as seven multiply-adds), and keeps a driver's limit on
// iterations far away.
#pragma once
#include <cstdint>

#include "engine/ir/kernel.h"

namespace tessera::lowering {

/// Bodies grow to at most `budget` instructions, as lane::op_weight has them. Returns true if something changed.
bool unroll_loops(ir::Kernel& k, int budget);

/// What CPU drivers branch for, each lane on its own: accesses to memory, and control flow.
int64_t count_branches(const ir::Kernel& k);

}  // namespace tessera::lowering
