// lower_threads: a kernel of threads (mosaic_gpu::kernel) becomes one without, where each program has one thread, or
// its threads share nothing. A copy then may end where it begins, so that it is a load and a store; barriers order
// nothing more, and go; smem and accumulators are scratch that is private to the program; wgmma is a dot. Cluster axes
// are axes of the grid. Not done: threads that wait for each other, which workgroup barriers would have to order.
#pragma once
#include "engine/ir/kernel.h"

namespace tessera::lowering {

/// Throws CompileError, which names the barrier or memory, where threads or programs need each other. Returns whether k
/// was a kernel of threads.
bool lower_threads(ir::Kernel& k);

}  // namespace tessera::lowering
