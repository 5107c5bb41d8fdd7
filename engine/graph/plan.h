// GraphPlan: a graph as commands in the order in which a device runs them, and a place for every value. Counted loops
// are unrolled if that stays short. Where a value decides, gates decide on the device: commands that say which of the
// commands after them run. All branches of a switch are in the plan, and a while as often as it iterates at most, or a
// few iterations at a time. Other decisions (the size of a grid, long loops in a branch) are left to the code that runs
// the plan. Intermediate values share one arena: two whose lifetimes do not overlap may have the same place, an output
// that is aliased to an input in its last use takes the input's place, a row of a stacked result is written in place.
// Unused values are dropped (dce.h). Nothing here depends on a device. Read next: runtime/call/graph.h.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "engine/base/function.h"
#include "engine/graph/graph.h"

namespace tessera {

struct GraphPlan {
  struct Storage {
    struct Input {
      size_t index;
    };
    struct Constant {
      size_t index;
    };
    struct Output {
      size_t index;
    };
    struct Arena {
      int64_t offset;
    };
    std::variant<Arena, Input, Constant, Output> where = {};
    int64_t bytes = 0;
    size_t first = 0, last = 0;        // the commands between which it holds something that is needed
    std::optional<size_t> value = {};  // the graph's that it has been made for

    Arena* arena() { return std::get_if<Arena>(&where); }
    const Arena* arena() const { return std::get_if<Arena>(&where); }
    const Input* input() const { return std::get_if<Input>(&where); }
    const Constant* constant() const { return std::get_if<Constant>(&where); }
    const Output* output() const { return std::get_if<Output>(&where); }
  };
  struct Place {
    size_t storage = 0;
    int64_t offset = 0, bytes = 0;
    bool operator==(const Place&) const = default;
  };
  /// What decides on the device which body of a switch or while runs: the commands that are guarded by it have as many
  /// workgroups as they were planned with, or none.
  struct Gate {
    Place state;   // an i32: the body that runs, -1 for none
    Place groups;  // i32s: three numbers of workgroups for each member, and some to spare
    struct Member {
      size_t command;
      int32_t body;
    };
    std::vector<Member> members = {};
    int32_t bodies = 1;
    int64_t slot_count() const { return groups.bytes / 4; }
  };
  /// Of a command that runs if the gate's state is the body; `slot`: which member it is.
  struct Guard {
    size_t gate = 0, slot = 0;
    int32_t body = 0;
    static constexpr int64_t kBytes = 12;  // of a member's numbers of workgroups, three u32s,
    int64_t offset() const { return kBytes * static_cast<int64_t>(slot); }  // which begin here among the gate's groups
  };
  struct Command {
    struct Call {
      size_t kernel = 0;                                      // position in kernels
      std::vector<Place> arguments = {};                      // its inputs, then its outputs
      std::vector<std::pair<DType, Shape>> inputs = {};       // what they are
      std::vector<size_t> values = {};                        // which of the graph's
      DimValues dims = {};                                    // sizes of the grid that no input shows, and are known
      std::vector<std::pair<std::string, Place>> sizes = {};  // those that a value gives
      std::optional<Place> scratch = {};                      // if it needs memory of its own
    };
    struct Copy {
      Place from = {}, to = {};
    };
    /// Sets a gate's state: from a bool (true: body 0, false: none) or an i32 (clamped to the bodies); without one it
    /// is body 0.
    struct SetGate {
      size_t gate = 0;
      std::optional<Place> decides = {};
    };
    std::variant<Call, Copy, SetGate> what;
    // of a SetGate, which always runs: where this does not hold, the state that it sets is -1
    std::optional<Guard> guard = {};

