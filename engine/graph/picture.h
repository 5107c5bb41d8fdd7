// Pictures of a planned graph: which call uses which, how large values are, and where and how long they lie in the
// arena. dot() is for Graphviz; svg() lays the picture out itself, in layers: a call stands below all its operands, and
// near them. Read next: plan.h.
#pragma once
#include <string>

#include "engine/graph/plan.h"

namespace tessera {

std::string dot(const Graph& graph, const GraphPlan& plan);
std::string svg(const Graph& graph, const GraphPlan& plan);

}  // namespace tessera
