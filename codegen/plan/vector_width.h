// How many neighbours along an axis one access to an array may bring, on devices that move 16 bytes at once. It decides
// layouts only: accesses become vectors where the lane level proves them aligned (codegen/lane/vectorize.h).
#pragma once
#include <vector>

#include "codegen/plan/axes.h"

namespace tessera::lowering {

/// Per axis 1, 2, 4, 8 or 16: as many elements as the narrowest aligned access along it, of those that have it for
/// their array's last dim, moves in 16 bytes.
std::vector<int> vector_widths(const ir::Kernel& k, const Axes& axes);

/// Per axis: whether loads of one block from overlapping windows go along it, as a filter's taps do. Neighbours in one
/// invocation's registers then share what they read.
std::vector<bool> tapped_axes(const ir::Kernel& k, const Axes& axes);

}  // namespace tessera::lowering