    Call* call() { return std::get_if<Call>(&what); }
    const Call* call() const { return std::get_if<Call>(&what); }
    const Copy* copy() const { return std::get_if<Copy>(&what); }
    const SetGate* set_gate() const { return std::get_if<SetGate>(&what); }
    /// A call of which a value gives sizes.
    bool sized() const { return call() && !call()->sizes.empty(); }
  };
  /// Steps one after another: commands, or what the host decides.
  struct Node {
    /// Up to `end`. A command that has sizes is a node of its own.
    struct Commands {
      size_t end = 0;
    };
    struct CountedLoop {
      int64_t count = 0;
      bool reverse = false;
      std::vector<std::pair<Place, Place>> slices = {};  // an array, and where row i of it goes before iteration i
      std::vector<std::pair<Place, Place>> stacks = {};  // what is row i of an array after iteration i, and the array
      std::vector<Node> body = {};
    };
    struct While {
      Place decides = {};  // the test's bool
      std::optional<int64_t> at_most = {};
      // The test and the body (which are commands and such loops alone) go one after another `iterations` times. If
      // that is at_most, the loop ends there; else they go again, as long as the gate's state is not -1.
      std::optional<size_t> gate = {};
      int64_t iterations = 0;
      std::vector<Node> test = {}, body = {};
      bool recorded() const { return gate && at_most == iterations; }
    };
    struct Switch {
      Place decides = {};  // the index
      std::vector<std::vector<Node>> branches = {};
    };
    std::variant<Commands, CountedLoop, While, Switch> what;
    size_t begin = 0;      // its first command
    std::string why = {};  // why the host has to decide
    Loc loc = {};

    Commands* commands() { return std::get_if<Commands>(&what); }
    const Commands* commands() const { return std::get_if<Commands>(&what); }
    const While* loop() const { return std::get_if<While>(&what); }
  };
  std::vector<Storage> storages;
  std::vector<Command> commands;
  std::vector<Gate> gates;
  std::vector<Node> nodes;
  std::vector<Place> outputs;  // each a whole storage
  int64_t arena_bytes = 0;     // as much as all intermediate values need at once
  int64_t unshared_bytes = 0;  // what they would take one beside the other
  // of what tells calls where their arguments are, and gates how many workgroups there may be
  int64_t table_bytes = 0;
  int64_t frames = 1;                            // calls in flight, each with an arena and a table of its own
  size_t dropped = 0;                            // calls
  size_t barriers = 0, barriers_as_written = 0;  // between commands; and if these were in the order of the program

  /// Of all storages that are a Where: Storage::Input, Constant or Output.
  template <class Where>
  int64_t bytes() const {
    int64_t n = 0;
    for (const Storage& s : storages)
      if (std::holds_alternative<Where>(s.where)) n += s.bytes;
    return n;
  }
  int64_t peak_bytes() const;  ///< of all that a call needs on the device
  /// Whether nothing but commands is in it, which can be recorded in advance.
  bool recorded(const Node& node) const;
  /// The commands of a node that is recorded, in order; those of a loop as often as it iterates.
  void expand(const Node& node, std::vector<size_t>& sequence) const;
  void expand_iterations(const Node::While& loop, int64_t iterations, std::vector<size_t>& sequence) const;
};

struct PlanOptions {
  int64_t alignment = 16;   ///< of what kernels may get as an argument, in bytes; a power of two
  int64_t unrolled = 1024;  ///< so many commands a loop may become
  /// Calls that need nothing of one another stand together, which takes fewer barriers, but more values at once: where
  /// the arena is no larger than 16 MiB, or than 5/4 of what the order of the program takes.
  bool reorder = true;
  bool gates = true;               ///< false: the host makes every decision
  std::vector<bool> donated = {};  ///< by input: its memory may become another value's; empty: none
  /// Bytes that a call needs beside its arguments.
  Function<int64_t(const GraphPlan::Command::Call&)> scratch = {};
  /// Bytes of a call's part of the table.
  Function<int64_t(const GraphPlan::Command::Call&)> table = {};
  /// Whether a call, of which kernel, inputs and dims are given, is one dispatch: a gate can decide about no other.
  Function<bool(const GraphPlan::Command::Call&)> whole = {};
};
GraphPlan plan(const Graph& graph, const PlanOptions& options = {});

/// f of each list of nodes inside the node, in the order in which they run.
template <class N, class F>
void for_each_body(N& node, const F& f) {
  if (auto* counted = std::get_if<GraphPlan::Node::CountedLoop>(&node.what)) {
    f(counted->body);
  } else if (auto* loop = std::get_if<GraphPlan::Node::While>(&node.what)) {
    f(loop->test);
    f(loop->body);
  } else if (auto* choice = std::get_if<GraphPlan::Node::Switch>(&node.what)) {
    for (auto& branch : choice->branches) f(branch);
  }
}

/// What `tessera explain FOLDER` prints of it: steps, memory, and where each value lies.
std::string explain(const Graph& graph, const GraphPlan& plan);

}  // namespace tessera
