// A rewrite before lowering, for GPUs: products that a kernel writes out one after another, as a loop over them. A loop
// of the front end (a filter's taps, chunks of what is contracted) leaves such sums. Read next: accumulate.h.
#pragma once
#include "engine/ir/kernel.h"

namespace tessera::lowering {
/// x + dot(a0, b0) + dot(a1, b1) + ... becomes a loop with one dot, where the terms differ in nothing but where their
/// loads begin, the code of the products is large, and a counter's digits tell where each begins. The sum keeps its
/// order. Says whether it changed anything; what is left of the terms is dead.
bool reroll_products(ir::Kernel& k);
}  // namespace tessera::lowering
