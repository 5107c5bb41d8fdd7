// Writes a traced function under jit, or any other Graph, to a folder that read_graph() (graph.h), `tessera run FOLDER`
// and tessera.load() read.
//   ts::write_graph(f.trace(ts::types_of({x, w})), "f");
// Read next: graph.h.
#pragma once
#include <string>

#include "engine/graph/graph.h"

namespace tessera {

/// Makes the folder if it is not there, and in it graph.txt, a .tir file for each kernel (with its source lines) and a
/// .npy file for each constant; other files stay. Throws Error where that cannot be written, SpecError for a loop of
/// more than 2^31 - 1 iterations.
void write_graph(const Graph& graph, const std::string& folder);
/// All of that in one text, for comparisons.
std::string graph_text(const Graph& graph);

}  // namespace tessera
