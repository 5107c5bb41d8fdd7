// fuse: calls of a graph made into fewer. Those whose results nobody needs go first (dce.h). What is element-wise and
// used by one call alone is computed where that call reads it, and what one element-wise call makes of a kernel's
// result is computed where the kernel stores it, so that what lay between is never in memory. Nothing is computed
// twice: where a kernel reads a block more than once, or does not provably store every element once, it stays as it is;
// so do kernels that print or are called with `debug`, and arrays that a kernel changes. Every element is what it was
// before, but for the order in which floats are added (a product may start from what is added to it). Read next:
// plan.h, which comes after; pointwise.h, where element-wise steps meet kernels with blocks.
#pragma once
#include "engine/graph/graph.h"

namespace tessera {

struct Fused {
  Graph graph;
  size_t steps = 0;  // calls that are part of another one now
};
Fused fuse(const Graph& graph);

}  // namespace tessera
