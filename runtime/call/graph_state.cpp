#include "runtime/call/graph_state.h"

#include <algorithm>

#include "engine/interpreter/interpreter.h"
#include "runtime/call/gate.h"
#include "runtime/launch.h"
#include "runtime/submit/pipeline.h"
#include "runtime/submit/slices.h"

namespace tessera {

using vulkan::Buffer;
using vulkan::PreparedCall;
using vulkan::Recording;
using Command = GraphPlan::Command;
using Node = GraphPlan::Node;
using Spot = GraphPlan::Place;

namespace {

// A copy from or to what is elsewhere in every replay.
bool moves(const GraphPlan& plan, const Command& c) {
  const Command::Copy* const copy = c.copy();
  if (!copy || copy->from == copy->to) return false;
  for (const Spot& p : {copy->from, copy->to})
    if (const GraphPlan::Storage& s = plan.storages[p.storage]; s.input() || s.output()) return true;
  return false;
}

/// A kernel that copies so many bytes: unlike vkCmdCopyBuffer it finds where from and where to in the table.
ir::Kernel copy_kernel(int64_t bytes) {
  const DType t = bytes % 4 == 0 ? DType::u32 : DType::u8;
  const Extent n = bytes / size_bytes(t);
  return pallas_call([](Ref from, Ref to) { to[all] = from[all]; }, {.out_shape = {{{n}, t}}, .name = "copy"})
      .trace({{{n}, t}});
}

/// What of the plan is recorded in advance: nodes in a row, and the iterations of a loop that the host ends, as many as
/// are run at a time, or those that are left.
template <class F>
void for_each_run(const GraphPlan& plan, const std::vector<Node>& nodes, const F& f) {
  for (size_t i = 0; i < nodes.size(); ++i) {
    const Node& n = nodes[i];
    std::vector<size_t> sequence;
    if (plan.recorded(n)) {
      for (; i < nodes.size() && plan.recorded(nodes[i]); ++i) plan.expand(nodes[i], sequence);
      --i;
      f(n.begin, false, std::move(sequence));
    } else if (const Node::While* loop = n.loop(); loop && loop->gate) {
      plan.expand_iterations(*loop, loop->iterations, sequence);
      f(n.begin, false, std::move(sequence));
      sequence.clear();
      plan.expand_iterations(*loop, loop->at_most.value_or(0) % loop->iterations, sequence);
      f(n.begin, true, std::move(sequence));
    } else {
      for_each_body(n, [&](const std::vector<Node>& body) { for_each_run(plan, body, f); });
    }
  }
}

}  // namespace

CompiledGraph::State::Use::Use(State& state) : state_(state), lock_(state.mutex, std::defer_lock) {
  const std::thread::id self = std::this_thread::get_id();
  if (state.user == self)
    throw SpecError(state.graph.name + ": is called by what its own call prints, which has not ended", state.graph.loc,
                    "let the callback keep the line, and call the graph afterwards");
  lock_.lock();
  state.user = self;
}

void CompiledGraph::State::make() {
  make_plan();
  bind_calls();
  place_storages();
  fill_table();
  for_each_run(plan, plan.nodes, [&](size_t key, bool rest, const std::vector<size_t>& sequence) {
    record(parts[{key, rest}], sequence);
  });
}

vulkan::Bound CompiledGraph::State::bind(const Command::Call& c, DimValues& dims, vulkan::Cut cut) const {
  const Program& p = kernels[c.kernel].program();
  dims = bind_dims(p, c.inputs, c.dims);
  return vulkan::bind(p, dims, device, cut);
}

void CompiledGraph::State::make_plan() {
  PlanOptions plan_options;
  plan_options.donated = options.donated;
  for (ir::Kernel& k : graph.kernels) {
    k.put_values_in_memory();  // of a graph that is not jit's
    kernels.push_back(load_for_table(device, k));
    plan_options.alignment = std::max<int64_t>(plan_options.alignment, kernels.back().program().alignment);
  }
  plan_options.scratch = [&](const Command::Call& c) -> int64_t {
    DimValues dims;
    return c.sizes.empty() ? bind(c, dims, vulkan::Cut::watchdog).scratch_bytes : 0;
  };
  // An indirect dispatch has no base, so what has to be cut is left to the host to decide.
  plan_options.whole = [&](const Command::Call& c) {
    DimValues dims;
    return !bind(c, dims, vulkan::Cut::watchdog).cut();
  };
  plan = tessera::plan(graph, plan_options);
  copy_by_kernels(plan_options.alignment);
}

/// Copies from and to arguments, which lie elsewhere each time, become calls of kernels, and those that a gate decides
/// about.
void CompiledGraph::State::copy_by_kernels(int64_t alignment) {
  std::map<int64_t, size_t> copies;
  for (Command& c : plan.commands) {
    if (!c.copy()) continue;
    const auto [from, to] = *c.copy();
    if (from == to || (!c.guard && !moves(plan, c)) || from.offset % alignment || to.offset % alignment) continue;
    const auto [it, fresh] = copies.emplace(to.bytes, kernels.size());
    if (fresh) {
      graph.kernels.push_back(copy_kernel(to.bytes));
      kernels.push_back(load_for_table(device, graph.kernels.back()));
    }
    const ProgramArg& a = kernels[it->second].program().args[0];
    c.what = Command::Call{.kernel = it->second, .arguments = {from, to}, .inputs = {{a.dtype, {*a.shape[0].value()}}}};
  }
}

void CompiledGraph::State::bind_calls() {
  calls.resize(plan.commands.size());
  for (size_t i = 0; i < plan.commands.size(); ++i)
    if (const Command& c = plan.commands[i]; c.call() && !c.sized())
      calls[i].bound = bind(*c.call(), calls[i].dims, c.guard ? vulkan::Cut::none : vulkan::Cut::watchdog);
  gates();
}

void CompiledGraph::State::place_storages() {
  if (plan.arena_bytes > 0)
    arena = std::make_shared<Buffer>(device.context(), static_cast<uint64_t>(plan.arena_bytes), vulkan::Memory::scratch,
                                     "the arena of a graph");
  for (const GraphPlan::Storage& storage : plan.storages) {
    std::shared_ptr<Buffer> b;
    if (storage.bytes > 0 && storage.arena()) b = arena;
    if (const auto* constant = storage.constant(); constant && storage.bytes > 0)
      b = constants[constant->index].buffer("a constant of the graph");
    fixed.push_back(std::move(b));
  }
}

/// The table: the block of every call, complete but for what lies elsewhere each time.
void CompiledGraph::State::fill_table() {
  patches.resize(plan.commands.size());
  for (size_t i = 0; i < plan.commands.size(); ++i)
    if (plan.commands[i].call()) add_block(i);
  plan.table_bytes = static_cast<int64_t>(contents.size());
  plan.frames = options.frames_in_flight;
  if (contents.empty()) return;
  Array bytes({static_cast<int64_t>(contents.size())}, DType::u8);
  std::copy(contents.begin(), contents.end(), bytes.bytes());
  auto blocks = DeviceArray::over(device, bytes.shape(), DType::u8, [&](uint64_t n, const std::string&) {
    return std::make_shared<Buffer>(device.context(), n, vulkan::Memory::array, "the argument table of a graph");
  });
  blocks.write(bytes);
  table = blocks.buffer("the argument table of a graph");
}

void CompiledGraph::State::add_block(size_t command) {
  const Command::Call& c = *plan.commands[command].call();
  vulkan::Context& context = *device.context();
  PreparedCall& call = calls[command];
  call.program = &kernels[c.kernel].program();
  call.pipeline = &context.pipeline(*call.program);
  if (!c.sizes.empty()) return;
  call.seconds = vulkan::seconds_of(context, *call.program, call.dims);
  call.table_at = contents.size();
  std::vector<Spot> places = c.arguments;
  if (c.scratch) places.push_back(*c.scratch);
  std::vector<uint64_t> addresses;
  for (const Spot& p : places) {
    const std::shared_ptr<Buffer>& b = fixed[p.storage];
    addresses.push_back(b ? b->address() + vulkan::base(plan.storages[p.storage]) + static_cast<uint64_t>(p.offset)
                          : 0);
  }
  if (call.program->report_bytes > 0) addresses.push_back(0);
  call.num_addresses = addresses.size();
  const std::vector<std::vector<std::byte>> blocks = vulkan::argument_blocks(*call.program, addresses, call.bound);
  for (const std::vector<std::byte>& block : blocks) {
    const uint64_t block_at = contents.size();
    for (size_t k = 0; k < places.size(); ++k)
      if (!fixed[places[k].storage] && places[k].bytes > 0)
        patches[command].push_back({block_at + k * sizeof(uint64_t), places[k]});
    contents.insert(contents.end(), block.begin(), block.end());
    contents.resize(vulkan::block_stride(contents.size()));
    if (blocks.size() > 1) call.block_stride = contents.size() - block_at;
  }
}

/// Commands in a row as recordings, each short enough for a watchdog, and the copies that are made anew each time.
void CompiledGraph::State::record(std::vector<Part>& to, const std::vector<size_t>& sequence) {
  const double budget = device.context()->watchdog_seconds();
  for (size_t i = 0; i < sequence.size();) {
    if (moves(plan, plan.commands[sequence[i]])) {
      to.push_back({nullptr, sequence[i++]});
      continue;
    }
    size_t end = i;
    double seconds = 0;  // of one recording, which is one submission if there are several
    Calls recorded;
    while (end < sequence.size() && !moves(plan, plan.commands[sequence[end]])) {
      const PreparedCall& call = calls[sequence[end]];
      if (end > i && ((budget > 0 && seconds + call.seconds > budget) || call.bound.cut())) break;
      seconds += call.seconds;
      if (call.program) recorded.add({1, sequence[end], sequence[end]});
      ++end;
      if (call.bound.cut()) break;
    }
    const auto at = sequence.begin() + static_cast<std::ptrdiff_t>(i);
    const vulkan::PreparedPlan prepared{plan, calls, fixed, table.get()};
    to.push_back({std::make_unique<Recording>(device.context(), prepared,
                                              std::vector<size_t>(at, at + static_cast<std::ptrdiff_t>(end - i)),
                                              options.timestamps),
                  0, seconds, recorded});
    i = end;
  }
}

/// Gates become calls of kernels, with constants of their own.
void CompiledGraph::State::gates() {
  if (plan.gates.empty()) return;
  const auto constant = [&](const Array& a) {
    constants.emplace_back(device, a);
    plan.storages.push_back({GraphPlan::Storage::Constant{constants.size() - 1}, a.nbytes()});
    return Spot{plan.storages.size() - 1, 0, a.nbytes()};
  };
  const Spot zero = constant(Array({}, DType::i32));
  std::map<std::string, size_t> known;
  for (size_t i = 0; i < plan.commands.size(); ++i) {
    Command& c = plan.commands[i];
    if (!c.set_gate()) continue;
    const GraphPlan::Gate& gate = plan.gates[c.set_gate()->gate];
    std::vector<std::array<uint32_t, 3>> groups;
    for (const GraphPlan::Gate::Member& m : gate.members)
      groups.push_back(calls[m.command].bound.count > 0 ? calls[m.command].bound.groups : std::array<uint32_t, 3>{});
    GateKernel made = gate_kernel(plan, c);
    const auto [it, fresh] = known.emplace(made.key, kernels.size());
    if (fresh) {
      kernels.push_back(load_for_table(device, made.kernel));
      graph.kernels.push_back(std::move(made.kernel));
    }
    Command::Call call{.kernel = it->second};
    call.arguments = {c.set_gate()->decides.value_or(zero), c.guard ? plan.gates[c.guard->gate].state : zero,
                      constant(gate_numbers(plan, c, groups)), gate.state, gate.groups};
    for (size_t argument = 0; argument < 3; ++argument) {
      const ProgramArg& a = kernels[call.kernel].program().args[argument];
      Shape shape;
      for (const Extent& e : a.shape) shape.push_back(*e.value());
      call.inputs.emplace_back(a.dtype, shape);
    }
    calls[i].bound = bind(call, calls[i].dims, vulkan::Cut::watchdog);
    c = {std::move(call)};  // without a guard: it always runs
  }
}

}  // namespace tessera
