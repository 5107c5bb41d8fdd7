// A rewrite before lowering, for GPUs: a sum of products that a kernel writes out one after another becomes a loop. A
// loop of the front end (over a filter's taps, or over chunks of the contracted dim) leaves such sums. Read next:
// accumulate.h.
#pragma once
#include "engine/ir/kernel.h"

namespace tessera::lowering {
/// x + dot(a0, b0) + dot(a1, b1) + ... becomes a loop with one dot, if the terms differ only in where their loads
/// begin, digits of the loop's counter give these starts, and the code of the products is large. The order of the sum
/// stays. Returns true if something changed; the terms that are left are dead.
bool reroll_products(ir::Kernel& k);
}  // namespace tessera::lowering
