// The schedule: how programs map to workgroups, which invocation owns which element along each axis (the layout), what
// is split over workgroups, what lives in registers. The analyses prove every choice legal (parallel.h, axes.h); a
// small cost model over the Target chooses among them. The general form is the schedule that makes no choices.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "codegen/plan/axes.h"
#include "codegen/plan/carried_sums.h"
#include "codegen/plan/keep.h"
#include "codegen/plan/parallel.h"
#include "codegen/program/target.h"

namespace tessera::lowering {

/// Along one axis a unit of work handles elements base + [0, tile). Of those, one strip covers invocations * reg:
/// register r of invocation i is element strip * cover + local(r) + vec * ((i / invocation_stride) % invocations);
/// `vec` registers in a row are adjacent in memory. With `run`, as rows of matrices by lanes: that many invocations
/// have neighbours, behind which come the neighbours of their next register, `between` in all, and then the next
/// invocations'.
struct AxisPlan {
  int64_t tile = 1;
  bool split = false;
  bool laid_out = false;  // has a layout; otherwise nests walk the axis one element at a time
  int reg = 1, vec = 1;   // vec divides reg
  int invocations = 1, invocation_stride = 1;
  int run = 0, between = 1;  // run: 0, or vec is 1, and between divides reg
  int64_t local(int r) const {
    if (run) return int64_t{r / between} * between * invocations + int64_t{r % between} * run;
    return int64_t{r / vec} * vec * invocations + r % vec;
  }
  int64_t start(int i) const {  ///< of invocation i's register 0
    return run ? i % run + int64_t{i / run} * run * between : int64_t{i} * vec;
  }
  int64_t cover() const { return int64_t{reg} * invocations; }
  int64_t strips() const { return tile == 0 ? 0 : cdiv(tile, cover()); }
};

enum class Residency : uint8_t { memory, registers, arena };
enum class DotForm : uint8_t { reduce, shuffle, staged, matrix };

struct Schedule {
  bool general = false;
  // nests that neither read nor make registers are loops over their elements, however many registers their axes have
  bool rolled = false;
  int32_t group = 1;  // invocations that run one program together: 1 (packed) or the whole workgroup
  int32_t workgroup = 1;
  bool shuffles = false;  // subgroup shuffles may be used: the pipeline insists on the target's subgroup size
  int32_t subgroup = 1;
  int max_registers = 1;               // values of one tile value per invocation
  std::vector<AxisPlan> plans;         // per axis
  std::vector<int> widths;             // per axis, for GPUs: vector_widths()
  std::vector<bool> tapped;            // per axis, for GPUs: tapped_axes()
  std::vector<Residency> residency;    // per body argument
  std::vector<int> scope;              // per body argument: how many sequential loops its block depends on (0: none)
  std::vector<int> sequential;         // grid axes that are loops, outermost first
  std::vector<int> parallel;           // grid axes that are dispatched
  std::vector<int> split_axes;         // axes with split plans
  bool scratch_arena = false;          // the arena lies in global memory
  bool slots_apart = true;             // in the arena, where that saves a barrier
  int64_t dot_chunk = 8;               // k values staged at once
  bool whole_depth = true;             // products by matrices: all of k in one chunk, where that is little
  bool double_buffer = true;           // of products: two tiles, where those take little of the shared memory
  DotForm wide_dot = DotForm::reduce;  // for dots with both free dims wide
  std::optional<MatrixShape> matrix;   // what the layout of wide dots is made for
  bool matrix_lanes = false;           // that layout is the matrices' own: an invocation has what it holds of them
  std::vector<CarriedSum> carried;     // whose parts are joined behind their loops, for GPUs
  std::vector<Kept> kept;              // per value
  std::vector<std::string> remarks;    // for explain
  std::vector<std::string> prefetch_remarks;  // the same, per block: from the lowering

  /// All of the value's axes fit one strip, so every element of a unit's part has a register of its own.
  bool enumerable(const Axes& axes, const std::vector<int>& dims) const;
  int64_t registers(const std::vector<int>& dims) const;  ///< per invocation, of a value over these axes
};

/// What a schedule is made from.
struct ScheduleInput {
  const ir::Kernel& k;
  const Target& target;
  Axes& axes;
  const std::vector<bool>& resident;  // per body argument: whether Axes equated whole accesses of it
  const ParallelPlan& parallel;
  ScalarAnalysis& scalars;
  bool general;
  int smaller;                             // see lower()
  const std::vector<CarriedSum>& carried;  // for GPUs
};
/// Decides everything above but what is kept.
Schedule make_schedule(const ScheduleInput& in, const std::vector<Kept>& kept);

}  // namespace tessera::lowering
