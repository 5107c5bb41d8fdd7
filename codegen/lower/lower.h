// lower: a tile-level kernel becomes a lane-level one. Plans (plan/plan.h), then emits. Read next: lower.cpp,
// part.h.
#pragma once
#include <string>

#include "codegen/program/target.h"
#include "engine/ir/kernel.h"

namespace tessera {

/// Tile level to lane level. Throws CompileError if the target lacks what the kernel needs, with limit and need.
/// `general`: every tile op a cooperative loop through the arena. Steps of `smaller`: for CPU drivers the first makes
/// loops of nests without registers, the second unrolls them less, each further one, up to 10, halves what an
/// invocation unrolls; for GPUs each halves tiles. compile() takes those that are needed. `explain`, if given, receives
/// what was decided and why. `relaxed`: loops may add floats in another order (codegen/spirv/README.md, "Precision").
ir::Kernel lower(const ir::Kernel& k, const Target& target, bool general = false, int smaller = 0,
                 std::string* explain = nullptr, bool relaxed = false);

}  // namespace tessera
