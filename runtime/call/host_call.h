// A compiled kernel, or a graph of kernels, on arrays that another library owns (XLA's, NumPy's): used in place if the
// device shares the host's memory, copied otherwise. It returns when the call is done, and keeps no reference to the
// arrays. Read next: call.h, device_array.h (import_host).
#pragma once
#include <cstdint>
#include <span>

#include "engine/base/host_array.h"
#include "runtime/call/graph.h"

namespace tessera {

/// Runs the kernel; arguments are only read, results overwritten. A result at the same place as the argument that it is
/// aliased to is updated there. Returns the bytes that were copied between these arrays and arrays of ours. Errors as
/// launch() and download().
uint64_t call_on_host(const CompiledKernel& kernel, std::span<const HostArray> arguments,
                      std::span<const HostArray> results, const DimValues& dims = {});
/// The same for a graph. What its kernels hand each other stays on the device; outputs that run_into() cannot make in
/// place are copied.
uint64_t call_on_host(const CompiledGraph& graph, std::span<const HostArray> arguments,
                      std::span<const HostArray> results);

}  // namespace tessera
