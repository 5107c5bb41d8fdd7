// Counts the loops of a lane-level kernel: how many iterations one invocation runs at least and at most. For drivers
// that leave all loops of an invocation after a limit (Target::max_loop_iterations), and for the emitter, which packs
// several iterations into one. report_cut_loops adds the run-time check to a kernel whose loops are not proved short.
// codegen/fit_to_driver.h and, with the sizes of a call, runtime/launch/bound.h read the counts.
#pragma once
#include <unordered_map>
#include <vector>

#include "codegen/program/program.h"
#include "codegen/program/target.h"
#include "engine/ir/kernel.h"

namespace tessera::lane {

/// Roughly how many instructions an op becomes, regions not counted.
int op_weight(const ir::Kernel& k, const ir::Op& op);

/// Copies of a for's body that the emitter puts into one iteration: more than 1 only for innermost loops with run-time
/// bounds.
int copies_per_iteration(const ir::Kernel& k, const ir::Op& loop, const Target& target);

/// The emitter makes this atomic a compare-and-swap loop on the word that holds the element.
bool atomic_by_loop(const ir::Kernel& k, const ir::Op& o);

/// One entry per loop, counted as a driver does that runs whole subgroups under masks: an iteration for the test that
/// ends a loop, and one for each loop in a branch that no invocation takes. `at_least` holds of the first invocation;
/// `at_most` is missing where data decides. The loop over units (LaneInfo::max_workgroups) counts as one iteration: all
/// is per unit of work. Not for kernels whose loops are cut: cut.h.
std::vector<ProgramLoop> count_loops(const ir::Kernel& k, const Target& target);

/// More than any loop's iterations, and what products stop at.
constexpr int64_t kEndless = int64_t{1} << 60;
Extent product(const Extent& a, const Extent& b);

/// Per region of a for of which so much is known, how often it runs in one execution of the loop at most: the trip
/// count, or a bound that is not far off.
std::unordered_map<uint32_t, Extent> max_trip_counts(const ir::Kernel& k, const Target& target);

/// Lets every invocation report, at its end, that the driver has cut its loops short.
void report_cut_loops(ir::Kernel& k);

}  // namespace tessera::lane
