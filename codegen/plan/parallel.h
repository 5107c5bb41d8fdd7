// Which grid axes may run concurrently. A set P of axes is parallel if for any two programs that differ in P, whatever
// their other coordinates, no element that one writes is read or written by the other. The proof uses footprints: per
// output array, every access's set of elements as an affine form of the program ids plus a bounded rest. Scratch must
// be written, all of it that any op writes, before it is read within one P-coordinate. Atomic updates that commute
// conflict only with other accesses; those whose order shows keep the axis sequential, unless it is declared parallel.
// The other axes become loops inside the shader: every dependence they carry then links equal P-coordinates.
#pragma once
#include <string>
#include <vector>

#include "codegen/plan/affine.h"
#include "codegen/program/target.h"
#include "engine/ir/kernel.h"

namespace tessera::lowering {

struct AxisVerdict {
  bool parallel = false;
  std::string why;  // for `tessera explain`
};

/// One access to a body Ref, composed to array coordinates.
struct Access {
  ir::OpId op;
  int ref = 0;  // position among the body's arguments
  bool writes = false;
  std::vector<Affine> dims;  // per array dim: all elements that may be touched
};

struct ParallelPlan {
  std::vector<AxisVerdict> axes;  // one per grid axis
  std::vector<Access> accesses;   // to inputs and outputs
  std::vector<bool> commuting;    // per input and output: all that touches it are atomic updates that commute
  std::vector<bool> concurrent;   // per input and output: programs that run at once may update the same elements
  // some axis is parallel by declaration alone: programs may share a block and store parts of it at once
  bool declared = false;
  bool is_parallel(size_t a) const { return axes[a].parallel; }
};

ParallelPlan plan_parallel(const ir::Kernel& k, ScalarAnalysis& scalars, const Target& target);

/// What the proof that scratch is written before it is read uses of a scalar if these axes are parallel: its bits, in
/// all programs or where the ids of these axes are 0.
struct KnownScalar {
  ir::Value v;
  uint64_t bits;
  std::vector<bool> at_first;  // per axis, or none
};
std::vector<KnownScalar> known_scalars(const ir::Kernel& k, const std::vector<bool>& parallel, ScalarAnalysis& scalars);

/// Per value: some op has it as an operand.
std::vector<bool> used_values(const ir::Kernel& k);

/// Per array dim of blocks[i]: the index map's form (block or element index), and whether it provably needs no clamp.
struct BlockStart {
  Affine form;
  bool in_range = false;      // provably in [0, last_index]
  bool interior = false;      // once clamped, the whole block lies inside the array
  bool nothing_below = true;  // ... or at least nothing of it before the array's first element
};
std::vector<BlockStart> block_starts(const ir::Kernel& k, int i, ScalarAnalysis& scalars);

/// The position of a memory op's Ref among the body's arguments. At tile level Refs are never anything but arguments of
/// the body, or an index map's of the scalar-prefetch operands, which come first in the body.
int ref_position(const ir::Kernel& k, ir::Value ref);
/// The argument whose memory an argument's accesses go to: an aliased input's is its output's, which starts with the
/// input's contents.
int memory_of(const ir::Kernel& k, int ref);
/// Per body argument: some op stores to its memory.
std::vector<bool> stored_memory(const ir::Kernel& k);
/// Input i is aliased, and some load of it may come after a store to its output in the same program, which must not see
/// that: the program copies the block when it starts.
bool needs_copy(const ir::Kernel& k, int i);
/// Blocks of blocks[i] that differ may share elements: some dim is indexed by elements.
bool may_overlap(const ir::Kernel& k, int i);
/// Every program stores all of its block of blocks[i], at the end of whatever it does.
bool always_stored_whole(const ir::Kernel& k, int i);
/// The same blocks at the same places.
bool same_blocks(const ir::Kernel& k, int a, int b);
/// The index map of blocks[i] loads from a scalar-prefetch operand.
bool depends_on_data(const ir::Kernel& k, int i);

}  // namespace tessera::lowering
