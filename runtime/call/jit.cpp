#include "runtime/call/jit.h"

#include <string_view>

#include "runtime/submit/context.h"

namespace tessera {

CompiledGraph load(const Device& device, const Jit& f, const std::vector<ShapeDtype>& arguments,
                   const GraphOptions& options) {
  const Graph& graph = f.trace(arguments);
  std::string key = std::to_string(reinterpret_cast<uintptr_t>(device.context().get()));  // what is kept keeps it alive
  key += " " + std::to_string(options.fuse) + std::to_string(options.timestamps) + " " +
         std::to_string(options.frames_in_flight) + " ";
  for (const bool d : options.donated) key += d ? '1' : '0';
  return *std::static_pointer_cast<CompiledGraph>(
      f.compiled(graph, key, [&] { return std::make_shared<CompiledGraph>(device, graph, options); }));
}

std::vector<DeviceArray> launch(const Device& device, const Jit& f, const std::vector<DeviceArray>& arguments) {
  std::vector<ShapeDtype> types;
  GraphOptions options;
  bool any = false;
  for (const DeviceArray& a : arguments) {
    if (a.number()) types.push_back({{}, a.number()->dtype()});
    else types.push_back({{a.shape().begin(), a.shape().end()}, a.dtype()});
    options.donated.push_back(a.donated());
    any |= a.donated();
  }
  if (!any) options.donated.clear();
  return load(device, f, types, options)(arguments);
}

std::vector<Array> run_on_default_device(const Jit& f, const std::vector<Array>& arguments) {
  if (interpreter_selected()) return interpret(f, arguments);
  return load(default_device(), f, types_of(arguments)).run(arguments);
}

}  // namespace tessera
