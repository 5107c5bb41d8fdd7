#include "runtime/record_graph.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>

#include "engine/base/plural.h"
#include "runtime/record/host_stream.h"
#include "runtime/submit/context.h"

namespace tessera {

using Memory = GraphProgram::Memory;
using Where = GraphProgram::Where;

namespace {

[[noreturn]] void damaged(const GraphProgram& g, const std::string& what) {
  throw SpecError(g.name + ": its code does not fit its graph: " + what, g.loc,
                  "take both from one bundle, or compile the graph again");
}

/// Of a position that must be below n.
void check_position(const GraphProgram& g, size_t i, size_t n, const char* of) {
  if (i >= n) damaged(g, std::string("it names ") + of + " " + std::to_string(i) + " of " + std::to_string(n));
}

const GraphProgram::Type& type_at(const GraphProgram& g, const Where& w) {
  switch (w.memory) {
    case Memory::input: check_position(g, w.index, g.inputs.size(), "input"); return g.inputs[w.index];
    case Memory::output: check_position(g, w.index, g.outputs.size(), "output"); return g.outputs[w.index];
    case Memory::own: break;
  }
  check_position(g, w.index, g.own.size(), "array");
  return g.own[w.index].type;
}

/// Everything that record() relies on, so that what a file says of a graph leads nowhere but to an error. (Its kernels
/// are code, which is believed.)
class Check {
 public:
  Check(const GraphProgram& graph, const std::vector<PreparedKernel>& kernels)
      : g_(graph), kernels_(kernels), calls_(kernels.size()) {}

  void run() {
    for (const GraphProgram::Own& own : g_.own) {
      if (!own.contents) continue;
      const GraphProgram::Type type{own.contents->dtype(), own.contents->shape()};
      if (type != own.type) damaged(g_, "a constant is " + to_string(own.type) + " and " + to_string(type));
    }
    for (const GraphProgram::Gate& gate : g_.gates) check(gate);
    for (const GraphProgram::Call& c : g_.calls) check(c);
    check_numbers();
    for (size_t k = 0; k < kernels_.size(); ++k)
      if (g_.kernels[k].calls != std::max<int64_t>(calls_[k], 1))
        damaged(g_, name(k) + " is called " + plural(static_cast<size_t>(calls_[k]), "time") + " and not " +
                        std::to_string(g_.kernels[k].calls) + " times");
  }

 private:
  const std::string& name(size_t kernel) const { return kernels_[kernel].program().name; }

  void check_type(size_t kernel, size_t argument, const GraphProgram::Type& type) const {
    const GraphProgram::Type wanted{kernels_[kernel].dtype(argument), kernels_[kernel].shape(argument)};
    if (wanted != type)
      damaged(g_, "argument " + std::to_string(argument) + " of " + name(kernel) + " is " + to_string(type) + " and " +
                      to_string(wanted));
  }

  void check(const GraphProgram::Gate& gate) const {
    const GraphProgram::Type& type = type_at(g_, {Memory::own, gate.numbers});
    const Shape& shape = type.second;
    if (type.first != DType::i32 || shape.size() != 2 || shape[0] != 3 || !g_.own[gate.numbers].contents)
      damaged(g_, "the numbers of a gate are " + to_string(type));
    for (const auto& [slot, kernel] : gate.members) {
      check_position(g_, kernel, kernels_.size(), "kernel");
      if ((int64_t{slot} + 1) * 3 > shape[1])
        damaged(g_, "a gate has a member " + std::to_string(slot) + " in " + to_string(type));
    }
  }

  /// Constants and inputs stay as they are.
  bool fixed(const Where& w) const {
    return w.memory == Memory::input || (w.memory == Memory::own && g_.own[w.index].contents.has_value());
  }

