// The TPU backend: a tile-level kernel as Mosaic MLIR, the text that a TPU's compiler takes, and the StableHLO module
// around it. It leaves the other backends' way before copies are expanded: a TPU's compiler schedules, pipelines
// blocks and copies by itself. No library of MLIR is needed. Read next: README.md, module.cpp.
#pragma once
#include <string>

#include "codegen/tpu/chip.h"
#include "engine/base/extent.h"
#include "engine/ir/kernel.h"

namespace tessera::tpu {

/// The kernel verified and optimized, with `sizes` for its run-time sizes: what the functions below take. CompileError
/// if a size is missing, since a TPU's module has none.
ir::Kernel prepare(const ir::Kernel& k, const DimValues& sizes = {});

/// The module: a function for the kernel, and one for each of its index maps. Throws CompileError for what the chip
/// cannot do, with the line of the op or block.
std::string mosaic(const ir::Kernel& prepared, const Chip& chip);

/// A module whose function main calls the kernel by tpu_custom_call, with `body` for its text (mosaic()). PJRT clients
/// of TPUs compile it.
std::string stable_hlo(const ir::Kernel& prepared, const std::string& body);

/// What mosaic() checks before it emits (checks.cpp).
void check(const ir::Kernel& k, const Chip& chip);
/// An input or output that lies in HBM, which only copies touch.
bool stays_in_hbm(const ir::Kernel& k, int block);
/// The index map of block i always yields zeros, and the block is the whole array.
bool is_trivial(const ir::Kernel& k, int block);
/// The shape that a block, or a whole array, has in memory: squeezed dims are 1, and there is at least one dim.
Shape memory_shape(const ir::Kernel& k, int block);

}  // namespace tessera::tpu
