// A rewrite before lowering: an atomic update of memory that no other program touches meanwhile becomes a load, the
// arithmetic and a store. What remains are updates of arrays by concurrent programs, and updates at index arrays whose
// elements may coincide. Read next: parallel.h, which tells them apart, and lower/atomics.h, which emits them.
#pragma once
#include <optional>

#include "codegen/plan/parallel.h"

namespace tessera::lowering {
/// k is compact. Returns the plan of parallel axes that this relies on, if there are atomics: what the kernel is from
/// then on would allow another, in which programs whose updates keep an order run at once.
std::optional<ParallelPlan> expand_atomics(ir::Kernel& k, const Target& target);

/// Elements of this atomic may be updates of one place, and yet any invocation may do any of them, by an instruction
/// that every device has: their old values are unused, and the updates commute.
bool in_any_order(const ir::Kernel& k, const ir::Op& op, const std::vector<bool>& used);
}  // namespace tessera::lowering
