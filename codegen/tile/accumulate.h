// A rewrite before lowering: a product becomes a dot that starts from the value it is added to. Read next:
// lower/dot.cpp.
#pragma once
#include "codegen/program/target.h"
#include "engine/ir/kernel.h"

namespace tessera::lowering {
/// sum = add(x, dot(a, b)) becomes sum = dot(a, b, x) where nothing else uses the product and it is not wider inside
/// than its dtype: the accumulators start from x, and no second set of them is alive. Where the target makes the
/// product of matrices, not with an x that has fewer elements of its own, as a bias has. Says whether it changed
/// anything.
bool accumulate_into_dots(ir::Kernel& k, const Target& target);
}  // namespace tessera::lowering
