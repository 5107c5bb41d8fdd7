// What lower_threads refuses: threads that meet or share memory, where a target cannot run them at once; programs that
// wait for each other, and programs of a cluster whose order or whose copies for each other change the results. Read
// next: lower_threads.h.
#pragma once
#include "engine/ir/kernel.h"

namespace tessera::lowering {

/// Throws CompileError, which names the memory or the ops, where the threads or programs of k need each other.
/// `together`: the threads of a program run at once, and may.
void check_threads(const ir::Kernel& k, bool together);
/// Whether the threads of a program wait for each other or have memory in common.
bool threads_share(const ir::Kernel& k);

}  // namespace tessera::lowering
