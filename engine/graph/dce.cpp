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
      if (s.kind == Step::Kind::repeat)
        for (size_t i = 0; i < s.arguments.size(); ++i) taken_[s.bodies[0].inputs[i]] = {&s, i};
      bool one = s.kind == Step::Kind::call && !graph_.kernels[s.kernel].texts.empty();
      for (const Body& inner : s.bodies) one |= enter(inner);
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
    if (s.kind == Step::Kind::call) need(s.arguments);
    if (s.kind == Step::Kind::switch_) need(s.arguments[0]);
    if (s.kind == Step::Kind::repeat && !s.count) need(s.bodies[1].outputs);
    for (const auto& [name, v] : s.sizes) need(v);
  }
  void made(const Step& s, size_t i) {
    keep(s);
    if (s.kind == Step::Kind::switch_)
      for (const Body& b : s.bodies) need(b.outputs[i]);
    if (s.kind == Step::Kind::repeat) {
      need(s.bodies[0].outputs[i]);
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
  if (s.kind == Step::Kind::call) return 1;
  size_t n = 0;
  for (const Body& b : s.bodies)
    for (const Step& inner : b.steps) n += count_calls(inner);
  return n;
}

void keep(std::vector<size_t>& list, const std::vector<bool>& live) {
  size_t to = 0;
  for (size_t i = 0; i < list.size(); ++i)
    if (live[i]) list[to++] = list[i];
  list.resize(to);
}

/// Results of a branch, or of a loop with what it carries for them, that are not needed.
void narrow(Step& s, const Needs& needs) {
  std::vector<bool> live, given;
  for (const size_t v : s.results) live.push_back(needs(v));
  if (s.kind == Step::Kind::repeat) {
    const size_t carries = s.num_carries();
    given.assign(live.begin(), live.begin() + static_cast<std::ptrdiff_t>(carries));
    for (size_t i = carries; i < s.arguments.size(); ++i) given.push_back(needs(s.bodies[0].inputs[i]));
    s.slices = static_cast<size_t>(std::count(given.begin() + static_cast<std::ptrdiff_t>(carries), given.end(), true));
    keep(s.arguments, given);
    keep(s.bodies[0].inputs, given);
    keep(s.bodies[0].outputs, live);
  } else {
    for (Body& b : s.bodies) keep(b.outputs, live);
  }
  keep(s.results, live);
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
    for (Body& inner : s.bodies) dropped += drop(inner, needs);
    if (s.kind != Step::Kind::call) narrow(s, needs);
    kept.push_back(std::move(s));
  }
  b.steps = std::move(kept);
  return dropped;
}
}  // namespace

size_t dead_code_elimination(const Graph& graph, Body& body) { return drop(body, Needs(graph, body)); }

}  // namespace tessera
