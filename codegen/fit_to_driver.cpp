#include "codegen/fit_to_driver.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "codegen/lane/cut.h"
#include "codegen/lane/loops.h"
#include "codegen/lane/prover.h"
#include "codegen/lane/unroll.h"
#include "engine/ir/compact.h"

namespace tessera {
namespace {

// Iterations of one invocation, as far as it is known before a call. A launch may have more workgroups than
// max_workgroups, and then fewer units for each.
LoopTotal iterations(const std::vector<ProgramLoop>& loops, const ir::LaneInfo& lane) {
  const LoopTotal least = total_iterations(loops, 0, nullptr);
  const std::optional<int64_t> all_units = lane.num_units.value();
  LoopTotal total = least;
  total.at_most.reset();
  if (lane.max_workgroups == 0 || all_units) {
    const int64_t units =
        lane.max_workgroups == 0 ? 0 : cdiv(*all_units, std::clamp<int64_t>(*all_units, 1, lane.max_workgroups));
    total.at_most = total_iterations(loops, units, nullptr).at_most;
  }
  return total;
}

// Loops that may run into such a driver's limit.
bool loops_too_close(const ir::Kernel& lanes, const Target& target) {
  if (target.max_loop_iterations == 0) return false;
  const LoopTotal total = iterations(lane::count_loops(lanes, target), lanes.lane);
  return total.at_most ? *total.at_most > target.max_loop_iterations : total.at_least > target.max_loop_iterations / 4;
}

// Iterations that a kernel may take, as far as they are known.
int64_t longest(const ir::Kernel& lanes, const Target& target) {
  const LoopTotal t = iterations(lane::count_loops(lanes, target), lanes.lane);
  return t.at_most.value_or(t.at_least);
}

// The dispatches of a kernel whose loops are cut, where constants tell; nothing where loops cannot be cut. `fits`: it
// is known that a dispatch has most of its iterations for steps.
struct Cut {
  std::optional<int64_t> dispatches;
  bool fits, open;
};
std::optional<Cut> cut_of(ir::Kernel lanes, const Target& target) {
  const auto cut = lane::cut_loops(lanes, target);
  if (!cut) return std::nullopt;
  Program p;
  p.max_loop_iterations = target.max_loop_iterations;
  p.loops = {{lanes.loc, 0, cut->at_most}};
  p.open_ended = lanes.lane.open_ended;
  const std::optional<int64_t> total = cut->steps.value(), beyond = cut->at_most ? cut->at_most->value() : std::nullopt;
  return Cut{total ? std::optional(cdiv(*total, steps_at_once(p, *total, nullptr))) : std::nullopt,
             beyond && *beyond < target.max_loop_iterations / 2, lanes.lane.open_ended};
}

// Lavapipe's LLVM makes coroutines of shaders, in time that grows with the square of these: 320 take it a second, 3300
// more than a minute.
constexpr int64_t kMostBranches = 640;
// Beyond so many it takes more than about 10 s: that is worth some 60 us a dispatch, hidden where each has enough to
// do.
constexpr int64_t kTooManyBranches = 1280, kMostDispatches = 512, kWorthADispatch = 200;
// The last step of `smaller` leaves one element to each invocation.
constexpr int kSmallest = 10;

// Whether code that unrolls less runs too long. Where loops may be too long as it is, they may become a little longer;
// and longer than a dispatch's where they can be cut, into no more dispatches than now.
class LoopLimit {
 public:
  LoopLimit(const ir::Kernel& lanes, const Target& target)
      : target_(target), first_longest_(loops_too_close(lanes, target) ? longest(lanes, target) : 0) {}

  bool too_long(const ir::Kernel& less, const ir::Kernel& now, int64_t branches) {
    if (first_longest_ > 0 ? longest(less, target_) - first_longest_ <= first_longest_ / 4
                           : !loops_too_close(less, target_))
      return false;
    if (dispatches_now_ < 0) {
      const std::optional<Cut> cut = first_longest_ > 0 ? cut_of(now, target_) : std::nullopt;
      dispatches_now_ = cut ? cut->dispatches.value_or(0) : 0;
    }
    const int64_t most = branches > kTooManyBranches
                             ? std::max({kMostDispatches, longest(now, target_) / kWorthADispatch, dispatches_now_})
                             : dispatches_now_;
    const std::optional<Cut> cut = cut_of(less, target_);
    return !cut || !cut->fits || (!cut->open && (!cut->dispatches || *cut->dispatches > most));
  }

