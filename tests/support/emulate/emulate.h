// A Program's PTX, launched on the emulator (tests/ptx) as codegen/nvidia/README.md says. What a launcher does is
// written down here once more, so that the two can be compared. Read next: tests/ptx/emulator.h, and
// tests/fuzz/check.cpp, which compares the results.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "codegen/program/program.h"
#include "engine/base/array.h"

namespace tessera::emulated {

struct Options {
  uint64_t seed = 0;
  int32_t max_workgroups = 0;  // fewer than the Program allows; 0: as it says
  bool all_defined = true;     // else outputs may hold what hangs on memory that nobody has written
  int64_t print_bytes = 1 << 20;
  int64_t max_instructions = int64_t{1} << 26;
};
struct Result {
  std::vector<Array> outputs;
  std::vector<uint32_t> report_words;
  std::string fault;        // empty: none
  bool unfinished = false;  // out of instructions, or too much memory for this machine: the others are not to be used
  int64_t instructions = 0;
};

/// `arrays`: one per Program::args, inputs and then outputs (what they hold at first).
Result run(const Program& program, const std::vector<Array>& arrays, const DimValues& dims, const Options& options);

}  // namespace tessera::emulated
