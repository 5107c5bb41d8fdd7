// make_graph_program: a graph as a GraphProgram (codegen/program/graph_program.h) and the kernels to compile for it:
// its own, gates (gate.h), and those that copy arrays and store numbers. Nothing here depends on a device. Read next:
// runtime/record_graph.h.
#pragma once
#include <vector>

#include "codegen/program/graph_program.h"
#include "engine/graph/graph.h"

namespace tessera {

struct RecordableGraph {
  GraphProgram program;
  std::vector<ir::Kernel> kernels;  // by GraphProgram::Kernel::program
};
/// `fuse`: engine/graph/fuse.h. Throws CompileError if the host has to decide something while the graph runs.
RecordableGraph make_graph_program(const Graph& graph, bool fuse = true);

}  // namespace tessera
