// The order of a plan's commands: levels of independent commands, so that one barrier serves a whole level. Commands
// that print or check keep their order. Internal to plan.h, which decides whether the order is worth the memory.
#pragma once
#include <utility>
#include <vector>

#include "engine/base/function.h"
#include "engine/graph/plan.h"

namespace tessera {

/// What a command reads or writes, where it lies.
struct PlaceUse {
  GraphPlan::Place place;
  bool reads = false, writes = false;
  bool indirect = false;  ///< its numbers of workgroups are there
};
/// The one answer to what a command uses, for the order of commands and for barriers. `argument` says what a call does
/// with its argument i (reads, writes); a compiled program says that more exactly than its kernel.
std::vector<PlaceUse> uses_of(const GraphPlan& plan, const GraphPlan::Command& command,
                              FunctionRef<std::pair<bool, bool>(size_t)> argument);
/// By the kernel that the command calls: it reads every argument, and writes what some op stores to.
std::vector<PlaceUse> uses_of(const Graph& graph, const GraphPlan& plan, const GraphPlan::Command& command);
bool overlap(const GraphPlan::Place& a, const GraphPlan::Place& b);
/// They share bytes, which one of them writes.
bool conflict(const PlaceUse& a, const PlaceUse& b);

/// The one rule for barriers, for plans that count them and recordings that have them: one stands before each command
/// that conflicts with a command since the last barrier.
class BarrierRule {
 public:
  /// `placed`: storages of the arena lie at their offsets, and may share bytes. Otherwise each is memory of its own.
  BarrierRule(const GraphPlan& plan, bool placed) : plan_(plan), placed_(placed) {}
  /// Whether a barrier stands before the next command, which uses these places.
  bool before(const std::vector<PlaceUse>& uses);
  /// Something else orders what comes next behind all commands so far.
  void restart() { since_.clear(); }

 private:
  PlaceUse placed(PlaceUse use) const;

  const GraphPlan& plan_;
  const bool placed_;
  std::vector<PlaceUse> since_;  // the last barrier
};

/// Of every `window` commands in a row those first that need no other, then those that need only these, and so on.
/// Places have storages, and not yet offsets in the arena.
void order_by_level(const Graph& graph, GraphPlan& plan, size_t window);

/// Barriers between the commands of what can be recorded at once (runtime/call/recording.h).
size_t count_barriers(const Graph& graph, const GraphPlan& plan);

}  // namespace tessera
