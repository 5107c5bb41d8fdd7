// Stores with index arrays: which of them may store their elements in any order. Those whose arrays provably hold no
// position twice may, and those marked unordered; all others store one element after another (RefWindows::in_order).
// Read next: lower/accesses.cpp.
#pragma once
#include "engine/ir/kernel.h"

namespace tessera::lowering {

/// A store, swap or addupdate of which two elements may go to one place in memory.
bool must_scatter_in_order(const ir::Kernel& k, const ir::Op& op);

/// Every addupdate whose elements go to different places becomes a load, an addition and a store. True if there was
/// one.
bool expand_updates(ir::Kernel& k);

}  // namespace tessera::lowering
