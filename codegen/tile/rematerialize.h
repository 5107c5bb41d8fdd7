// Values that are index functions of their positions alone (broadcast constants, iotas, masks made of them) are
// computed wherever they are used, so each use may have its own. As one value they would tie the axes of all their
// users together: the mask of a query block and that of a key block, equal by chance, would make rows and columns of
// the scores one axis, which no layout fits. So would a block that is both sides of a dot (x @ x.T): the right one is
// loaded by itself.
#pragma once
#include "engine/ir/kernel.h"

namespace tessera::lowering {

/// After lower_async. Returns true if something changed.
bool rematerialize(ir::Kernel& k);

}  // namespace tessera::lowering
