// A barrier that stands at the beginning of a loop's body for what was stored before the loop alone goes before the
// loop: where the iterations only read, or update by atomics. Read next: hoist_barriers.cpp.
#pragma once
#include "engine/ir/kernel.h"

namespace tessera::lowering {

/// Of barriers before which the body touches no memory that the kernel stores to. Returns true if something changed.
bool hoist_barriers(ir::Kernel& k);

}  // namespace tessera::lowering
