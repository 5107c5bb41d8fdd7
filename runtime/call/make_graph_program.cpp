#include "runtime/call/make_graph_program.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include "engine/base/bind.h"
#include "engine/call/pallas_call.h"
#include "engine/graph/fuse.h"
#include "engine/graph/plan.h"
#include "engine/graph/sizes.h"
#include "engine/ir/text.h"
#include "runtime/call/call.h"
#include "runtime/call/gate.h"
#include "runtime/record_graph.h"

namespace tessera {
namespace {

using Command = GraphPlan::Command;
using Memory = GraphProgram::Memory;
using Spot = GraphPlan::Place;
using Type = GraphProgram::Type;
using Where = GraphProgram::Where;

/// Of arrays with run-time sizes by blocks of at most 256 elements.
ir::Kernel copy_array(DType t, const std::vector<Extent>& shape) {
  const ShapeDtype type{shape, t};
  PallasCallParams params{.out_shape = type, .name = "copy"};
  if (std::any_of(shape.begin(), shape.end(), [](const Extent& e) { return !e.is_static(); })) {
    std::vector<BlockDim> block(shape.size(), 1);
    std::vector<GridSize> grid(shape.size(), 1);
    int64_t left = 256;
    for (size_t d = shape.size(); d-- > 0;) {
      const int64_t n = std::max<int64_t>(std::min(shape[d].value().value_or(left), left), 1);
      block[d] = n;
      grid[d] = cdiv(shape[d], n);
      left = std::max<int64_t>(left / n, 1);
    }
    params.grid = grid;
    BlockSpec spec{block};
    spec.index_map = IndexMap::of(
        static_cast<int>(shape.size()), 0,
        [](const std::vector<Value>& ids, const std::vector<Ref>&) { return Indices({ids.begin(), ids.end()}); });
    params.in_specs = params.out_specs = spec;
  }
  return pallas_call([](Ref from, Ref to) { to[all] = from[all]; }, params).trace({type});
}
Type type_of(const Graph::Type& t) { return {t.dtype, t.dims()}; }
Type type_of(const std::pair<DType, Shape>& t) { return {t.first, {t.second.begin(), t.second.end()}}; }
/// Stores what comes by value.
ir::Kernel put_number(DType t) {
  return pallas_call([](Ref from, Ref to) { to[all] = from[all]; },
                     {.out_shape = ShapeDtype{{}, t}, .in_specs = by_value(t), .name = "number"})
      .trace({{{}, t}});
}

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

/// Makes calls of the plan of a graph: its steps are its functions, in the order of run().
struct Making {
  /// What a call is: a kernel of the graph, the copy of an array, or a gate.
  struct Wanted {
    const ir::Kernel* kernel;
    NamedExtents dims;
    std::vector<Type> types;  // per argument
    std::vector<Spot> arguments;
    std::map<size_t, uint32_t> own = {};  // arguments that are arrays of ours
  };
  static constexpr size_t kNone = SIZE_MAX;

  const Graph& graph;
  RecordableGraph made = {};
  GraphProgram& out = made.program;
  const GraphPlan p = plan(graph);
  std::vector<Wanted> wanted = {};
  std::vector<size_t> wanted_by = std::vector<size_t>(p.commands.size(), kNone);  // per command: of wanted
  std::vector<size_t> order = {};                                                 // of wanted
  // per storage: what it holds, which gives copies a shape
  std::map<size_t, Type> types = {};
  std::map<std::string, ir::Kernel> copies = {}, gates = {};
  // per index of an output's storage: the first output that is it
  std::map<size_t, size_t> output_at = {};
  std::vector<std::pair<size_t, size_t>> given = {};  // the position in order, and the output
  std::optional<uint32_t> zero = {};                  // of own: the number 0
  std::map<std::string, uint32_t> known = {};         // own arrays by place and type
  std::map<std::string, uint32_t> programs = {};      // by the kernel's text
  std::vector<GraphProgram::Call> calls = {};         // per wanted

