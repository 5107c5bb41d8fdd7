#include "runtime/record_graph.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>

#include "runtime/bundle/graph_code.h"
#include "runtime/record/host_stream.h"
#include "runtime/submit/context.h"

namespace tessera {

using Where = GraphProgram::Where;

PreparedGraph::PreparedGraph(const Device& device, const GraphCode& code, const PrepareGraphOptions& options)
    : device_(device), graph_(code.graph) {
  if (!graph_) throw SpecError("PreparedGraph: the GraphCode holds no graph", {}, "take one by Bundle::graph()");
  const GraphProgram& g = *graph_;
  for (const auto& [value, what] :
       {std::pair{options.frames_in_flight, "frames_in_flight"}, std::pair{options.calls_per_frame, "calls_per_frame"}})
    if (value < 1)
      throw SpecError(g.name + ": PrepareGraphOptions::" + what + " must be positive but is " + std::to_string(value),
                      g.loc);
  check_largest(g, options.dims, "PrepareGraphOptions::dims");
  largest_ = wanted_ = options.dims;
  types_ = std::make_shared<GraphTypes>(g, options.dims);
  for (const GraphProgram::Kernel& k : g.kernels) {
    const Program& program = program_of(code, prepared_.size());
    const int64_t calls = int64_t{k.calls} * options.calls_per_frame;
    if (calls > INT32_MAX)
      throw SpecError(g.name + ": PrepareGraphOptions::calls_per_frame is " + std::to_string(options.calls_per_frame) +
                          ", of a graph that calls a kernel " + std::to_string(k.calls) + " times",
                      g.loc, "give the calls of a frame to several PreparedGraphs");
    alignment_ = std::max<int64_t>(alignment_, program.alignment);
    prepared_.emplace_back(device, code.programs[k.program],
                           PrepareOptions{.frames_in_flight = options.frames_in_flight,
                                          .calls_per_frame = static_cast<int>(calls),
                                          .dims = kernel_sizes(k, options.dims)});
    room_.reserve(k.dims.size());
  }
  std::vector<GraphKernel> kernels;
  for (const PreparedKernel& k : prepared_) {
    GraphKernel& kernel = kernels.emplace_back(kernel_of(code, kernels.size()));
    kernel.groups = k.groups();
    kernel.dispatches = k.call_->dispatches();
  }
  check_graph(g, kernels);
  own_ = own_arrays(device, g, *types_, kernels);
  for (const DeviceArray& a : own_) bytes_ += a.nbytes();
  size_t most = 2;
  for (const GraphProgram::Call& c : g.calls) most = std::max(most, c.arguments.size());
  arguments_.reserve(most);
}

const DimValues& PreparedGraph::sizes() const { return types_->sizes; }

void PreparedGraph::resize(std::span<const NamedSize> sizes) {
  vulkan::take_values(wanted_, types_->sizes);
  vulkan::put_sizes({graph_->name, graph_->loc, "graph", "PrepareGraphOptions::dims"}, sizes, largest_, wanted_);
  try {
    use_sizes(wanted_);
  } catch (...) {
    use_sizes(types_->sizes);
    throw;
  }
  vulkan::take_values(types_->sizes, wanted_);
}

// Everything that follows from them, in place.
void PreparedGraph::use_sizes(const DimValues& sizes) {
  const GraphProgram& g = *graph_;
  types_->set(g, sizes);
  for (size_t i = 0; i < own_.size(); ++i)
    if (!g.own[i].contents) own_[i].set_shape(types_->own[i].second, g.name + ": resize");
  for (size_t k = 0; k < prepared_.size(); ++k) {
    room_.clear();
    for (const auto& [name, e] : g.kernels[k].dims)
      if (!e.is_static()) room_.push_back({name, e.eval(sizes)});
    if (!room_.empty()) prepared_[k].resize(room_);
  }
}

Scopes PreparedGraph::record(CommandStream& stream, std::span<const DeviceArray> inputs,
                             std::span<const DeviceArray> outputs) {
  check_arguments(*graph_, *types_, device_, alignment_, inputs, outputs);
  for (size_t k = 0; k < prepared_.size(); ++k)
    stream.stream_->check_room(*prepared_[k].call_, static_cast<size_t>(graph_->kernels[k].calls));
  forget_errors(own_), forget_errors(outputs);
  Scopes scopes;
  const auto add = [&](const Scopes& s) {
    scopes.wait_stages |= s.wait_stages;
    scopes.wait_accesses |= s.wait_accesses;
    scopes.signal_stages |= s.signal_stages;
    scopes.signal_accesses |= s.signal_accesses;
  };
  for (const GraphProgram::Number& n : graph_->numbers) {
    if (!inputs[n.input].number()) continue;
    arguments_.assign({inputs[n.input], own_[n.own]});
    add(stream.record(prepared_[n.kernel], arguments_));
  }
  for (const GraphProgram::Call& c : graph_->calls) {
    arguments_.clear();
    for (const Where& w : c.arguments) {
      const DeviceArray& a = array_at(*graph_, w, inputs, outputs, own_);
      arguments_.push_back(w.donated ? donate(a) : a);
    }
    add(c.groups ? stream.record_indirect(prepared_[c.kernel], arguments_, own_[*c.groups], c.groups_at)
                 : stream.record(prepared_[c.kernel], arguments_));
  }
  arguments_.clear();
  return scopes;
}

}  // namespace tessera
