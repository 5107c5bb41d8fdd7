// Lane-level IR to PTX. Deterministic. Read next: README.md, which says what a launcher fills in; emitter.h.
#pragma once
#include <string>

#include "codegen/program/target.h"
#include "engine/ir/kernel.h"

namespace tessera::nvidia {

/// The module's text. Throws CompileError naming op, dtype and source line where the chip lacks something.
/// `relaxed`: arithmetic may differ from the interpreter's within the op table's bounds for GPUs. `lines`: with the
/// user's source lines (.loc). `registers`: about as many of each invocation are live at once; 0: not known.
std::string emit(const ir::Kernel& lane_kernel, const Target& target, bool relaxed, bool lines, int64_t registers = 0);

}  // namespace tessera::nvidia
