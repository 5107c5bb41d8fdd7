#include "runtime/bundle/graph_code.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "engine/base/bind.h"
#include "engine/base/plural.h"
#include "runtime/launch/arguments.h"
#include "runtime/memory/buffer.h"
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

class Check {
 public:
  Check(const GraphProgram& graph, std::span<const GraphKernel> kernels)
      : g_(graph), kernels_(kernels), calls_(kernels.size()) {}

  void run() {
    for (size_t k = 0; k < kernels_.size(); ++k) {
      const std::vector<std::string> sizes = call_signature(*kernels_[k].program).sizes;
      for (const auto& [size, value] : g_.kernels[k].dims)
        if (std::find(sizes.begin(), sizes.end(), size) == sizes.end())
          damaged(g_, name(k) + " is given a size " + size + ", which it does not have");
    }
    for (const GraphProgram::Type& t : g_.outputs) check_names(t.second);
    for (const GraphProgram::Kernel& k : g_.kernels)
      for (const auto& [name, e] : k.dims) check_names({e});
    for (const GraphProgram::Own& own : g_.own) {
      check_names(own.type.second);
      if (!own.contents) continue;
      const Shape& shape = own.contents->shape();
      const GraphProgram::Type type{own.contents->dtype(), {shape.begin(), shape.end()}};
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
  const std::string& name(size_t kernel) const { return kernels_[kernel].program->name; }

  void check_names(const std::vector<Extent>& dims) const {
    std::vector<std::string> names;
    for (const Extent& e : dims) e.collect_names(names);
    for (const std::string& n : names)
      if (std::find(sizes_.begin(), sizes_.end(), n) == sizes_.end()) damaged(g_, "no input shows its size " + n);
  }

  void check_type(size_t kernel, size_t argument, const GraphProgram::Type& type) const {
    const GraphProgram::Type wanted{kernels_[kernel].program->args[argument].dtype, kernels_[kernel].shapes[argument]};
    if (wanted != type)
      damaged(g_, "argument " + std::to_string(argument) + " of " + name(kernel) + " is " + to_string(type) + " and " +
                      to_string(wanted));
  }

  void check(const GraphProgram::Gate& gate) const {
    const GraphProgram::Type& type = type_at(g_, {Memory::own, gate.numbers});
    if (type.first != DType::i32 || type.second.size() != 2 || type.second[0] != Extent(3) ||
        !g_.own[gate.numbers].contents)
      damaged(g_, "the numbers of a gate are " + to_string(type));
    for (const auto& [slot, kernel] : gate.members) {
      check_position(g_, kernel, kernels_.size(), "kernel");
      if ((int64_t{slot} + 1) * 3 > type.second[1].value().value_or(0))
        damaged(g_, "a gate has a member " + std::to_string(slot) + " in " + to_string(type));
    }
  }

  /// Constants and inputs stay as they are.
  bool fixed(const Where& w) const {
    return w.memory == Memory::input || (w.memory == Memory::own && g_.own[w.index].contents.has_value());
  }

  void check(const GraphProgram::Call& c) {
    check_position(g_, c.kernel, kernels_.size(), "kernel");
    const GraphKernel& k = kernels_[c.kernel];
    const std::vector<ProgramArg>& args = k.program->args;
    ++calls_[c.kernel];
    if (c.arguments.size() != args.size())
      damaged(g_, name(c.kernel) + " has " + plural(args.size(), "argument") + ", and " +
                      plural_is(c.arguments.size(), "array") + " given");
    for (size_t a = 0; a < args.size(); ++a) {
      check_type(c.kernel, a, type_at(g_, c.arguments[a]));
      if (args[a].by_value) damaged(g_, name(c.kernel) + " takes a number");
      if ((args[a].is_output || c.arguments[a].donated) && fixed(c.arguments[a]))
        damaged(g_, name(c.kernel) + " writes to an input or a constant");
      if (c.arguments[a].donated) check_taken(c, a);
      const bool none =
          std::any_of(k.shapes[a].begin(), k.shapes[a].end(), [](const Extent& e) { return e.value() == 0; });
      if (args[a].is_output && !none) check_apart(c, a);  // others have no memory
    }
    if (!c.groups) return;
    check_groups(c);
    if (k.dispatches > 1)
      throw CompileError(g_.name + ": " + name(c.kernel) +
                             " runs in several dispatches here, and whether it runs at all is decided on the device",
                         g_.loc, "use smaller scratch or a smaller grid");
  }

  void check_taken(const GraphProgram::Call& c, size_t argument) const {
    const std::vector<ProgramArg>& args = kernels_[c.kernel].program->args;
    bool good = may_take(*kernels_[c.kernel].program, argument) && !args[argument].is_output;
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
      if (b != output && one != (kernels_[c.kernel].program->args[output].alias == static_cast<int>(b)))
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
      const std::vector<ProgramArg>& args = kernels_[n.kernel].program->args;
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
  std::span<const GraphKernel> kernels_;
  std::vector<int64_t> calls_;  // per kernel
  const std::vector<std::string> sizes_ = size_names(g_);
};

}  // namespace

const Program& program_of(const GraphCode& code, size_t kernel) {
  const GraphProgram& g = *code.graph;
  const auto& [program, dims, calls] = g.kernels[kernel];
  check_position(g, program, code.programs.size(), "program");
  if (!code.programs[program]) damaged(g, "program " + std::to_string(program) + " is null");
  if (calls < 1 || static_cast<size_t>(calls) > std::max<size_t>(g.calls.size() + g.numbers.size(), 1))
    damaged(g, "one of its kernels is called " + std::to_string(calls) + " times");
  return *code.programs[program];
}

GraphKernel kernel_of(const GraphCode& code, size_t kernel) {
  const Program& p = program_of(code, kernel);
  GraphKernel k{&p, {}};
  for (const ProgramArg& a : p.args) {
    k.shapes.emplace_back();
    for (const Extent& e : a.shape) k.shapes.back().push_back(substitute(e, code.graph->kernels[kernel].dims));
  }
  return k;
}

void check_graph(const GraphProgram& graph, std::span<const GraphKernel> kernels) { Check(graph, kernels).run(); }

GraphTypes::GraphTypes(const GraphProgram& graph, DimValues at) : sizes(std::move(at)) {
  const auto add = [](std::vector<Type>& types, const GraphProgram::Type& t) {
    types.emplace_back(t.first, Shape(t.second.size()));
  };
  for (const GraphProgram::Type& t : graph.inputs) add(inputs, t);
  for (const GraphProgram::Type& t : graph.outputs) add(outputs, t);
  for (const GraphProgram::Own& o : graph.own) add(own, o.type);
  set(graph, sizes);
}

void GraphTypes::set(const GraphProgram& graph, const DimValues& at) {
  const auto put = [&](Type& type, const GraphProgram::Type& from) {
    for (size_t d = 0; d < from.second.size(); ++d)
      if ((type.second[d] = from.second[d].eval(at)) < 0)
        throw SpecError(graph.name + ": " + to_string(from) + " has the size " + std::to_string(type.second[d]) +
                            bindings(from.second, at),
                        graph.loc, "sizes must not be negative");
  };
  for (size_t i = 0; i < inputs.size(); ++i) put(inputs[i], graph.inputs[i]);
  for (size_t i = 0; i < outputs.size(); ++i) put(outputs[i], graph.outputs[i]);
  for (size_t i = 0; i < own.size(); ++i) put(own[i], graph.own[i].type);
}

void check_largest(const GraphProgram& g, const DimValues& sizes, const std::string& option) {
  const std::vector<std::string> names = size_names(g);
  for (const auto& [name, n] : sizes)
    if (std::find(names.begin(), names.end(), name) == names.end())
      throw SpecError(g.name + ": " + option + " gives a size " + name + ", which the graph does not have", g.loc);
  for (const std::string& name : names)
    if (!sizes.contains(name))
      throw SpecError(g.name + ": no value for the size " + name, g.loc,
                      option + " gives the largest value of each size that is to come");
}

DimValues kernel_sizes(const GraphProgram::Kernel& kernel, const DimValues& sizes) {
  DimValues dims;
  for (const auto& [name, e] : kernel.dims) dims.emplace(name, e.eval(sizes));
  return dims;
}

std::vector<DeviceArray> own_arrays(const Device& device, const GraphProgram& g, const GraphTypes& largest,
                                    std::span<const GraphKernel> kernels) {
  std::vector<DeviceArray> own;
  for (size_t i = 0; i < g.own.size(); ++i) {
    if (g.own[i].contents) own.emplace_back(device, *g.own[i].contents);
    else own.emplace_back(device, largest.own[i].second, largest.own[i].first);
  }
  for (const GraphProgram::Gate& gate : g.gates) {
    Array numbers = *g.own[gate.numbers].contents;
    const int64_t slots = numbers.shape()[1];
    for (const auto& [slot, kernel] : gate.members)
      for (int64_t i = 0; i < 3; ++i)
        numbers.set_element_bits(slots + int64_t{slot} * 3 + i, kernels[kernel].groups[static_cast<size_t>(i)]);
    own[gate.numbers] = DeviceArray(device, numbers);
  }
  return own;
}

const DeviceArray& array_at(const GraphProgram& g, const Where& w, std::span<const DeviceArray> inputs,
                            std::span<const DeviceArray> outputs, std::span<const DeviceArray> own) {
  if (w.memory == Memory::output) return outputs[w.index];
  if (w.memory == Memory::own) return own[w.index];
  if (inputs[w.index].number())
    for (const GraphProgram::Number& n : g.numbers)
      if (n.input == w.index) return own[n.own];
  return inputs[w.index];
}

void forget_errors(std::span<const DeviceArray> arrays) {
  for (const DeviceArray& a : arrays)
    if (const auto b = a.memory()) {  // which goes after the lock, if another thread frees the array
      const std::lock_guard lock(a.device().context()->mutex());
      b->outcome = nullptr;
    }
}

// Makes the text of an error only if there is one.
void check_arguments(const GraphProgram& g, const GraphTypes& types, const Device& device, int64_t alignment,
                     std::span<const DeviceArray> inputs, std::span<const DeviceArray> outputs) {
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
    const GraphTypes::Type& t = is_output ? types.outputs[i - inputs.size()] : types.inputs[i];
    const auto expected = [&] {
      const GraphProgram::Type& type = is_output ? g.outputs[i - inputs.size()] : g.inputs[i];
      return to_string(type) + (is_output ? "" : " is expected") + bindings(type.second, types.sizes);
    };
    const auto where = [&] { return g.name + ": " + name_of(i); };
    if (!is_output && a.number()) {
      if (!t.second.empty()) throw SpecError(where() + " is a number but " + expected(), g.loc);
      if (!a.number()->fits(t.first)) throw SpecError(where() + ": " + a.number()->misfit(t.first), g.loc);
      continue;
    }
    if (!a.valid()) a.buffer(where());  // throws
    if (a.dtype() != t.first || a.shape() != t.second) {
      const std::string given = type_text(a.dtype(), {a.shape().begin(), a.shape().end()});
      throw SpecError(is_output ? where() + " is " + expected() + " but its array is " + given
                                : where() + " is " + given + " but " + expected(),
                      g.loc);
    }
    if (!(a.device() == device)) throw SpecError(where() + ": the array is on another Device than the graph", g.loc);
    const std::shared_ptr<vulkan::Buffer> b = a.memory();
    if (!b) continue;
    for (size_t j = 0; is_output && j < i; ++j)
      if (at(j).is_at(b))
        throw SpecError(g.name + ": " +
                            (j < inputs.size() ? name_of(i) + " is to go where " + name_of(j) + " is"
                                               : name_of(j) + " and " + name_of(i) + " are one array"),
                        g.loc, "give it an array of its own");
    if (b->address() % static_cast<uint64_t>(alignment) != 0)
      throw DeviceError(where() + ": the array lies at address " + std::to_string(b->address()) +
                        ", which is no multiple of " + std::to_string(alignment));
  }
}

}  // namespace tessera
