#include "engine/graph/write.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <filesystem>
#include <set>
#include <system_error>

#include "engine/base/npy.h"
#include "engine/base/write_file.h"
#include "engine/ir/text.h"

namespace tessera {
namespace {

class Writer {
 public:
  Writer(const Graph& g, std::vector<std::string> kernels, std::vector<std::string> constants)
      : graph_(g), kernels_(std::move(kernels)), constants_(std::move(constants)), numbers_(g.values.size(), kNone) {}

  std::string text() {
    out_ = "tessera graph 1\n";
    for (const size_t v : graph_.body.inputs) line("in " + define(v) + " " + to_string(graph_.values[v]));
    for (size_t i = 0; i < constants_.size(); ++i) {
      const size_t v = graph_.constants[i].first;
      line("const " + define(v) + " " + to_string(graph_.values[v]) + " \"" + constants_[i] + "\"");
    }
    steps(graph_.body.steps);
    outputs(graph_.body);
    return std::move(out_);
  }

 private:
  static constexpr size_t kNone = SIZE_MAX;

  void line(const std::string& s) { out_ += std::string(2 * depth_, ' ') + s + "\n"; }
  std::string define(size_t v) {
    numbers_[v] = next_++;
    return use(v);
  }
  std::string use(size_t v) const {
    if (numbers_[v] == kNone)
      throw InternalError("write_graph: value " + std::to_string(v) + " is used before it is defined");
    return "%" + std::to_string(numbers_[v]);
  }
  std::string results(const Graph::Step& s) {
    std::string text;
    for (const size_t v : s.results) text += (text.empty() ? "" : ", ") + define(v);
    return text.empty() ? text : text + " = ";
  }
  std::string types(const Graph::Step& s) const {
    std::string text;
    for (const size_t v : s.results) text += (text.empty() ? " : " : ", ") + to_string(graph_.values[v]);
    return text;
  }
  void outputs(const Graph::Body& b) {
    for (const size_t v : b.outputs) line("out " + use(v));
  }
  void steps(const std::vector<Graph::Step>& list) {
    for (const Graph::Step& s : list) std::visit([&](const auto& what) { step(s, what); }, s.what);
  }
  void step(const Graph::Step& s, const Graph::Step::Call& c) {
    std::string arguments, sizes;
    for (const size_t v : s.arguments) arguments += (arguments.empty() ? "" : ", ") + use(v);
    for (const auto& [name, v] : c.sizes) sizes += (sizes.empty() ? " with " : ", ") + name + " = " + use(v);
    const std::string made = results(s);
    line(made + "call \"" + kernels_[c.kernel] + "\"(" + arguments + ")" + sizes + types(s));
  }
  static void check_count(const Graph::Step& s, int64_t n) {
    if (n > INT32_MAX)
      throw SpecError("write_graph: a repeat counts to " + std::to_string(n) + ", and at most " +
                          std::to_string(INT32_MAX) + " is possible in a file",
                      s.loc);
  }
  void step(const Graph::Step& s, const Graph::Step::CountedLoop& loop) {
    check_count(s, loop.count);
    head(s, loop.body, "repeat " + std::to_string(loop.count) + (loop.reverse ? " reverse" : ""));
    tail(loop.body);
  }
  void step(const Graph::Step& s, const Graph::Step::While& loop) {
    check_count(s, loop.at_most.value_or(0));
    head(s, loop.body, "repeat" + (loop.at_most ? " at_most " + std::to_string(*loop.at_most) : ""));
    steps(loop.test.steps);
    line("while " + use(loop.test.outputs[0]));
    tail(loop.body);
  }
  /// The first line of a loop, and what it carries and slices.
  void head(const Graph::Step& s, const Graph::Body& b, const std::string& repeat) {
    const std::string made = results(s);
    line(made + repeat + types(s) + " {");
    ++depth_;
    // All of them see what is outside, and not one another.
    std::vector<std::string> from;
    for (const size_t v : s.arguments) from.push_back(use(v));
    for (size_t i = 0; i < b.inputs.size(); ++i)
      line((i < s.num_carries() ? "carry " : "slice ") + define(b.inputs[i]) + " " +
           to_string(graph_.values[b.inputs[i]]) + " = " + from[i]);
  }
  void tail(const Graph::Body& b) {
    steps(b.steps);
    outputs(b);
    --depth_;
    line("}");
  }
  void step(const Graph::Step& s, const Graph::Step::Switch& choice) {
    const std::string index = use(s.arguments[0]);
    const std::string made = results(s);
    line(made + "switch " + index + types(s) + " {");
    for (size_t i = 0; i < choice.branches.size(); ++i) {
      if (i > 0) line("} {");
      ++depth_;
      steps(choice.branches[i].steps);
      outputs(choice.branches[i]);
      --depth_;
    }
    line("}");
  }

  const Graph& graph_;
  std::vector<std::string> kernels_, constants_;
  std::vector<size_t> numbers_;  // by value
  size_t next_ = 0, depth_ = 0;
  std::string out_;
};

/// A name of a file that is not in `used`, and from then on is. Without regard to case: some file systems have none.
std::string fresh(const std::string& name, const std::string& ending, std::set<std::string>& used) {
  const std::string s = file_stem(name);
  const auto lower = [](std::string t) {
    for (char& c : t) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return t;
  };
  std::string unique = s;
  for (int i = 2; !used.insert(lower(unique + ending)).second; ++i) unique = s + "_" + std::to_string(i);
  return unique + ending;
}

}  // namespace

std::string graph_text(const Graph& g) {
  std::vector<std::string> kernels, constants;
  for (const ir::Kernel& k : g.kernels) kernels.push_back(ir::print(k, true));
  for (const auto& [v, a] : g.constants)
    constants.emplace_back(reinterpret_cast<const char*>(a.bytes()), static_cast<size_t>(a.nbytes()));
  return Writer(g, std::move(kernels), std::move(constants)).text();
}

void write_graph(const Graph& g, const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw Error(folder + ": cannot be made: " + error.message());
  std::set<std::string> used;
  std::vector<std::string> kernels, constants;
  for (const ir::Kernel& k : g.kernels) kernels.push_back(fresh(k.name, ".tir", used));
  for (size_t i = 0; i < g.constants.size(); ++i)
    constants.push_back(fresh("constant_" + std::to_string(i), ".npy", used));
  const std::string text = Writer(g, kernels, constants).text();
  const auto put = [&](const std::string& name, std::initializer_list<std::string_view> parts) {
    if (!put_file(folder + "/" + name, parts)) throw Error(folder + "/" + name + ": cannot be written");
  };
  for (size_t i = 0; i < kernels.size(); ++i) put(kernels[i], {ir::print(g.kernels[i], true)});
  for (size_t i = 0; i < constants.size(); ++i) {
    const Array& a = g.constants[i].second;
    put(constants[i], {npy_header(a), {reinterpret_cast<const char*>(a.bytes()), static_cast<size_t>(a.nbytes())}});
  }
  put("graph.txt", {text});  // last: a folder with it is whole
}

}  // namespace tessera
