// LoadedGraph: a graph of a bundle, run by a program that has neither a compiler nor command buffers of its own.
//   const ts::Bundle bundle("kernels.tsb");
//   const ts::LoadedGraph solver(device, bundle.graph(device, "solver"));
//   const std::vector<ts::DeviceArray> out = solver({velocity, dye});
// The device chooses branches and ends loops; the host waits for nothing. A program that is built with the compiler has
// CompiledGraph (runtime/call/graph.h), which runs any graph; one with a frame of its own has PreparedGraph
// (record_graph.h). Read next: bundle.h.
#pragma once
#include <memory>
#include <utility>
#include <vector>

#include "runtime/bundle.h"
#include "runtime/device_array.h"

namespace tessera {

struct LoadGraphOptions {
  DimValues dims = {};  ///< the largest values of the graph's run-time sizes that are to come, all of them
};

/// Copies share it. Any number of threads may call; the calls run one after another, since they use the same memory for
/// intermediate values.
class LoadedGraph {
 public:
  /// What Bundle::graph() gives for the device. Allocates the graph's intermediate values, and lets the driver compile
  /// its kernels. Throws SpecError if the programs are not the graph's, as in a damaged bundle; CompileError if the
  /// device cannot run them; DeviceError if Vulkan fails.
  LoadedGraph(const Device& device, const GraphCode& code, const LoadGraphOptions& options = {});

  const GraphProgram& program() const;
  const Device& device() const;
  int64_t memory_bytes() const;  ///< of intermediate values and constants

  /// The outputs of a call on such inputs.
  std::vector<std::pair<DType, Shape>> output_types(const std::vector<DeviceArray>& inputs) const;
  /// Starts a call and returns the outputs without waiting. Calls up to 64 kernels in one submission; one that takes
  /// longer than the watchdog allows is cut as by launch(), unless the device decides whether it runs. An input of rank
  /// 0 may be a number. Run-time sizes are those of the inputs. Throws SpecError on arguments that do not fit, a
  /// donated one among them; else errors as launch().
  std::vector<DeviceArray> operator()(const std::vector<DeviceArray>& inputs) const;
  /// The same into arrays of the caller's, which it returns: one per output, of its dtype and shape, and no argument of
  /// the call. If it throws a DeviceError, they hold anything.
  std::vector<DeviceArray> run_into(const std::vector<DeviceArray>& inputs,
                                    const std::vector<DeviceArray>& outputs) const;
  /// Uploads, calls, waits and downloads.
  std::vector<Array> run(const std::vector<Array>& inputs) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace tessera
