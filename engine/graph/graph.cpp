#include "engine/graph/graph.h"

#include <algorithm>
#include <cstring>

#include "engine/base/plural.h"
#include "engine/interpreter/interpreter.h"

namespace tessera {

std::string to_string(const Graph::Type& t) { return ir::to_string(ir::Type::array(t.dtype, t.shape)); }

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
size_t chosen(const Graph::Step& choice, int64_t value) {
  return static_cast<size_t>(std::clamp<int64_t>(value, 0, static_cast<int64_t>(choice.bodies.size()) - 1));
}
int64_t grid_size(int64_t value) { return std::max<int64_t>(value, 0); }

namespace {

class Run {
 public:
  explicit Run(const Graph& g) : graph_(g), values_(g.values.size()) {
    for (const auto& [v, a] : g.constants) values_[v] = a;
  }

  std::vector<Array> body(const Graph::Body& b, std::vector<Array> inputs) {
    for (size_t i = 0; i < inputs.size(); ++i) values_[b.inputs[i]] = std::move(inputs[i]);
    for (const Graph::Step& s : b.steps) {
      std::vector<Array> results = s.kind == Graph::Step::Kind::call     ? call(s)
                                   : s.kind == Graph::Step::Kind::repeat ? repeat(s)
                                                                         : switch_(s);
      for (size_t i = 0; i < results.size(); ++i) values_[s.results[i]] = std::move(results[i]);
    }
    return given(b.outputs);
  }

 private:
  std::vector<Array> given(const std::vector<size_t>& positions) const {
    std::vector<Array> arrays;
    for (size_t v : positions) arrays.push_back(values_[v]);
    return arrays;
  }
  std::vector<Array> call(const Graph::Step& s) {
    InterpretOptions options;
    for (const auto& [name, v] : s.sizes) options.dims[name] = grid_size(scalar(values_[v]));
    return interpret(graph_.kernels[s.kernel], given(s.arguments), options);
  }
  std::vector<Array> switch_(const Graph::Step& s) {
    return body(s.bodies[chosen(s, scalar(values_[s.arguments[0]]))], {});
  }
  std::vector<Array> repeat(const Graph::Step& s) {
    std::vector<Array> carries = given(s.arguments);
    const std::vector<Array> sliced(carries.begin() + static_cast<std::ptrdiff_t>(s.num_carries()), carries.end());
    carries.resize(s.num_carries());
    std::vector<Array> stacked;
    for (size_t i = s.num_carries(); i < s.results.size(); ++i)
      stacked.emplace_back(graph_.values[s.results[i]].shape, graph_.values[s.results[i]].dtype);
    for (int64_t i = 0; !s.count || i < *s.count; ++i) {
      std::vector<Array> inputs = carries;
      for (size_t k = 0; k < sliced.size(); ++k) {
        const Graph::Type& t = graph_.values[s.bodies[0].inputs[s.num_carries() + k]];
        Array& a = inputs.emplace_back(t.shape, t.dtype);
        if (a.nbytes())
          std::memcpy(a.bytes(), sliced[k].bytes() + row(s, i) * a.nbytes(), static_cast<size_t>(a.nbytes()));
      }
      if (!s.count) {
        if (s.at_most && i == *s.at_most) break;
        for (size_t k = 0; k < inputs.size(); ++k) values_[s.bodies[0].inputs[k]] = inputs[k];
        if (!scalar(body(s.bodies[1], {})[0])) break;
      }
      std::vector<Array> next = body(s.bodies[0], std::move(inputs));
      for (size_t k = 0; k < stacked.size(); ++k) {
        const Array& a = next[s.num_carries() + k];
        if (a.nbytes())
          std::memcpy(stacked[k].bytes() + row(s, i) * a.nbytes(), a.bytes(), static_cast<size_t>(a.nbytes()));
      }
      next.resize(s.num_carries());
      carries = std::move(next);
    }
    for (Array& a : stacked) carries.push_back(std::move(a));
    return carries;
  }

  const Graph& graph_;
  std::vector<Array> values_;
};

}  // namespace

std::vector<Array> interpret(const Graph& g, const std::vector<Array>& inputs) {
  std::vector<std::pair<DType, Shape>> types;
  for (const Array& a : inputs) types.emplace_back(a.dtype(), a.shape());
  check_arguments(g, types);
  return Run(g).body(g.body, inputs);
}

}  // namespace tessera
