// A graph of kernels (engine/graph.h) on a device: what tessera.export() wrote, run from C++ without Python.
//   const ts::CompiledGraph f = ts::load(ts::default_device(), ts::read_graph("exported"));
//   const std::vector<ts::Array> y = f.run({x});
// The calls follow one another on the device without waiting, those of counted loops too; only a condition, the index of a switch and the size of a grid are waited
// for, since the host decides by them. What is used no more is freed on the way.
#pragma once
#include <memory>
#include <vector>

#include "engine/graph.h"
#include "runtime/call/call.h"

namespace tessera {

/// Copies share it.
class CompiledGraph {
 public:
  CompiledGraph(Device device, Graph graph);

  const Graph& graph() const;
  const Device& device() const;
  /// Starts the calls and returns the outputs. Throws SpecError if the arguments are not the graph's; else errors as launch().
  std::vector<DeviceArray> operator()(const std::vector<DeviceArray>& inputs) const;
  /// The same into arrays of the caller's, one per output or DeviceArray() for none. What is returned is the caller's where a call makes that output or a loop
  /// stacks it; inputs, constants, a loop's last carries, what a switch chooses and an output that comes a second time are arrays of their own.
  std::vector<DeviceArray> run_into(const std::vector<DeviceArray>& inputs, const std::vector<DeviceArray>& outputs) const;
  /// Uploads, calls, waits and downloads.
  std::vector<Array> run(const std::vector<Array>& inputs) const;

 private:
  struct State;
  class Run;
  std::shared_ptr<const State> state_;
};

/// Compiles the graph's kernels. Throws CompileError where the device lacks what one needs.
CompiledGraph load(const Device& device, Graph graph);

}  // namespace tessera
