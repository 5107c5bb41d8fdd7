// Dims of one element that a kernel only ever indexes by 0 leave its Refs: blocks (1, 1, 128, 64) read as x[0, 0]
// become blocks (squeezed, squeezed, 128, 64), and scratch likewise. What then is a whole access is one to the planner
// as well. JAX's kernels are written like that.
#pragma once
#include "engine/ir/kernel.h"

namespace tessera::lowering {

/// After lower_async. Returns true if something changed.
bool squeeze_refs(ir::Kernel& k);

}  // namespace tessera::lowering
