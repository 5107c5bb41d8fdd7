// Graphs in a host program's command buffer: runtime/record.h for a whole graph, or a function under jit.
//   ts::PreparedGraph solver(device, f.trace(types), {.frames_in_flight = 2});
//   // or, without a compiler: solver(device, bundle.graph(device, "solver"), {.frames_in_flight = 2});
//   // every frame:
//   stream.begin(commands, frame);
//   solver.record(stream, {velocity, dye}, {velocity_after, dye_after});
//   stream.end();
// Sizes of run time (engine/graph/sizes.h) change between calls: PrepareGraphOptions::dims and resize().
// All branches of a switch are recorded, and a while as often as it iterates at most: the device decides which run.
// What has no bound, grids whose size is a value, and loops too long to be unrolled are CompileErrors. Read next:
// record.h.
#pragma once
#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

#include "runtime/bundle.h"
#include "runtime/record.h"

namespace tessera {

struct Graph;
struct GraphTypes;  // internal to runtime/

struct PrepareGraphOptions {
  int frames_in_flight = 2;
  int calls_per_frame = 1;  ///< of the graph
  bool fuse = true;         ///< kernels of a Graph into fewer (engine/graph/fuse.h); those of a bundle are fused
  /// Values of the graph's run-time sizes, all of them: those of the first calls, and the largest that
  /// PreparedGraph::resize() may set.
  DimValues dims = {};
};

/// Used by one thread at a time. Intermediate values of equal shape and dtype whose lives do not overlap share memory,
/// and so do all frames.
class PreparedGraph {
 public:
  /// Compiles it. Throws CompileError for a graph that cannot be recorded, or a kernel that the device cannot run.
  PreparedGraph(const Device& device, const Graph& graph, const PrepareGraphOptions& options = {});
  /// What Bundle::graph() gives for the device. Throws SpecError if the programs are not the graph's, as in a damaged
  /// bundle: what it says of arrays is checked here.
  PreparedGraph(const Device& device, const GraphCode& code, const PrepareGraphOptions& options = {});

  const GraphProgram& program() const { return *graph_; }
  int64_t memory_bytes() const { return bytes_; }  ///< of intermediate values and constants
  /// Run-time sizes of the calls that are recorded from now on, as PreparedKernel::resize(): each at most what
  /// PrepareGraphOptions::dims has for it; those that are not named stay as they are. Nothing is allocated, created or
  /// compiled. Throws SpecError on a size that does not fit; then nothing has changed.
  void resize(std::span<const NamedSize> sizes);
  void resize(std::initializer_list<NamedSize> sizes) { resize(std::span(sizes.begin(), sizes.size())); }
  /// The sizes as they are now.
  const DimValues& sizes() const;
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
  void use_sizes(const DimValues& sizes);

  Device device_;
  std::shared_ptr<const GraphProgram> graph_;
  DimValues largest_, wanted_;            // sizes; and room for those that are asked for
  std::shared_ptr<GraphTypes> types_;     // nobody else's
  std::vector<NamedSize> room_;           // for a kernel's sizes
  std::vector<PreparedKernel> prepared_;  // per GraphProgram::Kernel
  std::vector<DeviceArray> own_;
  std::vector<DeviceArray> arguments_;  // of the call being recorded
  int64_t bytes_ = 0, alignment_ = 1;
};

}  // namespace tessera
