// Turns the trace of a jit into a Graph: a call is a step with its kernel, any other op becomes a kernel on whole
// arrays, a loop or branch that calls kernels, or whose arrays are large, becomes a step with bodies. Constants, and
// values computed from constants alone, are copied into the kernels that use them. Internal to engine/call. Merging
// kernels is left to graph/fuse.h.
#pragma once
#include "engine/front/trace.h"
#include "engine/graph/graph.h"

namespace tessera {

/// `inputs`: the function's arguments, where they have run-time sizes; the trace has the numbers that stand for them,
/// which are `numbers`.
Graph graph_of(const ir::Kernel& traced, const CallRecord& record, const std::vector<Graph::Type>& inputs,
               const DimValues& numbers);

}  // namespace tessera
