// A graph of kernels (engine/graph.h) on a device: what tessera.export() wrote, run from C++ without Python.
//   const ts::CompiledGraph f = ts::load(ts::default_device(), ts::read_graph("exported"));
//   const std::vector<ts::Array> y = f.run({x});
// The calls follow one another on the device without waiting; what is used no more is freed on the way.
#pragma once
#include <vector>

#include "engine/graph.h"
#include "runtime/call/call.h"

namespace tessera {

class CompiledGraph {
 public:
  CompiledGraph(Device device, Graph graph);

  const Graph& graph() const { return graph_; }
  const Device& device() const { return device_; }
  /// Starts the calls and returns the outputs without waiting. Throws SpecError if the arguments are not the graph's; else errors as launch().
  std::vector<DeviceArray> operator()(const std::vector<DeviceArray>& inputs) const;
  /// The same into arrays of the caller's, one per output or DeviceArray() for none. What is returned is the caller's where a call makes that output, for the
  /// first time in the list; an input, a constant and a repeated output are their own arrays.
  std::vector<DeviceArray> run_into(const std::vector<DeviceArray>& inputs, const std::vector<DeviceArray>& outputs) const;
  /// Uploads, calls, waits and downloads.
  std::vector<Array> run(const std::vector<Array>& inputs) const;

 private:
  Device device_;
  Graph graph_;
  std::vector<CompiledKernel> kernels_;                      // as graph_.kernels
  std::vector<std::pair<size_t, DeviceArray>> constants_;    // as graph_.constants
  std::vector<size_t> last_use_;                             // per value: the call after which nobody needs it
};

/// Compiles the graph's kernels. Throws CompileError where the device lacks what one needs.
CompiledGraph load(const Device& device, Graph graph);

}  // namespace tessera
