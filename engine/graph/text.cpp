#include "engine/ir/text.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>
#include <set>

#include "engine/base/npy.h"
#include "engine/base/plural.h"
#include "engine/base/read_file.h"
#include "engine/graph/graph.h"
#include "engine/graph/sizes.h"
#include "engine/interpreter/interpreter.h"
#include "engine/ir/verify.h"

namespace tessera {
namespace {

class GraphParser {
  [[noreturn]] void fail(const std::string& what) const {
    throw TraceError(folder_ + "/graph.txt:" + std::to_string(number_) + ": " + what);
  }
  template <class F>
  auto reading(const F& open) const {
    try {
      return open();
    } catch (const SpecError& e) {
      fail(e.what());
    }
  }

 public:
  GraphParser(std::string_view text, const std::string& folder) : rest_(text), folder_(folder) {}

  Graph parse() {
    next_line();
    if (!word("tessera") || !word("graph")) fail("this is no graph: its first line should be \"tessera graph 1\"");
    if (const int64_t v = number(); v != 1)
      fail("the graph is of version " + std::to_string(v) + ", and this Tessera reads version 1");
    end();
    steps(graph_.body, nullptr, 0);
    reading([&] { check_sizes(graph_); });
    return std::move(graph_);
  }

 private:
  Loc here() const { return {intern_file(folder_ + "/graph.txt"), static_cast<uint32_t>(number_)}; }

