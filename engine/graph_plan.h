// GraphPlan: a graph as commands in the order in which a device runs them, and where every value lies. Counted loops are unrolled as far as
// that stays short; what a value decides (a while, a switch, the size of a grid) is left to whoever runs the plan. Intermediate values
// share one arena: two whose lives do not overlap may lie in the same place, an output that is aliased to an input that nobody needs any
// more takes its place, a row of a stacked result is written where it belongs. Calls whose results nobody needs are dropped, unless their
// kernel prints or checks. Nothing here knows a device. Read next: runtime/call/graph.h.
#pragma once
#include <functional>
#include <string>

#include "engine/graph.h"

namespace tessera {

struct GraphPlan {
  enum class Memory : uint8_t { input, constant, output, arena };
  struct Storage {
    Memory memory = Memory::arena;
    size_t index = 0;  // which input, constant or output
    int64_t bytes = 0;
    size_t first = 0, last = 0;  // the commands between which it holds something that is needed
    int64_t offset = 0;          // in the arena
  };
  struct Place {
    size_t storage = 0;
    int64_t offset = 0, bytes = 0;
    bool operator==(const Place&) const = default;
  };
  struct Command {
    enum class Kind : uint8_t { call, copy };
    Kind kind = Kind::call;
    Place from = {}, to = {};                               // copy
    size_t kernel = 0;                                      // call: position in kernels
    std::vector<Place> arguments = {};                      // its inputs, then its outputs
    std::vector<std::pair<DType, Shape>> inputs = {};       // what they are
    DimValues dims = {};                                    // sizes of the grid that no input shows, as far as they are known
    std::vector<std::pair<std::string, Place>> sizes = {};  // those that a value gives
    std::optional<Place> scratch = {};                      // if it needs memory of its own
  };
  /// Steps one after another: commands, or what the host decides.
  struct Node {
    enum class Kind : uint8_t { commands, repeat, choose };
    Kind kind = Kind::commands;
    size_t begin = 0, end = 0;  // of commands; one that has sizes stands alone
    Place decides = {};         // repeat without a count: the test's bool; choose: the index
    std::optional<int64_t> count = {};
    bool reverse = false;
    std::vector<std::pair<Place, Place>> slices = {};  // of a counted repeat: an array, and where row i of it goes before iteration i
    std::vector<std::pair<Place, Place>> stacks = {};  // what is row i of an array after it, and the array
    std::vector<std::vector<Node>> bodies = {};        // choose: the branches; repeat: the body, and without a count the test
  };
  std::vector<Storage> storages;
  std::vector<Command> commands;
  std::vector<Node> nodes;
  std::vector<Place> outputs;  // each a whole storage
  int64_t arena_bytes = 0;     // as much as all intermediate values need at once
  int64_t unshared_bytes = 0;  // what they would take one beside the other
  size_t dropped = 0;          // calls

  int64_t bytes(Memory memory) const;  ///< of all storages there; of the arena, arena_bytes
};

struct PlanOptions {
  int64_t alignment = 16;   ///< of what kernels may get as an argument, in bytes; a power of two
  int64_t unrolled = 1024;  ///< so many commands a counted loop may become
  std::vector<bool> donated = {};  ///< by input: its memory may become another value's; empty: none
  /// Bytes that a call needs beside its arguments.
  std::function<int64_t(const GraphPlan::Command&)> scratch = {};
};
GraphPlan plan(const Graph& graph, const PlanOptions& options = {});

/// What `tessera explain FOLDER` prints of it: steps, memory, and where each value lies.
std::string explain(const Graph& graph, const GraphPlan& plan);

}  // namespace tessera
