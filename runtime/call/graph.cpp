#include "runtime/call/graph.h"

#include <algorithm>
#include <set>
#include <unordered_map>

#include "runtime/context.h"
#include "runtime/launch.h"

namespace tessera {

struct CompiledGraph::State {
  Device device;
  Graph graph;
  std::vector<CompiledKernel> kernels;                                    // as graph.kernels
  std::vector<std::pair<size_t, DeviceArray>> constants;                  // as graph.constants
  std::unordered_map<const Graph::Step*, std::vector<size_t>> last_uses;  // the values that nobody needs after a step
};

namespace {

void collect_uses(const Graph::Body& b, std::set<size_t>& uses);
void collect_uses(const Graph::Step& s, std::set<size_t>& uses) {
  uses.insert(s.arguments.begin(), s.arguments.end());
  for (const auto& [name, v] : s.sizes) uses.insert(v);
  for (const Graph::Body& b : s.bodies) collect_uses(b, uses);
}
void collect_uses(const Graph::Body& b, std::set<size_t>& uses) {
  for (const Graph::Step& s : b.steps) collect_uses(s, uses);
  uses.insert(b.outputs.begin(), b.outputs.end());
}

using LastUses = std::unordered_map<const Graph::Step*, std::vector<size_t>>;

/// `needed`: what is needed after the steps. Values of other bodies are left alone: those run more than once, or not at all.
void find_last_uses(const Graph::Body& b, std::set<size_t> needed, LastUses& found) {
  needed.insert(b.outputs.begin(), b.outputs.end());
  std::set<size_t> own;
  for (const Graph::Step& s : b.steps) own.insert(s.results.begin(), s.results.end());
  for (auto s = b.steps.rbegin(); s != b.steps.rend(); ++s) {
    std::set<size_t> uses(s->results.begin(), s->results.end());
    collect_uses(*s, uses);
    for (size_t v : uses)
      if (own.contains(v) && needed.insert(v).second) found[&*s].push_back(v);
    for (size_t i = 0; i < s->bodies.size(); ++i) {
      std::set<size_t> after;
      if (i == 1 && s->kind == Graph::Step::Kind::repeat) collect_uses(s->bodies[0], after);  // the body sees what the test has made
      find_last_uses(s->bodies[i], std::move(after), found);
    }
  }
}

/// Row `row` of the one that has rows of the other's size.
void copy_row(const DeviceArray& from, int64_t from_row, const DeviceArray& to, int64_t to_row) {
  const auto source = from.buffer("a row"), target = to.buffer("a row");
  if (!source || !target) return;
  const auto bytes = static_cast<uint64_t>(std::min(from.nbytes(), to.nbytes()));
  vulkan::Context& context = *from.device().context();
  std::lock_guard lock(context.mutex());
  const uint64_t value = context.recorder().submit("a row", [&] {
    context.recorder().copy(*source, static_cast<uint64_t>(from_row) * bytes, *target, static_cast<uint64_t>(to_row) * bytes, bytes);
    vulkan::Buffer* shown[] = {target.get()};
    if (target->host_reads()) context.recorder().show_host(shown);
  });
  if (!source->outcome || !target->outcome) {
    if (source->outcome) target->outcome = source->outcome;
  } else if (source->outcome != target->outcome) {  // what either reports is true of the whole
    auto both = std::make_shared<vulkan::Outcome>();
    both->value = value;
    both->inputs = {target->outcome, source->outcome};
    both->kernel = "a row";
    target->outcome = both;
    context.follow(std::move(both));
  }
}

}  // namespace

CompiledGraph::CompiledGraph(Device device, Graph graph) {
  auto state = std::make_shared<State>(State{std::move(device), std::move(graph), {}, {}, {}});
  for (const ir::Kernel& k : state->graph.kernels) state->kernels.push_back(load(state->device, k));
  for (const auto& [v, a] : state->graph.constants) state->constants.emplace_back(v, DeviceArray(state->device, a));
  find_last_uses(state->graph.body, {}, state->last_uses);
  state_ = std::move(state);
}

const Graph& CompiledGraph::graph() const { return state_->graph; }
const Device& CompiledGraph::device() const { return state_->device; }

class CompiledGraph::Run {
 public:
  explicit Run(const State& state) : state_(state), values_(state.graph.values.size()), places_(values_.size()) {
    for (const auto& [v, a] : state.constants) values_[v] = a;
  }

  /// Where a value is to be made, if a step makes it.
  void place(size_t v, const DeviceArray& at) {
    if (!places_[v].valid()) places_[v] = at;
  }

