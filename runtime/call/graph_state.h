// The state that a CompiledGraph keeps for one call at a time: the plan bound to a device, the table of all argument
// blocks, and its prerecorded commands. Internal to runtime/call. Read next: graph_state.cpp, which makes it;
// graph.cpp, which replays it.
#pragma once
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "engine/graph/plan.h"
#include "runtime/call/graph.h"
#include "runtime/call/recording.h"
#include "runtime/launch/bound.h"

namespace tessera {

/// An address in a call's block that is another one in every replay.
struct Patch {
  uint64_t at = 0;         // in the table
  GraphPlan::Place place;  // of a graph's input or output
};
/// Of one submission, in order: how many, and the first and the last of those commands.
struct Calls {
  size_t count = 0, first = 0, last = 0;
  void add(const Calls& more) {
    if (more.count == 0) return;
    if (count == 0) first = more.first;
    last = more.last;
    count += more.count;
  }
};

/// What one call at a time has to itself.
struct CompiledGraph::State {
  State(Device d, Graph g, GraphOptions o, std::vector<DeviceArray> c)
      : device(std::move(d)), graph(std::move(g)), options(std::move(o)), constants(std::move(c)) {
    make();
  }

  Device device;
  Graph graph;
  GraphOptions options;
  std::vector<DeviceArray> constants;  // as graph.constants; all frames have the same ones
  GraphPlan plan;
  std::vector<CompiledKernel> kernels;                 // as graph.kernels
  std::vector<vulkan::PreparedCall> calls;             // by command
  std::vector<std::vector<Patch>> patches;             // by command
  std::vector<std::shared_ptr<vulkan::Buffer>> fixed;  // by storage: the arena's and the constants' memory
  std::shared_ptr<vulkan::Buffer> arena, table;        // null if there is nothing in them
  /// Of what is recorded in advance: commands, or a copy that is made anew each time.
  struct Part {
    std::unique_ptr<vulkan::Recording> recording;
    size_t copy = 0;
    double seconds = 0;  // as far as they can be estimated
    Calls calls = {};
  };
  // The steps of making one, in order.
  void make();
  void make_plan();
  void copy_by_kernels(int64_t alignment);
  void bind_calls();
  void gates();
  void place_storages();
  void fill_table();
  void add_block(size_t command);
  void record(std::vector<Part>& to, const std::vector<size_t>& sequence);
  vulkan::Bound bind(const GraphPlan::Command::Call& c, DimValues& dims, vulkan::Cut cut) const;

  /// Who calls has it alone. Throws SpecError for a thread that has it already: what its call prints calls it again.
  class Use {
   public:
    explicit Use(State& state);
    ~Use() { state_.user = std::thread::id(); }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    State& state_;
    std::unique_lock<std::mutex> lock_;
  };

  // by the first command of nodes in a row; true: the iterations that are left of a loop
  std::map<std::pair<size_t, bool>, std::vector<Part>> parts;
  std::mutex mutex;                        // there is one arena and one table
  std::atomic<std::thread::id> user = {};  // who has the mutex
  std::vector<std::byte> contents;         // of the table, once all that is submitted has run
  bool table_is_stale = false;             // a call has failed: the device has an older one
};

}  // namespace tessera
