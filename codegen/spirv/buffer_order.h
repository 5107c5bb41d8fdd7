// Whether the barriers of a lane-level kernel order accesses to buffers, or only those to shared memory.
#pragma once
#include "engine/ir/kernel.h"

namespace tessera::spirv {

/// No if everything that the invocations of a workgroup do to one buffer, arguments by value and what is only read
/// apart, is the same kind of access (stores, or atomics), between two barriers: then no barrier stands between two
/// accesses that it could order. The emitter of SPIR-V asks: NVIDIA's compiler waits at a barrier for accesses to
/// buffers where it says that they are ordered.
bool barriers_order_buffers(const ir::Kernel& k);

}  // namespace tessera::spirv
