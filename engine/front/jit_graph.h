// From the trace of a jit to a Graph: a call is a step with its kernel, any other op becomes a kernel on whole arrays,
// a loop or branch that calls kernels, or whose arrays are large, becomes a step with bodies. Constants and what is
// computed from none but them are part of the kernels that use them. Internal to engine/front. What is worth being one
// kernel is graph/fuse.h's to say.
#pragma once
#include "engine/front/trace.h"
#include "engine/graph/graph.h"

namespace tessera {

Graph graph_of(const ir::Kernel& traced, const CallRecord& record);

}  // namespace tessera
