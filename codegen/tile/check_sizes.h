// Checks the sizes that are numbered in 32 bits against 2^31 - 1: dims, elements of a value and of scratch, programs
// along an axis.
#pragma once
#include "engine/ir/kernel.h"

namespace tessera::lowering {

/// Throws CompileError for a size that is known and too large. Sizes that arrive with a call are checked by its launch.
void check_sizes(const ir::Kernel& k);

}  // namespace tessera::lowering
