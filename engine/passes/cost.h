// estimate_cost: the cost of a call, counted from its tile-level kernel: the body's ops times the programs. It is an
// estimate for people and schedulers, not a measurement; the paragraph below says what counts. JAX's pl.estimate_cost
// counts elementwise ops and products in the same way.
#pragma once
#include "engine/ir/kernel.h"

namespace tessera {

/// flops: one per element for each arithmetic op (fma two; comparisons, selects and conversions none), 2 K per element
/// of a product over K, one per operand element for a reduction or scan. transcendentals: one per element for exp, sin
/// and the like, and for sqrt. bytes accessed: each block once for every run of consecutive programs that its index map
/// may tell apart, at most its array's size per dim; of arrays without blocks, what loads and stores touch. Branches
/// count as the dearest one, loops without constant bounds as one iteration.
CostEstimate estimate_cost(const ir::Kernel& k);

}  // namespace tessera
