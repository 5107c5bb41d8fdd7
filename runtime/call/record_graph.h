// Graphs in a host program's command buffer: runtime/record.h for a whole graph, or a function under jit.
//   ts::PreparedGraph solver(device, f.trace(types), {.frames_in_flight = 2});
//   // every frame:
//   stream.begin(commands, frame);
//   solver.record(stream, {velocity, dye}, {velocity_after, dye_after});
//   stream.end();
// Only graphs whose commands are known in advance: all branches of a switch, and the largest possible number of
// iterations of a while, are recorded, and the device decides which of them run. A while without a bound, a grid's size
// that is a value, and loops too long to be unrolled, are CompileErrors. Read next: runtime/record.h.
#pragma once
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "engine/graph/plan.h"
#include "runtime/call/call.h"
#include "runtime/record.h"

namespace tessera {

struct PrepareGraphOptions {
  int frames_in_flight = 2;
  int calls_per_frame = 1;  ///< of the graph
  bool fuse = true;
};

/// Used by one thread at a time. Intermediate values of equal shape and dtype whose lives do not overlap share memory,
/// and so do all frames.
class PreparedGraph {
 public:
  PreparedGraph(const Device& device, const Graph& graph, const PrepareGraphOptions& options = {});

  const Graph& graph() const { return graph_; }    ///< with what has been fused
  int64_t memory_bytes() const { return bytes_; }  ///< of intermediate values and constants
  /// A call; barriers between its kernels are made by the stream. Inputs and outputs as the graph's, outputs in arrays
  /// of their own; an input of rank 0 may be a number, {x, 0.5f}, which goes by value into memory of ours. Throws
  /// SpecError (DeviceError for an address) on what does not fit; then nothing has been recorded. Allocates no host
  /// memory.
  Scopes record(CommandStream& stream, std::span<const DeviceArray> inputs, std::span<const DeviceArray> outputs);
  Scopes record(CommandStream& stream, std::initializer_list<DeviceArray> inputs,
                std::initializer_list<DeviceArray> outputs) {
    return record(stream, std::span(inputs.begin(), inputs.size()), std::span(outputs.begin(), outputs.size()));
  }

 private:
  /// Where an argument is: an array of ours, or the graph's input or output of that number.
  struct Where {
    GraphPlan::Memory memory;
    size_t index;  // of arrays_, inputs or outputs
    bool donated = false;
  };
  struct Call {
    size_t kernel;  // of prepared_
    std::vector<Where> arguments;
    std::optional<size_t> groups = {};  // of arrays_: where its numbers of workgroups are, at
    uint64_t groups_at = 0;
  };
  /// An input of rank 0: the kernel that puts a number there, and where.
  struct Number {
    size_t input, kernel, array;  // of prepared_, of arrays_
  };
  struct Preparation;
  void check(std::span<const DeviceArray> inputs, std::span<const DeviceArray> outputs) const;
  Where at(const GraphPlan& plan, const GraphPlan::Place& place, DType dtype, const Shape& shape);

  Device device_;
  Graph graph_;
  std::vector<PreparedKernel> prepared_;
  std::vector<DeviceArray> arrays_;
  std::map<std::string, size_t> known_;  // arrays by place and type
  std::vector<Call> calls_;
  std::vector<Number> numbers_;
  std::vector<DeviceArray> arguments_;  // of the call being recorded
  int64_t bytes_ = 0, alignment_ = 1;
};

}  // namespace tessera
