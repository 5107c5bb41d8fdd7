#include "runtime/call/graph.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <utility>

#include "engine/base/function.h"
#include "engine/base/plural.h"
#include "engine/graph/fuse.h"
#include "engine/graph/sizes.h"
#include "engine/interpreter/interpreter.h"
#include "runtime/array/transfer.h"
#include "runtime/call/graph_state.h"
#include "runtime/device/names.h"
#include "runtime/launch.h"
#include "runtime/submit/pipeline.h"
#include "runtime/submit/slices.h"

namespace tessera {

using vulkan::Access;
using vulkan::Buffer;
using vulkan::Outcome;
using vulkan::PreparedCall;
using vulkan::Recording;
using Command = GraphPlan::Command;
using Node = GraphPlan::Node;
using Spot = GraphPlan::Place;

struct CompiledGraph::Shared {
  std::vector<std::unique_ptr<State>> frames;
  std::atomic<size_t> next = 0;
};

CompiledGraph::CompiledGraph(Device device, Graph graph, GraphOptions options) : shared_(std::make_shared<Shared>()) {
  if (options.frames_in_flight < 1)
    throw SpecError(graph.name + ": GraphOptions::frames_in_flight is " + std::to_string(options.frames_in_flight) +
                        ", not 1 or more",
                    graph.loc);
  if (!options.donated.empty() && options.donated.size() != graph.body.inputs.size())
    throw SpecError(graph.name + ": GraphOptions::donated has " + plural(options.donated.size(), "entry", "entries") +
                        " but the graph takes " + plural(graph.body.inputs.size(), "argument"),
                    graph.loc);
  if (const std::vector<std::string> sizes = size_names(graph); !sizes.empty())
    throw SpecError(graph.name + ": has the run-time size " + sizes[0] + ", and a CompiledGraph is of one size",
                    graph.loc,
                    "at_sizes() gives the graph of one size; a PreparedGraph and a LoadedGraph have them all");
  if (options.fuse) graph = fuse(graph).graph;
  std::vector<DeviceArray> constants;
  for (const auto& [v, a] : graph.constants) constants.emplace_back(device, a);
  for (int i = 0; i < options.frames_in_flight; ++i)
    shared_->frames.push_back(std::make_unique<State>(device, graph, options, constants));
}

CompiledGraph::State& CompiledGraph::state() const {
  const size_t n = shared_->frames.size();
  return *shared_->frames[(shared_->next + n - 1) % n];
}

const Graph& CompiledGraph::graph() const { return shared_->frames[0]->graph; }
const GraphPlan& CompiledGraph::plan() const { return shared_->frames[0]->plan; }
const Device& CompiledGraph::device() const { return shared_->frames[0]->device; }
bool CompiledGraph::prints() const {
  const std::vector<CompiledKernel>& kernels = shared_->frames[0]->kernels;
  return std::any_of(kernels.begin(), kernels.end(),
                     [](const CompiledKernel& k) { return !k.program().prints.empty(); });
}
CompiledGraph::Recordings CompiledGraph::recordings() const {
  Recordings r;
  for (const auto& frame : shared_->frames)
    for (const auto& [at, list] : frame->parts)
      for (const State::Part& part : list) {
        if (!part.recording) continue;
        ++r.made;
        r.barriers += part.recording->barriers();
      }
  return r;
}
std::vector<TimedCommand> CompiledGraph::trace() const {
  State& s = state();
  if (!s.options.timestamps)
    throw SpecError(s.graph.name + ": a trace is asked for, but its commands are recorded without times", s.graph.loc,
                    "load it with GraphOptions{.timestamps = true}");
  if (s.device.context()->probe().timestamp_bits == 0)
    throw DeviceError(s.graph.name + ": a trace is asked for, but the queue of " + s.device.info().name +
                      " writes no timestamps");
  s.device.wait();  // what that prints may call the graph
  const State::Use use(s);
  s.device.context()->wait_all();
  std::vector<TimedCommand> commands;
  std::vector<vulkan::Timestamps::Ticks> ticks;
  for (const auto& [at, list] : s.parts)
    for (const State::Part& part : list)
      for (const Recording::Timed& t : part.recording ? part.recording->times() : std::vector<Recording::Timed>()) {
        const Command& c = s.plan.commands[t.command];
        TimedCommand made{.name = "copy"};
        if (const Command::Copy* copy = c.copy()) made.bytes = copy->from.bytes + copy->to.bytes;
        if (c.call()) {
          made.name = s.calls[t.command].program->name;
          made.loc = s.calls[t.command].program->loc;
          for (const Spot& p : c.call()->arguments) made.bytes += p.bytes;
          made.guarded = c.guard.has_value();
        }
        commands.push_back(std::move(made));
        ticks.push_back(t.ticks);
      }
  vulkan::set_times(s.device.context()->probe(), commands, ticks);
  return commands;
}

class CompiledGraph::Replay {
 public:
  Replay(State& state, const std::vector<DeviceArray>& inputs, const std::vector<DeviceArray>& into)
      : s_(state), context_(*state.device.context()), inputs_(inputs), buffers_(state.fixed) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      const std::string where = s_.graph.name + ": argument " + std::to_string(i);
      given_.push_back(inputs[i].buffer(where));
      if (!(inputs[i].device() == s_.device))
        throw SpecError(where + ": the array is on another Device than the graph", s_.graph.loc);
      if (const auto& b = given_.back(); b && b->address() % vulkan::kArgumentAlignment != 0)
        throw DeviceError(where + ": the array lies at address " + std::to_string(b->address()) +
                          ", which is no multiple of " + std::to_string(vulkan::kArgumentAlignment));
    }
    for (size_t i = 0; i < inputs.size(); ++i) check_donation(i);
    for (size_t i = 0; i < s_.plan.outputs.size(); ++i) {
      const GraphPlan::Storage& storage = s_.plan.storages[s_.plan.outputs[i].storage];
      const Graph::Type& t = s_.graph.values[s_.graph.body.outputs[i]];
      if (const auto* input = storage.input()) {
        outputs_.push_back(inputs[input->index].donated() ? taken(input->index) : inputs[input->index]);
      } else if (const auto* constant = storage.constant()) {
        outputs_.push_back(s_.constants[constant->index]);
      } else {
        const size_t index = storage.output()->index;
        auto it = made_.find(index);
        if (it == made_.end())
          it = made_.emplace(index, into[i].valid() ? into[i] : DeviceArray(s_.device, t.shape, t.dtype)).first;
        outputs_.push_back(it->second);
      }
    }
    for (size_t i = 0; i < buffers_.size(); ++i) {
      const GraphPlan::Storage& storage = s_.plan.storages[i];
      if (storage.bytes == 0) continue;
      if (const auto* input = storage.input()) buffers_[i] = given_[input->index];
      if (const auto* output = storage.output()) buffers_[i] = made_.at(output->index).buffer("an output of the graph");
    }
    std::vector<vulkan::Turns::Use> uses;
    for (size_t i = 0; i < given_.size(); ++i) uses.push_back({given_[i].get(), donated(i) || inputs[i].donated()});
    for (const auto& [i, a] : made_) uses.push_back({a.buffer("an output of the graph").get(), true});
    std::unique_lock lock(context_.mutex());
    turn_.emplace(context_.turns(), lock, std::move(uses));
    for (size_t i = 0; i < given_.size(); ++i)
      inputs[i].still_at(given_[i], [&] { return s_.graph.name + ": argument " + std::to_string(i); });
    for (size_t i = 0; i < buffers_.size(); ++i)
      if (const auto* output = s_.plan.storages[i].output(); output && s_.plan.storages[i].bytes > 0)
        made_.at(output->index).still_at(buffers_[i], [] { return std::string("an output of the graph"); });
    for (const auto& b : given_)
      if (b && b->outcome && (!b->outcome->settled || b->outcome->error)) doubts_.push_back(b->outcome);
  }

  /// What has not been submitted is not in the table either.
  ~Replay() { s_.table_is_stale |= !actions_.empty() || failed_; }

  std::vector<DeviceArray> run() {
    for (const auto& [at, list] : s_.parts)
      for (const State::Part& part : list)
        if (part.recording) part.recording->set_ran(false);
    std::vector<std::shared_ptr<Buffer>> made;
    try {
      made = submit();
    } catch (...) {
      if (submitted_ > 0) give();  // what has begun may have changed them
      throw;
    }
    give();
    std::lock_guard lock(context_.mutex());
    hand_on();
    if (last_outcome_ || doubts_.empty())
      for (const auto& b : made) b->outcome = last_outcome_;
    return std::move(outputs_);
  }

 private:
  /// All commands; returns the memory that they make.
  std::vector<std::shared_ptr<Buffer>> submit() {
    nodes(s_.plan.nodes);
    std::vector<std::shared_ptr<Buffer>> made;
    std::vector<Buffer*> shown;
    for (const auto& [i, a] : made_)
      if (const auto b = a.buffer("an output of the graph")) {
        made.push_back(b);
        if (b->host_reads()) shown.push_back(b.get());
      }
    for (const auto& [i, a] : taken_)
      if (const auto b = a.buffer("an output of the graph"); b && b->host_reads()) shown.push_back(b.get());
    if (!shown.empty()) actions_.push_back([this, shown] { context_.recorder().show_host(shown); });
    // What the inputs' calls may yet report is true of the outputs.
    if (!doubts_.empty() && (!actions_.empty() || submitted_ > 0)) {
      auto outcome = std::make_shared<Outcome>();
      outcome->sites.kernel = s_.graph.name;
      follow(std::move(outcome));
    }
    flush();
    for (const auto& [i, a] : taken_)
      if (const auto b = a.buffer("an output of the graph")) made.push_back(b);
    return made;
  }
  void give() {
    for (const DeviceArray& a : inputs_)
      if (a.donated()) a.give_to(s_.graph.name);
  }
  bool donated(size_t input) const { return input < s_.options.donated.size() && s_.options.donated[input]; }
  void check_donation(size_t i) const {
    const std::string where = s_.graph.name + ": argument " + std::to_string(i);
    if (donated(i) && !inputs_[i].donated())
      throw SpecError(where + " is not donated, but the graph has been loaded to take its memory", s_.graph.loc,
                      "call it with donate(x)");
    if (!inputs_[i].donated()) return;
    for (size_t j = 0; j < given_.size(); ++j)
      if (j != i && given_[i] && given_[j] == given_[i])
        throw SpecError(where + " is donated, but argument " + std::to_string(j) + " is the same array", s_.graph.loc,
                        "copy() one of them");
  }
  /// The donated input as an array of its own.
  DeviceArray taken(size_t input) {
    const auto it = taken_.find(input);
    return it != taken_.end() ? it->second : taken_.emplace(input, inputs_[input].share()).first->second;
  }
  /// `part`: which slice, if it is one of a call.
  void flush(bool calls_end = true, const std::string& part = {}) {
    if (actions_.empty()) return;
    const Calls calls = std::exchange(calls_, {});
    const auto named = [&](size_t i) { return vulkan::with_line(s_.calls[i].program->name, s_.calls[i].program->loc); };
    std::string what = part;
    if (what.empty() && calls.count > 0) what = named(calls.first);
    if (calls.count == 2) what += " and " + named(calls.last);
    if (calls.count > 2) what = std::to_string(calls.count) + " calls, " + what + " to " + named(calls.last);
    // What they keep goes after the lock.
    const auto prepare = std::exchange(prepare_, {}), actions = std::exchange(actions_, {});
    const auto kept = std::exchange(kept_, {});
    seconds_ = 0;
    failed_ = true;
    std::lock_guard lock(context_.mutex());
    for (const auto& f : prepare) f();
    const uint64_t value = context_.recorder().submit(
        "a graph",
        [&] {
          for (const auto& f : actions) f();
        },
        what, calls.count > 0 ? s_.calls[calls.first].program->loc : Loc());
    for (Recording* r : std::exchange(replayed_, {})) r->set_ran(true);
    failed_ = false;
    submitted_ = value;
    if (calls_end) hand_on();
  }
  void hand_on() {
    for (auto& o : outcomes_) {
      o->value = submitted_;
      context_.follow(std::move(o));
    }
    outcomes_.clear();
  }
  /// The calls of a graph stand in one line: what one reports is true of all that comes after.
  void follow(std::shared_ptr<Outcome> o) {
    if (last_outcome_) o->inputs.push_back(last_outcome_);
    o->inputs.insert(o->inputs.end(), doubts_.begin(), doubts_.end());
    doubts_.clear();
    last_outcome_ = o;
    outcomes_.push_back(std::move(o));
  }
  /// Memory for the report of a call; it joins the accesses.
  uint64_t report(const PreparedCall& call, const DimValues& dims, const Loc& longest_loop,
                  std::vector<Access>& accesses, std::vector<Buffer*>& shown) {
    const Program& p = *call.program;
    std::shared_ptr<Outcome> outcome = outcome_of(p, dims, longest_loop, context_.report_buffer(p));
    Buffer* const b = outcome->report.get();
    prepare_.push_back([this, b, &p] { context_.clear_report("the graph's call of " + p.name, *b, p); });
    accesses.push_back({b, true, true, 0, b->size()});
    shown.push_back(b);
    follow(std::move(outcome));
    return b->address();
  }

  void nodes(const std::vector<Node>& list) {
    for (size_t i = 0; i < list.size(); ++i) {
      const Node& n = list[i];
      if (s_.plan.recorded(n)) {
        replay(s_.parts.at({n.begin, false}));
        while (i + 1 < list.size() && s_.plan.recorded(list[i + 1])) ++i;
      } else {
        std::visit([&](const auto& what) { decide(n, what); }, n.what);
      }
    }
  }
  void decide(const Node& n, const Node::Commands&) { sized(n.begin); }
  void decide(const Node&, const Node::Switch& s) {
    const auto last = static_cast<int64_t>(s.branches.size()) - 1;
    nodes(s.branches[static_cast<size_t>(std::clamp<int64_t>(read(s.decides, DType::i32), 0, last))]);
  }
  void decide(const Node&, const Node::CountedLoop& loop) {
    for (int64_t i = 0; i < loop.count; ++i) {
      const int64_t row = loop.reverse ? loop.count - 1 - i : i;
      for (const auto& [array, p] : loop.slices) copy({array.storage, array.offset + row * p.bytes, p.bytes}, p);
      nodes(loop.body);
      for (const auto& [p, array] : loop.stacks) copy(p, {array.storage, array.offset + row * p.bytes, p.bytes});
      if (actions_.size() > kActions) flush();
    }
  }
  void decide(const Node& n, const Node::While& loop) {
    if (loop.gate) return iterations(n.begin, loop);
    for (int64_t i = 0; !loop.at_most || i < *loop.at_most; ++i) {
      nodes(loop.test);
      if (!read(loop.decides, DType::boolean)) break;
      nodes(loop.body);
    }
  }
  /// A loop that ends itself, a number of iterations at a time.
  void iterations(size_t begin, const Node::While& loop) {
    for (int64_t left = loop.at_most.value_or(loop.iterations); left > 0;) {
      const bool rest = loop.at_most && left < loop.iterations;
      replay(s_.parts.at({begin, rest}));
      if (loop.at_most) left -= rest ? left : loop.iterations;
      if (left > 0 && read(s_.plan.gates[*loop.gate].state, DType::i32) < 0) break;
    }
  }
  /// Waits for what has been started, and reads a scalar.
  int64_t read(const Spot& p, DType dtype) {
    const DeviceArray host(s_.device, {}, dtype);
    const auto b = host.buffer("a value that decides");
    actions_.push_back([this, p, b] {
      context_.recorder().copy(*buffers_[p.storage], at(p), *b, 0, static_cast<uint64_t>(p.bytes));
      Buffer* shown[] = {b.get()};
      if (b->host_reads()) context_.recorder().show_host(shown);
    });
    flush();
    {
      std::lock_guard lock(context_.mutex());
      b->outcome = last_outcome_;
    }
    Array value({}, dtype);
    const std::shared_ptr<Outcome> outcome = vulkan::read_bytes(
        s_.device.context(), *b, value.bytes(), static_cast<uint64_t>(value.nbytes()), "a value that decides", [] {});
    context_.say(false);
    context_.throw_if_wrong(outcome);
    return scalar(value);
  }
  uint64_t at(const Spot& p) const {
    return vulkan::base(s_.plan.storages[p.storage]) + static_cast<uint64_t>(p.offset);
  }
  void copy(const Spot& from, const Spot& to) {
    if (from == to || from.bytes == 0) return;
    actions_.push_back([this, from, to] {
      context_.recorder().copy(*buffers_[from.storage], at(from), *buffers_[to.storage], at(to),
                               static_cast<uint64_t>(to.bytes));
    });
  }

  void replay(const std::vector<State::Part>& parts) {
    for (const State::Part& part : parts) {
      if (!part.recording) {
        const Command::Copy& c = *s_.plan.commands[part.copy].copy();
        copy(c.from, c.to);
        continue;
      }
      takes(part.seconds);
      calls_.add(part.calls);
      replay(*part.recording);
    }
  }
  /// What comes next is estimated to take so long: it goes into a submission of its own where the watchdog would not
  /// allow it together with what stands there.
  void takes(double seconds) {
    const double budget = context_.watchdog_seconds();
    if (budget > 0 && seconds > 0 && seconds_ > 0 && seconds_ + seconds > budget) flush();
    seconds_ += seconds;
  }

  void replay(Recording& recording) {
    std::vector<Access> accesses;
    std::vector<Buffer*> shown;
    uint64_t low = s_.contents.size(), high = 0;  // what changes of the table
    // The table is not what `contents` says until the change is among the actions, should something throw before.
    if (std::exchange(s_.table_is_stale, true)) std::swap(low, high);
    const auto patch = [&](uint64_t where, uint64_t address) {
      if (std::memcmp(s_.contents.data() + where, &address, sizeof address) == 0) return;
      std::memcpy(s_.contents.data() + where, &address, sizeof address);
      low = std::min(low, where);
      high = std::max(high, where + sizeof address);
    };
    std::map<Buffer*, Access> touched;
    for (const size_t i : recording.different()) {
      for (const PlaceUse& t : vulkan::uses_of(s_.plan, s_.calls, i)) {
        Buffer* b = buffers_[t.place.storage].get();
        Access& a = touched.emplace(b, Access{b, false, false, 0, b->size()}).first->second;
        a.reads |= t.reads;
        a.writes |= t.writes;
        a.indirect |= t.indirect;
      }
      for (const Patch& p : s_.patches[i]) {
        patch(p.at, buffers_[p.place.storage]->address() + at(p.place));
        Buffer* b = buffers_[p.place.storage].get();
        // kept until the call is done, even if nothing of it is touched
        touched.emplace(b, Access{b, false, false, 0, b->size()});
      }
      const PreparedCall& call = s_.calls[i];
      if (call.program && call.program->report_bytes > 0 && call.bound.count > 0) {
        const uint64_t address = report(call, call.dims, call.bound.longest_loop, accesses, shown);
        for (size_t n = 0; n < (call.block_stride ? call.bound.slices.size() : 1); ++n)
          patch(call.table_at + n * call.block_stride + (call.num_addresses - 1) * sizeof(uint64_t), address);
      }
    }
    for (const auto& [b, a] : touched) accesses.push_back(a);
    if (s_.table) accesses.push_back({s_.table.get(), true, false, 0, s_.table->size()});
    if (high > low) {
      std::vector<std::byte> bytes(s_.contents.begin() + static_cast<std::ptrdiff_t>(low),
                                   s_.contents.begin() + static_cast<std::ptrdiff_t>(high));
      actions_.push_back([this, low, bytes = std::move(bytes)] {
        constexpr size_t most = 65536;  // vkCmdUpdateBuffer's
        for (size_t from = 0; from < bytes.size(); from += most)
          context_.recorder().update(*s_.table, low + from,
                                     std::span(bytes).subspan(from, std::min(most, bytes.size() - from)));
      });
    }
    s_.table_is_stale = false;
    if (const PreparedCall& call = s_.calls[recording.first()]; call.bound.cut()) {
      std::vector<std::vector<std::byte>> pushes;
      for (size_t n = 0; n < (call.block_stride ? call.bound.slices.size() : 1); ++n) {
        const uint64_t address = s_.table ? s_.table->address() + call.table_at + n * call.block_stride : 0;
        const auto bytes = std::as_bytes(std::span(&address, vulkan::pushed_bytes(*call.program) > 0 ? 1 : 0));
        pushes.emplace_back(bytes.begin(), bytes.end());
      }
      dispatch_slices(recording.first(), *call.pipeline, call.bound.slices, pushes, accesses, shown);
      return;
    }
    replayed_.push_back(&recording);
    actions_.push_back([this, &recording, accesses = std::move(accesses), shown = std::move(shown)] {
      vulkan::Recorder& recorder = context_.recorder();
      recorder.replay("a graph", recording.commands(), accesses,
                      recorder.logs() && s_.table ? recording.log(buffers_, *s_.table) : std::vector<LogEntry>());
      if (!shown.empty()) recorder.show_host(shown);
    });
  }

  /// A submission goes on until a slice ends it (GroupSlice::ends); `pushes`: one for all, or one each.
  void dispatch_slices(size_t command, const vulkan::Pipeline& pipeline, const std::vector<vulkan::GroupSlice>& slices,
                       const std::vector<std::vector<std::byte>>& pushes, const std::vector<Access>& accesses,
                       const std::vector<Buffer*>& shown) {
    const Program& p = *s_.calls[command].program;
    const bool open = p.open_ended;
    for (size_t n = 0; n < slices.size(); ++n) {
      actions_.push_back([&, n] {
        vulkan::Recorder& recorder = context_.recorder();
        recorder.dispatch(p.name, pipeline, pushes[pushes.size() > 1 ? n : 0], slices[n].groups, accesses,
                          &slices[n].base);
        if (!shown.empty()) recorder.show_host(shown);
      });
      if (!slices[n].ends) continue;
      calls_ = {1, command, command};
      flush(n + 1 == slices.size() && !open,
            vulkan::with_line(p.name, p.loc) + ", " + vulkan::text(slices, n, p.max_workgroups > 0));
      if (!slices[n].tells) continue;
      context_.wait(submitted_);
      std::lock_guard lock(context_.mutex());
      n = vulkan::after_telling(slices, n, context_.steps_left(*outcomes_.back()->report)) - 1;
    }
    if (!open) return;
    std::lock_guard lock(context_.mutex());
    hand_on();
  }

  /// A call whose grid's size is a value.
  void sized(size_t i) {
    const Command::Call& c = *s_.plan.commands[i].call();
    const PreparedCall& call = s_.calls[i];
    const Program& p = *call.program;
    DimValues given = c.dims;
    for (size_t k = 0; k < c.sizes.size(); ++k) {
      const auto& [name, place] = c.sizes[k];
      given[name] = grid_size(read(place, place.bytes == 8 ? DType::i64 : DType::i32));
    }
    const DimValues dims = bind_dims(p, c.inputs, given);
    const vulkan::Bound bound = vulkan::bind(p, dims, s_.device);
    if (bound.count == 0) return;
    takes(vulkan::seconds_of(context_, p, dims));
    calls_.add({1, i, i});
    std::vector<uint64_t> addresses;
    std::vector<Access> accesses;
    std::vector<Buffer*> shown;
    for (size_t k = 0; k < c.arguments.size(); ++k) {
      const Spot& place = c.arguments[k];
      Buffer* b = place.bytes > 0 ? buffers_[place.storage].get() : nullptr;
      addresses.push_back(b ? b->address() + at(place) : 0);
      if (b) accesses.push_back({b, p.args[k].read, p.args[k].written, at(place), static_cast<uint64_t>(place.bytes)});
    }
    std::shared_ptr<Buffer> scratch, table;  // the slices of a call take several submissions
    if (p.scratch_bytes > 0) {
      scratch = vulkan::scratch_of(s_.device.context(), p, bound);
      addresses.push_back(scratch->address());
      accesses.push_back({scratch.get(), true, true, 0, scratch->size()});
      kept_.push_back(scratch);
    }
    if (p.report_bytes > 0) addresses.push_back(report(call, dims, bound.longest_loop, accesses, shown));
    const std::vector<std::vector<std::byte>> pushes =
        vulkan::pushes_of(s_.device.context(), p, addresses, bound, table);
    if (table) {
      prepare_.push_back([this, table, &p] {
        context_.recorder().note_host_write("the graph's call of " + p.name, *table, table->size());
      });
      accesses.push_back({table.get(), true, false, 0, table->size()});
      kept_.push_back(table);
    }
    if (bound.cut()) {
      dispatch_slices(i, *call.pipeline, bound.slices, pushes, accesses, shown);
      return;
    }
    actions_.push_back([this, &p, &call, bound, push = pushes[0], accesses, shown] {
      context_.recorder().dispatch(p.name, *call.pipeline, push, bound.groups, accesses);
      if (!shown.empty()) context_.recorder().show_host(shown);
    });
  }

  bool failed_ = false;                    // the last submission
  uint64_t submitted_ = 0;                 // the last submission's value
  double seconds_ = 0;                     // that the next one is estimated to take
  Calls calls_;                            // of it
  static constexpr size_t kActions = 256;  // of one submission in a long loop
  State& s_;
  vulkan::Context& context_;
  const std::vector<DeviceArray>& inputs_;
  std::map<size_t, DeviceArray> taken_;                   // by input: outputs that are where it was
  std::vector<std::shared_ptr<Buffer>> buffers_, given_;  // by storage; by input
  std::map<size_t, DeviceArray> made_;                    // by storage.index of outputs
  std::vector<DeviceArray> outputs_;
  std::vector<Function<void()>> prepare_,
      actions_;  // of the next submission, with the context's mutex held: before it, and its commands
  std::vector<Recording*> replayed_;  // by them
  std::vector<std::shared_ptr<Outcome>> doubts_, outcomes_;
  std::shared_ptr<Outcome> last_outcome_;
  std::vector<std::shared_ptr<Buffer>> kept_;
  std::optional<vulkan::Turns::Turn> turn_;  // ends before the memory goes
};

