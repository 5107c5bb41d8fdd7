#include "runtime/call/record_graph.h"

#include <algorithm>

#include "engine/base/plural.h"
#include "engine/call/pallas_call.h"
#include "engine/graph/fuse.h"
#include "engine/interpreter/interpreter.h"
#include "engine/ir/text.h"
#include "runtime/call/gate.h"
#include "runtime/call/graph.h"
#include "runtime/submit/context.h"

namespace tessera {

using Command = GraphPlan::Command;
using Memory = GraphPlan::Memory;
using Spot = GraphPlan::Place;

namespace {
ir::Kernel copy_array(DType t, const Shape& shape) {
  const ShapeDtype type{{shape.begin(), shape.end()}, t};
  return pallas_call([](Ref from, Ref to) { to[all] = from[all]; }, {.out_shape = type, .name = "copy"}).trace({type});
}
/// Stores what comes by value.
ir::Kernel put_number(DType t) {
  return pallas_call([](Ref from, Ref to) { to[all] = from[all]; },
                     {.out_shape = ShapeDtype{{}, t}, .in_specs = by_value(t), .name = "number"})
      .trace({{{}, t}});
}
std::string key_of(DType t, const Shape& shape) { return to_string(Graph::Type{t, shape}); }

/// Throws the error for a node that is no list of commands.
[[noreturn]] void refuse(const Graph& g, const GraphPlan& p, const GraphPlan::Node& n) {
  std::string why = n.why;
  Loc loc = n.loc;
  if (n.commands()) {
    const ir::Kernel& k = g.kernels[p.commands[n.begin].call()->kernel];
    why = "a value is the size of a grid of " + k.name;
    loc = k.loc;
  }
  const std::string bound =
      "let a count end it too: test i < 100 && ..., where i starts from a constant and each iteration adds one, or "
      "loop to "
      "minimum(n, 100); or ";
  throw CompileError(g.name + ": " + why + ", and what is recorded into a host's command buffer is known before", loc,
                     (why.starts_with("nothing bounds") ? bound : "") + "replay it as a CompiledGraph");
}
}  // namespace

PreparedGraph::Where PreparedGraph::at(const GraphPlan& plan, const Spot& p, DType dtype, const Shape& shape) {
  const GraphPlan::Storage& s = plan.storages[p.storage];
  if (p.bytes > 0 && (p.offset != 0 || p.bytes != s.bytes))
    throw CompileError(graph_.name +
                           ": a loop works on rows of a larger array, and what is recorded into a host's command "
                           "buffer takes whole arrays",
                       graph_.loc, "replay it as a CompiledGraph");
  if (s.memory != Memory::arena) return {s.memory, s.index};
  const std::string key = std::to_string(s.offset) + " " + key_of(dtype, shape);
  const auto [it, fresh] = known_.emplace(key, arrays_.size());
  if (fresh) {
    arrays_.emplace_back(device_, shape, dtype);
    bytes_ += arrays_.back().nbytes();
  }
  return {Memory::arena, it->second};
}

/// Makes the calls of a PreparedGraph from the plan of its graph: its steps are its functions, in the order of run().
struct PreparedGraph::Preparation {
  /// What a call is: a kernel of the graph, the copy of an array, or a gate.
  struct Wanted {
    const ir::Kernel* kernel;
    std::vector<std::pair<DType, Shape>> inputs;
    DimValues dims;
    std::vector<Spot> arguments;
    std::map<size_t, size_t> own = {};  // arguments that are arrays of ours
  };
  static constexpr size_t kNone = SIZE_MAX;

  PreparedGraph& g;
  const PrepareGraphOptions& options;
  const GraphPlan p = plan(g.graph_);
  std::vector<Wanted> wanted;
  std::vector<size_t> wanted_by = std::vector<size_t>(p.commands.size(), kNone);  // per command: of wanted
  std::vector<size_t> order;                                                      // of wanted
  // per storage: what it holds, which gives copies a shape
  std::map<size_t, std::pair<DType, Shape>> types;
  std::map<std::string, ir::Kernel> copies, gates;
  // per index of an output's storage: the first output that is it
  std::map<size_t, size_t> output_at;
  std::vector<std::pair<size_t, size_t>> given;  // the position in order, and the output
  std::optional<size_t> zero;                    // of arrays_: the number 0
  std::vector<Call> made;                        // per wanted

  Preparation(PreparedGraph& graph, const PrepareGraphOptions& o) : g(graph), options(o) {}

