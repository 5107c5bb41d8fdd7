// Fits a kernel to drivers that do not run all code: drivers whose loops end after a number of iterations
// (Target::max_loop_iterations), and compilers that take minutes for large shaders. compile() checks here whether the
// lane-level kernel fits, makes it smaller, and cuts loops into dispatches.
#pragma once
#include <cstdint>
#include <string>

#include "codegen/program/program.h"
#include "codegen/program/target.h"
#include "engine/base/function.h"
#include "engine/ir/kernel.h"

namespace tessera {

/// A kernel at the lane level, and what `tessera explain` says of it.
struct Lowered {
  ir::Kernel lanes;
  std::string explain;
};
/// Lowers once more, by so many steps of `smaller` (see lower()).
using LowerAgain = Function<Lowered(int smaller)>;

/// For a CPU driver: the largest code that its compiler takes quickly, and whose loops it runs to their end. Else the
/// kernel as it is.
void shrink_for_cpu_driver(Lowered& lowered, const Target& target, const LowerAgain& again);

/// For a GPU: tiles half or a quarter as wide if the arena then fits shared memory.
void shrink_to_shared_memory(Lowered& lowered, const Target& target, const LowerAgain& again);

/// Proves or tests that each access lies in its array (lane/prover.h). True if something changed.
bool bound_accesses(ir::Kernel& lanes, const Target& target);

/// A driver that leaves loops too early: loops that constants prove short are fine, those that they prove too long an
/// error. What arrives with a call is checked by its launch; and where neither proves enough, the code reports to the
/// host that its loops were cut. `unbounded`: the same code before its accesses were bounded, which is cut into
/// dispatches and bounded then.
void limit_loops(ir::Kernel& lanes, const ir::Kernel& unbounded, const Target& target, Program& program);

}  // namespace tessera
