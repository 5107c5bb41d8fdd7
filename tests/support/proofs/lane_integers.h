// Random integer code for a lane-level kernel, on which none of its results hangs: numbers of every width near their
// ends, branches on comparisons, loops, sizes of the call. Proofs (proofs.h) asks the prover about it.
#pragma once
#include "engine/ir/kernel.h"

namespace tessera::fuzz {

/// The kernel with such code before so many of its ops, by seed.
ir::Kernel with_random_integers(const ir::Kernel& lanes, uint64_t seed, size_t places);

}  // namespace tessera::fuzz
