#include "runtime/bundle.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "codegen/program/bundle.h"
#include "engine/base/in_parallel.h"
#include "engine/base/read_file.h"
#include "runtime/bundle/graph_code.h"
#include "runtime/launch.h"

namespace tessera {
namespace {

std::string read_file(const std::string& path) {
  try {
    return InputFile(path).rest(UINT64_MAX);
  } catch (const SpecError&) {
    throw BundleError(path + ": cannot be read");
  }
}

template <class T> std::vector<std::string> names_of(const std::vector<T>& all) {
  std::vector<std::string> names;
  for (const T& x : all) names.push_back(x.name);
  return names;
}

/// A file's kernels, and those of its Programs that have been loaded.
struct Contents {
  BundleFile file;
  std::string name;
  std::mutex mutex;
  std::map<const BundleVariant*, std::shared_ptr<const Program>> programs;

  const BundleKernel& find(std::string_view kernel) const { return find(file.kernels, "kernel", kernel); }
  const BundleGraph& find_graph(std::string_view graph) const { return find(file.graphs, "graph", graph); }
  template <class T> const T& find(const std::vector<T>& all, const std::string& what, std::string_view wanted) const {
    const auto it = std::find_if(all.begin(), all.end(), [&](const T& x) { return x.name == wanted; });
    if (it != all.end()) return *it;
    std::string names;
    for (const T& x : all) names += (names.empty() ? "" : ", ") + x.name;
    throw SpecError(name + ": has no " + what + " \"" + std::string(wanted) + "\"", {},
                    names.empty() ? "it has none at all" : "its " + what + "s are " + names);
  }
  /// `where` is what errors begin with.
  std::shared_ptr<const Program> program(const BundleKernel& k, const BundleVariant& v, const std::string& where) {
    const std::lock_guard lock(mutex);
    std::shared_ptr<const Program>& p = programs[&v];
    if (!p) p = std::make_shared<const Program>(program_of(k, v, where));
    return p;
  }
};

}  // namespace

struct Bundle::State {
  std::string path;  // empty: from memory
  std::mutex reloading;
  std::string bytes;  // as they were read last: what a change is told by; empty if from memory
  mutable std::mutex mutex;
  std::shared_ptr<Contents> contents;

  std::shared_ptr<Contents> now() const {
    const std::lock_guard lock(mutex);
    return contents;
  }
  static std::shared_ptr<Contents> parse(std::string_view bytes, const std::string& name) {
    auto c = std::make_shared<Contents>();
    c->file = bundle_from_bytes(bytes, name);
    c->name = name;
    return c;
  }
};

Bundle::Bundle(const std::string& path) : state_(std::make_shared<State>()) {
  state_->path = path;
  state_->bytes = read_file(path);
  state_->contents = State::parse(state_->bytes, path);
}

Bundle::Bundle(std::span<const std::byte> bytes, std::string name) : state_(std::make_shared<State>()) {
  state_->contents = State::parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, name);
}

std::vector<std::string> Bundle::kernels() const { return names_of(state_->now()->file.kernels); }

std::vector<BundleArgument> Bundle::arguments(std::string_view kernel) const {
  const auto c = state_->now();
  const BundleKernel& k = c->find(kernel);
  const auto p = c->program(k, k.variants.front(), c->name);
  std::vector<BundleArgument> arguments;
  for (size_t i = 0; i < p->args.size(); ++i)
    arguments.push_back({k.arguments[i], p->args[i].dtype, p->args[i].shape, p->args[i].is_output, p->args[i].alias,
                         p->args[i].by_value});
  return arguments;
}

CompiledKernel Bundle::kernel(const Device& device, std::string_view name) const {
  return {device, program(device.target(), name)};
}

std::shared_ptr<const Program> Bundle::program(const Target& device, std::string_view name) const {
  const auto c = state_->now();
  const BundleKernel& k = c->find(name);
  return c->program(k, best_variant(k, device, c->name), c->name);
}

std::string Bundle::variant(const Device& device, std::string_view kernel) const {
  const auto c = state_->now();
  return best_variant(c->find(kernel), device.target(), c->name).target;
}

std::string Bundle::explain(const Device& device, std::string_view kernel) const {
  const auto c = state_->now();
  return explain_variants(c->find(kernel), device.target(), c->name);
}

std::vector<std::string> Bundle::graphs() const { return names_of(state_->now()->file.graphs); }

GraphCode Bundle::graph(const Device& device, std::string_view name) const {
  const auto c = state_->now();
  const BundleGraph& g = c->find_graph(name);
  GraphCode code{{c, &g.program}, {}};
  const std::string where = c->name + ": " + g.name;
  for (const BundleKernel& k : g.kernels)
    code.programs.push_back(c->program(k, best_variant(k, device.target(), where), where));
  return code;
}

