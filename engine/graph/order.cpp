#include "engine/graph/order.h"

#include <algorithm>
#include <map>

namespace tessera {
namespace {
using Command = GraphPlan::Command;
using Node = GraphPlan::Node;
using Place = GraphPlan::Place;

bool speaks(const Graph& g, const Command& c) {
  return c.kind == Command::Kind::call && !g.kernels[c.kernel].texts.empty();
}

template <class F>
void for_each_range(std::vector<Node>& nodes, const F& f) {
  for (Node& n : nodes) {
    if (n.kind == Node::Kind::commands) f(n.begin, n.end);
    for (auto& body : n.bodies) for_each_range(body, f);
  }
}

/// By storage, where it lies in the arena.
Place at(const GraphPlan& plan, const Place& p) {
  const GraphPlan::Storage& s = plan.storages[p.storage];
  if (s.memory != GraphPlan::Memory::arena) return p;
  return {plan.storages.size(), s.offset + p.offset, p.bytes};
}

}  // namespace

bool overlap(const Place& a, const Place& b) {
  return a.storage == b.storage && a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
}

std::vector<PlaceUse> uses_of(const GraphPlan& plan, const Command& c,
                              const std::function<std::pair<bool, bool>(size_t)>& argument) {
  std::vector<PlaceUse> uses;
  const auto add = [&](const Place& p, bool reads, bool writes, bool indirect = false) {
    if (p.bytes > 0 && (reads || writes || indirect)) uses.push_back({p, reads, writes, indirect});
  };
  if (c.kind == Command::Kind::copy && c.from == c.to) return uses;
  if (c.guard) {
    const GraphPlan::Gate& gate = plan.gates[c.guard->gate];
    if (c.kind == Command::Kind::gate) add(gate.state, true, false);
    else
      add({gate.groups.storage, gate.groups.offset + c.guard->offset(), GraphPlan::Guard::kBytes}, false, false, true);
  }
  for (const auto& [name, p] : c.sizes) add(p, true, false);
  if (c.scratch) add(*c.scratch, true, true);
  switch (c.kind) {
    case Command::Kind::copy:
      add(c.from, true, false);
      add(c.to, false, true);
      break;
    case Command::Kind::gate:
      if (c.decides) add(*c.decides, true, false);
      add(plan.gates[c.gate].state, false, true);
      add(plan.gates[c.gate].groups, false, true);
      break;
    case Command::Kind::call:
      for (size_t a = 0; a < c.arguments.size(); ++a) {
        const auto [reads, writes] = argument(a);
        add(c.arguments[a], reads, writes);
      }
  }
  return uses;
}

std::vector<PlaceUse> uses_of(const Graph& g, const GraphPlan& plan, const Command& c) {
  return uses_of(plan, c, [&](size_t a) {
    const ir::Kernel& k = g.kernels[c.kernel];
    return std::pair(true, k.is_output(static_cast<int>(a)) || k.is_stored(static_cast<int>(a)));
  });
}

void order_by_level(const Graph& g, GraphPlan& plan, size_t window) {
  std::vector<size_t> from(plan.commands.size());  // by new position
  for (size_t i = 0; i < from.size(); ++i) from[i] = i;
  std::vector<std::vector<PlaceUse>> uses;
  for (const Command& c : plan.commands) uses.push_back(uses_of(g, plan, c));
  struct Seen {
    Place place;
    bool writes;
    size_t level;
  };
  for_each_range(plan.nodes, [&](size_t begin, size_t end) {
    for (size_t first = begin; first < end;) {
      const size_t last = end - first > window ? first + window : end;
      std::map<size_t, std::vector<Seen>> seen;  // by storage
      std::vector<size_t> level(last - first, 0);
      size_t spoken = 0;
      for (size_t i = first; i < last; ++i) {
        size_t& mine = level[i - first];
        for (const PlaceUse& u : uses[i])
          for (const Seen& s : seen[u.place.storage])
            if ((u.writes || s.writes) && overlap(u.place, s.place)) mine = std::max(mine, s.level + 1);
        if (speaks(g, plan.commands[i])) spoken = mine = std::max(mine, spoken);
        for (const PlaceUse& u : uses[i]) seen[u.place.storage].push_back({u.place, u.writes, mine});
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
    std::vector<PlaceUse> since;
    for (const size_t i : sequence) {
      std::vector<PlaceUse> uses = uses_of(g, plan, plan.commands[i]);
      for (PlaceUse& u : uses) u.place = at(plan, u.place);
      const bool behind = std::any_of(uses.begin(), uses.end(), [&](const PlaceUse& u) {
        return std::any_of(since.begin(), since.end(),
                           [&](const PlaceUse& o) { return (u.writes || o.writes) && overlap(u.place, o.place); });
      });
      barriers += behind;
      if (behind) since.clear();
      since.insert(since.end(), uses.begin(), uses.end());
    }
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
      if (n.gate) {
        plan.expand_iterations(n, n.iterations, run);
        count(run);
        run.clear();
      } else {
        for (const auto& body : n.bodies) self(self, body);
      }
    }
    count(run);
  };
  walk(walk, plan.nodes);
  return barriers;
}

}  // namespace tessera
