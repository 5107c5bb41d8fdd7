// Graphs of bundles: those of tessera.h, which are launched, and those of tessera_vulkan.h, which are recorded.
#include <tessera/tessera_vulkan.h>

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <variant>

#include "runtime/c/vulkan_handles.h"

using namespace tessera;
using c::guarded, c::need;

namespace {
const GraphProgram& program_of(const tessera_graph& graph) {
  return std::visit([](const auto& g) -> const GraphProgram& { return g.program(); }, graph.graph);
}
PreparedGraph& prepared_of(tessera_graph& graph) {
  if (const auto prepared = std::get_if<PreparedGraph>(&graph.graph)) return *prepared;
  const GraphProgram& p = program_of(graph);
  throw SpecError(p.name + ": has been loaded for launches, not prepared to be recorded", p.loc,
                  "tessera_graph_prepare() prepares a graph");
}
/// What makes a graph: none of these may be NULL.
GraphCode code_of(const char* function, const tessera_bundle* bundle, const tessera_device* device, const char* name,
                  tessera_graph** graph) {
  need(function, "bundle", bundle);
  need(function, "device", device);
  need(function, "name", name);
  need(function, "graph", graph);
  return bundle->bundle.graph(device->device, name);
}
}  // namespace

tessera_result tessera_bundle_graph_count(const tessera_bundle* bundle, int32_t* count) {
  return guarded(__func__, [&] {
    need("tessera_bundle_graph_count", "bundle", bundle);
    need("tessera_bundle_graph_count", "count", count);
    *count = static_cast<int32_t>(bundle->bundle.graphs().size());
  });
}
tessera_result tessera_bundle_graph_name(const tessera_bundle* bundle, int32_t index, const char** name) {
  return guarded(__func__, [&] {
    need("tessera_bundle_graph_name", "bundle", bundle);
    need("tessera_bundle_graph_name", "name", name);
    *name = c::name_at(bundle->bundle.graphs(), index, "tessera_bundle_graph_name", "graph");
  });
}

