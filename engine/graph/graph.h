// Graph: a function of arrays as calls of kernels, one after another, with loops and branches around them, as
// tessera.export() writes it (runtime/python). A folder holds graph.txt, the kernels it names as .tir files, and
// constants as .npy files. Every value is defined once and before it is used; a value defined in a body is visible in
// that body alone. One line each:
//   tessera graph 1
//   in %0 f32[8, 128]
//   const %1 f32[128] "constant_1.npy"
//   %2, %3 = call "normalise.tir"(%0, %1) : f32[8, 128], f32[8]
//   out %2
// engine/README.md has repeat and switch. An input of a kernel that is aliased to its output keeps its contents.
// Nothing here runs on a device: runtime/call/graph.h does.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/array.h"
#include "engine/ir/kernel.h"

namespace tessera {

struct Graph {
  struct Type {
    DType dtype = DType::f32;
    Shape shape;
    bool operator==(const Type&) const = default;
  };
  struct Step;
  /// Steps in an order in which they can run. They see the values of the bodies around them too.
  struct Body {
    std::vector<size_t> inputs, outputs;  // positions in values
    std::vector<Step> steps;
  };
  struct Step {
    enum class Kind : uint8_t { call, repeat, switch_ };
    Kind kind = Kind::call;
    /// Positions in values. call: the kernel's inputs. repeat: the carries' first values, then the arrays that are
    /// sliced. switch_: an i32 scalar, clamped to the bodies.
    std::vector<size_t> arguments = {};
    /// call: the kernel's outputs. repeat: the carries' last values, then the stacked outputs. switch_: the outputs of
    /// the body that ran.
    std::vector<size_t> results = {};
    size_t kernel = 0;  // of a call: position in kernels
    /// Of a call: the values (i32 or i64 scalars; below 0 they count as 0) of sizes of the kernel's grid that no input
    /// shows.
    std::vector<std::pair<std::string, size_t>> sizes = {};
    /// switch_: one or more. repeat: the body, whose inputs are the carries and then a row of each sliced array, and
    /// whose outputs are the carries' next values and then a row of each stacked output; without a count also the test,
    /// which runs before it, sees its inputs, and whose only output, a bool, says whether it runs. The body sees the
    /// test's values.
    std::vector<Body> bodies = {};
    std::optional<int64_t> count = {};
    // of a repeat without a count: it ends after so many iterations, whatever its test says
    std::optional<int64_t> at_most = {};
    bool reverse = false;  // of a counted repeat: the last row comes first
    int line = 0;          // in graph.txt; 0: none
    Loc loc = {};          // of a repeat or switch, for messages
    size_t slices = 0;     // of a repeat: so many of its last arguments are sliced
    size_t num_carries() const { return arguments.size() - slices; }
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
/// Throws SpecError if the arguments are not the graph's.
void check_arguments(const Graph& graph, const std::vector<std::pair<DType, Shape>>& arguments);
/// An integer or bool scalar as the host reads it.
int64_t scalar(const Array& a);
/// The body that a choice runs, and the size of a grid, by the value that decides.
size_t chosen(const Graph::Step& choice, int64_t value);
int64_t grid_size(int64_t value);
/// Which iteration's row, first to last, is the one of `reverse`d or plain iteration i of n.
inline int64_t row(const Graph::Step& repeat, int64_t i) { return repeat.reverse ? *repeat.count - 1 - i : i; }

/// Runs the graph by the interpreter.
std::vector<Array> interpret(const Graph& graph, const std::vector<Array>& inputs);

}  // namespace tessera
