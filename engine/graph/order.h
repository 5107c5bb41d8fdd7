// The order of a plan's commands: levels of those that need nothing of one another stand together, so that one barrier
// serves them all. What prints or checks keeps its order. Internal to plan.h, which decides whether that is worth the
// memory.
#pragma once
#include <vector>

#include "engine/graph/plan.h"

namespace tessera {

/// What a command reads and writes, where it lies.
struct PlaceUse {
  GraphPlan::Place place;
  bool writes;
};
std::vector<PlaceUse> uses_of(const Graph& graph, const GraphPlan& plan, const GraphPlan::Command& command);
bool overlap(const GraphPlan::Place& a, const GraphPlan::Place& b);

/// Of every `window` commands in a row those first that need no other, then those that need only these, and so on.
/// Places have storages, and not yet offsets in the arena.
void order_by_level(const Graph& graph, GraphPlan& plan, size_t window);

/// Barriers between the commands of what can be recorded at once, if there is one only where a command needs the bytes
/// of another since the last one (runtime/call/recording.h).
size_t count_barriers(const Graph& graph, const GraphPlan& plan);

}  // namespace tessera
