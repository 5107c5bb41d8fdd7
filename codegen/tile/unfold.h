// A rewrite before lowering, for GPUs: reshapes beside memory become index arrays. Rows that a product merges of two
// dims (a picture's rows and columns) then are one axis from the load to the store. Read next: plan/axes.h, which says
// what a reshape does to axes.
#pragma once
#include "engine/ir/kernel.h"

namespace tessera::lowering {
/// A product's operand reshape(load x[a:b, c:d]) becomes load x[rows, columns], and store o[a:b, c:d], reshape(v) of a
/// product's result becomes store o[rows, columns], v; with the digits of the merged dim's position for rows and
/// columns. Where all positions are inside: a window that moves when it hangs over is not the same. Says whether it
/// changed anything; what is left of the reshapes is dead.
bool unfold_reshapes(ir::Kernel& k);
}  // namespace tessera::lowering
