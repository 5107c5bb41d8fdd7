// Values that are the same along a dim. Kernels written for TPUs keep a row's running maximum or sum in a block as wide
// as the machine's lanes, with the same number in every lane, because that machine has no narrower blocks. On other
// devices this costs the memory and work of a whole block for one column, and ties this meaningless dim to the columns
// of the block whose maximum is taken.
#pragma once
#include <string>
#include <vector>

#include "engine/ir/kernel.h"

namespace tessera::lowering {

/// Per value (Refs too, for what they hold) and dim: whether all elements along it are known to be equal. What scratch
/// holds before the first store is unspecified, and taken to be equal as well.
std::vector<std::vector<bool>> uniform_dims(const ir::Kernel& k);

/// Scratch that is the same along a dim keeps one element of it; reshapes that only mix such dims no longer mix them;
/// and slices are taken of what element-wise ops and broadcasts read rather than of their results, unless several parts
/// are taken of those. After lower_async and passes. Returns true if something changed; `explain` gets a line for
/// each scratch.
bool narrow_uniform(ir::Kernel& k, std::string& explain);

}  // namespace tessera::lowering
