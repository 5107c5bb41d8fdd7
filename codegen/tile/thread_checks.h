// What lower_threads refuses: threads that meet or share memory, programs that wait for each other, and programs of a
// cluster whose order or whose copies for each other change the results. Read next: lower_threads.h.
#pragma once
#include "engine/ir/kernel.h"

namespace tessera::lowering {

/// Throws CompileError, which names the memory or the ops, where the threads or programs of k need each other.
void check_threads(const ir::Kernel& k);

}  // namespace tessera::lowering
