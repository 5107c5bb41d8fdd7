// lower_threads: a kernel of threads (mosaic_gpu::kernel) becomes one without, where each program has one thread, or
// its threads share nothing. A copy then may end where it begins, so that it is a load and a store; barriers order
// nothing more, and go; smem and accumulators are scratch that is private to the program; wgmma is a dot. Cluster axes
// are axes of the grid.
// lower_threads_together, for targets that run the threads of a program at once: where they share something, the kernel
// stays one of threads. Its smem and barriers are scratch of the kernel, those of a run_scoped too, before which the
// threads meet; of the ops on threads only arrivals, waits and such meetings are left. A copy is a load and a store,
// and one to smem an arrival behind them, which a target may take for one copy that lands late (attr late).
#pragma once
#include "engine/ir/kernel.h"

namespace tessera::lowering {

/// Throws CompileError, which names the barrier or memory, where threads or programs need each other. Returns whether k
/// was a kernel of threads.
bool lower_threads(ir::Kernel& k);
bool lower_threads_together(ir::Kernel& k);

}  // namespace tessera::lowering
