// Branches on one condition, one behind the other, become one: the stores of an invocation's elements, each done if the
// invocation is the one to store, are then neighbours that vectorize.h can merge. Read next: join_branches.cpp.
#pragma once
#include "engine/ir/kernel.h"

namespace tessera::lowering {

/// Of branches without results and without an else. Returns true if something changed.
bool join_branches(ir::Kernel& k);

}  // namespace tessera::lowering
