// Unrolling at lane level: an innermost for loop with a constant trip count and a small body runs several iterations as
// one. It pays where an iteration is expensive (lavapipe: as much as seven multiply-adds), and keeps loops far below a
// driver's limit on iterations. And what a loop need not do in memory again: what an invocation stores to shared memory
// at the end of an iteration and alone reads and writes there, the next iteration has in registers, as the middle tap
// of a stencil, where others read the same elements as their outer taps; and a barrier that stands at the beginning of
// the body for what was stored before the loop alone goes there. Read next: unroll.cpp.
#pragma once
#include <cstdint>

#include "engine/ir/kernel.h"

namespace tessera::lowering {

/// Bodies grow to at most `budget` instructions, as lane::op_weight has them. Those that load and update memory by
/// atomics, as counting does, have up to four iterations at once within `counting`: compilers let the loads of all of
/// them start together, but start none ahead of the atomics of an iteration of the loop. Returns true if something
/// changed.
bool unroll_loops(ir::Kernel& k, int budget, int counting = 0);

/// Of loops of which each element that they store is one invocation's, by one store. Loads of an element, by the same
/// index as its store and before it, become a value that the loop carries, if a store before the loop has its first
/// value; the stores stay. Returns true if something changed.
bool carry_stored(ir::Kernel& k);

/// Of barriers before which the body touches no memory that the kernel stores to, of loops whose iterations only read,
/// or update by atomics of one kind that come out the same in any order. Returns true if something changed.
bool hoist_barriers(ir::Kernel& k);

/// What CPU drivers branch for, each lane on its own: accesses to memory, and control flow.
int64_t count_branches(const ir::Kernel& k);

}  // namespace tessera::lowering
