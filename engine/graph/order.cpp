#include "engine/graph/order.h"

#include <algorithm>
#include <map>

namespace tessera {
namespace {
using Command = GraphPlan::Command;
using Node = GraphPlan::Node;
using Place = GraphPlan::Place;

bool prints(const Graph& g, const Command& c) { return c.call() && !g.kernels[c.call()->kernel].texts.empty(); }

template <class F>
void for_each_range(std::vector<Node>& nodes, const F& f) {
  for (Node& n : nodes) {
    if (const Node::Commands* c = n.commands()) f(n.begin, c->end);
    for_each_body(n, [&](std::vector<Node>& body) { for_each_range(body, f); });
  }
}

}  // namespace

bool overlap(const Place& a, const Place& b) {
  return a.storage == b.storage && a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
}

bool conflict(const PlaceUse& a, const PlaceUse& b) { return (a.writes || b.writes) && overlap(a.place, b.place); }

PlaceUse BarrierRule::placed(PlaceUse use) const {
  const GraphPlan::Storage& s = plan_.storages[use.place.storage];
  if (placed_ && s.arena()) use.place = {plan_.storages.size(), s.arena()->offset + use.place.offset, use.place.bytes};
  return use;
}

bool BarrierRule::before(const std::vector<PlaceUse>& uses) {
  std::vector<PlaceUse> here;
  for (const PlaceUse& u : uses) here.push_back(placed(u));
  const bool barrier = std::any_of(here.begin(), here.end(), [&](const PlaceUse& u) {
    return std::any_of(since_.begin(), since_.end(), [&](const PlaceUse& o) { return conflict(u, o); });
  });
  if (barrier) restart();
  since_.insert(since_.end(), here.begin(), here.end());
  return barrier;
}

std::vector<PlaceUse> uses_of(const GraphPlan& plan, const Command& c,
                              FunctionRef<std::pair<bool, bool>(size_t)> argument) {
  std::vector<PlaceUse> uses;
  const auto add = [&](const Place& p, bool reads, bool writes, bool indirect = false) {
    if (p.bytes > 0 && (reads || writes || indirect)) uses.push_back({p, reads, writes, indirect});
  };
  const Command::Copy* const copy = c.copy();
  const Command::SetGate* const set = c.set_gate();
  if (copy && copy->from == copy->to) return uses;
  if (c.guard) {
    const GraphPlan::Gate& gate = plan.gates[c.guard->gate];
    if (set) add(gate.state, true, false);
    else
      add({gate.groups.storage, gate.groups.offset + c.guard->offset(), GraphPlan::Guard::kBytes}, false, false, true);
  }
  if (copy) {
    add(copy->from, true, false);
    add(copy->to, false, true);
  } else if (set) {
    if (set->decides) add(*set->decides, true, false);
    add(plan.gates[set->gate].state, false, true);
    add(plan.gates[set->gate].groups, false, true);
  } else {
    const Command::Call& call = *c.call();
    for (const auto& [name, p] : call.sizes) add(p, true, false);
    if (call.scratch) add(*call.scratch, true, true);
    for (size_t a = 0; a < call.arguments.size(); ++a) {
      const auto [reads, writes] = argument(a);
      add(call.arguments[a], reads, writes);
    }
  }
  return uses;
}

std::vector<PlaceUse> uses_of(const Graph& g, const GraphPlan& plan, const Command& c) {
  return uses_of(plan, c, [&](size_t a) {
    const ir::Kernel& k = g.kernels[c.call()->kernel];
    return std::pair(true, k.is_output(static_cast<int>(a)) || k.is_stored(static_cast<int>(a)));
  });
}

void order_by_level(const Graph& g, GraphPlan& plan, size_t window) {
  std::vector<size_t> from(plan.commands.size());  // by new position
  for (size_t i = 0; i < from.size(); ++i) from[i] = i;
  std::vector<std::vector<PlaceUse>> uses;
  for (const Command& c : plan.commands) uses.push_back(uses_of(g, plan, c));
  struct Seen {
    PlaceUse use;
    size_t level;
  };
  for_each_range(plan.nodes, [&](size_t begin, size_t end) {
    for (size_t first = begin; first < end;) {
      const size_t last = end - first > window ? first + window : end;
      std::map<size_t, std::vector<Seen>> seen;  // by storage
      std::vector<size_t> level(last - first, 0);
      size_t printed = 0;
      for (size_t i = first; i < last; ++i) {
        size_t& mine = level[i - first];
        for (const PlaceUse& u : uses[i])
          for (const Seen& s : seen[u.place.storage])
            if (conflict(u, s.use)) mine = std::max(mine, s.level + 1);
        if (prints(g, plan.commands[i])) printed = mine = std::max(mine, printed);
        for (const PlaceUse& u : uses[i]) seen[u.place.storage].push_back({u, mine});
      }
      std::stable_sort(from.begin() + static_cast<std::ptrdiff_t>(first),
                       from.begin() + static_cast<std::ptrdiff_t>(last),
                       [&](size_t a, size_t b) { return level[a - first] < level[b - first]; });
      first = last;
    }
    // What lives from or to one of these commands does so from the first or to the last that uses it now.
    std::map<size_t, std::pair<size_t, size_t>> span;  // by storage
    for (size_t i = begin; i < end; ++i)
      for (const PlaceUse& u : uses[from[i]]) {
        const auto [it, fresh] = span.emplace(u.place.storage, std::pair{i, i});
        it->second.second = i;
      }
    for (const auto& one : span) {
      const size_t storage = one.first;
      const auto [begins, ends] = one.second;
      GraphPlan::Storage& s = plan.storages[storage];
      const auto used = [&](size_t at_command) {
        return std::any_of(uses[at_command].begin(), uses[at_command].end(),
                           [&](const PlaceUse& u) { return u.place.storage == storage; });
      };
      if (s.first >= begin && s.first < end) s.first = used(s.first) ? begins : std::min(s.first, begins);
      if (s.last >= begin && s.last < end) s.last = used(s.last) ? ends : std::max(s.last, ends);
    }
  });
  std::vector<size_t> to(from.size());
  std::vector<Command> commands;
  for (size_t i = 0; i < from.size(); ++i) {
    to[from[i]] = i;
    commands.push_back(std::move(plan.commands[from[i]]));
  }
  plan.commands = std::move(commands);
  for (GraphPlan::Gate& gate : plan.gates)
    for (GraphPlan::Gate::Member& m : gate.members) m.command = to[m.command];
}

size_t count_barriers(const Graph& g, const GraphPlan& plan) {
  size_t barriers = 0;
  const auto count = [&](const std::vector<size_t>& sequence) {
    BarrierRule rule(plan, true);
    for (const size_t i : sequence) barriers += rule.before(uses_of(g, plan, plan.commands[i]));
  };
  const auto walk = [&](const auto& self, const std::vector<Node>& nodes) -> void {
    std::vector<size_t> run;
    for (const Node& n : nodes) {
      if (plan.recorded(n)) {
        plan.expand(n, run);
        continue;
      }
      count(run);
      run.clear();
      if (n.loop() && n.loop()->gate) {
        plan.expand_iterations(*n.loop(), n.loop()->iterations, run);
        count(run);
        run.clear();
      } else {
        for_each_body(n, [&](const std::vector<Node>& body) { self(self, body); });
      }
    }
    count(run);
  };
  walk(walk, plan.nodes);
  return barriers;
}

}  // namespace tessera