  void run() {
    std::vector<size_t> sequence;
    for (const GraphPlan::Node& n : p.nodes) {
      if (!p.recorded(n)) refuse(g.graph_, p, n);
      p.expand(n, sequence);
    }
    add_constants();
    type_storages();
    for (size_t i = 0; i < p.commands.size(); ++i) want(i);
    for (const size_t command : sequence)
      if (wanted_by[command] != kNone) order.push_back(wanted_by[command]);
    want_given_outputs();
    prepare_calls();
    for (size_t i = 0; i < p.commands.size(); ++i)
      if (wanted_by[i] != kNone) connect_gate(i);
    for (const size_t i : order) g.calls_.push_back(made[i]);
    prepare_numbers();
    for (const auto& [position, output] : given) g.calls_[position].arguments[1] = {Memory::output, output};
  }

  // Inputs of rank 0, of which some may come as numbers: a kernel per dtype.
  void prepare_numbers() {
    std::map<DType, std::vector<size_t>> inputs;
    for (size_t i = 0; i < g.graph_.body.inputs.size(); ++i)
      if (const Graph::Type& t = g.graph_.values[g.graph_.body.inputs[i]]; t.shape.empty())
        inputs[t.dtype].push_back(i);
    for (const auto& [t, list] : inputs) {
      for (const size_t i : list) {
        g.numbers_.push_back({i, g.prepared_.size(), g.arrays_.size()});
        g.arrays_.emplace_back(g.device_, Shape{}, t);
        g.bytes_ += g.arrays_.back().nbytes();
      }
      g.prepared_.emplace_back(
          g.device_, load(g.device_, put_number(t)).program(),
          PrepareOptions{.frames_in_flight = options.frames_in_flight,
                         .calls_per_frame = static_cast<int>(list.size()) * options.calls_per_frame});
    }
    g.arguments_.reserve(std::max<size_t>(g.arguments_.capacity(), 2));
  }

  const ir::Kernel* copy_of(DType t, const Shape& s) {
    const auto it = copies.find(key_of(t, s));
    return it != copies.end() ? &it->second : &copies.emplace(key_of(t, s), copy_array(t, s)).first->second;
  }

  void add_constants() {
    for (const auto& [v, a] : g.graph_.constants) {
      g.known_.emplace("constant " + std::to_string(g.arrays_.size()), g.arrays_.size());
      g.arrays_.emplace_back(g.device_, a);
      g.bytes_ += a.nbytes();
    }
  }

  void type_storages() {
    for (size_t s = 0; s < p.storages.size(); ++s) {
      const GraphPlan::Storage& storage = p.storages[s];
      if (storage.memory == Memory::input) {
        const Graph::Type& t = g.graph_.values[g.graph_.body.inputs[storage.index]];
        types[s] = {t.dtype, t.shape};
      } else if (storage.memory == Memory::constant) {
        const Array& a = g.graph_.constants[storage.index].second;
        types[s] = {a.dtype(), a.shape()};
      }
    }
    for (size_t i = 0; i < p.outputs.size(); ++i)
      if (p.storages[p.outputs[i].storage].memory == Memory::output)
        output_at.emplace(p.storages[p.outputs[i].storage].index, i);
  }

  void want(size_t command) {
    const Command& c = p.commands[command];
    const Command::Copy* const copy = c.copy();
    if (copy && copy->from == copy->to) return;
    wanted_by[command] = wanted.size();
    if (copy) {
      const auto type = types.find(copy->from.storage);
      const std::pair<DType, Shape> t =
          type != types.end() ? type->second : std::pair{DType::u8, Shape{copy->to.bytes}};
      types[copy->to.storage] = t;
      wanted.push_back({copy_of(t.first, t.second), {t}, {}, {copy->from, copy->to}});
    } else if (c.set_gate()) {
      want_gate(c);
    } else {
      const Command::Call& called = *c.call();
      const ir::Kernel& k = g.graph_.kernels[called.kernel];
      const DimValues dims = bind_dims(k, called.inputs, called.dims);
      for (size_t a = 0; a < called.arguments.size(); ++a)
        types[called.arguments[a].storage] = {k.blocks[a].dtype, bind_shape(k, static_cast<int>(a), dims)};
      wanted.push_back({&k, called.inputs, dims, called.arguments});
    }
  }

  void want_gate(const Command& c) {
    GateKernel gate_made = gate_kernel(p, c);
    const ir::Kernel& k = gates.emplace(gate_made.key, std::move(gate_made.kernel)).first->second;
    const std::optional<Spot>& decides = c.set_gate()->decides;
    const GraphPlan::Gate& gate = p.gates[c.set_gate()->gate];
    Wanted w{&k,
             {},
             {},
             {decides.value_or(Spot{}), c.guard ? p.gates[c.guard->gate].state : Spot{}, {}, gate.state, gate.groups}};
    for (size_t a = 0; a < 3; ++a) w.inputs.emplace_back(k.blocks[a].dtype, bind_shape(k, static_cast<int>(a), {}));
    if (!zero && (!decides || !c.guard)) {
      zero = g.arrays_.size();
      g.arrays_.emplace_back(g.device_, Array({}, DType::i32));
    }
    if (!decides) w.own[0] = *zero;
    if (!c.guard) w.own[1] = *zero;
    w.own[2] = g.arrays_.size();  // known when all that the gate decides about is
    g.arrays_.emplace_back();
    wanted.push_back(std::move(w));
  }