  std::vector<DeviceArray> body(const Graph::Body& b, const std::vector<DeviceArray>& inputs) {
    for (size_t i = 0; i < inputs.size(); ++i) values_[b.inputs[i]] = inputs[i];
    for (const Graph::Step& s : b.steps) {
      std::vector<DeviceArray> results = s.kind == Graph::Step::Kind::call     ? call(s)
                                         : s.kind == Graph::Step::Kind::repeat ? repeat(s)
                                                                               : choose(s);
      for (size_t i = 0; i < results.size(); ++i) values_[s.results[i]] = std::move(results[i]);
      if (const auto it = state_.last_uses.find(&s); it != state_.last_uses.end())
        for (size_t v : it->second) values_[v] = DeviceArray();
    }
    return given(b.outputs);
  }

 private:
  std::vector<DeviceArray> given(const std::vector<size_t>& positions) const {
    std::vector<DeviceArray> arrays;
    for (size_t v : positions) arrays.push_back(values_[v]);
    return arrays;
  }
  std::vector<DeviceArray> call(const Graph::Step& s) {
    DimValues dims;
    for (const auto& [name, v] : s.sizes) dims[name] = grid_size(scalar(values_[v].download()));
    if (std::none_of(s.results.begin(), s.results.end(), [&](size_t v) { return places_[v].valid(); })) return state_.kernels[s.kernel](given(s.arguments), dims);
    std::vector<DeviceArray> results;
    for (size_t v : s.results) results.push_back(fresh(v));
    return launch_into(state_.device, state_.kernels[s.kernel].program(), given(s.arguments), results, dims);
  }
  std::vector<DeviceArray> choose(const Graph::Step& s) {
    return body(s.bodies[chosen(s, scalar(values_[s.arguments[0]].download()))], {});
  }
  std::vector<DeviceArray> repeat(const Graph::Step& s) {
    std::vector<DeviceArray> carries = given(s.arguments),
                             sliced(carries.begin() + static_cast<std::ptrdiff_t>(s.num_carries()), carries.end()), stacked;
    carries.resize(s.num_carries());
    for (size_t i = s.num_carries(); i < s.results.size(); ++i) stacked.push_back(fresh(s.results[i]));
    for (int64_t i = 0; !s.count || i < *s.count; ++i) {
      std::vector<DeviceArray> inputs = carries;
      for (size_t k = 0; k < sliced.size(); ++k)
        copy_row(sliced[k], row(s, i), inputs.emplace_back(fresh(s.bodies[0].inputs[s.num_carries() + k])), 0);
      if (!s.count) {
        for (size_t k = 0; k < inputs.size(); ++k) values_[s.bodies[0].inputs[k]] = inputs[k];
        if (!scalar(body(s.bodies[1], {})[0].download())) break;
      }
      std::vector<DeviceArray> next = body(s.bodies[0], inputs);
      for (size_t k = 0; k < stacked.size(); ++k) copy_row(next[s.num_carries() + k], 0, stacked[k], row(s, i));
      next.resize(s.num_carries());
      carries = std::move(next);
    }
    carries.insert(carries.end(), stacked.begin(), stacked.end());
    return carries;
  }
  DeviceArray fresh(size_t v) const {
    return places_[v].valid() ? places_[v] : DeviceArray(state_.device, state_.graph.values[v].shape, state_.graph.values[v].dtype);
  }

  const State& state_;
  std::vector<DeviceArray> values_, places_;
};

std::vector<DeviceArray> CompiledGraph::operator()(const std::vector<DeviceArray>& inputs) const { return run_into(inputs, {}); }

std::vector<DeviceArray> CompiledGraph::run_into(const std::vector<DeviceArray>& inputs, const std::vector<DeviceArray>& outputs) const {
  std::vector<std::pair<DType, Shape>> types;
  for (const DeviceArray& a : inputs) types.emplace_back(a.dtype(), a.shape());
  check_arguments(state_->graph, types);
  Run run(*state_);
  for (size_t i = 0; i < outputs.size(); ++i) run.place(state_->graph.body.outputs.at(i), outputs[i]);
  return run.body(state_->graph.body, inputs);
}

std::vector<Array> CompiledGraph::run(const std::vector<Array>& inputs) const {
  std::vector<std::pair<DType, Shape>> types;
  for (const Array& a : inputs) types.emplace_back(a.dtype(), a.shape());
  check_arguments(state_->graph, types);  // before anything is uploaded
  std::vector<DeviceArray> arguments;
  for (const Array& a : inputs) arguments.emplace_back(state_->device, a);
  std::vector<Array> outputs;
  for (const DeviceArray& o : (*this)(arguments)) outputs.push_back(o.download());
  return outputs;
}

CompiledGraph load(const Device& device, Graph graph) { return {device, std::move(graph)}; }

}  // namespace tessera
