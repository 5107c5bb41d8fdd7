// A graph of kernels (engine/graph/graph.h) on a device, for example one that tessera.export() wrote, run from C++
// without Python.
//   const ts::CompiledGraph f = ts::load(ts::default_device(), ts::read_graph("exported"));
//   const std::vector<ts::Array> y = f.run({x});
// Memory is planned in advance (engine/graph/plan.h), and commands are recorded once, with a barrier only between
// commands of which one needs the other's result. A call replays them in one submission, with any arrays, and does not
// wait: the device itself ends loops and chooses branches (gate.h). The host waits only for a value that is the size of
// a grid and, every few iterations, in a loop without a bound (graphs.md has the exceptions). Read next:
// recording.h.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "engine/graph/graph.h"
#include "runtime/call/call.h"
#include "runtime/trace.h"

namespace tessera {

struct GraphPlan;

struct GraphOptions {
  bool fuse = true;  ///< as graph/fuse.h says
  /// by input: calls are given donate(x), and what is computed in place of x needs no copy of it
  std::vector<bool> donated = {};
  /// calls that may run beside one another on the device: so many arenas and tables; constants are there once
  int frames_in_flight = 1;
  /// trace() has when every kernel of the last call ran; costs two writes of the time per kernel
  bool timestamps = false;
};

/// Copies share it. Any thread may call: calls take the frames (GraphOptions::frames_in_flight) in turn, and those of
/// one frame come one after another.
class CompiledGraph {
 public:
  CompiledGraph(Device device, Graph graph, GraphOptions options = {});

  const Graph& graph() const;  ///< with what has been fused
  const GraphPlan& plan() const;
  /// How many command buffers have been recorded so far, which calls do not change, and the barriers in them.
  struct Recordings {
    size_t made = 0, barriers = 0;
  };
  Recordings recordings() const;
  /// Of the last call, for which it waits; SpecError without GraphOptions::timestamps, DeviceError where the device's
  /// queue has none. A loop that the host ends shows its last iteration (or iterations, that are recorded together).
  /// What is not recorded in advance has no times: calls cut for the watchdog, those whose grid's size a value gives,
  /// and copies of rows that lie at no multiple of 16 bytes.
  std::vector<TimedCommand> trace() const;
  const Device& device() const;
  bool prints() const;  ///< or checks: what it says comes when somebody waits for the device
  /// Starts the calls and returns the outputs; one that is an argument, or comes a second time, is that array itself.
  /// Throws SpecError if the arguments are not the graph's; else errors as launch().
  std::vector<DeviceArray> operator()(const std::vector<DeviceArray>& inputs) const;
  /// The same into arrays of the caller's, one per output or DeviceArray() for none; SpecError if one is of another
  /// type or Device, or is an argument or another output too. What is returned is the caller's, but an output that is
  /// an argument, or comes a second time, is that array itself.
  std::vector<DeviceArray> run_into(const std::vector<DeviceArray>& inputs,
                                    const std::vector<DeviceArray>& outputs) const;
  /// Uploads, calls, waits and downloads.
  std::vector<Array> run(const std::vector<Array>& inputs) const;

 private:
  struct State;
  class Replay;
  struct Shared;
  State& state() const;  ///< of the last call
  std::shared_ptr<Shared> shared_;
};

/// Compiles the graph's kernels. Throws CompileError where the device lacks what one needs.
CompiledGraph load(const Device& device, Graph graph, GraphOptions options = {});

/// For runtime/ itself: throws SpecError if input i of the graph cannot be that number.
void check_number(const Graph& graph, size_t i, const Scalar& number);

}  // namespace tessera