  // Results that no command has made: an argument, a constant, one that comes twice.
  void want_given_outputs() {
    for (size_t i = 0; i < p.outputs.size(); ++i) {
      const GraphPlan::Storage& s = p.storages[p.outputs[i].storage];
      if (s.memory == Memory::output && output_at.at(s.index) == i) continue;
      const Graph::Type& t = g.graph_.values[g.graph_.body.outputs[i]];
      given.emplace_back(order.size(), i);
      order.push_back(wanted.size());
      wanted.push_back({copy_of(t.dtype, t.shape), {{t.dtype, t.shape}}, {}, {p.outputs[i], p.outputs[i]}});
    }
  }

  static std::string key(const Wanted& w) {
    std::string key = ir::print(*w.kernel, true);
    for (const auto& [t, s] : w.inputs) key += key_of(t, s) + ";";
    for (const auto& [name, v] : w.dims) key += name + "=" + std::to_string(v) + ";";
    return key;
  }

  // Equal kernels on equal sizes are prepared once, for as many calls as there are.
  void prepare_calls() {
    std::vector<std::string> keys;
    std::map<std::string, int> times;
    for (const Wanted& w : wanted) keys.push_back(key(w));
    for (const size_t i : order) ++times[keys[i]];
    std::map<std::string, size_t> ready;
    for (size_t i = 0; i < wanted.size(); ++i) {
      const Wanted& w = wanted[i];
      const auto [it, fresh] = ready.emplace(keys[i], g.prepared_.size());
      if (fresh) {
        const Program& program = load(g.device_, *w.kernel).program();
        g.alignment_ = std::max<int64_t>(g.alignment_, program.alignment);
        g.prepared_.emplace_back(
            g.device_, program,
            PrepareOptions{.frames_in_flight = options.frames_in_flight,
                           .calls_per_frame = std::max(times[keys[i]], 1) * options.calls_per_frame,
                           .dims = bind_dims(*w.kernel, w.inputs, w.dims)});
      }
      made.push_back(call(w, it->second));
      g.arguments_.reserve(std::max(g.arguments_.capacity(), made.back().arguments.size()));
    }
  }

  Call call(const Wanted& w, size_t prepared) {
    const PreparedKernel& k = g.prepared_[prepared];
    Call call{prepared, {}};
    for (size_t a = 0; a < w.arguments.size(); ++a) {
      Where where =
          w.own.contains(a) ? Where{Memory::arena, w.own.at(a)} : g.at(p, w.arguments[a], k.dtype(a), k.shape(a));
      if (where.memory == Memory::output) where.index = output_at.at(where.index);
      // the plan has copied it
      where.donated = a < static_cast<size_t>(w.kernel->num_inputs) && w.kernel->is_stored(static_cast<int>(a)) &&
                      w.kernel->aliased_output(static_cast<int>(a)) < 0;
      call.arguments.push_back(where);
    }
    // What an aliased output starts with is there already.
    for (size_t a = 0; a < w.arguments.size(); ++a)
      if (const int from = w.kernel->blocks[a].alias; from >= 0)
        call.arguments[static_cast<size_t>(from)] = call.arguments[a];
    return call;
  }

