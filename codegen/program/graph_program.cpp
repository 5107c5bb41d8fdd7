#include "codegen/program/graph_program.h"

#include "engine/base/bind.h"

namespace tessera {

std::vector<std::string> size_names(const GraphProgram& graph) {
  std::vector<std::string> names;
  for (const GraphProgram::Type& t : graph.inputs)
    for (const Extent& e : t.second) e.collect_names(names);
  return names;
}

std::string to_string(const GraphProgram::Type& type) { return type_text(type.first, type.second); }

}  // namespace tessera
