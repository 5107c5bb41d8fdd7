// Fewer registers: arithmetic that is the last to look at a value moves up to where its operands are there. What a
// nest writes out element by element reads values that were made long before (the terms of 25 sums, say), and holds all
// of them until then. Drivers' compilers do so too, but not over thousands of instructions.
#pragma once
#include "engine/ir/kernel.h"

namespace tessera::lowering {

/// Returns true if something moved. Nothing passes an op of another kind that has effects on its operands: only
/// elementwise ops move, within their region.
bool end_lives_early(ir::Kernel& k);

}  // namespace tessera::lowering