  // A gate gets the sizes of what it decides about; that finds its numbers of workgroups where the gate leaves them.
  void connect_gate(size_t command) {
    const Command& c = p.commands[command];
    if (const Command::SetGate* set = c.set_gate()) {
      std::vector<std::array<uint32_t, 3>> groups;
      for (const GraphPlan::Gate::Member& m : p.gates[set->gate].members)
        groups.push_back(wanted_by[m.command] == kNone ? std::array<uint32_t, 3>{}
                                                       : g.prepared_[made[wanted_by[m.command]].kernel].groups());
      DeviceArray& numbers = g.arrays_[wanted[wanted_by[command]].own.at(2)];
      numbers = DeviceArray(g.device_, gate_numbers(p, c, groups));
      g.bytes_ += numbers.nbytes();
    } else if (c.guard) {
      const GraphPlan::Gate& gate = p.gates[c.guard->gate];
      Call& call = made[wanted_by[command]];
      call.groups = g.at(p, gate.groups, DType::i32, {gate.slot_count()}).index;
      call.groups_at = static_cast<uint64_t>(c.guard->offset());
    }
  }
};

PreparedGraph::PreparedGraph(const Device& device, const Graph& graph, const PrepareGraphOptions& options)
    : device_(device), graph_(options.fuse ? fuse(graph).graph : graph) {
  for (ir::Kernel& k : graph_.kernels) k.put_values_in_memory();  // of a graph that is not jit's
  Preparation(*this, options).run();
}

// Makes the text of an error only if there is one.
void PreparedGraph::check(std::span<const DeviceArray> inputs, std::span<const DeviceArray> outputs) const {
  const Graph::Body& body = graph_.body;
  const auto name_of = [&](size_t i) {
    return i < inputs.size() ? "argument " + std::to_string(i) : "output " + std::to_string(i - inputs.size());
  };
  const auto at = [&](size_t i) -> const DeviceArray& {
    return i < inputs.size() ? inputs[i] : outputs[i - inputs.size()];
  };
  // throws
  if (inputs.size() != body.inputs.size()) check_arguments(graph_, std::vector<std::pair<DType, Shape>>(inputs.size()));
  if (outputs.size() != body.outputs.size())
    throw SpecError(graph_.name + " gives " + plural(body.outputs.size(), "output") + " but " +
                        plural_is(outputs.size(), "array") + " given for them",
                    graph_.loc);
  for (size_t i = 0; i < inputs.size() + outputs.size(); ++i) {
    const DeviceArray& a = at(i);
    if (i < inputs.size() && a.number()) {
      check_number(graph_, i, *a.number());
      continue;
    }
    if (!a.valid()) a.buffer(graph_.name + ": " + name_of(i));  // throws
    const bool is_output = i >= inputs.size();
    const Graph::Type& t = graph_.values[is_output ? body.outputs[i - inputs.size()] : body.inputs[i]];
    if (a.dtype() != t.dtype || a.shape() != t.shape) {
      const std::string given = to_string(Graph::Type{a.dtype(), a.shape()}),
                        where = graph_.name + ": " + name_of(i) + " is ";
      throw SpecError(is_output ? where + to_string(t) + " but its array is " + given
                                : where + given + " but " + to_string(t) + " is expected",
                      graph_.loc);
    }
    if (!(a.device() == device_))
      throw SpecError(graph_.name + ": " + name_of(i) + ": the array is on another Device than the graph", graph_.loc);
    const std::shared_ptr<vulkan::Buffer> b = a.memory();
    if (!b) continue;
    for (size_t j = 0; is_output && j < i; ++j)
      if (at(j).is_at(b))
        throw SpecError(graph_.name + ": " +
                            (j < inputs.size() ? name_of(i) + " is to go where " + name_of(j) + " is"
                                               : name_of(j) + " and " + name_of(i) + " are one array"),
                        graph_.loc, "give it an array of its own");
    if (b->address() % static_cast<uint64_t>(alignment_) != 0)
      throw DeviceError(graph_.name + ": " + name_of(i) + ": the array lies at address " +
                        std::to_string(b->address()) + ", which is no multiple of " + std::to_string(alignment_));
  }
}

Scopes PreparedGraph::record(CommandStream& stream, std::span<const DeviceArray> inputs,
                             std::span<const DeviceArray> outputs) {
  check(inputs, outputs);
  Scopes scopes;
  const auto add = [&](const Scopes& s) {
    scopes.wait_stages |= s.wait_stages;
    scopes.wait_accesses |= s.wait_accesses;
    scopes.signal_stages |= s.signal_stages;
    scopes.signal_accesses |= s.signal_accesses;
  };
  const auto input = [&](size_t i) -> const DeviceArray& {
    if (inputs[i].number())
      for (const Number& n : numbers_)
        if (n.input == i) return arrays_[n.array];
    return inputs[i];
  };
  for (const Number& n : numbers_) {
    if (!inputs[n.input].number()) continue;
    arguments_.assign({inputs[n.input], arrays_[n.array]});
    add(stream.record(prepared_[n.kernel], arguments_));
  }
  for (const Call& c : calls_) {
    arguments_.clear();
    for (const Where& w : c.arguments) {
      const DeviceArray& a = w.memory == Memory::input    ? input(w.index)
                             : w.memory == Memory::output ? outputs[w.index]
                                                          : arrays_[w.index];
      arguments_.push_back(w.donated ? donate(a) : a);
    }
    const Scopes s = c.groups ? stream.record_indirect(prepared_[c.kernel], arguments_, arrays_[*c.groups], c.groups_at)
                              : stream.record(prepared_[c.kernel], arguments_);
    add(s);
  }
  arguments_.clear();
  return scopes;
}

}  // namespace tessera
