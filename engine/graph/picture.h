// Pictures of a planned graph: what calls what, how large that is, and where and how long it lies in the arena. dot()
// is for Graphviz; svg() lays the picture out itself, in layers: a call stands below all that it needs, next to what it
// needs most. Read next: plan.h.
#pragma once
#include <string>

#include "engine/graph/plan.h"

namespace tessera {

std::string dot(const Graph& graph, const GraphPlan& plan);
std::string svg(const Graph& graph, const GraphPlan& plan);

}  // namespace tessera
