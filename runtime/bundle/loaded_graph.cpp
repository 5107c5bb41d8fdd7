#include "runtime/loaded_graph.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "runtime/bundle/graph_code.h"
#include "runtime/launch/one_launch.h"

namespace tessera {

using vulkan::Buffer;
using vulkan::Context;
using vulkan::Cut;
using vulkan::Launch;
using vulkan::Outcome;
using vulkan::Turns;

struct LoadedGraph::State {
  State(const Device& on, const GraphCode& given, const DimValues& dims) : device(on), code(given), largest(dims) {
    if (!code.graph) throw SpecError("LoadedGraph: the GraphCode holds no graph", {}, "take one by Bundle::graph()");
    const GraphProgram& g = *code.graph;
    check_largest(g, largest, "LoadGraphOptions::dims");
    std::vector<GraphKernel> kernels;
    for (size_t k = 0; k < g.kernels.size(); ++k) {
      GraphKernel& kernel = kernels.emplace_back(kernel_of(code, k));
      const Program& p = *kernel.program;
      alignment = std::max<int64_t>(alignment, p.alignment);
      prints = prints || !p.prints.empty();
      const vulkan::Bound b = vulkan::bind(p, kernel_sizes(g.kernels[k], largest), device, Cut::loops);
      if (b.count == 0) continue;
      kernel.groups = b.groups;
      kernel.dispatches = std::max<size_t>(b.slices.size(), 1);
    }
    check_graph(g, kernels);
    own = own_arrays(device, g, GraphTypes(g, largest), kernels);
    for (const DeviceArray& a : own) bytes += a.nbytes();
    for (const GraphKernel& k : kernels) device.context()->pipeline(*k.program);
  }

  Device device;
  GraphCode code;
  DimValues largest;
  std::vector<DeviceArray> own;  // of the largest sizes
  int64_t bytes = 0, alignment = 1;
  bool prints = false;
  std::mutex mutex;  // of a call: `own` is one call's

  /// The types of a call. Throws SpecError on inputs that do not fit, and on sizes beyond the largest.
  GraphTypes types(const std::vector<DeviceArray>& inputs) const {
    const GraphProgram& g = *code.graph;
    if (largest.empty()) return {g, {}};
    DimValues sizes;  // those that do not fit are found when they are checked
    for (size_t i = 0; i < std::min(inputs.size(), g.inputs.size()); ++i) {
      const std::vector<Extent>& dims = g.inputs[i].second;
      if (inputs[i].number() || !inputs[i].valid() || inputs[i].shape().size() != dims.size()) continue;
      for (size_t d = 0; d < dims.size(); ++d)
        if (const auto name = dims[d].as_name()) sizes.try_emplace(*name, inputs[i].shape()[d]);
    }
    sizes.insert(largest.begin(), largest.end());
    for (const auto& [name, n] : sizes)
      if (const int64_t most = largest.find(name)->second; n > most)
        throw SpecError(g.name + ": the size " + name + " is " + std::to_string(n) +
                            " but the graph has been loaded for at most " + std::to_string(most),
                        g.loc, "load it for the largest size that is to come");
    return {g, std::move(sizes)};
  }
  /// The graph's own arrays as a call of these types sees them.
  std::vector<DeviceArray> own_of(const GraphTypes& types) const {
    if (largest.empty()) return own;
    std::vector<DeviceArray> views;
    for (size_t i = 0; i < own.size(); ++i)
      (views.emplace_back(own[i].share())).set_shape(types.own[i].second, code.graph->name);
    return views;
  }
};

namespace {

constexpr size_t kTogether = 64;  // kernels in a submission, whose arenas exist at the same time

/// One call of a graph: its kernels in order, as many in a submission as the watchdog allows.
class Run {
 public:
  Run(const Device& device, const GraphCode& code, const DimValues& sizes, const std::vector<DeviceArray>& own,
      const std::vector<DeviceArray>& inputs, const std::vector<DeviceArray>& outputs)
      : device_(device),
        context_(*device.context()),
        code_(code),
        sizes_(sizes),
        own_(own),
        inputs_(inputs),
        outputs_(outputs) {}

  void operator()() {
    std::optional<Turns::Turn> turn;  // of all submissions
    std::vector<std::pair<std::shared_ptr<Buffer>, std::shared_ptr<Outcome>>> before;
    for (const DeviceArray& a : outputs_)
      if (auto b = a.memory()) before.emplace_back(std::move(b), nullptr);
    std::vector<Turns::Use> used = uses();  // before the lock, as what another thread frees meanwhile goes without it
    {
      std::unique_lock lock(context_.mutex());
      turn.emplace(context_.turns(), lock, std::move(used));
      for (auto& [b, outcome] : before) outcome = b->outcome;
    }
    forget_errors(own_), forget_errors(outputs_);
    try {
      run();
    } catch (...) {  // what was wrong is no better
      const std::lock_guard lock(context_.mutex());
      for (const auto& [b, outcome] : before)
        if (outcome) b->outcome = outcome;
      throw;
    }
  }

