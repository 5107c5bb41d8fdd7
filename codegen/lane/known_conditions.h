// Comparisons whose outcome is known where they are used, from the branches and loops around: in the version of a nest
// that a branch chose because its blocks lie inside their arrays, a kernel's own masks of the arrays' edges are true.
// Read next: known_conditions.cpp.
#pragma once
#include <cstddef>
#include <vector>

#include "engine/ir/kernel.h"

namespace tessera::lowering {

/// An operand that is true, or false, whenever the op runs.
struct KnownCondition {
  ir::OpId op;
  size_t operand;
  bool holds;
};
std::vector<KnownCondition> known_conditions(const ir::Kernel& k);
/// Puts constants in place of conditions that the prover decides; fold and dce do the rest. Returns true if something
/// changed.
bool fold_known_conditions(ir::Kernel& k);

}  // namespace tessera::lowering