tessera_result tessera_graph_load(const tessera_bundle* bundle, tessera_device* device, const char* name,
                                  const tessera_size* sizes, int32_t num_sizes, tessera_graph** graph) {
  return guarded(__func__, [&] {
    const GraphCode code = code_of("tessera_graph_load", bundle, device, name, graph);
    const LoadGraphOptions options{
        .dims = c::dims_of("tessera_graph_load", code.graph->name, code.graph->loc, sizes, num_sizes)};
    *graph = new tessera_graph{LoadedGraph(device->device, code, options), signature(*code.graph), {}, {}};
  });
}
tessera_result tessera_graph_prepare(const tessera_bundle* bundle, tessera_device* device, const char* name,
                                     int32_t frames_in_flight, int32_t calls_per_frame, const tessera_size* sizes,
                                     int32_t num_sizes, tessera_graph** graph) {
  return guarded(__func__, [&] {
    const GraphCode code = code_of("tessera_graph_prepare", bundle, device, name, graph);
    const PrepareGraphOptions options{
        .frames_in_flight = frames_in_flight,
        .calls_per_frame = calls_per_frame,
        .dims = c::dims_of("tessera_graph_prepare", code.graph->name, code.graph->loc, sizes, num_sizes)};
    auto made = std::make_unique<tessera_graph>(
        tessera_graph{PreparedGraph(device->device, code, options), signature(*code.graph), {}, {}});
    made->sizes.reserve(options.dims.size());
    made->arrays.reserve(code.graph->inputs.size() + code.graph->outputs.size());
    *graph = made.release();
  });
}
tessera_result tessera_graph_resize(tessera_graph* graph, const tessera_size* sizes, int32_t num_sizes) {
  return guarded(__func__, [&] {
    need("tessera_graph_resize", "graph", graph);
    c::take_sizes("tessera_graph_resize", sizes, num_sizes, graph->sizes);
    prepared_of(*graph).resize(graph->sizes);
  });
}
void tessera_graph_destroy(tessera_graph* graph) { delete graph; }
tessera_result tessera_graph_signature(const tessera_graph* graph, const char** signature) {
  return guarded(__func__, [&] {
    need("tessera_graph_signature", "graph", graph);
    need("tessera_graph_signature", "signature", signature);
    *signature = graph->signature.c_str();
  });
}
tessera_result tessera_graph_check(const tessera_graph* graph, const char* signature) {
  return guarded(__func__, [&] {
    need("tessera_graph_check", "graph", graph);
    need("tessera_graph_check", "signature", signature);
    check_signature(program_of(*graph), signature);
  });
}
tessera_result tessera_stream_record_graph(tessera_stream* stream, tessera_graph* graph, tessera_array* const* arrays,
                                           int32_t count, tessera_scopes* scopes) {
  return guarded(__func__, [&] {
    need("tessera_stream_record_graph", "stream", stream);
    need("tessera_stream_record_graph", "graph", graph);
    if (count > 0) need("tessera_stream_record_graph", "arrays", arrays);
    const GraphProgram& p = program_of(*graph);
    PreparedGraph& prepared = prepared_of(*graph);
    const size_t inputs = p.inputs.size(), all = inputs + p.outputs.size();
    c::check_count(p.name, p.loc, all, count);
    struct Cleared {
      std::vector<DeviceArray>& arrays;
      ~Cleared() { arrays.clear(); }
    } const cleared{graph->arrays};
    for (size_t i = 0; i < all; ++i) {
      if (!arrays[i]) throw SpecError(p.name + ": argument " + std::to_string(i) + " is NULL", p.loc);
      graph->arrays.push_back(arrays[i]->array);
    }
    const std::span<const DeviceArray> given(graph->arrays);
    const Scopes s = prepared.record(stream->stream, given.first(inputs), given.subspan(inputs));
    if (scopes) *scopes = c::scopes_of(s);
  });
}

tessera_result tessera_graph_launch(const tessera_graph* graph, tessera_array* const* inputs, int32_t num_inputs,
                                    tessera_array** outputs, int32_t num_outputs) {
  return guarded(__func__, [&] {
    need("tessera_graph_launch", "graph", graph);
    if (num_inputs > 0) need("tessera_graph_launch", "inputs", inputs);
    if (num_outputs > 0) need("tessera_graph_launch", "outputs", outputs);
    const GraphProgram& p = program_of(*graph);
    const auto loaded = std::get_if<LoadedGraph>(&graph->graph);
    if (!loaded)
      throw SpecError(p.name + ": has been prepared to be recorded, not loaded for launches", p.loc,
                      "tessera_graph_load() loads a graph");
    c::check_counts(p.name, p.loc, graph->signature,
                    {static_cast<int64_t>(p.inputs.size()), static_cast<int64_t>(p.outputs.size())},
                    {num_inputs, num_outputs});
    std::vector<DeviceArray> in, out;
    for (int32_t i = 0; i < num_inputs; ++i) {
      if (!inputs[i]) throw SpecError(p.name + ": argument " + std::to_string(i) + " is NULL", p.loc);
      in.push_back(inputs[i]->array);
    }
    std::vector<std::unique_ptr<tessera_array>> made;  // where none is given
    const auto types = loaded->output_types(in);
    for (int32_t i = 0; i < num_outputs; ++i) {
      const auto& [dtype, shape] = types[static_cast<size_t>(i)];
      made.push_back(outputs[i] ? nullptr
                                : std::make_unique<tessera_array>(
                                      tessera_array{DeviceArray(loaded->device(), shape, dtype), shape}));
      out.push_back(outputs[i] ? outputs[i]->array : made.back()->array);
    }
    loaded->run_into(in, out);
    for (int32_t i = 0; i < num_outputs; ++i)
      if (tessera_array* const array = made[static_cast<size_t>(i)].release()) outputs[i] = array;
  });
}