 private:
  void run() {
    const GraphProgram& g = *code_.graph;
    for (const GraphProgram::Number& n : g.numbers)
      if (inputs_[n.input].number()) add(n.kernel, {inputs_[n.input]}, {own_[n.own]}, {});
    for (const GraphProgram::Call& c : g.calls) {
      const std::vector<ProgramArg>& args = program(c.kernel).args;
      std::vector<DeviceArray> in, out;
      for (size_t i = 0; i < args.size(); ++i) (args[i].is_output ? out : in).push_back(array(c.arguments[i]));
      Launch::InGraph in_graph;
      if (c.groups) in_graph = {own_[*c.groups].memory(), c.groups_at};
      add(c.kernel, std::move(in), std::move(out), in_graph);
    }
    submit();
  }

  struct Step {
    Step(const Device& device, const Program& program, std::vector<DeviceArray> in, std::vector<DeviceArray> out)
        : inputs(std::move(in)), outputs(std::move(out)), launch(device, program, inputs) {}
    const std::vector<DeviceArray> inputs, outputs;
    Launch launch;
  };

  const Program& program(uint32_t kernel) const { return *code_.programs[code_.graph->kernels[kernel].program]; }

  DeviceArray array(const GraphProgram::Where& w) const {
    const DeviceArray& a = array_at(*code_.graph, w, inputs_, outputs_, own_);
    return w.donated ? donate(a) : a;
  }

  std::vector<Turns::Use> uses() const {
    std::vector<Turns::Use> all;
    for (const DeviceArray& a : inputs_)
      if (!a.number()) all.push_back({a.memory().get(), false});
    for (const DeviceArray& a : outputs_) all.push_back({a.memory().get(), true});
    return all;
  }

  void add(uint32_t kernel, std::vector<DeviceArray> in, std::vector<DeviceArray> out,
           const Launch::InGraph& in_graph) {
    Launch& launch =
        steps_.emplace_back(std::make_unique<Step>(device_, program(kernel), std::move(in), std::move(out)))->launch;
    launch.prepare(&steps_.back()->outputs, kernel_sizes(code_.graph->kernels[kernel], sizes_), in_graph);
    const double seconds = launch.seconds(), budget = context_.watchdog_seconds();
    const bool alone = launch.cut();
    if (calls_.size() == kTogether || (!calls_.empty() && (alone || (budget > 0 && seconds_ + seconds > budget))))
      submit(1);  // the newest is none of calls_ yet
    calls_.push_back(&launch);
    seconds_ += seconds;
    if (alone) submit();
  }

  /// The steps but for the newest so many.
  void submit(std::ptrdiff_t kept = 0) {
    Launch::submit(calls_, code_.graph->name, code_.graph->loc);
    calls_.clear();
    steps_.erase(steps_.begin(), steps_.end() - kept);
    seconds_ = 0;
  }

  const Device& device_;
  Context& context_;
  const GraphCode& code_;
  const DimValues& sizes_;
  const std::vector<DeviceArray>&own_, &inputs_, &outputs_;
  std::vector<std::unique_ptr<Step>> steps_;  // those that have not been submitted
  std::vector<Launch*> calls_;
  double seconds_ = 0;
};

}  // namespace

LoadedGraph::LoadedGraph(const Device& device, const GraphCode& code, const LoadGraphOptions& options)
    : state_(std::make_shared<State>(device, code, options.dims)) {}

const GraphProgram& LoadedGraph::program() const { return *state_->code.graph; }
const Device& LoadedGraph::device() const { return state_->device; }
int64_t LoadedGraph::memory_bytes() const { return state_->bytes; }

std::vector<std::pair<DType, Shape>> LoadedGraph::output_types(const std::vector<DeviceArray>& inputs) const {
  return state_->types(inputs).outputs;
}

std::vector<DeviceArray> LoadedGraph::operator()(const std::vector<DeviceArray>& inputs) const {
  std::vector<DeviceArray> outputs;
  for (const auto& [dtype, shape] : output_types(inputs)) outputs.emplace_back(device(), shape, dtype);
  return run_into(inputs, outputs);
}

std::vector<DeviceArray> LoadedGraph::run_into(const std::vector<DeviceArray>& inputs,
                                               const std::vector<DeviceArray>& outputs) const {
  const GraphProgram& g = program();
  const GraphTypes types = state_->types(inputs);
  check_arguments(g, types, device(), state_->alignment, inputs, outputs);
  for (size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].donated())
      throw SpecError(g.name + ": argument " + std::to_string(i) + " is donated, and a graph of a bundle takes none",
                      g.loc, "give it without donate()");
  const std::lock_guard lock(state_->mutex);
  Run(device(), state_->code, types.sizes, state_->own_of(types), inputs, outputs)();
  return outputs;
}

std::vector<Array> LoadedGraph::run(const std::vector<Array>& inputs) const {
  std::vector<DeviceArray> there;
  for (const Array& a : inputs) there.emplace_back(device(), a);
  std::vector<Array> outputs;
  for (const DeviceArray& o : (*this)(there)) outputs.push_back(o.download());
  if (state_->prints) device().wait();  // of a graph without outputs, too
  return outputs;
}

}  // namespace tessera
