// GraphProgram: a graph whose commands are all known in advance, as calls of kernels on arrays, without IR: what a
// PreparedGraph records (runtime/record_graph.h), a LoadedGraph runs (runtime/loaded_graph.h) and a bundle holds of a
// graph. Its kernels are Programs that lie beside it, one for each number in Kernel::program. Made by
// runtime/call/make_graph_program.h. Read next: program.h.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "codegen/program/program.h"
#include "engine/base/array.h"

namespace tessera {

struct GraphProgram {
  /// Dims are expressions of the graph's run-time sizes, which are the names in its inputs' dims.
  using Type = std::pair<DType, std::vector<Extent>>;
  enum class Memory : uint8_t { input, output, own };
  /// Where an argument of a call is.
  struct Where {
    Memory memory = Memory::own;
    uint32_t index = 0;
    bool donated = false;  // its contents are not needed afterwards
    bool operator==(const Where&) const = default;
  };
  /// A Program with its run-time sizes, as expressions of the graph's.
  struct Kernel {
    uint32_t program = 0;
    std::vector<std::pair<std::string, Extent>> dims = {};
    int32_t calls = 1;  // in one call of the graph
  };
  /// An array of the graph's own: a constant, or intermediate values, which hold nothing between two calls.
  struct Own {
    Type type;
    std::optional<Array> contents = {};
  };
  struct Call {
    uint32_t kernel = 0;
    std::vector<Where> arguments = {};  // inputs, then outputs; of an aliased input its output
    /// Where the device finds its numbers of workgroups: in this own array, at this byte.
    std::optional<uint32_t> groups = {};
    uint64_t groups_at = 0;
  };
  /// What a gate decides about: the second row of the own array `numbers` (i32[3, slots]) gets at 3 * slot the three
  /// numbers of workgroups of the kernel, for each {slot, kernel}.
  struct Gate {
    uint32_t numbers = 0;
    std::vector<std::pair<uint32_t, uint32_t>> members = {};
  };
  /// An input of rank 0 that may come as a number: a call of the kernel on {the number} puts it into the own array.
  struct Number {
    uint32_t input = 0, kernel = 0, own = 0;
  };
  std::string name;
  Loc loc;
  std::vector<Type> inputs, outputs;
  std::vector<Kernel> kernels;
  std::vector<Own> own;
  std::vector<Call> calls;  // in order; who records them puts barriers between those that need one another
  std::vector<Gate> gates;
  std::vector<Number> numbers;
};

/// The graph's run-time sizes, in the order in which its inputs name them.
std::vector<std::string> size_names(const GraphProgram& graph);
/// Of types, as in messages: "f32[8, n]"
std::string to_string(const GraphProgram::Type& type);

}  // namespace tessera
