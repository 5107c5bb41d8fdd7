// The effect of a kernel's CallInfo on compilation: parameters that were written for other compilers, a few of which
// are read as hints, and the lines of `tessera explain` about them, the cost and the metadata.
#pragma once
#include <optional>
#include <string>

#include "codegen/program/target.h"
#include "engine/ir/kernel.h"

namespace tessera::lowering {

/// The workgroup size that Triton's num_warps means on a GPU: 32 invocations each, a power of two within the
/// target's limit. Nothing without it, and on CPU drivers, where a workgroup is one subgroup.
std::optional<int> hinted_workgroup(const ir::Kernel& k, const Target& target);

std::string explain_call(const ir::Kernel& k, const Target& target);

}  // namespace tessera::lowering
