// Lane-level IR to SPIR-V 1.6 for Vulkan 1.3: Vulkan memory model, physical storage buffer addresses, no descriptor
// sets. Ops whose row says EXPAND are written out in codegen/expand. The same kernel and target give the same words.
#pragma once
#include <cstdint>
#include <vector>

#include "codegen/program/program.h"
#include "codegen/program/target.h"
#include "codegen/spirv/debug_info.h"
#include "engine/ir/kernel.h"

namespace tessera::spirv {

/// The module's words. Throws CompileError naming op, dtype and source line where the target lacks a feature, and where
/// shared memory exceeds the target's. `indirect_table`: see Program. `source`: debug info is wanted, with the files
/// that this reads. `relaxed`: arithmetic may differ from the interpreter's within the op table's bounds for GPUs.
std::vector<uint32_t> emit(const ir::Kernel& lane_kernel, const Target& target, bool indirect_table,
                           const SourceReader* source = nullptr, bool relaxed = false);

/// The module as text (SPIRV-Tools), or the words in hex where the library is missing.
std::string disassemble(const std::vector<uint32_t>& words);

}  // namespace tessera::spirv
