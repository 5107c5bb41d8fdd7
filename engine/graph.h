// Graph: calls of kernels, one after another, that make up a function of arrays, as tessera.export() writes it (runtime/python). A folder holds graph.txt, the
// kernels it names as .tir files, and constants as .npy files. One line each, every value defined once and before it is used:
//   tessera graph 1
//   in %0 f32[8, 128]
//   const %1 f32[128] "constant_1.npy"
//   %2, %3 = call "normalise.tir"(%0, %1) : f32[8, 128], f32[8]
//   out %2
// An input of a kernel that is aliased to its output keeps its contents. Nothing here runs on a device: runtime/call/graph.h does.
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/array.h"
#include "engine/ir/kernel.h"

namespace tessera {

struct Graph {
  struct Type {
    DType dtype = DType::f32;
    Shape shape;
    bool operator==(const Type&) const = default;
  };
  struct Call {
    size_t kernel = 0;                       // position in kernels
    std::vector<size_t> arguments, results;  // positions in values
  };
  std::vector<Type> values;
  std::vector<size_t> inputs, outputs;       // positions in values
  std::vector<std::pair<size_t, Array>> constants;
  std::vector<ir::Kernel> kernels;
  std::vector<Call> calls;                   // in an order in which they can run
};

/// Reads FOLDER/graph.txt and the files that it names, which lie in the folder itself. Throws TraceError "FILE:LINE: what is wrong" where the text does not fit itself or its
/// kernels, and what reading kernels and arrays throws.
Graph read_graph(const std::string& folder);
/// The same from the text of graph.txt.
Graph parse_graph(std::string_view text, const std::string& folder);

/// Throws SpecError if the arguments are not the graph's.
void check_arguments(const Graph& graph, const std::vector<std::pair<DType, Shape>>& arguments);
/// Runs every call by the interpreter.
std::vector<Array> interpret(const Graph& graph, const std::vector<Array>& inputs);

}  // namespace tessera
