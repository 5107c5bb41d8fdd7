// Vector loads: loads of adjacent 32-bit elements of one global Ref, without a store or barrier between them, become
// one load of two or four, if the first element's position is proved a multiple of the width. Arguments are bound at
// 16-byte aligned addresses (Program).
#pragma once
#include "engine/ir/kernel.h"

namespace tessera::lowering {

/// `width`: 2 or 4 elements at once, as the device likes best. Returns true if something changed.
bool vectorize_loads(ir::Kernel& k, int width);

}  // namespace tessera::lowering
