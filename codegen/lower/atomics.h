// A rewrite before lowering: an atomic update of memory that no other program touches meanwhile is a load, the arithmetic and a store. What is
// left are updates of arrays by programs that run at once. Read next: atomics.cpp, which lowers those, and parallel.h, which tells them apart.
#pragma once
#include "codegen/target.h"
#include "engine/ir/kernel.h"

namespace tessera::lowering {
/// k is compact. Says whether it changed anything.
bool expand_atomics(ir::Kernel& k, const Target& target);
}  // namespace tessera::lowering
