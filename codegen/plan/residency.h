// How long the body's arguments stay where they are: in which loops a block is the same one, and which arguments could
// live in registers.
#pragma once
#include <vector>

#include "engine/ir/kernel.h"

namespace tessera::lowering {

/// Per body argument, how many of the sequential loops (grid axes, outermost first) its block's index map depends on.
std::vector<int> scopes(const ir::Kernel& k, const std::vector<int>& sequential);

/// Body arguments that could live in registers: scratch, and outputs that the kernel reads, touched by whole accesses
/// only.
std::vector<bool> resident_candidates(const ir::Kernel& k);

}  // namespace tessera::lowering
