// A rewrite before lowering, for GPUs: what many elements add to few counters of memory that concurrent programs share
// is added up in scratch of the program first. Read next: plan/expand_atomics.h, which places the updates.
#pragma once
#include "codegen/program/target.h"
#include "engine/ir/kernel.h"

namespace tessera::lowering {
/// atomic_rmw o[indices], v becomes scratch = identity; atomic_rmw scratch[indices], v; atomic_rmw o[:], scratch[:]
/// where programs that run at once update o, the updates commute exactly (32-bit integers whose old values are unused),
/// their places may coincide, and v has at least four times the elements of o, and scratch for it leaves room: it
/// takes at most half of what the kernel's own scratch leaves of half of the shared memory. k is compact. Says whether
/// it changed anything.
bool update_locally(ir::Kernel& k, const Target& target);
}  // namespace tessera::lowering
