#include "runtime/call/graph.h"

#include <limits>

#include "runtime/launch.h"

namespace tessera {

CompiledGraph::CompiledGraph(Device device, Graph graph) : device_(std::move(device)), graph_(std::move(graph)), last_use_(graph_.values.size()) {
  for (const ir::Kernel& k : graph_.kernels) kernels_.push_back(load(device_, k));
  for (const auto& [v, a] : graph_.constants) constants_.emplace_back(v, DeviceArray(device_, a));
  for (size_t c = 0; c < graph_.calls.size(); ++c) {
    for (size_t v : graph_.calls[c].arguments) last_use_[v] = c;
    for (size_t v : graph_.calls[c].results) last_use_[v] = c;
  }
  for (size_t v : graph_.outputs) last_use_[v] = std::numeric_limits<size_t>::max();
}

std::vector<DeviceArray> CompiledGraph::operator()(const std::vector<DeviceArray>& inputs) const { return run_into(inputs, {}); }

std::vector<DeviceArray> CompiledGraph::run_into(const std::vector<DeviceArray>& inputs, const std::vector<DeviceArray>& outputs) const {
  std::vector<std::pair<DType, Shape>> types;
  for (const DeviceArray& a : inputs) types.emplace_back(a.dtype(), a.shape());
  check_arguments(graph_, types);
  std::vector<DeviceArray> values(graph_.values.size()), given(graph_.values.size());
  for (size_t i = 0; i < outputs.size(); ++i)
    if (DeviceArray& first = given[graph_.outputs.at(i)]; !first.valid()) first = outputs[i];
  for (size_t i = 0; i < inputs.size(); ++i) values[graph_.inputs[i]] = inputs[i];
  for (const auto& [v, a] : constants_) values[v] = a;
  for (size_t c = 0; c < graph_.calls.size(); ++c) {
    const Graph::Call& call = graph_.calls[c];
    std::vector<DeviceArray> arguments, results;
    for (size_t v : call.arguments) arguments.push_back(values[v]);
    for (size_t v : call.results) {
      const Graph::Type& t = graph_.values[v];
      results.push_back(given[v].valid() ? given[v] : DeviceArray(device_, t.shape, t.dtype));
    }
    results = launch_into(device_, kernels_[call.kernel].program(), arguments, results);
    for (size_t i = 0; i < results.size(); ++i) values[call.results[i]] = std::move(results[i]);
    for (const auto* list : {&call.arguments, &call.results})
      for (size_t v : *list)
        if (last_use_[v] == c) values[v] = DeviceArray();
  }
  std::vector<DeviceArray> made;
  for (size_t v : graph_.outputs) made.push_back(values[v]);
  return made;
}

std::vector<Array> CompiledGraph::run(const std::vector<Array>& inputs) const {
  std::vector<std::pair<DType, Shape>> types;
  for (const Array& a : inputs) types.emplace_back(a.dtype(), a.shape());
  check_arguments(graph_, types);  // before anything is uploaded
  std::vector<DeviceArray> arguments;
  for (const Array& a : inputs) arguments.emplace_back(device_, a);
  std::vector<Array> outputs;
  for (const DeviceArray& o : (*this)(arguments)) outputs.push_back(o.download());
  return outputs;
}

CompiledGraph load(const Device& device, Graph graph) { return {device, std::move(graph)}; }

}  // namespace tessera
