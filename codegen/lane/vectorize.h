// Vector accesses: loads, and stores, of adjacent elements of one array in global memory, or of adjacent words of
// shared memory, become one access of up to 16 bytes, if the first element's position is proved a multiple of the
// width. Arguments are bound at 16-byte aligned addresses (Program). A vector has a slice for its index; a load has a
// result, a store a value for each element.
#pragma once
#include "codegen/program/target.h"
#include "engine/ir/kernel.h"

namespace tessera::lowering {

/// GPUs move 16 bytes at once, of any elements. Lavapipe splits vectors into scalar accesses, but loads 64 bits at
/// once: for CPU drivers only pairs of 32-bit loads change. Accesses to shared memory change for PTX, since ptxas
/// proves no alignment and merges none, and for devices that may see it as vectors (Target::shared_vectors), since some
/// drivers merge none of an array of words. Returns true if something changed.
bool vectorize(ir::Kernel& k, const Target& target);

}  // namespace tessera::lowering
