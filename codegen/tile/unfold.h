// A rewrite before lowering, for GPUs: a reshape of what is loaded or stored becomes index arrays of the access. A dim
// that merges two (a picture's rows and columns, as rows of a product) is then one axis from the load to the store.
// Read next: plan/axes.h, which says what a reshape does to axes.
#pragma once
#include "engine/ir/kernel.h"

namespace tessera::lowering {
/// A product's operand reshape(load x[a:b, c:d]) becomes load x[rows, columns], and store o[a:b, c:d], reshape(v) of a
/// product's result becomes store o[rows, columns], v. `rows` and `columns` are the digits of the position along the
/// merged dim. All positions must lie inside the array, because index arrays clamp each position and a slice moves as a
/// whole. Returns true if something changed; the reshapes that are left are dead.
bool unfold_reshapes(ir::Kernel& k);
}  // namespace tessera::lowering