namespace {
/// Of run_into(). A kernel may write while another still reads: nothing but an output lies where an output does.
void check_outputs(const Graph& g, const Device& device, const std::vector<DeviceArray>& inputs,
                   const std::vector<DeviceArray>& outputs) {
  if (outputs.size() != g.body.outputs.size())
    throw SpecError(g.name + " gives " + plural(g.body.outputs.size(), "output") + " but " +
                        plural_is(outputs.size(), "array") + " given for them",
                    g.loc);
  for (size_t i = 0; i < outputs.size(); ++i) {
    const DeviceArray& a = outputs[i];
    if (!a.valid()) continue;
    const std::string where = g.name + ": output " + std::to_string(i);
    const Graph::Type &t = g.values[g.body.outputs[i]], given{a.dtype(), a.shape()};
    if (given != t) throw SpecError(where + " is " + to_string(t) + " but its array is " + to_string(given), g.loc);
    if (!(a.device() == device)) throw SpecError(where + ": the array is on another Device than the graph", g.loc);
    const auto b = a.buffer(where);
    if (!b) continue;
    for (size_t j = 0; j < inputs.size(); ++j)
      if (inputs[j].is_at(b))
        throw SpecError(where + " is to go where argument " + std::to_string(j) + " is", g.loc,
                        "give it an array of its own");
    for (size_t j = 0; j < i; ++j)
      if (outputs[j].is_at(b))
        throw SpecError(
            g.name + ": output " + std::to_string(j) + " and output " + std::to_string(i) + " are one array", g.loc,
            "give it an array of its own");
    if (b->address() % vulkan::kArgumentAlignment != 0)
      throw DeviceError(where + ": the array lies at address " + std::to_string(b->address()) +
                        ", which is no multiple of " + std::to_string(vulkan::kArgumentAlignment));
  }
}
}  // namespace

