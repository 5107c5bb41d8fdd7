#include "runtime/call/host_call.h"

#include <algorithm>
#include <cstring>

#include "engine/base/plural.h"
#include "runtime/launch.h"
#include "runtime/memory/buffer.h"

namespace tessera {
namespace {

/// However the call ends, the device is done with the host's memory before its owner gets it back. Memory, not arrays:
/// one that has been donated has none.
struct Imports {
  std::vector<std::shared_ptr<vulkan::Buffer>> memory;
  void add(const DeviceArray& a) {
    if (auto b = a.memory()) memory.push_back(std::move(b));
  }
  ~Imports() {
    for (const auto& b : memory) b->wait_unused();
  }
};

/// The array where it lies, or else a copy.
DeviceArray argument(const Device& device, const HostArray& a, Imports& imports, bool& in_place) {
  if (auto there = DeviceArray::import_host(device, a.data, a.shape, a.dtype)) {
    in_place = true;
    imports.add(*there);
    return *std::move(there);
  }
  return {device, a.shape, a.dtype, a.data};
}

}  // namespace

uint64_t call_on_host(const CompiledKernel& kernel, std::span<const HostArray> arguments,
                      std::span<const HostArray> results, const DimValues& dims) {
  const Program& p = kernel.program();
  const Device& device = kernel.device();
  std::vector<std::pair<DType, Shape>> shapes;
  for (const HostArray& a : arguments) shapes.emplace_back(a.dtype, a.shape);
  bind_dims(p, shapes, dims);  // before anything is copied
  if (arguments.size() + results.size() != p.args.size())
    throw SpecError(p.name + ": gives " + plural(p.args.size() - std::min(p.args.size(), arguments.size()), "output") +
                        " but " + std::to_string(results.size()) +
                        (results.size() == 1 ? " is expected" : " are expected"),
                    p.loc);

  uint64_t copied = 0;
  Imports imports;
  std::vector<DeviceArray> inputs, outputs;
  std::vector<bool> own(arguments.size());  // a copy, which has no other owner
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (p.args[i].by_value) {
      uint64_t bits = 0;
      std::memcpy(&bits, arguments[i].data, static_cast<size_t>(size_bytes(arguments[i].dtype)));
      inputs.emplace_back(Scalar(arguments[i].dtype, bits));
      continue;
    }
    bool in_place = false;
    inputs.push_back(argument(device, arguments[i], imports, in_place));
    if (in_place) continue;
    copied += static_cast<uint64_t>(inputs.back().nbytes());
    own[i] = true;
  }
  std::vector<size_t> to_copy;
  for (size_t i = 0; i < results.size(); ++i) {
    const HostArray& r = results[i];
    const int alias = p.args[arguments.size() + i].alias;
    const auto from = static_cast<size_t>(std::max(alias, 0));
    // In place of the argument, or of our copy of it; a result of another type is none of the kernel's, which
    // launch_into() says of an array of its own.
    const bool takes = alias >= 0 && !inputs[from].donated() && (own[from] || arguments[from].data == r.data) &&
                       r.dtype == arguments[from].dtype && r.shape == arguments[from].shape;
    if (takes) {
      const bool in_place = !own[from];
      inputs[from] = donate(inputs[from]);
      outputs.emplace_back();
      if (in_place) continue;
    }
    if (!takes) {
      if (auto there = DeviceArray::import_host(device, r.data, r.shape, r.dtype)) {
        imports.add(*there);
        outputs.push_back(*std::move(there));
        continue;
      }
      outputs.emplace_back(device, r.shape, r.dtype);
    }
    to_copy.push_back(i);
  }
  for (size_t i = 0; i < arguments.size(); ++i)
    if (p.args[i].written && own[i] && !inputs[i].donated()) inputs[i] = donate(inputs[i]);
  const std::vector<DeviceArray> made = launch_into(device, p, inputs, outputs, dims);
  for (size_t i = 0; i < results.size(); ++i) {
    made[i].download(results[i].data);
    if (std::find(to_copy.begin(), to_copy.end(), i) != to_copy.end())
      copied += static_cast<uint64_t>(made[i].nbytes());
  }
  if (!p.prints.empty()) device.wait();  // for a kernel that stores to no output, too
  return copied;
}

uint64_t call_on_host(const CompiledGraph& graph, std::span<const HostArray> arguments,
                      std::span<const HostArray> results) {
  const Graph& g = graph.graph();
  const Device& device = graph.device();
  std::vector<std::pair<DType, Shape>> types;
  for (const HostArray& a : arguments) types.emplace_back(a.dtype, a.shape);
  check_arguments(g, types);  // before anything is copied
  if (results.size() != g.body.outputs.size())
    throw SpecError(g.name + " gives " + plural(g.body.outputs.size(), "output") + " but " +
                        std::to_string(results.size()) + (results.size() == 1 ? " is expected" : " are expected"),
                    g.loc);

  uint64_t copied = 0;
  Imports imports;
  std::vector<DeviceArray> inputs, outputs;
  for (const HostArray& a : arguments) {
    bool in_place = false;
    inputs.push_back(argument(device, a, imports, in_place));
    if (!in_place) copied += static_cast<uint64_t>(inputs.back().nbytes());
  }
  for (size_t i = 0; i < results.size(); ++i) {
    const HostArray& r = results[i];
    const Graph::Type& t = g.values[g.body.outputs[i]];
    if (t.dtype != r.dtype || t.shape != r.shape)
      throw SpecError(g.name + ": output " + std::to_string(i) + " is " + to_string(t) + " but " +
                          to_string(Graph::Type{r.dtype, r.shape}) + " is expected",
                      g.loc);
    auto there = DeviceArray::import_host(device, r.data, r.shape, r.dtype);
    if (there) imports.add(*there);
    outputs.push_back(there ? *std::move(there) : DeviceArray());
  }
  const std::vector<DeviceArray> values = graph.run_into(inputs, outputs);
  for (size_t i = 0; i < results.size(); ++i) {
    values[i].download(results[i].data);
    if (!outputs[i].valid() || values[i].buffer("an output") != outputs[i].buffer("an output"))
      copied += static_cast<uint64_t>(values[i].nbytes());
  }
  if (graph.prints()) device.wait();  // of what makes no output, too
  return copied;
}

}  // namespace tessera
