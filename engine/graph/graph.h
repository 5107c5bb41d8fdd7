// Graph: a function of arrays as calls of kernels, one after another, with loops and branches around them, as
// tessera.export() writes it (runtime/python). A folder holds graph.txt, the kernels it names as .tir files, and
// constants as .npy files. Every value is defined once and before it is used; a value defined in a body is visible in
// that body alone. One line each:
//   tessera graph 1
//   in %0 f32[8, 128]
//   const %1 f32[128] "constant_1.npy"
//   %2, %3 = call "normalise.tir"(%0, %1) : f32[8, 128], f32[8]
//   out %2
// Sizes of run time are names, f32[n, 128] (sizes.h).
// engine/language.md has repeat and switch. An input of a kernel that is aliased to its output keeps its contents.
// Nothing here runs on a device: runtime/call/graph.h does.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "engine/base/array.h"
#include "engine/ir/kernel.h"

namespace tessera {

struct Graph {
  struct Type {
    DType dtype = DType::f32;
    Shape shape;
    /// Its dims, if one of them is a run-time size, an expression of the graph's sizes; then `shape` has numbers that
    /// stand for them (sizes.h).
    std::vector<Extent> extents = {};
    bool operator==(const Type&) const = default;
    std::vector<Extent> dims() const {
      return extents.empty() ? std::vector<Extent>(shape.begin(), shape.end()) : extents;
    }
  };
  struct Step;
  /// Steps in an order in which they can run. They see the values of the bodies around them too.
  struct Body {
    std::vector<size_t> inputs, outputs;  // positions in values
    std::vector<Step> steps;
  };
  struct Step {
    struct Call {
      size_t kernel = 0;  // position in kernels
      /// The values (i32 or i64 scalars; below 0 they count as 0) of sizes of the kernel's grid that no input shows.
      std::vector<std::pair<std::string, size_t>> sizes = {};
    };
    /// The body's inputs are the carries and then a row of each sliced array; its outputs are the carries' next values
    /// and then a row of each stacked output.
    struct CountedLoop {
      Body body = {};
      int64_t count = 0;
      bool reverse = false;  // the last row comes first
      size_t slices = 0;     // so many of the step's last arguments are sliced
      /// Which row is the one of the iteration, first to last.
      int64_t row(int64_t iteration) const { return reverse ? count - 1 - iteration : iteration; }
    };
    /// The body's inputs are the carries, its outputs their next values. The test runs before it, sees its inputs, and
    /// has one output, a bool that says whether the body runs, which sees the test's values.
    struct While {
      Body body = {}, test = {};
      std::optional<int64_t> at_most = {};  // it ends after so many iterations, whatever its test says
    };
    struct Switch {
      std::vector<Body> branches = {};  // one or more
    };
    std::variant<Call, CountedLoop, While, Switch> what;
    /// Positions in values. Of a call the kernel's inputs; of a loop the carries' first values, then the arrays that
    /// are sliced; of a switch an i32 scalar, clamped to the branches.
    std::vector<size_t> arguments = {};
    /// Of a call the kernel's outputs; of a loop the carries' last values, then the stacked outputs; of a switch the
    /// outputs of the branch that ran.
    std::vector<size_t> results = {};
    int line = 0;  // in graph.txt; 0: none
    Loc loc = {};  // of a loop or switch, for messages

    Call* call() { return std::get_if<Call>(&what); }
    const Call* call() const { return std::get_if<Call>(&what); }
    const While* while_loop() const { return std::get_if<While>(&what); }
    /// The body of a loop; null for others.
    const Body* loop_body() const;
    /// Of a loop: so many of its first arguments, and of its first results.
    size_t num_carries() const;
    /// The body of a loop, then the test of a while; the branches of a switch; none of a call.
    std::vector<Body*> bodies();
    std::vector<const Body*> bodies() const;
  };
  std::string name = "the graph";  // in messages: that of a function under jit,
  Loc loc = {};                    // and where it is
  std::vector<Type> values;
  Body body;  // its inputs and outputs are the graph's
  std::vector<std::pair<size_t, Array>> constants;
  std::vector<ir::Kernel> kernels;
  size_t dropped = 0;  // calls (dce.h)
};

/// Reads FOLDER/graph.txt and the files that it names, which lie in the folder itself. Throws TraceError "FILE:LINE:
/// what is wrong" where the text does not fit itself or its kernels, and what reading kernels and arrays throws.
Graph read_graph(const std::string& folder);
/// The same from the text of graph.txt.
Graph parse_graph(std::string_view text, const std::string& folder);

/// "f32[8, 128]"
std::string to_string(const Graph::Type& t);
/// Throws SpecError if the arguments are not the graph's, which has no run-time sizes.
void check_arguments(const Graph& graph, const std::vector<std::pair<DType, Shape>>& arguments);
/// An integer or bool scalar as the host reads it.
int64_t scalar(const Array& a);
/// The size of a grid, by the value that decides.
int64_t grid_size(int64_t value);

/// Runs the graph by the interpreter; run-time sizes are those of the inputs.
std::vector<Array> interpret(const Graph& graph, const std::vector<Array>& inputs);

}  // namespace tessera
