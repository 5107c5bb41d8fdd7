// Sums that a loop carries. Where each of a loop's steps adds the sum over some axes of a value to what it carries, and
// nothing else looks at either, the invocations that make a sum together need not join their parts in each step: each
// carries its own, and they are joined behind the loop.
#pragma once
#include <cstddef>
#include <optional>
#include <vector>

#include "codegen/plan/axes.h"
#include "engine/ir/kernel.h"

namespace tessera::lowering {

struct CarriedSum {
  ir::OpId loop, reduce;  // a `for` that runs at least once; a reduction in its body
  size_t result = 0;      // of the loop
};
/// All of the kernel's, of maxima, minima, bits and products of integers too; of floats' sums only if `relaxed`: they
/// are added in another order.
std::vector<CarriedSum> carried_sums(const ir::Kernel& k, bool relaxed);

/// Of a reduction over all pairs of an element along `kept` with one along `dropped`: nothing that it reads has both
/// axes, so an invocation with several elements of the one reads each of the other once for all of them.
struct Pairs {
  int kept = kNoAxis, dropped = kNoAxis;
};
std::optional<Pairs> pairs_of(const ir::Kernel& k, const Axes& axes, const ir::Op& reduce);

}  // namespace tessera::lowering
