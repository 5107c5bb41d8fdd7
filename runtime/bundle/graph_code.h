// What every way to run a GraphCode shares: that it fits its programs, its own arrays, and its arguments. Internal to
// runtime/. Read next: loaded_graph.h, record_graph.h.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/bundle.h"
#include "runtime/device_array.h"

namespace tessera {

/// A GraphProgram::Kernel, and if it is for a device what its calls dispatch at most.
struct GraphKernel {
  const Program* program;
  std::vector<std::vector<Extent>> shapes;     // per argument, of the graph's sizes
  std::array<uint32_t, 3> groups = {0, 0, 0};  // workgroups of a call; zeros if it dispatches nothing
  size_t dispatches = 0;                       // of a call
};

/// The program of a graph's kernel. Throws SpecError if there is none, or if it is called more often than the graph
/// has calls.
const Program& program_of(const GraphCode& code, size_t kernel);
/// That, with the arguments' shapes, for no device. Throws SpecError too if a size is missing.
GraphKernel kernel_of(const GraphCode& code, size_t kernel);
/// Throws SpecError unless everything that a run of the graph relies on is so: what a file says of a graph leads
/// nowhere but to an error. (Its kernels are code, which is believed.) CompileError where the device would have to
/// decide about several dispatches at once.
void check_graph(const GraphProgram& graph, std::span<const GraphKernel> kernels);
/// The types of a graph's arrays for one value of each size.
struct GraphTypes {
  GraphTypes(const GraphProgram& graph, DimValues at);
  /// Of the same graph; in place, without memory of the host's. SpecError where a size is negative.
  void set(const GraphProgram& graph, const DimValues& at);

  using Type = std::pair<DType, Shape>;
  DimValues sizes;
  std::vector<Type> inputs, outputs, own;
};
/// The largest sizes that `option` gives. Throws SpecError unless it gives all of the graph's.
void check_largest(const GraphProgram& graph, const DimValues& sizes, const std::string& option);
/// The sizes of a kernel of the graph.
DimValues kernel_sizes(const GraphProgram::Kernel& kernel, const DimValues& sizes);
/// The graph's own arrays, of one that has been checked, with room for the largest sizes.
std::vector<DeviceArray> own_arrays(const Device& device, const GraphProgram& graph, const GraphTypes& largest,
                                    std::span<const GraphKernel> kernels);
/// The array of an argument of one of the graph's calls; of an input that is a number, the own one that holds it.
const DeviceArray& array_at(const GraphProgram& graph, const GraphProgram::Where& where,
                            std::span<const DeviceArray> inputs, std::span<const DeviceArray> outputs,
                            std::span<const DeviceArray> own);
/// Errors of what the memory held before a call of the graph: a kernel that the device leaves out would pass them on.
/// Without the context's mutex.
void forget_errors(std::span<const DeviceArray> arrays);
/// Throws SpecError on arguments that do not fit, DeviceError for an address. An input may be a number where its rank
/// is 0. Allocates nothing.
void check_arguments(const GraphProgram& graph, const GraphTypes& types, const Device& device, int64_t alignment,
                     std::span<const DeviceArray> inputs, std::span<const DeviceArray> outputs);

}  // namespace tessera
