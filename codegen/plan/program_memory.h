// Memory that the threads of a program have in common (ir::Kernel::has_threads): barriers first, then its smem. The
// threads are workgroups that run at once, each with an arena of its own behind this. Read next: tile/lower_threads.h.
#pragma once
#include <cstdint>
#include <vector>

#include "codegen/program/target.h"
#include "engine/ir/kernel.h"

namespace tessera::lowering {

struct ProgramMemory {
  std::vector<int64_t> offset;     // per body argument, of its smem; -1: it has none
  std::vector<int> first_barrier;  // per body argument, of its barriers; -1: it has none
  std::vector<int32_t> arrivals;   // per barrier, of one phase
  int64_t bytes = 0;
};

/// Of a kernel without threads: nothing.
ProgramMemory program_memory(const ir::Kernel& k);

/// Invocations of a thread.
inline constexpr int kThreadSize = 128;

/// What of a target each thread of k has; of a kernel without threads: the target. Throws CompileError, with who needs
/// how much, where the common memory does not fit.
Target target_of_thread(const ir::Kernel& k, const Target& target);

}  // namespace tessera::lowering