  bool next_line() {
    while (!rest_.empty()) {
      const size_t n = std::min(rest_.find('\n'), rest_.size());
      line_ = whole_ = rest_.substr(0, n);
      rest_.remove_prefix(std::min(n + 1, rest_.size()));
      ++number_;
      space();
      if (!line_.empty()) return true;
    }
    return false;
  }
  /// What next_line() has just read, it reads once more.
  void again() {
    rest_ = {whole_.data(), static_cast<size_t>(rest_.data() + rest_.size() - whole_.data())};
    --number_;
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
  size_t use() {
    const std::string n = value_name();
    const auto it = names_.find(n);
    if (it == names_.end())
      fail("%" + n +
           (defined_.contains(n) ? " is defined in a body that ends above, or begins here" : " is not defined above"));
    return it->second;
  }
  Graph::Type type() {
    const std::string_view name = line_.substr(0, std::min(line_.find_first_of("[ "), line_.size()));
    const auto dtype = dtype_from_name(name);
    if (!dtype) fail("\"" + std::string(name) + "\" is no dtype");
    line_.remove_prefix(name.size());
    std::vector<Extent> dims;
    need('[');
    if (mark(']')) return {*dtype, {}};
    do dims.push_back(extent());
    while (mark(','));
    need(']');
    Graph::Type t = reading([&] { return type_at(*dtype, dims, stand_ins_); });
    if (!ir::within_limits(t.shape)) fail(to_string(t) + " is beyond 32 dims or 2^40 elements");
    return t;
  }
  /// A number, or an expression of sizes, which get numbers that stand for them.
  Extent extent() {
    const size_t behind = line_.find_first_not_of("0123456789 ");
    const auto is = [&](size_t at, const auto& test) { return at < line_.size() && test(line_[at]); };
    const bool begins = is(0, [](unsigned char c) { return std::isalpha(c) || c == '_' || c == '('; });
    const bool goes_on = is(behind, [](char c) { return c == '+' || c == '-' || c == '*'; });
    if (!begins && (behind == 0 || !goes_on)) return number();
    Extent e;
    try {
      e = parse_extent(line_);
    } catch (const Error& error) {
      fail(error.what());
    }
    space();
    std::vector<std::string> names;
    e.collect_names(names);
    for (const std::string& name : names) stand_ins_.try_emplace(name, stands_for(stand_ins_.size()));
    return e;
  }
  /// Of the folder's own files only: a folder from elsewhere must not name files outside of it.
  std::string file_name() {
    need('"');
    const size_t n = line_.find('"');
    if (n == std::string_view::npos) fail("a file's name lacks its second quote");
    const std::string name(line_.substr(0, n));
    line_.remove_prefix(n + 1);
    space();
    if (name.empty() || name[0] == '.' || name.find_first_of("/\\") != std::string::npos)
      fail("\"" + name + "\" is not the name of a file in the graph's folder");
    return folder_ + "/" + name;
  }
  void define(const std::string& name, const Graph::Type& t) {
    if (!defined_.insert(name).second) fail("%" + name + " is defined a second time");
    names_.emplace(name, graph_.values.size());
    order_.push_back(name);
    graph_.values.push_back(t);
  }
  std::vector<Graph::Type> types() {
    std::vector<Graph::Type> t;
    do t.push_back(type());
    while (mark(','));
    return t;
  }

  /// A loop, of which its first line says whether it counts.
  struct Repeat {
    std::optional<int64_t> count = {}, at_most = {};
    bool reverse = false;
    size_t slices = 0;
    Graph::Body body = {};
    std::optional<Graph::Body> test = {};
  };
  /// Lines up to the end of the text, or of the body if it is a step's, whose `}` is left. In front of a `while` they
  /// are the test's.
  void steps(Graph::Body& b, Repeat* repeat, int opened) {
    while (next_line()) {
      if (opened && line_[0] == '}') return;
      if (!opened && word("in")) {
        const std::string n = value_name();
        define(n, type());
        b.inputs.push_back(names_.at(n));
      } else if (!opened && word("const")) {
        const std::string n = value_name();
        const Graph::Type t = type();
        const std::string file = file_name();
        NpyFile array = reading([&] { return NpyFile(file, t.dtype, InputFile::Links::refused); });
        if (Graph::Type{array.dtype(), array.shape()} != t)
          fail(file + " holds " + to_string({array.dtype(), array.shape()}) + " but " + to_string(t) + " is expected");
        define(n, t);
        graph_.constants.emplace_back(names_.at(n), array.read());
      } else if (word("out")) {
        b.outputs.push_back(use());
      } else if (repeat && word("while")) {
        test(b, *repeat);
      } else {
        step(b, opened);
      }
      end();
    }
    if (opened) fail("the body that begins in line " + std::to_string(opened) + " has no end");
  }
  void test(Graph::Body& b, Repeat& repeat) {
    if (repeat.count) fail("a repeat that counts to " + std::to_string(*repeat.count) + " has no while");
    if (repeat.test) fail("a repeat has one while");
    if (!b.outputs.empty()) fail("out comes after while");
    const size_t v = use();
    if (const Graph::Type t{DType::boolean, {}}; graph_.values[v] != t)
      fail("while: the value is " + to_string(graph_.values[v]) + " but " + to_string(t) + " is expected");
    repeat.test = Graph::Body{{}, {v}, std::move(b.steps)};
    b.steps.clear();
  }

  void step(Graph::Body& b, int opened) {
    std::vector<std::string> results;
    if (line_[0] == '%') {
      do results.push_back(value_name());
      while (mark(','));
      need('=');
    }
    Graph::Step s{.what = Graph::Step::Call{}, .line = number_};
    std::vector<Graph::Type> declared;
    if (word("call")) declared = call(s, results.size());
    else if (word("repeat")) declared = repeat(s, results.size());
    else if (word("switch")) declared = switch_(s, results.size());
    else
      fail(opened ? "expected a call, repeat, switch, out or }"
                  : "expected in, const, out, or a call, repeat or switch");
    for (size_t i = 0; i < results.size(); ++i) {
      s.results.push_back(graph_.values.size());
      define(results[i], declared[i]);
    }
    b.steps.push_back(std::move(s));
  }

  std::vector<Graph::Type> call(Graph::Step& s, size_t results) {
    Graph::Step::Call c{.kernel = kernel(file_name())};
    need('(');
    if (!mark(')')) {
      do s.arguments.push_back(use());
      while (mark(','));
      need(')');
    }
    if (word("with")) {
      do {
        const size_t n = std::min(line_.find_first_of(" ="), line_.size());
        const std::string name(line_.substr(0, n));
        line_.remove_prefix(n);
        space();
        need('=');
        c.sizes.emplace_back(name, use());
      } while (mark(','));
    }
    std::vector<Graph::Type> declared;
    if (results > 0) {
      need(':');
      declared = types();
    }
    check(graph_.kernels[c.kernel], s.arguments, c, declared, results);
    s.what = std::move(c);
    return declared;
  }
  /// What follows the head of a repeat or switch: the types of its results, and the brace.
  std::vector<Graph::Type> declared_types(const char* what, size_t results) {
    std::vector<Graph::Type> t;
    if (results > 0) {
      need(':');
      t = types();
    }
    if (t.size() != results)
      fail(std::string(what) + " has " + plural(results, "result") + " and " + plural(t.size(), "type"));
    need('{');
    end();
    if (++depth_ > kDepth)
      fail("bodies lie in one another " + std::to_string(depth_) + " deep, and at most " + std::to_string(kDepth) +
           " may");
    return t;
  }
  /// The body's own names are seen no more.
  void leave(size_t outside) {
    need('}');
    for (; order_.size() > outside; order_.pop_back()) names_.erase(order_.back());
  }

  std::vector<Graph::Type> repeat(Graph::Step& s, size_t results) {
    const int opened = number_;
    s.loc = here();
    Repeat r = counts();
    const std::vector<Graph::Type> declared = declared_types("repeat", results);
    const size_t outside = order_.size();
    carried(s, r);
    steps(r.body, &r, opened);
    check(r, s.arguments.size() - r.slices, declared, opened);
    leave(outside);
    --depth_;
    if (r.count) s.what = Graph::Step::CountedLoop{std::move(r.body), *r.count, r.reverse, r.slices};
    else s.what = Graph::Step::While{std::move(r.body), std::move(*r.test), r.at_most};
    return declared;
  }
  Repeat counts() {
    Repeat r;
    if (word("at_most")) r.at_most = number();
    if (!line_.empty() && line_[0] >= '0' && line_[0] <= '9') r.count = number();
    if (r.count && r.at_most) fail("a repeat that counts to " + std::to_string(*r.count) + " has no at_most");
    if (r.count && *r.count > INT32_MAX)
      fail("repeat counts to " + std::to_string(*r.count) + ", and at most " + std::to_string(INT32_MAX) +
           " is possible");
    if (r.at_most && *r.at_most > INT32_MAX)
      fail("repeat: at_most is " + std::to_string(*r.at_most) + ", and at most " + std::to_string(INT32_MAX) +
           " is possible");
    r.reverse = word("reverse");
    if (r.reverse && !r.count) fail("a repeat without a count has no reverse");
    return r;
  }
  /// The lines of a loop that say what it carries and slices.
  void carried(Graph::Step& s, Repeat& r) {
    // The carries and slices see what is outside, and not one another.
    std::vector<std::pair<std::string, Graph::Type>> inputs;
    while (next_line()) {
      const bool slice = word("slice");
      if (!slice && !word("carry")) {
        again();
        break;
      }
      const std::string n = value_name();
      const Graph::Type t = type();
      need('=');
      const size_t from = use();
      end();
      if (!slice && r.slices > 0) fail("carry comes before slice");
      if (slice && !r.count) fail("a repeat without a count has no slice");
      const Graph::Type wanted = slice ? stacked(*r.count, t) : t;
      if (graph_.values[from] != wanted)
        fail(std::string(slice ? "slice" : "carry") + ": the value is " + to_string(graph_.values[from]) + " but " +
             to_string(wanted) + " is expected");
      inputs.emplace_back(n, t);
      s.arguments.push_back(from);
      r.slices += slice;
    }
    for (const auto& [n, t] : inputs) {
      define(n, t);
      r.body.inputs.push_back(names_.at(n));
    }
  }
  void check(const Repeat& r, size_t carries, const std::vector<Graph::Type>& declared, int opened) {
    const Graph::Body& b = r.body;
    const size_t results = declared.size(), outs = b.outputs.size();
    const std::string here = "the repeat in line " + std::to_string(opened);
    if (!r.count && !r.test) fail(here + " has neither a count nor a while");
    if (outs < carries)
      fail(here + " has " + plural(carries, "carry", "carries") + " but its body " + plural(outs, "out"));
    if (!r.count && outs > carries)
      fail(here + " has no count, so it stacks nothing, but " + plural(outs - carries, "out") + " beyond its carries");
    if (results != outs) fail(here + " has " + plural(results, "result") + " but its body " + plural(outs, "out"));
    for (size_t i = 0; i < results; ++i) {
      const Graph::Type& out = graph_.values[b.outputs[i]];
      if (i < carries && out != graph_.values[b.inputs[i]])
        fail("carry " + std::to_string(i) + " is " + to_string(graph_.values[b.inputs[i]]) + " but its next value is " +
             to_string(out));
      const Graph::Type t = i < carries ? out : stacked(*r.count, out);
      if (t != declared[i])
        fail("repeat: result " + std::to_string(i) + " is " + to_string(t) + " but line " + std::to_string(opened) +
             " says " + to_string(declared[i]));
    }
  }
  Graph::Type stacked(int64_t n, const Graph::Type& t) {
    Graph::Type s = t;
    s.shape.insert(s.shape.begin(), n);
    if (!s.extents.empty()) s.extents.insert(s.extents.begin(), n);
    if (!ir::within_limits(s.shape)) fail(to_string(s) + " is beyond 32 dims or 2^40 elements");
    return s;
  }

  std::vector<Graph::Type> switch_(Graph::Step& s, size_t results) {
    Graph::Step::Switch choice;
    const int opened = number_;
    s.loc = here();
    s.arguments.push_back(use());
    if (const Graph::Type t{DType::i32, {}}; graph_.values[s.arguments[0]] != t)
      fail("switch: the value is " + to_string(graph_.values[s.arguments[0]]) + " but " + to_string(t) +
           " is expected");
    const std::vector<Graph::Type> declared = declared_types("switch", results);
    const size_t outside = order_.size();
    while (true) {
      Graph::Body b;
      steps(b, nullptr, number_);
      const std::string here =
          "branch " + std::to_string(choice.branches.size()) + " of the switch in line " + std::to_string(opened);
      if (b.outputs.size() != results)
        fail(here + " has " + plural(b.outputs.size(), "out") + " but the switch " + plural(results, "result"));
      for (size_t i = 0; i < results; ++i)
        if (const Graph::Type& t = graph_.values[b.outputs[i]]; t != declared[i])
          fail(here + ": result " + std::to_string(i) + " is " + to_string(t) + " but line " + std::to_string(opened) +
               " says " + to_string(declared[i]));
      choice.branches.push_back(std::move(b));
      leave(outside);
      if (!mark('{')) break;
      end();
    }
    --depth_;
    s.what = std::move(choice);
    return declared;
  }

  size_t kernel(const std::string& file) {
    const auto [it, fresh] = kernels_.emplace(file, graph_.kernels.size());
    if (fresh) {
      ir::Kernel k = ir::parse(reading([&] { return InputFile(file, InputFile::Links::refused).rest(); }), file);
      ir::verify(k, "parsing");
      k.put_values_in_memory();  // a graph's values are
      graph_.kernels.push_back(std::move(k));
    }
    return it->second;
  }
  void check(const ir::Kernel& k, const std::vector<size_t>& arguments, const Graph::Step::Call& c,
             const std::vector<Graph::Type>& types, size_t results) {
    if (arguments.size() != static_cast<size_t>(k.num_inputs))
      fail(k.name + " takes " + plural(static_cast<size_t>(k.num_inputs), "input") + " but " +
           std::to_string(arguments.size()) + (arguments.size() == 1 ? " is given" : " are given"));
    if (results != static_cast<size_t>(k.num_outputs()) || types.size() != results)
      fail(k.name + " has " + plural(static_cast<size_t>(k.num_outputs()), "output") + " but the call has " +
           plural(results, "result") + " and " + plural(types.size(), "type"));
    // Types are fixed, so what comes with the call may be no size of an array.
    const std::vector<std::string> all = k.dim_names();
    std::vector<std::string> shown;
    for (const ir::BlockMapping& block : k.blocks)
      for (const Extent& e : block.array_shape) e.collect_names(shown);
    DimValues given;
    for (const auto& [name, v] : c.sizes) {
      if (std::find(all.begin(), all.end(), name) == all.end()) fail(k.name + " has no size " + name);
      if (std::find(shown.begin(), shown.end(), name) != shown.end())
        fail(k.name + ": " + name + " is a size of an array, and a value may only be one of the grid");
      const Graph::Type& t = graph_.values[v];
      if (!t.shape.empty() || (t.dtype != DType::i32 && t.dtype != DType::i64))
        fail(k.name + ": the size " + name + " is " + to_string(t) + " but i32[] or i64[] is expected");
      if (!given.emplace(name, 1).second) fail(k.name + ": the size " + name + " is given twice");
    }
    std::vector<Graph::Type> given_types;
    for (const size_t v : arguments) given_types.push_back(graph_.values[v]);
    if (any_sized(given_types)) return check_sized(k, given_types, types);
    std::vector<std::pair<DType, Shape>> shapes;
    for (size_t v : arguments) shapes.emplace_back(graph_.values[v].dtype, graph_.values[v].shape);
    try {
      const DimValues dims = bind_dims(k, shapes, given);
      for (size_t i = 0; i < results; ++i) {
        const int block = k.num_inputs + static_cast<int>(i);
        const Graph::Type t{k.blocks[static_cast<size_t>(block)].dtype, bind_shape(k, block, dims)};
        if (t != types[i])
          fail(k.name + ": result " + std::to_string(i) + " is " + to_string(t) + " but the call says " +
               to_string(types[i]));
      }
    } catch (const SpecError& e) {
      fail(e.what());
    }
  }

  void check_sized(const ir::Kernel& k, const std::vector<Graph::Type>& arguments,
                   const std::vector<Graph::Type>& types) const {
    reading([&] {
      const NamedExtents sizes = kernel_sizes(k, arguments);
      for (size_t i = 0; i < types.size(); ++i)
        if (const Graph::Type t = argument_type(k, arguments.size() + i, sizes, stand_ins_); t != types[i])
          fail(k.name + ": result " + std::to_string(i) + " is " + to_string(t) + " but the call says " +
               to_string(types[i]));
    });
  }

  std::string_view rest_, line_, whole_;
  std::string folder_;
  int number_ = 0;
  Graph graph_;
  static constexpr int kDepth = 64;
  int depth_ = 0;
  std::map<std::string, size_t> names_, kernels_;  // names_: those that are seen here
  std::vector<std::string> order_;                 // in which they were defined
  std::set<std::string> defined_;
  DimValues stand_ins_;
};

}  // namespace

Graph parse_graph(std::string_view text, const std::string& folder) { return GraphParser(text, folder).parse(); }
Graph read_graph(const std::string& folder) {
  return parse_graph(InputFile(folder + "/graph.txt", InputFile::Links::refused).rest(), folder);
}

}  // namespace tessera
