// Which lazy values are *kept*: computed once, where they stand, into registers or the arena, instead of wherever they
// are used. An index function that is used at several positions (y and roll(y), a sum of shifted slices, a row that
// many stores use) is evaluated at each of them, and so are its operands: a chain of such values would grow
// exponentially. Kept values cut the chains, so that the code is linear in the kernel's ops. Layouts and memory are
// decided elsewhere. Read next: keep.cpp, Placement::place.
#pragma once

#include "engine/base/function.h"
#include "engine/ir/kernel.h"

namespace tessera::lowering {

/// Per value: whether it is an index function that the fast form computes where it is used.
std::vector<bool> lazy_values(const ir::Kernel& k);

struct Kept {
  bool yes = false;
  // for explain: different positions at which it would be computed (at most kMostUses), and about how many operations
  // each time
  int64_t uses = 0, cost = 0;
  static constexpr int64_t kMostUses = 40;
};
/// What keeping a value means. `dear`: it costs more than stores and loads, because it is large or because what it
/// lacks would no longer be split.
struct Keeping {
  bool in_arena = false, dear = false;
};
/// Per value.
std::vector<Kept> choose_kept(const ir::Kernel& k, const Function<Keeping(ir::Value)>& keeping);

/// The parts of a concatenate if all of them are lazy slices of one value that differ along its axis alone, as of a
/// roll: that value is then computed once, at the position of the part that the element is in. Else none.
std::vector<const ir::Op*> slices_of_one(const ir::Kernel& k, const ir::Op& concatenate,
                                         FunctionRef<bool(ir::Value)> lazy);

}  // namespace tessera::lowering