std::vector<std::string> Bundle::kernels(std::string_view graph) const {
  return names_of(state_->now()->find_graph(graph).kernels);
}

bool Bundle::reload() {
  State& s = *state_;
  if (s.path.empty()) return false;
  const std::lock_guard reloading(s.reloading);
  std::string bytes = read_file(s.path);
  if (bytes == s.bytes) return false;
  std::shared_ptr<Contents> fresh = State::parse(bytes, s.path);
  // all or nothing
  for (const BundleKernel& k : fresh->file.kernels)
    for (const BundleVariant& v : k.variants) program_of(k, v, s.path);
  for (const BundleGraph& g : fresh->file.graphs) {
    GraphCode code{{fresh, &g.program}, {}};
    for (const BundleKernel& k : g.kernels) {
      for (const BundleVariant& v : k.variants) program_of(k, v, s.path + ": " + g.name);
      code.programs.push_back(fresh->program(k, k.variants.front(), s.path + ": " + g.name));
    }
    std::vector<GraphKernel> kernels;
    for (size_t k = 0; k < g.program.kernels.size(); ++k) kernels.push_back(kernel_of(code, k));
    check_graph(g.program, kernels);
  }
  s.bytes = std::move(bytes);
  const std::lock_guard lock(s.mutex);
  s.contents = std::move(fresh);
  return true;
}

Bundle Bundle::snapshot() const {
  Bundle b(*this);
  b.state_ = std::make_shared<State>();
  b.state_->contents = state_->now();
  return b;
}

namespace {
/// "(f32[8], i32[]) -> (f32[8])", of the texts of so many inputs, then outputs.
std::string arrow(const std::vector<std::string>& types, size_t inputs) {
  std::string text = "(";
  for (size_t i = 0; i < types.size(); ++i) {
    if (i > 0 && i != inputs) text += ", ";
    if (i == inputs) text += ") -> (";
    text += types[i];
  }
  return text + (inputs == types.size() ? ") -> ()" : ")");
}
}  // namespace

std::string signature(const Program& p) {
  std::vector<std::string> types;
  size_t inputs = 0;
  for (const ProgramArg& a : p.args) {
    std::string dims;
    for (const Extent& e : a.shape) dims += (dims.empty() ? "" : ", ") + to_string(e);
    types.push_back(std::string(name(a.dtype)) + (a.by_value ? " by value" : "[" + dims + "]"));
    inputs += !a.is_output;
  }
  return arrow(types, inputs);
}

std::string signature(const GraphProgram& g) {
  std::vector<std::string> types;
  for (const auto* list : {&g.inputs, &g.outputs})
    for (const GraphProgram::Type& t : *list) types.push_back(to_string(t));
  return arrow(types, g.inputs.size());
}

void check_signature(const GraphProgram& graph, std::string_view wanted) {
  if (const std::string has = signature(graph); has != wanted)
    throw SpecError(
        graph.name + ": the bundle's graph is " + has + " but the header was made for " + std::string(wanted),
        graph.loc, "use the header that tessera bundle wrote with the bundle");
}
GraphCode checked(GraphCode code, std::string_view wanted) {
  check_signature(*code.graph, wanted);
  return code;
}

CompiledKernel checked(CompiledKernel kernel, std::string_view wanted) {
  if (const std::string has = signature(kernel.program()); has != wanted)
    throw SpecError(kernel.program().name + ": the bundle's kernel is " + has + " but the header was made for " +
                        std::string(wanted),
                    kernel.program().loc, "use the header that tessera bundle wrote with the bundle");
  return kernel;
}

void prewarm(const Device& device, const Bundle& bundle, const BundlePrewarmOptions& options) {
  if (options.threads < 0)
    throw SpecError("BundlePrewarmOptions::threads is " + std::to_string(options.threads) + ", which is below 0");
  const Bundle fixed = bundle.snapshot();
  // A kernel, or one of a graph's, by its position there.
  struct Item {
    std::string name, of;
    std::optional<size_t> position;
  };
  std::vector<Item> all;
  for (const std::string& name : fixed.kernels()) all.push_back({name, name, {}});
  for (const std::string& graph : fixed.graphs()) {
    const std::vector<std::string> kernels = fixed.kernels(graph);
    for (size_t i = 0; i < kernels.size(); ++i) all.push_back({graph + ": " + kernels[i], graph, i});
  }
  const auto make = [&](size_t i) {
    const Item& item = all[i];
    if (item.position) prepare(device, *fixed.graph(device, item.of).programs[*item.position]);
    else prepare(device, fixed.kernel(device, item.of).program());
  };
  in_parallel(all.size(), options.threads, make, [&](size_t done, size_t i) {
    if (options.progress) options.progress({done, all.size(), all[i].name});
  });
}

}  // namespace tessera
