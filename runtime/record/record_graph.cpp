#include "runtime/record_graph.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>

#include "engine/base/plural.h"
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

/// Everything that record() relies on, so that code from a file leads nowhere but to an error.
void check_code(const GraphProgram& g, const std::vector<PreparedKernel>& kernels) {
  const auto same = [&](const PreparedKernel& k, size_t argument, const GraphProgram::Type& type) {
    const GraphProgram::Type wanted{k.dtype(argument), k.shape(argument)};
    if (wanted != type)
      damaged(g, "argument " + std::to_string(argument) + " of " + k.program().name + " is " + to_string(type) +
                     " and " + to_string(wanted));
  };
  std::vector<int64_t> calls(kernels.size());
  for (const GraphProgram::Own& own : g.own)
    if (own.contents && GraphProgram::Type{own.contents->dtype(), own.contents->shape()} != own.type)
      damaged(g, "a constant is " + to_string(own.type) + " and " +
                     to_string({own.contents->dtype(), own.contents->shape()}));
  for (const GraphProgram::Call& c : g.calls) {
    check_position(g, c.kernel, kernels.size(), "kernel");
    const PreparedKernel& k = kernels[c.kernel];
    ++calls[c.kernel];
    if (c.arguments.size() != k.program().args.size())
      damaged(g, k.program().name + " has " + plural(k.program().args.size(), "argument") + ", and " +
                     plural_is(c.arguments.size(), "array") + " given");
    for (size_t a = 0; a < c.arguments.size(); ++a) {
      same(k, a, type_at(g, c.arguments[a]));
      const ProgramArg& arg = k.program().args[a];
      if (arg.by_value) damaged(g, k.program().name + " takes a number");
      if (!arg.is_output) continue;
      if (c.arguments[a].memory == Memory::input) damaged(g, k.program().name + " writes to an input");
      for (size_t b = 0; b < c.arguments.size(); ++b) {
        const bool one = c.arguments[a].memory == c.arguments[b].memory && c.arguments[a].index == c.arguments[b].index;
        if (a != b && one != (arg.alias == static_cast<int>(b)))
          damaged(g, "arguments " + std::to_string(b) + " and " + std::to_string(a) + " of " + k.program().name +
                         (one ? " are" : " are not") + " one array");
      }
    }
    if (!c.groups) continue;
    const auto& [t, shape] = type_at(g, {Memory::own, *c.groups});
    const auto bytes = static_cast<uint64_t>(num_elements(shape)) * 4;
    if (t != DType::i32 || c.groups_at % 4 != 0 || bytes < 12 || c.groups_at > bytes - 12)
      damaged(g, "the numbers of workgroups of " + k.program().name + " lie at byte " + std::to_string(c.groups_at) +
                     " of " + to_string({t, shape}));
  }
  for (const GraphProgram::Number& n : g.numbers) {
    check_position(g, n.input, g.inputs.size(), "input");
    check_position(g, n.kernel, kernels.size(), "kernel");
    const PreparedKernel& k = kernels[n.kernel];
    ++calls[n.kernel];
    if (k.program().args.size() != 2 || !k.program().args[0].by_value)
      damaged(g, k.program().name + " does not store a number");
    same(k, 0, g.inputs[n.input]);
    same(k, 1, type_at(g, {Memory::own, n.own}));
  }
  for (size_t k = 0; k < kernels.size(); ++k)
    if (g.kernels[k].calls != std::max<int64_t>(calls[k], 1))
      damaged(g, kernels[k].program().name + " is called " + plural(static_cast<size_t>(calls[k]), "time") +
                     " and not " + std::to_string(g.kernels[k].calls) + " times");
  for (const GraphProgram::Gate& gate : g.gates) {
    const auto& [t, shape] = type_at(g, {Memory::own, gate.numbers});
    for (const auto& [slot, kernel] : gate.members) {
      check_position(g, kernel, kernels.size(), "kernel");
      if (t != DType::i32 || shape.size() != 2 || shape[0] != 3 || !g.own[gate.numbers].contents ||
          (int64_t{slot} + 1) * 3 > shape[1])
        damaged(g, "a gate has a member " + std::to_string(slot) + " in " + to_string({t, shape}));
    }
  }
}

}  // namespace

PreparedGraph::PreparedGraph(const Device& device, const GraphCode& code, const PrepareGraphOptions& options)
    : device_(device), graph_(code.graph) {
  const GraphProgram& g = *graph_;
  for (const GraphProgram::Kernel& k : g.kernels) {
    check_position(g, k.program, code.programs.size(), "program");
    if (k.calls < 1 || static_cast<size_t>(k.calls) > std::max<size_t>(g.calls.size() + g.numbers.size(), 1))
      damaged(g, "one of its kernels is called " + std::to_string(k.calls) + " times");
    alignment_ = std::max<int64_t>(alignment_, code.programs[k.program]->alignment);
    prepared_.emplace_back(device, code.programs[k.program],
                           PrepareOptions{.frames_in_flight = options.frames_in_flight,
                                          .calls_per_frame = k.calls * options.calls_per_frame,
                                          .dims = k.dims});
  }
  check_code(g, prepared_);
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
