// Removes dims of one element from Refs if the kernel only ever indexes them by 0: blocks (1, 1, 128, 64) read as x[0,
// 0] become blocks (squeezed, squeezed, 128, 64), and scratch likewise. An access to the whole block is then a whole
// access for the planner too. JAX's kernels are written like that.
#pragma once
#include "engine/ir/kernel.h"

namespace tessera::lowering {

/// After lower_async. Returns true if something changed.
bool squeeze_refs(ir::Kernel& k);

}  // namespace tessera::lowering