  void check(const GraphProgram::Call& c) {
    check_position(g_, c.kernel, kernels_.size(), "kernel");
    const PreparedKernel& k = kernels_[c.kernel];
    const std::vector<ProgramArg>& args = k.program().args;
    ++calls_[c.kernel];
    if (c.arguments.size() != args.size())
      damaged(g_, name(c.kernel) + " has " + plural(args.size(), "argument") + ", and " +
                      plural_is(c.arguments.size(), "array") + " given");
    for (size_t a = 0; a < args.size(); ++a) {
      check_type(c.kernel, a, type_at(g_, c.arguments[a]));
      if (args[a].by_value) damaged(g_, name(c.kernel) + " takes a number");
      if ((args[a].is_output || c.arguments[a].donated) && fixed(c.arguments[a]))
        damaged(g_, name(c.kernel) + " writes to an input or a constant");
      if (c.arguments[a].donated) check_donated(c, a);
      if (args[a].is_output && num_elements(k.shape(a)) > 0) check_apart(c, a);  // others have no memory
    }
    if (c.groups) check_groups(c);
  }

  void check_donated(const GraphProgram::Call& c, size_t argument) const {
    const std::vector<ProgramArg>& args = kernels_[c.kernel].program().args;
    const bool taken = args[argument].written || std::any_of(args.begin(), args.end(), [&](const ProgramArg& a) {
                         return a.alias == static_cast<int>(argument);
                       });
    bool good = taken && !args[argument].is_output;
    for (size_t b = 0; b < args.size(); ++b)
      good = good && (b == argument || args[b].is_output || c.arguments[b].memory != c.arguments[argument].memory ||
                      c.arguments[b].index != c.arguments[argument].index);
    if (!good)
      damaged(g_, "argument " + std::to_string(argument) + " of " + name(c.kernel) + " is donated, and not taken");
  }

  void check_apart(const GraphProgram::Call& c, size_t output) const {
    const Where& w = c.arguments[output];
    for (size_t b = 0; b < c.arguments.size(); ++b) {
      const bool one = w.memory == c.arguments[b].memory && w.index == c.arguments[b].index;
      if (b != output && one != (kernels_[c.kernel].program().args[output].alias == static_cast<int>(b)))
        damaged(g_, "arguments " + std::to_string(b) + " and " + std::to_string(output) + " of " + name(c.kernel) +
                        (one ? " are" : " are not") + " one array");
    }
  }

  /// A call of a gate's kernel has made them there, of the number that the kernel has.
  void check_groups(const GraphProgram::Call& c) const {
    type_at(g_, {Memory::own, *c.groups});
    const auto member = std::pair{static_cast<uint32_t>(c.groups_at / 12), c.kernel};
    const bool made = c.groups_at % 12 == 0 && std::any_of(g_.gates.begin(), g_.gates.end(), [&](const auto& gate) {
                        if (std::find(gate.members.begin(), gate.members.end(), member) == gate.members.end())
                          return false;
                        return std::any_of(g_.calls.begin(), g_.calls.end(), [&](const GraphProgram::Call& sets) {
                          return sets.arguments.size() == 5 &&
                                 sets.arguments[2] == Where{Memory::own, gate.numbers, false} &&
                                 sets.arguments[4] == Where{Memory::own, *c.groups, false};
                        });
                      });
    if (!made)
      damaged(g_, "no gate makes the numbers of workgroups of " + name(c.kernel) + " at byte " +
                      std::to_string(c.groups_at));
  }

  void check_numbers() {
    std::vector<int> given(g_.inputs.size());
    for (const GraphProgram::Number& n : g_.numbers) {
      check_position(g_, n.input, g_.inputs.size(), "input");
      check_position(g_, n.kernel, kernels_.size(), "kernel");
      const std::vector<ProgramArg>& args = kernels_[n.kernel].program().args;
      ++calls_[n.kernel], ++given[n.input];
      if (args.size() != 2 || !args[0].by_value || !args[1].is_output)
        damaged(g_, name(n.kernel) + " does not store a number");
      check_type(n.kernel, 0, g_.inputs[n.input]);
      check_type(n.kernel, 1, type_at(g_, {Memory::own, n.own}));
      if (fixed({Memory::own, n.own, false})) damaged(g_, name(n.kernel) + " writes to an input or a constant");
    }
    for (size_t i = 0; i < given.size(); ++i)
      if (given[i] != (g_.inputs[i].second.empty() ? 1 : 0))
        damaged(g_, "input " + std::to_string(i) + " has " + plural(static_cast<size_t>(given[i]), "place") +
                        " for a number");
  }

