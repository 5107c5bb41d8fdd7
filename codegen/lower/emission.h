// One emission: the inputs and outputs of lowering, and its parts, each in the file of its name. A kernel goes through
// them in this order: units (grid to workgroups), refs (blocks and accesses), control (ops one after another), then
// nests, elements and the parts for ops with code of their own; placement says where each value lives, arena keeps the
// values that invocations share.
#pragma once
#include <map>

#include "codegen/lower/arena.h"
#include "codegen/lower/atomics.h"
#include "codegen/lower/control.h"
#include "codegen/lower/dot.h"
#include "codegen/lower/elements.h"
#include "codegen/lower/matrix_sums.h"
#include "codegen/lower/nests.h"
#include "codegen/lower/placement.h"
#include "codegen/lower/prefetch.h"
#include "codegen/lower/print.h"
#include "codegen/lower/rearrange.h"
#include "codegen/lower/reduce.h"
#include "codegen/lower/units.h"
#include "codegen/lower/windows.h"
#include "codegen/plan/program_memory.h"

namespace tessera::lowering {

struct Emission {
  Emission(const ir::Kernel& kernel, const Target& t, Plan& p, ir::Kernel& to)
      : k(kernel), target(t), plan(p), out(to), b(to), memory(program_memory(kernel)), pid(kernel.grid.size()) {}

  const ir::Kernel& k;
  const Target& target;
  Plan& plan;
  ir::Kernel& out;
  LaneBuilder b;
  ProgramMemory memory;    // that the threads of a program have in common
  Values pid;              // per grid axis, i32
  Value invocation, lane;  // index in the group, in the subgroup
  std::map<std::pair<std::string, DType>, Value> extents;

  LoopNests nests{*this};
  Arena arena{*this};
  Placement placement{*this};
  Elements elements{*this};
  RefWindows refs{*this};
  Prefetch prefetch{*this};
  AtomicEmitter atomics{*this};
  ReduceEmitter reduces{*this};
  RearrangeEmitter rearranges{*this};
  DotEmitter dots{*this};
  MatrixSums sums{*this};
  PrintEmitter prints{*this};
  ControlEmitter control{*this};
  UnitEmitter units{*this};
};

}  // namespace tessera::lowering
