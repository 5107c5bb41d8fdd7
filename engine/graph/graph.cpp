#include "engine/graph/graph.h"

#include <algorithm>
#include <cstring>

#include "engine/base/plural.h"
#include "engine/graph/sizes.h"
#include "engine/interpreter/interpreter.h"

namespace tessera {

std::string to_string(const Graph::Type& t) {
  if (t.extents.empty()) return ir::to_string(ir::Type::array(t.dtype, t.shape));
  std::string dims;
  for (const Extent& e : t.extents) dims += (dims.empty() ? "" : ", ") + to_string(e);
  return std::string(name(t.dtype)) + "[" + dims + "]";
}

void check_arguments(const Graph& g, const std::vector<std::pair<DType, Shape>>& arguments) {
  if (arguments.size() != g.body.inputs.size())
    throw SpecError(g.name + " takes " + plural(g.body.inputs.size(), "argument") + " but " +
                        std::to_string(arguments.size()) + (arguments.size() == 1 ? " is given" : " are given"),
                    g.loc);
  for (size_t i = 0; i < arguments.size(); ++i) {
    const Graph::Type given{arguments[i].first, arguments[i].second}, &wanted = g.values[g.body.inputs[i]];
    if (given != wanted)
      throw SpecError(g.name + ": argument " + std::to_string(i) + " is " + to_string(given) + " but " +
                          to_string(wanted) + " is expected",
                      g.loc);
  }
}

int64_t scalar(const Array& a) {
  const uint64_t bits = a.element_bits(0);
  return a.dtype() == DType::i32 ? static_cast<int32_t>(static_cast<uint32_t>(bits)) : static_cast<int64_t>(bits);
}
int64_t grid_size(int64_t value) { return std::max<int64_t>(value, 0); }

namespace {

template <class BodyPointer, class S> std::vector<BodyPointer> bodies_of(S& step) {
  std::vector<BodyPointer> bodies;
  if (auto* counted = std::get_if<Graph::Step::CountedLoop>(&step.what)) {
    bodies = {&counted->body};
  } else if (auto* loop = std::get_if<Graph::Step::While>(&step.what)) {
    bodies = {&loop->body, &loop->test};
  } else if (auto* choice = std::get_if<Graph::Step::Switch>(&step.what)) {
    for (auto& branch : choice->branches) bodies.push_back(&branch);
  }
  return bodies;
}

}  // namespace

std::vector<Graph::Body*> Graph::Step::bodies() { return bodies_of<Body*>(*this); }
std::vector<const Graph::Body*> Graph::Step::bodies() const { return bodies_of<const Body*>(*this); }
const Graph::Body* Graph::Step::loop_body() const {
  if (const auto* counted = std::get_if<CountedLoop>(&what)) return &counted->body;
  const While* loop = while_loop();
  return loop ? &loop->body : nullptr;
}
size_t Graph::Step::num_carries() const {
  const auto* counted = std::get_if<CountedLoop>(&what);
  return arguments.size() - (counted ? counted->slices : 0);
}

namespace {

class Run {
 public:
  explicit Run(const Graph& g) : graph_(g), values_(g.values.size()) {
    for (const auto& [v, a] : g.constants) values_[v] = a;
  }

  std::vector<Array> body(const Graph::Body& b, std::vector<Array> inputs) {
    for (size_t i = 0; i < inputs.size(); ++i) values_[b.inputs[i]] = std::move(inputs[i]);
    for (const Graph::Step& s : b.steps) {
      std::vector<Array> results = std::visit([&](const auto& what) { return step(s, what); }, s.what);
      for (size_t i = 0; i < results.size(); ++i) values_[s.results[i]] = std::move(results[i]);
    }
    return given(b.outputs);
  }

 private:
  using Step = Graph::Step;

  std::vector<Array> given(const std::vector<size_t>& positions) const {
    std::vector<Array> arrays;
    for (size_t v : positions) arrays.push_back(values_[v]);
    return arrays;
  }
  std::vector<Array> step(const Step& s, const Step::Call& c) {
    InterpretOptions options;
    for (const auto& [name, v] : c.sizes) options.dims[name] = grid_size(scalar(values_[v]));
    return interpret(graph_.kernels[c.kernel], given(s.arguments), options);
  }
  std::vector<Array> step(const Step& s, const Step::Switch& choice) {
    const int64_t last = static_cast<int64_t>(choice.branches.size()) - 1;
    return body(choice.branches[static_cast<size_t>(std::clamp<int64_t>(scalar(values_[s.arguments[0]]), 0, last))],
                {});
  }
  std::vector<Array> step(const Step& s, const Step::CountedLoop& loop) {
    std::vector<Array> carries = given(s.arguments);
    const size_t n = s.num_carries();
    const std::vector<Array> sliced(carries.begin() + static_cast<std::ptrdiff_t>(n), carries.end());
    carries.resize(n);
    std::vector<Array> stacked;
    for (size_t i = n; i < s.results.size(); ++i)
      stacked.emplace_back(graph_.values[s.results[i]].shape, graph_.values[s.results[i]].dtype);
    for (int64_t i = 0; i < loop.count; ++i) {
      std::vector<Array> inputs = carries;
      for (size_t k = 0; k < sliced.size(); ++k) {
        const Graph::Type& t = graph_.values[loop.body.inputs[n + k]];
        Array& a = inputs.emplace_back(t.shape, t.dtype);
        if (a.nbytes())
          std::memcpy(a.bytes(), sliced[k].bytes() + loop.row(i) * a.nbytes(), static_cast<size_t>(a.nbytes()));
      }
      std::vector<Array> next = body(loop.body, std::move(inputs));
      for (size_t k = 0; k < stacked.size(); ++k) {
        const Array& a = next[n + k];
        if (a.nbytes())
          std::memcpy(stacked[k].bytes() + loop.row(i) * a.nbytes(), a.bytes(), static_cast<size_t>(a.nbytes()));
      }
      next.resize(n);
      carries = std::move(next);
    }
    for (Array& a : stacked) carries.push_back(std::move(a));
    return carries;
  }
  std::vector<Array> step(const Step& s, const Step::While& loop) {
    std::vector<Array> carries = given(s.arguments);
    for (int64_t i = 0; !loop.at_most || i < *loop.at_most; ++i) {
      for (size_t k = 0; k < carries.size(); ++k) values_[loop.body.inputs[k]] = carries[k];
      if (!scalar(body(loop.test, {})[0])) break;
      carries = body(loop.body, std::move(carries));
    }
    return carries;
  }

  const Graph& graph_;
  std::vector<Array> values_;
};

}  // namespace

std::vector<Array> interpret(const Graph& g, const std::vector<Array>& inputs) {
  std::vector<std::pair<DType, Shape>> types;
  for (const Array& a : inputs) types.emplace_back(a.dtype(), a.shape());
  if (!size_names(g).empty()) return interpret(at_sizes(g, bind_sizes(g, types)), inputs);
  check_arguments(g, types);
  return Run(g).body(g.body, inputs);
}

}  // namespace tessera
