#include "codegen/program/graph_program.h"

namespace tessera {

std::string to_string(const GraphProgram::Type& type) {
  std::string dims;
  for (const int64_t d : type.second) dims += (dims.empty() ? "" : ", ") + std::to_string(d);
  return std::string(name(type.first)) + "[" + dims + "]";
}

}  // namespace tessera
