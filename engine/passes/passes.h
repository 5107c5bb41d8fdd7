// Passes over either level. Each is `bool name(Kernel&)` in its own file, true if it changed something; one list gives
// order, dumps and verification. Effects (ir/ops.def) and the memory an op touches decide what may move: a load is
// never moved or merged across a store to memory that may be the same.
#pragma once
#include <string_view>
#include <vector>

#include "engine/base/function.h"
#include "engine/ir/kernel.h"

namespace tessera::passes {

/// Evaluates pure ops on constants by the reference, and applies exact identities (x + 0 for integers, x * 1, select of
/// a constant, ...): never one that changes a float result, NaN or signed zero included. Also removes an if/switch with
/// a constant choice and a for that provably runs zero times.
bool fold(ir::Kernel& k);
/// Makes a for of a while that counts up to a value by ones, at tile level; never of one whose test has another
/// condition.
bool count(ir::Kernel& k);
/// Merges equal pure ops where the first dominates the second; equal loads too when no store to that memory lies
/// between.
bool cse(ir::Kernel& k);
/// Removes pure ops and loads without uses, unused loop carries and if results, and empty control flow; never a store
/// or a while that may not end. A swap whose result is unused becomes a store.
bool dce(ir::Kernel& k);
/// Moves pure ops (all are total, so speculation is safe) and loads of memory that the loop does not write out of for
/// and while.
bool licm(ir::Kernel& k);

struct Pass {
  std::string_view name;
  bool (*run)(ir::Kernel&);
};
/// fold, count, cse, licm, dce: the order in which optimize() runs them.
const std::vector<Pass>& all();
/// Runs all() until nothing changes (at most a fixed number of rounds), verifying after each pass (release builds
/// without `after`: at the end). `after` sees every pass's outcome (--dump-ir).
void optimize(ir::Kernel& k, const Function<void(const Pass&, const ir::Kernel&, bool changed)>& after = {});

}  // namespace tessera::passes
