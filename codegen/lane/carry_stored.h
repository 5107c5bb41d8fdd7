// What an invocation stores to shared memory at the end of a loop's iteration and alone reads and writes there, the
// next iteration has in registers: the middle tap of a stencil, where others read the same elements as their outer
// taps. The stores stay. Read next: carry_stored.cpp.
#pragma once
#include "engine/ir/kernel.h"

namespace tessera::lowering {

/// Of loops of which each element that they store is one invocation's, by one store. Loads of an element, by the same
/// index as its store and before it, become a value that the loop carries, if a store before the loop has its first
/// value. Returns true if something changed.
bool carry_stored(ir::Kernel& k);

}  // namespace tessera::lowering
