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

/// Of arrays with run-time sizes by blocks.
ir::Kernel copy_array(DType t, const std::vector<Extent>& shape) {
  const ShapeDtype type{shape, t};
  PallasCallParams params{.out_shape = type, .name = "copy"};
  if (std::any_of(shape.begin(), shape.end(), [](const Extent& e) { return !e.is_static(); })) {
    const std::vector<int64_t> block = small_blocks(shape);
    std::vector<GridSize> grid;
    for (size_t d = 0; d < shape.size(); ++d) grid.emplace_back(cdiv(shape[d], block[d]));
    params.grid = grid;
    BlockSpec spec{std::vector<BlockDim>(block.begin(), block.end())};
    spec.index_map = IndexMap::of(
        static_cast<int>(shape.size()), 0,
        [](const std::vector<Value>& ids, const std::vector<Ref>&) { return Indices({ids.begin(), ids.end()}); });
    params.in_specs = params.out_specs = spec;
  }
  return pallas_call([](Ref from, Ref to) { to[all] = from[all]; }, params).trace({type});
}
/// A row of an array, whose position is `at`, i32s for the array's first dims: to or from an array of its own.
ir::Kernel copy_row(const Type& array, const Type& row, bool back) {
  const auto positions = static_cast<int64_t>(array.second.size() - row.second.size());
  const auto place = [=](const Ref& at) {
    std::vector<IndexItem> items;
    for (int64_t i = 0; i < positions; ++i) items.emplace_back(at[{i}]);
    items.insert(items.end(), row.second.size(), IndexItem(all));
    return RefIndex(items);
  };
  const auto spec = [](const Type& t) { return ShapeDtype{t.second, t.first}; };
  const ShapeDtype at{{positions}, DType::i32};
  if (back)
    return pallas_call(
               [&](Ref, Ref where, Ref from, Ref to) {
                 const RefIndex row_at = place(where);
                 to[row_at] = from[all];
               },
               {.out_shape = spec(array), .input_output_aliases = {{0, 0}}, .name = "put_row"})
        .trace({spec(array), at, spec(row)});
  return pallas_call(
             [&](Ref from, Ref where, Ref to) {
               const RefIndex row_at = place(where);
               to[all] = from[row_at];
             },
             {.out_shape = spec(row), .name = "get_row"})
      .trace({spec(array), at});
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
  const GraphPlan p = plan(graph, {.alignment = 1});  // rows are copied, wherever they lie
  std::vector<Wanted> wanted = {};
  std::vector<size_t> wanted_by = std::vector<size_t>(p.commands.size(), kNone);  // per command: of wanted
  std::vector<size_t> order = {};                                                 // of wanted
  std::map<size_t, std::vector<size_t>> before = {}, after = {};                  // of wanted by wanted: copies of rows
  // per storage: what it holds, which gives copies a shape
  std::map<size_t, Type> types = {};
  std::map<std::string, ir::Kernel> copies = {}, gates = {};
  // per index of an output's storage: the first output that is it
  std::map<size_t, size_t> output_at = {};
  std::vector<std::pair<size_t, size_t>> given = {};  // the position in order, and the output
  std::optional<uint32_t> zero = {};                  // of own: the number 0
  std::map<std::string, uint32_t> known = {};         // own arrays by place and type
  std::map<std::string, uint32_t> programs = {};      // by the kernel's text
  std::map<std::string, uint32_t> positions = {};     // of rows, own arrays by what they hold
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
      if (const size_t w = wanted_by[command]; w != kNone) {
        order.insert(order.end(), before[w].begin(), before[w].end());
        order.push_back(w);
        order.insert(order.end(), after[w].begin(), after[w].end());
      }
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

  // -- rows of arrays that loops slice and stack

  /// What the storage holds as a whole.
  Type array_in(size_t storage) {
    if (const auto it = types.find(storage); it != types.end()) return it->second;
    const std::optional<size_t> value = p.storages[storage].value;
    if (!value) refuse_rows();
    return types.emplace(storage, type_of(graph.values[*value])).first->second;
  }
  /// Whether a place that is this is a row of what its storage holds.
  bool is_row(const Spot& place, const Type& t) {
    const GraphPlan::Storage& s = p.storages[place.storage];
    if (place.bytes == 0) return false;
    if (place.offset != 0 || place.bytes != s.bytes) return true;
    const auto it = types.find(place.storage);
    const size_t dims = it != types.end() ? it->second.second.size()
                        : s.value         ? graph.values[*s.value].shape.size()
                                          : 0;
    return dims > t.second.size();
  }
  /// A copy between a row and an array of ours.
  size_t want_row(const Spot& place, const Type& t, uint32_t own_array, bool back) {
    if (!size_names(out).empty())
      throw CompileError(
          graph.name + ": a loop works on rows of arrays, and the graph has run-time sizes, as " + size_names(out)[0],
          graph.loc, "trace it for fixed sizes, or give whole arrays to the kernels of the loop");
    const Type array = array_in(place.storage);
    const size_t dims = array.second.size(), rest = t.second.size();
    if (array.first != t.first || dims <= rest ||
        !std::equal(t.second.begin(), t.second.end(), array.second.end() - static_cast<std::ptrdiff_t>(rest)))
      refuse_rows();
    const std::string kernel_key = to_string(array) + to_string(t) + (back ? " put" : " get");
    auto kernel = copies.find(kernel_key);
    if (kernel == copies.end()) kernel = copies.emplace(kernel_key, copy_row(array, t, back)).first;
    Array at({static_cast<int64_t>(dims - rest)}, DType::i32);
    int64_t row = place.offset / place.bytes;
    std::string text;
    for (size_t d = dims - rest; d-- > 0; row /= *array.second[d].value()) {
      const int64_t i = row % *array.second[d].value();
      at.set_element_bits(static_cast<int64_t>(d), static_cast<uint64_t>(i));
      text += std::to_string(i) + " ";
    }
    const auto position = positions.find(text);
    const uint32_t where =
        position != positions.end()
            ? position->second
            : positions.emplace(text, own({DType::i32, {static_cast<int64_t>(dims - rest)}}, at)).first->second;
    const Spot whole{place.storage, 0, p.storages[place.storage].bytes};
    if (back) want(kernel->second, {}, {whole, {}, {}, whole});
    else want(kernel->second, {}, {whole, {}, {}});
    wanted.back().own = {{1, where}, {2, own_array}};
    return wanted.size() - 1;
  }
  /// An array of ours for a row, which nothing needs for longer than a call.
  uint32_t own_row(size_t argument, const Type& t) {
    const std::string name = "row " + std::to_string(argument) + " " + to_string(t);
    const auto it = known.find(name);
    return it != known.end() ? it->second : known.emplace(name, own(t)).first->second;
  }
  /// The rows among the arguments of a call that is wanted go through arrays of ours. A row that the call may not write
  /// after all, or in part, is what it was.
  size_t take_rows(const ir::Kernel& k, size_t w, bool guarded) {
    std::map<std::pair<size_t, int64_t>, uint32_t> ours;
    std::vector<size_t> gets, puts;
    const auto inputs = static_cast<size_t>(k.num_inputs);
    for (size_t a = wanted[w].arguments.size(); a-- > 0;) {  // outputs first
      const Spot place = wanted[w].arguments[a];
      const Type t = wanted[w].types[a];
      if (!is_row(place, t)) {
        holds(place, t);
        continue;
      }
      const auto [it, fresh] = ours.try_emplace({place.storage, place.offset}, 0);
      if (fresh) {
        it->second = own_row(a, t);
        if (a < inputs || k.blocks[a].alias >= 0 || guarded) gets.push_back(want_row(place, t, it->second, false));
        if (a >= inputs) puts.push_back(want_row(place, t, it->second, true));
      }
      wanted[w].own[a] = it->second;
    }
    before[w] = gets, after[w] = puts;
    return w;
  }

  void want_copied(size_t command, const Command::Copy& copy) {
    const auto full = [&](const Spot& spot) {
      const GraphPlan::Storage& s = p.storages[spot.storage];
      return spot.offset == 0 && spot.bytes == s.bytes;
    };
    // What is copied, by the side that is an array as a whole.
    const auto known_type = [&](const Spot& spot) -> std::optional<Type> {
      if (!full(spot)) return {};
      if (const auto it = types.find(spot.storage); it != types.end()) return it->second;
      if (const auto value = p.storages[spot.storage].value) return type_of(graph.values[*value]);
      return {};
    };
    std::optional<Type> t = known_type(copy.from);
    const std::optional<Type> other = known_type(copy.to);
    if (!t || (other && other->second.size() < t->second.size())) t = other;  // a loop of one iteration: its row
    if (full(copy.from) && full(copy.to)) {
      if (!t) t = Type{DType::u8, {copy.to.bytes}};
      if (!is_row(copy.from, *t) && !is_row(copy.to, *t)) {
        holds(copy.to, *t);
        wanted_by[command] = wanted.size();
        return want_copy(*t, copy.from, copy.to);
      }
    }
    const Spot& partial = full(copy.from) ? copy.to : copy.from;
    if (!t) t = row_type(partial);
    const bool from_row = is_row(copy.from, *t), to_row = is_row(copy.to, *t);
    const uint32_t ours = own_row(0, *t);
    if (!from_row) holds(copy.from, *t);
    if (!to_row) holds(copy.to, *t);
    size_t w = kNone;
    if (from_row) {
      w = want_row(copy.from, *t, ours, false);
      if (!to_row) {
        wanted[w].own.erase(2);
        wanted[w].arguments[2] = copy.to;
      }
    }
    if (to_row) {
      const size_t put = want_row(copy.to, *t, ours, true);
      if (from_row) before[put] = {w};
      else {
        wanted[put].own.erase(2);
        wanted[put].arguments[2] = copy.from;
      }
      w = put;
    }
    wanted_by[command] = w;
  }
  /// Of a row, by how many of the array's first dims it takes.
  Type row_type(const Spot& place) {
    Type t = array_in(place.storage);
    int64_t bytes = p.storages[place.storage].bytes;
    while (bytes > place.bytes && !t.second.empty() && t.second[0].value().value_or(0) > 0) {
      bytes /= *t.second[0].value();
      t.second.erase(t.second.begin());
    }
    if (bytes != place.bytes) refuse_rows();
    return t;
  }

  void want(size_t command) {
    const Command& c = p.commands[command];
    const Command::Copy* const copy = c.copy();
    if (copy && copy->from == copy->to) return;
    if (copy) return want_copied(command, *copy);
    wanted_by[command] = wanted.size();
    if (c.set_gate()) return want_gate(c);
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
    wanted_by[command] = take_rows(k, wanted.size() - 1, c.guard.has_value());
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
