#include "engine/graph/dce.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

namespace tessera {
namespace {
using Body = Graph::Body;
using Step = Graph::Step;

/// What is needed, found from the outputs and from calls that print or check: each value and step is looked at once,
/// however deep it lies.
class Needs {
 public:
  Needs(const Graph& g, const Body& b)
      : graph_(g), made_(g.values.size()), taken_(g.values.size()), needed_(g.values.size()) {
    enter(b);
    need(b.outputs);
    while (!work_.empty()) {
      const size_t v = work_.back();
      work_.pop_back();
      if (const auto [step, i] = made_[v]; step) made(*step, i);
      if (const auto [step, i] = taken_[v]; step) need(i < step->num_carries() ? step->results[i] : step->arguments[i]);
    }
  }
  bool operator()(size_t v) const { return needed_[v]; }
  bool keeps(const Step& s) const { return kept_.contains(&s); }

 private:
  struct Place {
    const Step* step = nullptr;
    size_t i = 0;
  };

  /// Whether a call in it prints or checks.
  bool enter(const Body& b) {
    bool prints = false;
    for (const Step& s : b.steps) {
      for (size_t i = 0; i < s.results.size(); ++i) made_[s.results[i]] = {&s, i};
      if (const Body* loop = s.loop_body())
        for (size_t i = 0; i < s.arguments.size(); ++i) taken_[loop->inputs[i]] = {&s, i};
      bool one = s.call() && !graph_.kernels[s.call()->kernel].texts.empty();
      for (const Body* inner : s.bodies()) one |= enter(*inner);
      if (one) keep(s);
      prints |= one;
    }
    return prints;
  }
  void need(size_t v) {
    if (needed_[v]) return;
    needed_[v] = true;
    work_.push_back(v);
  }
  void need(const std::vector<size_t>& values) {
    for (const size_t v : values) need(v);
  }
  void keep(const Step& s) {
    if (!kept_.insert(&s).second) return;
    std::visit([&](const auto& what) { runs(s, what); }, s.what);
  }
  void runs(const Step& s, const Step::Call& c) {
    need(s.arguments);
    for (const auto& [name, v] : c.sizes) need(v);
  }
  void runs(const Step& s, const Step::Switch&) { need(s.arguments[0]); }
  void runs(const Step&, const Step::While& loop) { need(loop.test.outputs); }
  void runs(const Step&, const Step::CountedLoop&) {}
  void made(const Step& s, size_t i) {
    keep(s);
    if (const auto* choice = std::get_if<Step::Switch>(&s.what))
      for (const Body& b : choice->branches) need(b.outputs[i]);
    if (const Body* loop = s.loop_body()) {
      need(loop->outputs[i]);
      if (i < s.num_carries()) need(s.arguments[i]);
    }
  }

  const Graph& graph_;
  std::vector<Place> made_, taken_;  // by value: whose result it is, and what a loop's body is given as
  std::vector<bool> needed_;
  std::unordered_set<const Step*> kept_;
  std::vector<size_t> work_;
};

size_t count_calls(const Step& s) {
  if (s.call()) return 1;
  size_t n = 0;
  for (const Body* b : s.bodies())
    for (const Step& inner : b->steps) n += count_calls(inner);
  return n;
}

void keep(std::vector<size_t>& list, const std::vector<bool>& live) {
  size_t to = 0;
  for (size_t i = 0; i < list.size(); ++i)
    if (live[i]) list[to++] = list[i];
  list.resize(to);
}

/// Results of a branch, or of a loop with what it carries for them, that are not needed. `live`: which of the results
/// are.
void narrow(Step&, Step::Call&, const std::vector<bool>&, const Needs&) {}  // it has all outputs of its kernel
void narrow(Step& s, Step::Switch& choice, const std::vector<bool>& live, const Needs&) {
  for (Body& b : choice.branches) keep(b.outputs, live);
  keep(s.results, live);
}
void narrow(Step& s, Step::While& loop, const std::vector<bool>& live, const Needs&) {
  keep(s.arguments, live);
  keep(s.results, live);
  keep(loop.body.inputs, live);
  keep(loop.body.outputs, live);
}
void narrow(Step& s, Step::CountedLoop& loop, const std::vector<bool>& live, const Needs& needs) {
  const auto carries = static_cast<std::ptrdiff_t>(s.num_carries());
  std::vector<bool> given(live.begin(), live.begin() + carries);
  for (size_t i = given.size(); i < s.arguments.size(); ++i) given.push_back(needs(loop.body.inputs[i]));
  loop.slices = static_cast<size_t>(std::count(given.begin() + carries, given.end(), true));
  keep(s.arguments, given);
  keep(s.results, live);
  keep(loop.body.inputs, given);
  keep(loop.body.outputs, live);
}
void narrow(Step& s, const Needs& needs) {
  std::vector<bool> live;
  for (const size_t v : s.results) live.push_back(needs(v));
  std::visit([&](auto& what) { narrow(s, what, live, needs); }, s.what);
}

size_t drop(Body& b, const Needs& needs) {
  size_t dropped = 0;
  std::vector<bool> keeps;  // asked before the steps move
  for (const Step& s : b.steps) keeps.push_back(needs.keeps(s));
  std::vector<Step> kept;
  for (size_t i = 0; i < b.steps.size(); ++i) {
    Step& s = b.steps[i];
    if (!keeps[i]) {
      dropped += count_calls(s);
      continue;
    }
    for (Body* inner : s.bodies()) dropped += drop(*inner, needs);
    narrow(s, needs);
    kept.push_back(std::move(s));
  }
  b.steps = std::move(kept);
  return dropped;
}
}  // namespace

size_t dead_code_elimination(const Graph& graph, Body& body) { return drop(body, Needs(graph, body)); }

}  // namespace tessera
