#include "engine/graph_prune.h"

#include <algorithm>
#include <set>

namespace tessera {
namespace {
using Body = Graph::Body;
using Step = Graph::Step;
using Values = std::set<size_t>;

bool speaks(const Graph& g, const Step& s) {
  if (s.kind == Step::Kind::call) return !g.kernels[s.kernel].texts.empty();
  return std::any_of(s.bodies.begin(), s.bodies.end(), [&](const Body& b) { return std::any_of(b.steps.begin(), b.steps.end(), [&](const Step& inner) { return speaks(g, inner); }); });
}
size_t count_calls(const Step& s) {
  if (s.kind == Step::Kind::call) return 1;
  size_t n = 0;
  for (const Body& b : s.bodies)
    for (const Step& inner : b.steps) n += count_calls(inner);
  return n;
}
void collect_uses(const Body& b, Values& uses) {
  for (const Step& s : b.steps) {
    uses.insert(s.arguments.begin(), s.arguments.end());
    for (const auto& [name, v] : s.sizes) uses.insert(v);
    for (const Body& inner : s.bodies) collect_uses(inner, uses);
  }
  uses.insert(b.outputs.begin(), b.outputs.end());
}
template <class T>
void keep(std::vector<T>& list, const std::vector<bool>& live, size_t from = 0) {
  size_t to = from;
  for (size_t i = from; i < list.size(); ++i)
    if (live[i - from]) list[to++] = std::move(list[i]);
  list.resize(to);
}

size_t prune(const Graph& g, Body& b, Values needed);

/// The bodies of a loop or branch without what nobody needs, and what they use then.
size_t prune_bodies(const Graph& g, Step& s, Values& used) {
  size_t dropped = 0;
  for (size_t i = 0; i < s.bodies.size(); ++i) {
    Values after;
    if (i == 1 && s.kind == Step::Kind::repeat) collect_uses(s.bodies[0], after);  // the body sees what the test has made
    dropped += prune(g, s.bodies[i], std::move(after));
  }
  for (const Body& inner : s.bodies) collect_uses(inner, used);
  return dropped;
}

/// Results of a branch, or of a loop with what it carries for them, that are not needed.
void narrow(const Graph& g, Step& s, const Values& needed) {
  std::vector<bool> live;
  for (size_t v : s.results) live.push_back(needed.contains(v));
  if (s.kind == Step::Kind::choose) {
    for (Body& b : s.bodies) keep(b.outputs, live);
    keep(s.results, live);
    return;
  }
  const size_t carries = s.num_carries();
  Values used;
  for (bool more = true; more;) {  // what is carried for its own sake alone is not
    more = false;
    Step without = s;
    keep(without.bodies[0].outputs, live);
    used.clear();
    prune_bodies(g, without, used);
    for (size_t i = 0; i < carries; ++i)
      if (!live[i] && used.contains(s.bodies[0].inputs[i])) live[i] = more = true;
  }
  std::vector<bool> given(live.begin(), live.begin() + static_cast<std::ptrdiff_t>(carries));
  for (size_t i = carries; i < s.arguments.size(); ++i) given.push_back(used.contains(s.bodies[0].inputs[i]));
  s.slices = static_cast<size_t>(std::count(given.begin() + static_cast<std::ptrdiff_t>(carries), given.end(), true));
  keep(s.arguments, given);
  keep(s.bodies[0].inputs, given);
  keep(s.bodies[0].outputs, live);
  keep(s.results, live);
}

/// The body without what is neither `needed` nor an output, and hangs together with nothing that is.
size_t prune(const Graph& g, Body& b, Values needed) {
  size_t dropped = 0;
  needed.insert(b.outputs.begin(), b.outputs.end());
  std::vector<Step> kept;
  for (auto s = b.steps.rbegin(); s != b.steps.rend(); ++s) {
    if (!speaks(g, *s) && std::none_of(s->results.begin(), s->results.end(), [&](size_t v) { return needed.contains(v); })) {
      dropped += count_calls(*s);
      continue;
    }
    if (s->kind != Step::Kind::call) {
      narrow(g, *s, needed);
      dropped += prune_bodies(g, *s, needed);
    }
    needed.insert(s->arguments.begin(), s->arguments.end());
    for (const auto& [name, v] : s->sizes) needed.insert(v);
    kept.push_back(std::move(*s));
  }
  b.steps.assign(std::make_move_iterator(kept.rbegin()), std::make_move_iterator(kept.rend()));
  return dropped;
}
}  // namespace

size_t prune(const Graph& graph, Graph::Body& body) { return prune(graph, body, {}); }

}  // namespace tessera