void check_number(const Graph& g, size_t i, const Scalar& number) {
  const std::string where = g.name + ": argument " + std::to_string(i);
  if (i >= g.body.inputs.size()) check_arguments(g, std::vector<std::pair<DType, Shape>>(i + 1));  // throws
  const Graph::Type& t = g.values[g.body.inputs[i]];
  if (!t.shape.empty()) throw SpecError(where + " is a number but " + to_string(t) + " is expected", g.loc);
  if (!number.fits(t.dtype)) throw SpecError(where + ": " + number.misfit(t.dtype), g.loc);
}

std::vector<DeviceArray> CompiledGraph::operator()(const std::vector<DeviceArray>& inputs) const {
  return run_into(inputs, std::vector<DeviceArray>(graph().body.outputs.size()));
}

std::vector<DeviceArray> CompiledGraph::run_into(const std::vector<DeviceArray>& given,
                                                 const std::vector<DeviceArray>& outputs) const {
  std::vector<DeviceArray> inputs = given;
  for (size_t i = 0; i < given.size(); ++i) {
    if (!given[i].number()) continue;
    check_number(graph(), i, *given[i].number());
    inputs[i] = DeviceArray(device(), given[i].number()->array(graph().values[graph().body.inputs[i]].dtype));
  }
  std::vector<std::pair<DType, Shape>> types;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].valid()) inputs[i].buffer(graph().name + ": argument " + std::to_string(i));  // throws
    types.emplace_back(inputs[i].dtype(), inputs[i].shape());
  }
  check_arguments(graph(), types);
  check_outputs(graph(), device(), inputs, outputs);
  State& s = *shared_->frames[shared_->next++ % shared_->frames.size()];
  const State::Use use(s);
  return Replay(s, inputs, outputs).run();
}

std::vector<Array> CompiledGraph::run(const std::vector<Array>& inputs) const {
  std::vector<std::pair<DType, Shape>> types;
  for (const Array& a : inputs) types.emplace_back(a.dtype(), a.shape());
  check_arguments(graph(), types);  // before anything is uploaded
  std::vector<DeviceArray> arguments;
  for (const Array& a : inputs) arguments.emplace_back(device(), a);
  for (size_t i = 0; i < shared_->frames[0]->options.donated.size(); ++i)
    if (shared_->frames[0]->options.donated[i]) arguments[i] = donate(arguments[i]);  // no other call uses them
  std::vector<Array> outputs;
  for (const DeviceArray& o : (*this)(arguments)) outputs.push_back(o.download());
  if (prints()) device().wait();  // of what makes no output, too
  return outputs;
}

CompiledGraph load(const Device& device, Graph graph, GraphOptions options) {
  return {device, std::move(graph), options};
}

}  // namespace tessera