  const GraphProgram& g_;
  const std::vector<PreparedKernel>& kernels_;
  std::vector<int64_t> calls_;  // per kernel
};

}  // namespace

PreparedGraph::PreparedGraph(const Device& device, const GraphCode& code, const PrepareGraphOptions& options)
    : device_(device), graph_(code.graph) {
  if (!graph_) throw SpecError("PreparedGraph: the GraphCode holds no graph", {}, "take one by Bundle::graph()");
  const GraphProgram& g = *graph_;
  for (const auto& [value, what] :
       {std::pair{options.frames_in_flight, "frames_in_flight"}, std::pair{options.calls_per_frame, "calls_per_frame"}})
    if (value < 1)
      throw SpecError(g.name + ": PrepareGraphOptions::" + what + " must be positive but is " + std::to_string(value),
                      g.loc);
  for (const GraphProgram::Kernel& k : g.kernels) {
    check_position(g, k.program, code.programs.size(), "program");
    if (!code.programs[k.program]) damaged(g, "program " + std::to_string(k.program) + " is null");
    if (k.calls < 1 || static_cast<size_t>(k.calls) > std::max<size_t>(g.calls.size() + g.numbers.size(), 1))
      damaged(g, "one of its kernels is called " + std::to_string(k.calls) + " times");
    const int64_t calls = int64_t{k.calls} * options.calls_per_frame;
    if (calls > INT32_MAX)
      throw SpecError(g.name + ": PrepareGraphOptions::calls_per_frame is " + std::to_string(options.calls_per_frame) +
                          ", of a graph that calls a kernel " + std::to_string(k.calls) + " times",
                      g.loc, "give the calls of a frame to several PreparedGraphs");
    alignment_ = std::max<int64_t>(alignment_, code.programs[k.program]->alignment);
    prepared_.emplace_back(
        device, code.programs[k.program],
        PrepareOptions{
            .frames_in_flight = options.frames_in_flight, .calls_per_frame = static_cast<int>(calls), .dims = k.dims});
  }
  Check(g, prepared_).run();
  for (const GraphProgram::Call& c : g.calls)
    if (c.groups && prepared_[c.kernel].call_->dispatches() > 1)
      throw CompileError(g.name + ": " + prepared_[c.kernel].program().name +
                             " runs in several dispatches here, and whether it runs at all is decided on the device",
                         g.loc, "use smaller scratch or a smaller grid");
  for (const GraphProgram::Own& own : g.own) {
    if (own.contents) own_.emplace_back(device, *own.contents);
    else own_.emplace_back(device, own.type.second, own.type.first);
    bytes_ += own_.back().nbytes();
  }
  for (const GraphProgram::Gate& gate : g.gates) {
    Array numbers = *g.own[gate.numbers].contents;
    const int64_t slots = numbers.shape()[1];
    for (const auto& [slot, kernel] : gate.members) {
      const std::array<uint32_t, 3> groups = prepared_[kernel].groups();
      for (int64_t i = 0; i < 3; ++i)
        numbers.set_element_bits(slots + int64_t{slot} * 3 + i, groups[static_cast<size_t>(i)]);
    }
    own_[gate.numbers] = DeviceArray(device, numbers);
  }
  size_t most = 2;
  for (const GraphProgram::Call& c : g.calls) most = std::max(most, c.arguments.size());
  arguments_.reserve(most);
}

// Makes the text of an error only if there is one.
void PreparedGraph::check(std::span<const DeviceArray> inputs, std::span<const DeviceArray> outputs) const {
  const GraphProgram& g = *graph_;
  const auto name_of = [&](size_t i) {
    return i < inputs.size() ? "argument " + std::to_string(i) : "output " + std::to_string(i - inputs.size());
  };
  const auto at = [&](size_t i) -> const DeviceArray& {
    return i < inputs.size() ? inputs[i] : outputs[i - inputs.size()];
  };
  if (inputs.size() != g.inputs.size())
    throw SpecError(g.name + " takes " + plural(g.inputs.size(), "argument") + " but " + std::to_string(inputs.size()) +
                        (inputs.size() == 1 ? " is given" : " are given"),
                    g.loc);
  if (outputs.size() != g.outputs.size())
    throw SpecError(g.name + " gives " + plural(g.outputs.size(), "output") + " but " +
                        plural_is(outputs.size(), "array") + " given for them",
                    g.loc);
  for (size_t i = 0; i < inputs.size() + outputs.size(); ++i) {
    const DeviceArray& a = at(i);
    const bool is_output = i >= inputs.size();
    const GraphProgram::Type& t = is_output ? g.outputs[i - inputs.size()] : g.inputs[i];
    const auto where = [&] { return g.name + ": " + name_of(i); };
    if (!is_output && a.number()) {
      if (!t.second.empty()) throw SpecError(where() + " is a number but " + to_string(t) + " is expected", g.loc);
      if (!a.number()->fits(t.first)) throw SpecError(where() + ": " + a.number()->misfit(t.first), g.loc);
      continue;
    }
    if (!a.valid()) a.buffer(where());  // throws
    if (a.dtype() != t.first || a.shape() != t.second) {
      const std::string given = to_string({a.dtype(), a.shape()});
      throw SpecError(is_output ? where() + " is " + to_string(t) + " but its array is " + given
                                : where() + " is " + given + " but " + to_string(t) + " is expected",
                      g.loc);
    }
    if (!(a.device() == device_)) throw SpecError(where() + ": the array is on another Device than the graph", g.loc);
    const std::shared_ptr<vulkan::Buffer> b = a.memory();
    if (!b) continue;
    for (size_t j = 0; is_output && j < i; ++j)
      if (at(j).is_at(b))
        throw SpecError(g.name + ": " +
                            (j < inputs.size() ? name_of(i) + " is to go where " + name_of(j) + " is"
                                               : name_of(j) + " and " + name_of(i) + " are one array"),
                        g.loc, "give it an array of its own");
    if (b->address() % static_cast<uint64_t>(alignment_) != 0)
      throw DeviceError(where() + ": the array lies at address " + std::to_string(b->address()) +
                        ", which is no multiple of " + std::to_string(alignment_));
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
      for (const GraphProgram::Number& n : graph_->numbers)
        if (n.input == i) return own_[n.own];
    return inputs[i];
  };
  for (const GraphProgram::Number& n : graph_->numbers) {
    if (!inputs[n.input].number()) continue;
    arguments_.assign({inputs[n.input], own_[n.own]});
    add(stream.record(prepared_[n.kernel], arguments_));
  }
  for (const GraphProgram::Call& c : graph_->calls) {
    arguments_.clear();
    for (const Where& w : c.arguments) {
      const DeviceArray& a = w.memory == Memory::input    ? input(w.index)
                             : w.memory == Memory::output ? outputs[w.index]
                                                          : own_[w.index];
      arguments_.push_back(w.donated ? donate(a) : a);
    }
    add(c.groups ? stream.record_indirect(prepared_[c.kernel], arguments_, own_[*c.groups], c.groups_at)
                 : stream.record(prepared_[c.kernel], arguments_));
  }
  arguments_.clear();
  return scopes;
}

}  // namespace tessera