  void run() {
    out.name = graph.name;
    out.loc = graph.loc;
    for (const size_t v : graph.body.inputs) out.inputs.push_back(type_of(graph.values[v]));
    for (const size_t v : graph.body.outputs) out.outputs.push_back(type_of(graph.values[v]));
    std::vector<size_t> sequence;
    for (const GraphPlan::Node& n : p.nodes) {
      if (!p.recorded(n)) refuse(graph, p, n);
      p.expand(n, sequence);
    }
    for (const auto& [v, a] : graph.constants) own(type_of(std::pair{a.dtype(), a.shape()}), a);
    type_storages();
    for (size_t i = 0; i < p.commands.size(); ++i) want(i);
    for (const size_t command : sequence)
      if (wanted_by[command] != kNone) order.push_back(wanted_by[command]);
    want_given_outputs();
    make_calls();
    for (size_t i = 0; i < p.commands.size(); ++i)
      if (wanted_by[i] != kNone) connect_gate(i);
    for (const size_t i : order) out.calls.push_back(calls[i]);
    make_numbers();
    for (const auto& [position, output] : given)
      out.calls[position].arguments[1] = {Memory::output, static_cast<uint32_t>(output)};
  }

  uint32_t own(Type type, std::optional<Array> contents = {}) {
    out.own.push_back({std::move(type), std::move(contents)});
    return static_cast<uint32_t>(out.own.size() - 1);
  }
  uint32_t program(const ir::Kernel& k) {
    const auto [it, fresh] = programs.emplace(ir::print(k, true), static_cast<uint32_t>(made.kernels.size()));
    if (fresh) made.kernels.push_back(k);
    return it->second;
  }

  // Inputs of rank 0, of which some may come as numbers: a kernel per dtype.
  void make_numbers() {
    std::map<DType, std::vector<uint32_t>> inputs;
    for (uint32_t i = 0; i < out.inputs.size(); ++i)
      if (out.inputs[i].second.empty()) inputs[out.inputs[i].first].push_back(i);
    for (const auto& [t, list] : inputs) {
      const auto kernel = static_cast<uint32_t>(out.kernels.size());
      for (const uint32_t i : list) out.numbers.push_back({i, kernel, own({t, {}})});
      out.kernels.push_back({program(put_number(t)), {}, static_cast<int32_t>(list.size())});
    }
  }

  const ir::Kernel* copy_of(const Type& t) {
    const std::string key = to_string(t);
    const auto it = copies.find(key);
    return it != copies.end() ? &it->second : &copies.emplace(key, copy_array(t.first, t.second)).first->second;
  }

  void type_storages() {
    for (size_t s = 0; s < p.storages.size(); ++s) {
      const GraphPlan::Storage& storage = p.storages[s];
      if (storage.memory == GraphPlan::Memory::input) types[s] = out.inputs[storage.index];
      if (storage.memory == GraphPlan::Memory::constant) types[s] = out.own[storage.index].type;
    }
    for (size_t i = 0; i < p.outputs.size(); ++i)
      if (p.storages[p.outputs[i].storage].memory == GraphPlan::Memory::output) {
        output_at.emplace(p.storages[p.outputs[i].storage].index, i);
        types[p.outputs[i].storage] = out.outputs[i];
      }
    if (size_names(out).empty()) return;  // else bytes tell nothing of what they hold
    for (size_t s = 0; s < p.storages.size(); ++s)
      if (p.storages[s].value) types.try_emplace(s, type_of(graph.values[*p.storages[s].value]));
  }
  [[noreturn]] void refuse_rows() const {
    throw CompileError(graph.name +
                           ": a loop works on rows of a larger array, and what is recorded into a host's command "
                           "buffer takes whole arrays",
                       graph.loc, "replay it as a CompiledGraph");
  }
  /// A storage is one array, also where that is a single row.
  void holds(const Spot& place, const Type& type) {
    if (place.bytes > 0 && types.emplace(place.storage, type).first->second != type) refuse_rows();
  }

