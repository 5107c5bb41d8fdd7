// KernelList: the kernels and graphs of a C++ source that is compiled ahead of time. The source defines
// tessera_kernels(), which adds them; CMake's tessera_add_kernels makes a program of it that runs while the project is
// built, and compiles what it has traced, as it does with .tir files. Read next: runtime/cmake/TesseraKernels.cmake,
// pallas_call.h.
//   #include <tessera/ahead.hpp>
//   void tessera_kernels(tessera::KernelList& kernels) { kernels.add(scale(), {"x", "by", "scaled"}); }
#pragma once
#include <string>
#include <vector>

#include "engine/call/pallas_call.h"
#include "engine/graph/graph.h"
#include "engine/ir/kernel.h"

namespace tessera {

class KernelList {
 public:
  struct Entry {
    ir::Kernel kernel;
    std::vector<std::string> names;  // of the arguments, or empty
    Loc loc;                         // where it was added
  };

  /// Traces the call, which says its in_shape: sizes of run time are ts::dim("n"), numbers ts::by_value(dtype).
  /// `names`: what the bundle and its headers call the arguments, inputs before outputs; without them in0, out0 and so
  /// on. Throws SpecError for a kernel that is there already, names that do not fit and calls that no bundle can hold,
  /// and what tracing throws.
  void add(const PallasCall& call, std::vector<std::string> names = {}, Loc loc = Loc::here());
  /// The same of a call that does not say its in_shape, as those of vmap do not: with the inputs' shapes and dtypes.
  void add_for(const PallasCall& call, const std::vector<ShapeDtype>& inputs, std::vector<std::string> names = {},
               Loc loc = Loc::here());
  struct GraphEntry {
    std::string name;
    Graph graph;
    std::vector<std::string> names;  // of the arguments, or empty
    Loc loc;
  };
  /// A function under jit, traced for these arguments: kernels.add_graph("solver", f.trace({{{64}, ts::f32}}), {"x",
  /// "y"}). A program runs it (LoadedGraph) or records it (PreparedGraph). `name`: letters, digits and _.
  void add_graph(const std::string& name, const Graph& graph, std::vector<std::string> names = {},
                 Loc loc = Loc::here());
  const std::vector<Entry>& entries() const { return entries_; }
  const std::vector<GraphEntry>& graphs() const { return graphs_; }

 private:
  std::vector<Entry> entries_;
  std::vector<GraphEntry> graphs_;
};

/// The program that tessera_add_kernels makes: argv[1] is what the source is called in messages, argv[2] the list to
/// write (NAME.kernels, as `tessera bundle` reads it), argv[3] the folder for the kernels' texts, NAME.tir, and a
/// folder for each graph; its other .tir files and graphs' folders are removed. Errors go to stderr; the result is
/// main()'s.
int trace_kernels(void (*source)(KernelList&), int argc, char** argv);

}  // namespace tessera
