// The steps of a lane-level kernel whose loops are cut into dispatches: which loops, and which steps each part of the
// kernel takes. Read next: cut.h, which makes the dispatches from them.
#pragma once
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "codegen/program/program.h"
#include "engine/ir/kernel.h"

namespace tessera::lane {

/// A region in which loops are cut takes its time: steps, of which each dispatch runs some. A step is an iteration, as
/// the driver counts them. Its *children* are the ops of which a dispatch may run a part: loops that are cut and
/// branches around such. What stands before a child, or after the last one, has its loops' iterations as steps, and
/// runs in the first of them; so does an iteration of a loop that is cut and has no children. What that makes for later
/// is kept in scratch from one dispatch to the next. Only pure ops and loads of memory that the kernel does not write
/// run in every dispatch.
///
/// Where the trip count of a long loop is in data (*open*), there is room for many iterations; the steps of those that
/// do not come are skipped, by adding as many to the dispatch's end. Then each workgroup is at another step. It keeps
/// where it goes on, and reports whether it is done. This takes that all of a workgroup agree: such loops are uniform.
struct Steps {
  Extent total = 0;
  // iterations that a dispatch runs more than it has steps; none: data decides
  std::optional<Extent> at_most;
  bool open = false;
  std::unordered_set<uint32_t> children;             // ops
  std::unordered_set<uint32_t> whole;                // bodies of loops without children
  std::unordered_set<uint32_t> in_data;              // bodies of loops whose trip count is
  std::unordered_map<uint32_t, Extent> trip_counts;  // per body of a loop: at most
  // per region: its steps, and the one in which what stands after its children runs
  std::unordered_map<uint32_t, Extent> time, tail;
  // per child: the steps in which what stands before it and itself begin, and its own
  std::unordered_map<uint32_t, Extent> before, start, span;
  // per child: those of its steps in which only the loops in it are passed
  std::unordered_map<uint32_t, Extent> passing;
};

inline ir::RegionId body_of(const ir::Op& loop) { return loop.regions[loop.code == ir::Opcode::while_ ? 1 : 0]; }

/// `limit`: iterations of a dispatch; `trip_counts`: max_trip_counts() of loops.h. None where no loop can be cut.
std::optional<Steps> plan_steps(const ir::Kernel& k, int64_t limit, std::unordered_map<uint32_t, Extent> trip_counts);

}  // namespace tessera::lane
