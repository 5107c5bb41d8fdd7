// Functions under jit (engine/call/jit.h) on devices: their graphs are compiled at the first call with given shapes,
// kept by the function, and replayed. Read next: graph.h.
#pragma once
#include <vector>

#include "engine/call/jit.h"
#include "runtime/call/graph.h"

namespace tessera {

/// The graph for such arguments, compiled for the device unless it has been before. The function keeps it, and with it
/// the device; load(device, f.trace(arguments)) is the caller's alone.
CompiledGraph load(const Device& device, const Jit& f, const std::vector<ShapeDtype>& arguments,
                   const GraphOptions& options = {});
/// Starts a call and returns its outputs without waiting; f(x, y) with DeviceArrays is the same. f(donate(x), y) ends
/// x: what is computed in its place needs no copy.
std::vector<DeviceArray> launch(const Device& device, const Jit& f, const std::vector<DeviceArray>& arguments);

}  // namespace tessera
