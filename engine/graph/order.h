// The order of a plan's commands: levels of independent commands, so that one barrier serves a whole level. Commands
// that print or check keep their order. Internal to plan.h, which decides whether the order is worth the memory.
#pragma once
#include <functional>
#include <utility>
#include <vector>

#include "engine/graph/plan.h"

namespace tessera {

/// What a command reads or writes, where it lies.
struct PlaceUse {
  GraphPlan::Place place;
  bool reads = false, writes = false;
  bool indirect = false;  ///< its numbers of workgroups are there
};
/// The one answer to what a command uses, for the order of commands and for barriers. `argument` says what a call does
/// with its argument i (reads, writes), which a compiled program knows better than its kernel.
std::vector<PlaceUse> uses_of(const GraphPlan& plan, const GraphPlan::Command& command,
                              const std::function<std::pair<bool, bool>(size_t)>& argument);
/// By the kernel that the command calls: it reads every argument, and writes what some op stores to.
std::vector<PlaceUse> uses_of(const Graph& graph, const GraphPlan& plan, const GraphPlan::Command& command);
bool overlap(const GraphPlan::Place& a, const GraphPlan::Place& b);

/// Of every `window` commands in a row those first that need no other, then those that need only these, and so on.
/// Places have storages, and not yet offsets in the arena.
void order_by_level(const Graph& graph, GraphPlan& plan, size_t window);

/// Barriers between the commands of what can be recorded at once, if there is one only where a command needs the bytes
/// of another since the last one (runtime/call/recording.h).
size_t count_barriers(const Graph& graph, const GraphPlan& plan);

}  // namespace tessera
