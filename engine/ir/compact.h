// compact: drops ops that no region reaches. Passes take ops out of regions and leave them in the tables; code that
// walks the tables runs after this.
#pragma once
#include "engine/ir/kernel.h"

namespace tessera::ir {
/// Renumbers regions, ops and values in the order of the text form, keeping only reachable ones.
void compact(Kernel& k);
}  // namespace tessera::ir
