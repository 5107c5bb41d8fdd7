#include "engine/graph.h"

#include <charconv>
#include <fstream>
#include <iterator>
#include <map>

#include "engine/interpreter/interpreter.h"
#include "engine/ir/text.h"
#include "engine/ir/verify.h"
#include "engine/npy.h"

namespace tessera {
namespace {

std::string contents(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) throw SpecError(file + ": cannot be read");
  return {std::istreambuf_iterator<char>(in), {}};
}
std::string show(const Graph::Type& t) { return ir::to_string(ir::Type::array(t.dtype, t.shape)); }

class Parser {
 public:
  Parser(std::string_view text, const std::string& folder) : rest_(text), folder_(folder) {}

  Graph parse() {
    next_line();
    if (!word("tessera") || !word("graph")) fail("this is no graph: its first line should be \"tessera graph 1\"");
    if (const int64_t v = number(); v != 1) fail("the graph is of version " + std::to_string(v) + ", and this Tessera reads version 1");
    end();
    while (next_line()) {
      if (word("in")) {
        const size_t v = definition();
        graph_.values[v] = type();
        graph_.inputs.push_back(v);
      } else if (word("const")) {
        const size_t v = definition();
        graph_.values[v] = type();
        const std::string file = file_name();
        Array a = read_npy(file, graph_.values[v].dtype);
        if (Graph::Type{a.dtype(), a.shape()} != graph_.values[v])
          fail(file + " holds " + show({a.dtype(), a.shape()}) + " but " + show(graph_.values[v]) + " is expected");
        graph_.constants.emplace_back(v, std::move(a));
      } else if (word("out")) {
        graph_.outputs.push_back(use());
      } else {
        call();
      }
      end();
    }
    return std::move(graph_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { throw TraceError(folder_ + "/graph.txt:" + std::to_string(number_) + ": " + what); }

  bool next_line() {
    while (!rest_.empty()) {
      const size_t n = std::min(rest_.find('\n'), rest_.size());
      line_ = rest_.substr(0, n);
      rest_.remove_prefix(std::min(n + 1, rest_.size()));
      ++number_;
      space();
      if (!line_.empty()) return true;
    }
    return false;
  }
  void space() { line_.remove_prefix(std::min(line_.find_first_not_of(" \t\r"), line_.size())); }
  bool mark(char c) {
    if (line_.empty() || line_[0] != c) return false;
    line_.remove_prefix(1);
    space();
    return true;
  }
  void need(char c) {
    if (!mark(c)) fail(std::string("expected '") + c + "' before \"" + std::string(line_.substr(0, 20)) + "\"");
  }
  bool word(std::string_view w) {
    if (!line_.starts_with(w) || (line_.size() > w.size() && line_[w.size()] != ' ')) return false;
    line_.remove_prefix(w.size());
    space();
    return true;
  }
  void end() {
    if (!line_.empty()) fail("unexpected \"" + std::string(line_.substr(0, 20)) + "\"");
  }
  int64_t number() {
    int64_t v = 0;
    const auto [at, error] = std::from_chars(line_.data(), line_.data() + line_.size(), v);
    if (error != std::errc() || v < 0) fail("expected a number before \"" + std::string(line_.substr(0, 20)) + "\"");
    line_.remove_prefix(static_cast<size_t>(at - line_.data()));
    space();
    return v;
  }
  std::string value_name() {
    need('%');
    return std::to_string(number());
  }
  size_t definition() {
    const std::string n = value_name();
    if (!names_.emplace(n, graph_.values.size()).second) fail("%" + n + " is defined a second time");
    graph_.values.emplace_back();
    return graph_.values.size() - 1;
  }
  size_t use() {
    const std::string n = value_name();
    const auto it = names_.find(n);
    if (it == names_.end()) fail("%" + n + " is not defined above");
    return it->second;
  }
  Graph::Type type() {
    const std::string_view name = line_.substr(0, std::min(line_.find_first_of("[ "), line_.size()));
    const auto dtype = dtype_from_name(name);
    if (!dtype) fail("\"" + std::string(name) + "\" is no dtype");
    line_.remove_prefix(name.size());
    Graph::Type t{*dtype, {}};
    need('[');
    if (mark(']')) return t;
    do t.shape.push_back(number());
    while (mark(','));
    need(']');
    return t;
  }
  /// Of the folder's own files only: what somebody sent may not reach beyond it.
  std::string file_name() {
    need('"');
    const size_t n = line_.find('"');
    if (n == std::string_view::npos) fail("a file's name lacks its second quote");
    const std::string name(line_.substr(0, n));
    line_.remove_prefix(n + 1);
    space();
    if (name.empty() || name[0] == '.' || name.find_first_of("/\\") != std::string::npos) fail("\"" + name + "\" is not the name of a file in the graph's folder");
    return folder_ + "/" + name;
  }
  void call() {
    std::vector<std::string> results;
    do results.push_back(value_name());
    while (mark(','));
    need('=');
    if (!word("call")) fail("expected in, const, out or a call");
    Graph::Call c;
    const std::string file = file_name();
    c.kernel = kernel(file);
    need('(');
    if (!mark(')')) {
      do c.arguments.push_back(use());
      while (mark(','));
      need(')');
    }
    need(':');
    std::vector<Graph::Type> types;
    do types.push_back(type());
    while (mark(','));
    check(graph_.kernels[c.kernel], c, types, results.size());
    for (size_t i = 0; i < results.size(); ++i) {
      if (!names_.emplace(results[i], graph_.values.size()).second) fail("%" + results[i] + " is defined a second time");
      c.results.push_back(graph_.values.size());
      graph_.values.push_back(types[i]);
    }
    graph_.calls.push_back(std::move(c));
  }
  size_t kernel(const std::string& file) {
    const auto [it, fresh] = kernels_.emplace(file, graph_.kernels.size());
    if (fresh) {
      ir::Kernel k = ir::parse(contents(file), file);
      ir::verify(k, "parsing");
      graph_.kernels.push_back(std::move(k));
    }
    return it->second;
  }
  void check(const ir::Kernel& k, const Graph::Call& c, const std::vector<Graph::Type>& types, size_t results) {
    auto count = [](size_t n, const char* what) { return std::to_string(n) + " " + what + (n == 1 ? "" : "s"); };
    if (c.arguments.size() != static_cast<size_t>(k.num_inputs)) fail(k.name + " takes " + count(static_cast<size_t>(k.num_inputs), "input") + " but " + std::to_string(c.arguments.size()) + " are given");
    if (results != static_cast<size_t>(k.num_outputs()) || types.size() != results)
      fail(k.name + " has " + count(static_cast<size_t>(k.num_outputs()), "output") + " but the call has " + count(results, "result") + " and " + count(types.size(), "type"));
    std::vector<std::pair<DType, Shape>> shapes;
    for (size_t v : c.arguments) shapes.emplace_back(graph_.values[v].dtype, graph_.values[v].shape);
    try {
      const DimValues dims = bind_dims(k, shapes);
      for (size_t i = 0; i < results; ++i) {
        const int block = k.num_inputs + static_cast<int>(i);
        const Graph::Type t{k.blocks[static_cast<size_t>(block)].dtype, bind_shape(k, block, dims)};
        if (t != types[i]) fail(k.name + ": result " + std::to_string(i) + " is " + show(t) + " but the call says " + show(types[i]));
      }
    } catch (const SpecError& e) {
      fail(e.what());
    }
  }

  std::string_view rest_, line_;
  std::string folder_;
  int number_ = 0;
  Graph graph_;
  std::map<std::string, size_t> names_, kernels_;
};

}  // namespace

Graph parse_graph(std::string_view text, const std::string& folder) { return Parser(text, folder).parse(); }
Graph read_graph(const std::string& folder) { return parse_graph(contents(folder + "/graph.txt"), folder); }

void check_arguments(const Graph& g, const std::vector<std::pair<DType, Shape>>& arguments) {
  if (arguments.size() != g.inputs.size())
    throw SpecError("the graph takes " + std::to_string(g.inputs.size()) + " arguments but " + std::to_string(arguments.size()) + " are given");
  for (size_t i = 0; i < arguments.size(); ++i) {
    const Graph::Type given{arguments[i].first, arguments[i].second}, &wanted = g.values[g.inputs[i]];
    if (given != wanted) throw SpecError("the graph: argument " + std::to_string(i) + " is " + show(given) + " but " + show(wanted) + " is expected");
  }
}

std::vector<Array> interpret(const Graph& g, const std::vector<Array>& inputs) {
  std::vector<std::pair<DType, Shape>> types;
  for (const Array& a : inputs) types.emplace_back(a.dtype(), a.shape());
  check_arguments(g, types);
  std::vector<Array> values(g.values.size());
  for (size_t i = 0; i < inputs.size(); ++i) values[g.inputs[i]] = inputs[i];
  for (const auto& [v, a] : g.constants) values[v] = a;
  for (const Graph::Call& c : g.calls) {
    std::vector<Array> arguments;
    for (size_t v : c.arguments) arguments.push_back(values[v]);
    std::vector<Array> results = interpret(g.kernels[c.kernel], arguments);
    for (size_t i = 0; i < results.size(); ++i) values[c.results[i]] = std::move(results[i]);
  }
  std::vector<Array> outputs;
  for (size_t v : g.outputs) outputs.push_back(values[v]);
  return outputs;
}

}  // namespace tessera