 private:
  const Target& target_;
  const int64_t first_longest_;
  int64_t dispatches_now_ = -1;  // once it is asked for
};

std::string less_unrolled(int smaller, int64_t branches) {
  return (smaller < 3 ? std::string("  nests without registers are loops")
                      : "  unrolled 1/" + std::to_string(1 << (smaller - 2)) + " as far as elsewhere") +
         ": " + std::to_string(branches) +
         " loads, stores and branches would take a CPU driver's compiler long (the aim is " +
         std::to_string(kMostBranches) + ")\n";
}
}  // namespace

// Loops where there are no registers, and less unrolled by steps of a half: as many steps as the count asks for and the
// driver's limit on iterations allows. A guess by the count comes first, then half of it: a step may halve the speed.
void shrink_for_cpu_driver(Lowered& lowered, const Target& target, const LowerAgain& again) {
  if (target.kind != Target::Kind::cpu) return;
  LoopLimit limit(lowered.lanes, target);
  int64_t n = lowering::count_branches(lowered.lanes);
  for (int smaller = 0, most = kSmallest; n > kMostBranches && smaller < most;) {
    int wanted = smaller == 0 ? 2 : smaller;
    for (int64_t left = n; left > kMostBranches; left /= 4) wanted += 2;
    const int64_t before = n;
    Lowered less;
    for (wanted = std::min(wanted, most); wanted > smaller; most = --wanted) {
      less = again(wanted);
      if (!limit.too_long(less.lanes, lowered.lanes, before)) break;
    }
    if (wanted == smaller) break;
    n = lowering::count_branches(less.lanes);
    if (const int between = (smaller + wanted + 1) / 2; n <= kMostBranches && between < wanted) {
      Lowered more = again(between);
      const int64_t branches = lowering::count_branches(more.lanes);
      if (branches <= kMostBranches && !limit.too_long(more.lanes, lowered.lanes, before)) {
        less = std::move(more);
        n = branches;
        wanted = between;
      }
    }
    lowered = std::move(less);
    smaller = wanted;
    lowered.explain += less_unrolled(smaller, before);
  }
}

void shrink_to_shared_memory(Lowered& lowered, const Target& target, const LowerAgain& again) {
  if (target.kind != Target::Kind::gpu) return;
  for (int smaller = 1; smaller <= 2 && lowered.lanes.lane.scratch_bytes > 0; ++smaller) {
    Lowered less = again(smaller);
    if (less.lanes.lane.scratch_bytes > 0) continue;
    lowered = std::move(less);
    lowered.explain += "  tiles " + std::string(smaller == 1 ? "half" : "a quarter") +
                       " as wide as elsewhere, so that the arena fits shared memory\n";
  }
}

// What a proof finds depends on the order in which values are numbered: it is made with the numbers that stay.
bool bound_accesses(ir::Kernel& lanes, const Target& target) {
  ir::compact(lanes);
  bool changed = lane::bound_accesses(lanes, !target.skips_branches);
  bool moved = changed;
  for (int rounds = 0; moved && rounds < 8; ++rounds) {
    ir::compact(lanes);
    moved = lane::bound_accesses(lanes, false);
  }
  return changed;
}

void limit_loops(ir::Kernel& lanes, const ir::Kernel& unbounded, const Target& target, Program& program) {
  std::vector<ProgramLoop> loops = lane::count_loops(lanes, target);
  const LoopTotal total = iterations(loops, lanes.lane);
  if (total.at_most && *total.at_most <= target.max_loop_iterations) return;
  ir::Kernel in_steps = unbounded;
  if (const auto cut = lane::cut_loops(in_steps, target)) {
    lanes = std::move(in_steps);
    bound_accesses(lanes, target);
    loops = {{total.at_most_loc ? total.at_most_loc : lanes.loc, 0, cut->at_most}};
  } else if (total.at_least > target.max_loop_iterations) {
    throw CompileError(loops_too_long(lanes.name, total.at_least, "", target.name, target.max_loop_iterations),
                       total.at_least_loc, kShorterLoops);
  }
  lane::report_cut_loops(lanes);
  program.loops = std::move(loops);
  program.max_loop_iterations = target.max_loop_iterations;
}

}  // namespace tessera
