// Unrolling at lane level: an innermost for loop with a constant trip count and a small body runs several iterations as
// one. It pays where an iteration is expensive (lavapipe: as much as seven multiply-adds), and keeps loops far below a
// driver's limit on iterations. Two more rewrites of loops: carry_stored() keeps in a register what one invocation
// stores at the end of an iteration and alone reads in the next (the middle tap of a stencil, whose outer taps read
// what other invocations store); hoist_barriers() moves a barrier in front of a loop where it is needed only for what
// was stored before the loop. Read next: unroll.cpp.
#pragma once
#include <cstdint>

#include "engine/ir/kernel.h"

namespace tessera::lowering {

/// Bodies grow to at most `budget` instructions, as lane::op_weight has them. Those that load and update memory by
/// atomics, as counting does, have up to four iterations at once within `counting`: compilers let the loads of all of
/// them start together, but start none ahead of the atomics of an iteration of the loop. Returns true if something
/// changed.
bool unroll_loops(ir::Kernel& k, int budget, int counting = 0);

/// For loops in which each element is stored by one invocation and one op. Loads of such an element by the same index,
/// before the store, become a value that the loop carries, if a store before the loop gives its first value. The stores
/// stay. Returns true if something changed.
bool carry_stored(ir::Kernel& k);

/// Moves a barrier in front of its loop if the body touches no memory that the kernel stores to before it, and if the
/// iterations only read, or update by atomics of one kind in any order. Returns true if something changed.
bool hoist_barriers(ir::Kernel& k);

/// How many ops CPU drivers branch for, lane by lane: accesses to memory, and control flow.
int64_t count_branches(const ir::Kernel& k);

}  // namespace tessera::lowering
