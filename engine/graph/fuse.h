// fuse: merges calls of a graph. Unused calls are removed first (dce.h). An element-wise call whose result one call
// uses is computed where that call reads it, and an element-wise call on a kernel's result is computed where the kernel
// stores it, so that the value between them is never in memory. Nothing is computed twice: a kernel that reads a block
// more than once, or does not provably store every element once, is not changed. Nor are kernels that print or are
// called with `debug`, and arrays that a kernel stores to. Every element keeps its value, except for the order in which
// floats are added (a product may start from the value that is added to it). Read next: plan.h, which comes after;
// pointwise.h, which merges element-wise steps into kernels with blocks.
#pragma once
#include "engine/graph/graph.h"

namespace tessera {

struct Fused {
  Graph graph;
  size_t steps = 0;  // calls that are part of another one now
};
Fused fuse(const Graph& graph);

}  // namespace tessera