  void want(size_t command) {
    const Command& c = p.commands[command];
    const Command::Copy* const copy = c.copy();
    if (copy && copy->from == copy->to) return;
    wanted_by[command] = wanted.size();
    if (copy) {
      const auto type = types.find(copy->from.storage);
      const Type t = type != types.end() ? type->second : Type{DType::u8, {copy->to.bytes}};
      holds(copy->to, t);
      want_copy(t, copy->from, copy->to);
    } else if (c.set_gate()) {
      want_gate(c);
    } else {
      const Command::Call& called = *c.call();
      const ir::Kernel& k = graph.kernels[called.kernel];
      std::vector<Graph::Type> inputs;
      for (const size_t v : called.values) inputs.push_back(graph.values[v]);
      NamedExtents dims;
      if (any_sized(inputs)) {
        dims = kernel_sizes(k, inputs);
      } else {
        for (const auto& [name, n] : bind_dims(k, called.inputs, called.dims)) dims.emplace_back(name, n);
      }
      want(k, std::move(dims), called.arguments);
      for (size_t a = 0; a < called.arguments.size(); ++a) holds(called.arguments[a], wanted.back().types[a]);
    }
  }
  void want(const ir::Kernel& k, NamedExtents dims, std::vector<Spot> arguments) {
    Wanted w{&k, std::move(dims), {}, std::move(arguments)};
    for (const ir::BlockMapping& b : k.blocks) {
      w.types.push_back({b.dtype, {}});
      for (const Extent& e : b.array_shape) w.types.back().second.push_back(substitute(e, w.dims));
    }
    wanted.push_back(std::move(w));
  }
  /// The kernel has its own names, so that one copies arrays of any sizes.
  void want_copy(Type t, const Spot& from, const Spot& to) {
    NamedExtents dims;
    for (size_t d = 0; d < t.second.size(); ++d)
      if (Extent& e = t.second[d]; !e.is_static()) {
        const std::string name = "n" + std::to_string(d);
        dims.emplace_back(name, std::exchange(e, dim(name)));
      }
    want(*copy_of(t), std::move(dims), {from, to});
  }

  void want_gate(const Command& c) {
    GateKernel gate_made = gate_kernel(p, c);
    const ir::Kernel& k = gates.emplace(gate_made.key, std::move(gate_made.kernel)).first->second;
    const std::optional<Spot>& decides = c.set_gate()->decides;
    const GraphPlan::Gate& gate = p.gates[c.set_gate()->gate];
    want(k, {},
         {decides.value_or(Spot{}), c.guard ? p.gates[c.guard->gate].state : Spot{}, {}, gate.state, gate.groups});
    Wanted& w = wanted.back();
    if (!zero && (!decides || !c.guard)) zero = own({DType::i32, {}}, Array({}, DType::i32));
    if (!decides) w.own[0] = *zero;
    if (!c.guard) w.own[1] = *zero;
    w.own[2] = own(w.types[2]);  // its contents are known when all that the gate decides about is
  }

  // Results that no command has made: an argument, a constant, one that comes twice.
  void want_given_outputs() {
    for (size_t i = 0; i < p.outputs.size(); ++i) {
      const GraphPlan::Storage& s = p.storages[p.outputs[i].storage];
      if (s.memory == GraphPlan::Memory::output && output_at.at(s.index) == i) continue;
      const Type& t = out.outputs[i];
      given.emplace_back(order.size(), i);
      order.push_back(wanted.size());
      want_copy(t, p.outputs[i], p.outputs[i]);
    }
  }

  static std::string key(const Wanted& w) {
    std::string key = ir::print(*w.kernel, true);
    for (size_t a = 0; a < static_cast<size_t>(w.kernel->num_inputs); ++a) key += to_string(w.types[a]) + ";";
    for (const auto& [name, e] : w.dims) key += name + "=" + to_string(e) + ";";
    return key;
  }

