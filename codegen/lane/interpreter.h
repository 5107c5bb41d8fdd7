// The lane-level interpreter: runs a lowered kernel on the host, invocations in random order between barriers, and
// reports what no validation layer can see: conflicting accesses without a barrier, accesses out of bounds or of
// uninitialised arena memory that reach a result, barriers or subgroup ops under divergent control.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "codegen/lane/watched.h"
#include "engine/base/array.h"
#include "engine/ir/kernel.h"
#include "engine/passes/interval.h"

namespace tessera::lane {

struct RunOptions {
  uint64_t seed = 0;           // order of invocations between barriers, and of workgroups
  int32_t subgroup_size = 4;   // where the kernel requires none
  int32_t max_workgroups = 0;  // caps the dispatch further, to exercise loops over units; 0: as the kernel says
  // of a kernel whose loops are cut (LaneInfo::steps_extent): in each of its dispatches; 0: one runs all
  int64_t steps = 0;
  size_t max_reports = 10;
  int64_t print_bytes = 1 << 20;  // room for what the kernel prints
  /// By value: what a result that is no garbage, or a loop's counter, must lie in; else it is reported. For tests of
  /// what analyses claim.
  std::vector<Bounds> ranges = {};
  std::vector<WatchedSum> watched = {};  // RunResult::seen says what they were
  // ops of all invocations together, about: more is reported as a loop that does not end
  int64_t max_steps = int64_t{1} << 33;
};
struct RunResult {
  std::vector<Array> outputs;
  uint32_t report = 0;                 // what op report has set
  std::vector<uint32_t> report_words;  // all of the report, if there is one
  std::vector<std::string> reports;    // empty: no conflict, no out-of-bounds access, no divergence
  std::vector<SeenSum> seen;           // of RunOptions::watched
  bool out_of_steps = false;           // max_steps, which the reports say too: the outputs are unfinished
};

/// `arrays`: one per body argument, inputs then outputs (outputs' contents are the initial memory).
/// `dims` binds the run-time sizes in LaneInfo.
RunResult run(const ir::Kernel& lane_kernel, const std::vector<Array>& arrays, int num_inputs, const DimValues& dims,
              const RunOptions& options = {});

}  // namespace tessera::lane
