// Several programs of a parallel grid axis become one, which does their work one after another: then what each of them
// does once, as adding what it has counted to memory, is done once for all of them.
#pragma once
#include <cstdint>
#include <set>

#include "engine/ir/kernel.h"

namespace tessera::lowering {

/// Whether join_programs may join programs along the axis: each block stays the same along it or moves by itself in
/// whole blocks, all of which lie in the array, and the body is a list of ops that know no program's number.
bool may_join_programs(const ir::Kernel& k, size_t axis);
/// Whether the block moves by itself along such an axis.
bool moves_along(const ir::Kernel& k, size_t block, size_t axis);
/// Joins `count` neighbours along the axis, whose number that divides. Of the body's ops those of `before` are done
/// once in front of the loop over the joined programs, and those of `after` behind it.
void join_programs(ir::Kernel& k, size_t axis, int64_t count, const std::set<uint32_t>& before,
                   const std::set<uint32_t>& after);

}  // namespace tessera::lowering
