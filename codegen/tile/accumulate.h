// A rewrite before lowering: a product becomes a dot that starts from the value it is added to. Read next:
// lower/dot.cpp.
#pragma once
#include "engine/ir/kernel.h"

namespace tessera::lowering {
/// sum = add(x, dot(a, b)) becomes sum = dot(a, b, x) where nothing else uses the product and it is not wider inside
/// than its dtype: the accumulators start from x, and no second set of them is alive. Says whether it changed anything.
bool accumulate_into_dots(ir::Kernel& k);
}  // namespace tessera::lowering