  // Equal kernels on equal sizes are one, for as many calls as there are.
  void make_calls() {
    std::vector<std::string> keys;
    std::map<std::string, int> times;
    for (const Wanted& w : wanted) keys.push_back(key(w));
    for (const size_t i : order) ++times[keys[i]];
    std::map<std::string, uint32_t> ready;
    for (size_t i = 0; i < wanted.size(); ++i) {
      const Wanted& w = wanted[i];
      const auto [it, fresh] = ready.emplace(keys[i], static_cast<uint32_t>(out.kernels.size()));
      if (fresh) out.kernels.push_back({program(*w.kernel), w.dims, std::max(times[keys[i]], 1)});
      calls.push_back(call(w, it->second));
    }
  }

  Where at(const Spot& place, const Type& type) {
    const GraphPlan::Storage& s = p.storages[place.storage];
    if (place.bytes > 0 && (place.offset != 0 || place.bytes != s.bytes)) refuse_rows();
    switch (s.memory) {
      case GraphPlan::Memory::input: return {Memory::input, static_cast<uint32_t>(s.index)};
      case GraphPlan::Memory::output: return {Memory::output, static_cast<uint32_t>(output_at.at(s.index))};
      case GraphPlan::Memory::constant: return {Memory::own, static_cast<uint32_t>(s.index)};  // they come first
      case GraphPlan::Memory::arena: break;
    }
    const std::string key = std::to_string(s.offset) + " " + to_string(type);
    const auto it = known.find(key);
    return {Memory::own, it != known.end() ? it->second : known.emplace(key, own(type)).first->second};
  }

  GraphProgram::Call call(const Wanted& w, uint32_t kernel) {
    GraphProgram::Call call{kernel};
    for (size_t a = 0; a < w.arguments.size(); ++a) {
      const int position = static_cast<int>(a);
      Where where = w.own.contains(a) ? Where{Memory::own, w.own.at(a)} : at(w.arguments[a], w.types[a]);
      // the plan has copied it
      where.donated =
          position < w.kernel->num_inputs && w.kernel->is_stored(position) && w.kernel->aliased_output(position) < 0;
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
      const std::vector<GraphPlan::Gate::Member>& members = p.gates[set->gate].members;
      GraphProgram::Gate gate{wanted[wanted_by[command]].own.at(2)};
      for (uint32_t m = 0; m < members.size(); ++m)
        if (const size_t call = wanted_by[members[m].command]; call != kNone)
          gate.members.emplace_back(m, calls[call].kernel);
      out.own[gate.numbers].contents =
          gate_numbers(p, c, std::vector<std::array<uint32_t, 3>>(members.size(), std::array<uint32_t, 3>{}));
      out.gates.push_back(std::move(gate));
    } else if (c.guard) {
      const GraphPlan::Gate& gate = p.gates[c.guard->gate];
      GraphProgram::Call& call = calls[wanted_by[command]];
      call.groups = at(gate.groups, Type{DType::i32, {gate.slot_count()}}).index;
      call.groups_at = static_cast<uint64_t>(c.guard->offset());
    }
  }
};

GraphCode code_of(const Device& device, RecordableGraph made) {
  GraphCode code{std::make_shared<const GraphProgram>(std::move(made.program)), {}};
  for (const ir::Kernel& k : made.kernels)
    code.programs.push_back(std::make_shared<const Program>(load(device, k).program()));
  return code;
}

}  // namespace

RecordableGraph make_graph_program(const Graph& given, bool fuse) {
  Graph graph = fuse ? tessera::fuse(given).graph : given;
  for (ir::Kernel& k : graph.kernels) k.put_values_in_memory();  // of a graph that is not jit's
  Making making{graph};
  making.run();
  return std::move(making.made);
}

PreparedGraph::PreparedGraph(const Device& device, const Graph& graph, const PrepareGraphOptions& options)
    : PreparedGraph(device, code_of(device, make_graph_program(graph, options.fuse)), options) {}

}  // namespace tessera
