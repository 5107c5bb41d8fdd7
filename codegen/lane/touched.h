// For the lane-level interpreter: who touched a unit of memory last, and whether a barrier stands between. Internal to
// interpreter.cpp, which reports what this finds.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "codegen/lane/bytecode.h"

namespace tessera::lane {

enum How : uint8_t { kRead, kWrite, kAtomic };
/// Accesses of one element disturb each other unless both read or both are atomic.
constexpr bool disturbs(How a, How b) { return a != b || a == kWrite; }
/// Atomic updates of one workgroup between two barriers, unless they are of one kind that comes out the same in any
/// order. Not of programs that share a workgroup, which has no barriers then.
constexpr bool disturbs(ir::Opcode a, ir::Opcode b) {
  return a != b || a == ir::Opcode::swap || a == ir::Opcode::atomic_cas;
}
inline constexpr uint32_t kMany = UINT32_MAX - 1;

/// An invocation between two barriers: of its workgroup, and of its subgroup alone.
struct Toucher {
  uint32_t invocation = 0, subgroup = 0, epoch = 0, own = 0;
  ir::Opcode update = {};  // the kind of what is atomic
};

/// The last accesses to one unit of memory since a barrier, by How. Epochs grow by one with every barrier, so nothing
/// is ever cleared. A subgroup's own barriers count its epochs: what it did in earlier ones is ordered before what it
/// does, but not before what other subgroups do.
struct Cell {
  uint32_t epoch[3] = {0, 0, 0};
  uint32_t by[3] = {0, 0, 0};        // invocations of the subgroup's last epoch; kMany: several
  uint32_t at[3] = {0, 0, 0};        // instructions
  uint32_t subgroup[3] = {0, 0, 0};  // kMany: several
  uint32_t own[3] = {0, 0, 0};       // the subgroup's epoch
  ir::Opcode update = {};            // the last atomic one's kind

  template <How how, class Conflict>
  void touch(const Toucher& t, uint32_t instruction, const Conflict& conflict) {
    const auto meet = [&](How other) {
      const bool ordered = subgroup[other] == t.subgroup && own[other] < t.own;
      const bool disturbed = how == kAtomic && other == kAtomic ? disturbs(update, t.update) : disturbs(how, other);
      if (disturbed && epoch[other] == t.epoch && by[other] != t.invocation && !ordered) conflict(other);
    };
    meet(kWrite), meet(kRead), meet(kAtomic);
    const bool again = how != kWrite && epoch[how] == t.epoch, others = again && subgroup[how] != t.subgroup;
    const bool several = others || (again && own[how] == t.own && by[how] != t.invocation);
    by[how] = several ? kMany : t.invocation;
    subgroup[how] = others ? kMany : t.subgroup;
    epoch[how] = t.epoch, own[how] = t.own, at[how] = instruction;
    if (how == kAtomic) update = t.update;
  }
};
/// The accesses of the whole dispatch to one element of an arg.
struct GroupCell {
  uint32_t by[3] = {kNone, kNone, kNone};  // workgroups; kMany: several
  uint32_t at[3] = {0, 0, 0};
};

/// Shared memory or scratch of one workgroup.
struct Arena {
  std::vector<std::byte> bytes;
  std::vector<uint8_t> poison;  // per byte: not written since the workgroup began
  std::vector<Cell> cells;
  int cell_shift = 2;  // 2^cell_shift bytes per entry of cells
};

}  // namespace tessera::lane
