// Removes unused parts of a graph: calls whose results no output depends on, unused results of branches, and values
// that loops carry, slice or stack without a use. Calls that print or check stay, with all that they need. Read next:
// fuse.h and plan.h, which begin with it.
#pragma once
#include "engine/graph/graph.h"

namespace tessera {

/// Of the body, which is the graph's or a copy of it. Returns how many calls it lacks now, each counted once however
/// often it would run.
size_t dead_code_elimination(const Graph& graph, Graph::Body& body);

}  // namespace tessera
