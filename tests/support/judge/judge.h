// The judge below lane level: runs a Program's SPIR-V on the host and reports what it may not do. It shares nothing
// with codegen/spirv but the enumerants of SPIR-V, so that a mistake in the emitter is not made twice. Invocations run
// in random order between barriers; every buffer lies at an invented 64-bit address with nothing around it. It is no
// validator (spirv-val is) and knows only the instructions that we emit and those that spirv-opt makes of them: any
// other is an InternalError with its name. Read next: module.h (what is run), memory.h (what is checked of accesses),
// machine.cpp.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "codegen/program/program.h"
#include "engine/base/array.h"

namespace tessera::judge {

struct Options {
  uint64_t seed = 0;           // orders, addresses, what memory holds before
  int32_t subgroup_size = 4;   // where the Program requires none
  int32_t max_workgroups = 0;  // fewer than the Program allows; 0: as it says
  // of a Program whose loops are cut (Program::steps_extent): in each dispatch; 0: as many as its limit allows
  int64_t steps = 0;
  int32_t max_workgroup_count = 65535;  // along one dimension: more are folded, and then there may be some too many
  size_t max_reports = 10;
  /// f32's division, sqrt, inversesqrt, exp2 and log2 are off by as much as Vulkan allows, at most, as the seed
  /// decides.
  bool inexact = false;
  int64_t print_bytes = 1 << 20;         // room for what the kernel prints
  int64_t max_steps = int64_t{1} << 27;  // instructions of all invocations together
  /// The loops as they were counted (lane/loops.h), to compare with: nothing is compared without. A Program forgets
  /// those that are provably short.
  std::optional<std::vector<ProgramLoop>> loops;
};
struct Result {
  std::vector<Array> outputs;
  std::vector<uint32_t> report_words;  // Program's report
  std::vector<std::string> reports;    // empty: nothing is wrong
  // out of steps, or too much memory for this machine: outputs and reports are not to be used
  bool unfinished = false;
  int64_t steps = 0;
  int64_t most_iterations = 0;  // of the subgroup whose loops ran longest, counted as drivers do
};

/// `arrays`: one per Program::args, inputs and then outputs (what they hold at first).
Result run(const Program& program, const std::vector<Array>& arrays, const DimValues& dims,
           const Options& options = {});

/// It declares cooperative matrices, which SPIRV-Tools of some systems do not know.
bool has_matrices(const std::vector<uint32_t>& spirv);
/// The module after SPIRV-Tools' `-O`, or nothing where the library is missing. Throws InternalError if the optimiser
/// fails.
std::optional<std::vector<uint32_t>> optimised(const std::vector<uint32_t>& spirv);

}  // namespace tessera::judge
