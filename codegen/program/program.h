// Program: the plain result of compilation: code, argument layout, dispatch rule. runtime/ makes pipelines from
// Programs and never looks at IR. Arguments arrive as buffer addresses in push constants (or in a table in memory when
// they exceed the device's push constants).
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/call_info.h"
#include "engine/base/dtype.h"
#include "engine/base/error.h"
#include "engine/base/extent.h"

namespace tessera {

/// One input or output array of a call. Run-time sizes in `shape` are bound from the arguments' shapes.
struct ProgramArg {
  std::string origin;  // "in_specs[0]"
  DType dtype = DType::f32;
  std::vector<Extent> shape;
  bool is_output = false;
  // By the code: for barriers between calls. Of an aliased input the code sees the output instead; of an input that is
  // written it gets a copy.
  bool read = false, written = false;
  Loc loc = {};           // of its BlockSpec
  int alias = -1;         // outputs: position of the input with whose contents the array starts
  bool by_value = false;  // an input of rank 0: the call passes its element, not an address
};

/// A loop of the code, where the target leaves an invocation's loops after so many iterations of all of them
/// (Target::max_loop_iterations).
struct ProgramLoop {
  Loc loc;
  Extent at_least = 0;            // iterations that some invocation runs per unit of work
  std::optional<Extent> at_most;  // and that each does; none: data decides
};

/// A debug_print or check of the code: what its records in the report hold, and what becomes of them.
struct ProgramPrint {
  bool check = false;
  std::string text;
  std::vector<std::pair<DType, Shape>> arguments;
  Loc loc;
};

/// The layout of a report in which code prints, in words. The host writes kCapacity before the call. A record is its
/// own number of words, its print's position in Program::prints, the linear number of its program (two words) and the
/// elements of the arguments, row-major, two words each for 64-bit dtypes and one for others.
struct PrintReport {
  static constexpr int64_t kFlags = 0;           // Program::kLoopsCut and kWaitFailed, whose words follow
  static constexpr int64_t kUsed = 4;            // words of records, those that found no room included
  static constexpr int64_t kDropped = 5;         // records that found none
  static constexpr int64_t kDroppedWords = 6;    // theirs, two words: low and high
  static constexpr int64_t kCapacity = 8;        // words for records
  static constexpr int64_t kEnd = 9;             // where the records end, if any found no room
  static constexpr int64_t kDroppedChecks = 10;  // records of checks that found none
  static constexpr int64_t kRecords = 16;        // the first record
  static constexpr int64_t kHeader = 4;          // words of a record before its arguments
};

/// A line of a call: the records sorted by program, those of one program in the order in which it made them.
struct PrintedLine {
  uint64_t program = 0;  // linear number
  size_t print = 0;      // position in Program::prints
  std::string text;
};
std::vector<PrintedLine> printed_lines(const std::vector<ProgramPrint>& prints, const std::vector<uint32_t>& records);

/// How op tensor_load copies boxes of an array that a call encodes for NVIDIA's driver (cuTensorMapEncodeTiled): boxes
/// of so many elements of each dim of the array, in its order; rows of 128 bytes, swizzled; zeros outside of the array.
struct ProgramTensor {
  int32_t array = 0;  // position in Program::args
  std::vector<int64_t> box;
};

/// A wait for a semaphore, of which the report tells by number that it can never be satisfied.
struct WaitSite {
  std::string op, semaphore;  // "copy_wait", "scratch_shapes[1][0]"
  bool bytes = false;         // it counts them
  Loc loc;
};

/// The push-constant block, in order, 8-byte aligned entries first: per arg one u64, its address or if it is by value
/// its element's bits as memory holds them, zero-extended; the scratch arena's u64 address if scratch_bytes > 0, the
/// report's if report_bytes > 0, then i64 extents, then i32 extents, then from a multiple of 64 on the tensors, of 128
/// bytes each. If that exceeds the target's push constants, indirect_table is true, the push constants are one u64: the
/// address of a buffer with the same layout.
struct Program {
  std::string name;
  Loc loc;
  std::vector<ProgramArg> args;  // inputs, then outputs
  // The code, one of them: SPIR-V for Vulkan 1.3; PTX's text (codegen/nvidia/README.md), entry points "main"; or a
  // TPU's module and the StableHLO module around it (codegen/tpu/README.md).
  std::vector<uint32_t> spirv;
  std::string ptx, mosaic, stable_hlo;
  std::vector<Extent> grid;            // per axis; a call checks that each is from 0 to 2^31 - 1
  int32_t workgroup_size = 1;          // along x
  int32_t required_subgroup_size = 0;  // 0: any; else also full subgroups
  int64_t shared_bytes = 0;
  int64_t scratch_bytes = 0;   // per workgroup
  int32_t max_workgroups = 0;  // 0: num_units of them
  Extent num_units = 1;        // workgroups wanted; 0: nothing is dispatched
  /// What the code writes for the host to read when the call is done: zeros before, at an address that is a multiple
  /// of 64. The first word has the bits below. 0: no report.
  int64_t report_bytes = 0;
  static constexpr uint32_t kLoopsCut = 1;    // the driver has left a loop too early: what the call wrote is wrong
  static constexpr uint32_t kUnfinished = 4;  // open_ended: steps are left
  // so has a wait: the next words are its number in `waits`, what the semaphore held, what was waited for
  static constexpr uint32_t kWaitFailed = 2;
  std::vector<WaitSite> waits;
  std::vector<ProgramPrint> prints;     // none: the report has no records
  std::vector<std::string> axis_names;  // of the grid; may be empty
  // none if they are known to be short enough; with steps_extent, one whose `at_most` is what a dispatch of n steps
  // runs more than n
  std::vector<ProgramLoop> loops;
  int64_t max_loop_iterations = 0;  // the target's
  std::vector<Extent> extents;      // pushed values
  std::vector<bool> extent_is_64;
  std::vector<ProgramTensor> tensors;  // of PTX alone
  /// max_workgroups > 0: the pushed value at which the workgroups' loops over units end, which nothing else reads; -1:
  /// no pushed value. A dispatch runs the units from a base up to a smaller end if its workgroups are numbered from the
  /// base, this value is that end, and the arena's address is lowered by as many slices as the base says.
  int32_t units_extent = -1;
  /// Where loops are cut into dispatches: the pushed value that is a dispatch's first step (0); the next pushed value
  /// is the step where it ends (the number of all steps). Nothing else reads them. -1: loops are not cut. Successive
  /// dispatches that each begin where the last one ended compute the same, with the same arena; max_loop_iterations
  /// limits the steps of each (`loops`). There is a workgroup for each unit. A dispatch may begin at any workgroup if
  /// the arena's address is lowered by that many slices.
  int32_t steps_extent = -1;
  /// Data decides how many steps there are, and each workgroup keeps in its arena where it goes on. Then a dispatch is
  /// given kGoesOn unless it is the first, kTells if it is to report kUnfinished, and how many steps it runs
  /// (steps_at_once).
  bool open_ended = false;
  static constexpr int64_t kGoesOn = 1, kTells = 2;
  // a million dispatches of a driver that allows 65,535 iterations: an hour
  static constexpr int64_t kMostSteps = int64_t{1} << 36;
  bool indirect_table = false;
  // every argument's address is a multiple: vector loads rely on it; checked at bind
  int32_t alignment = 16;
  int64_t push_bytes() const;  // of the whole block, also when it lives in a table
  int64_t tensors_at() const;  // where in the block the tensors begin
  static constexpr int64_t kTensorBytes = 128, kTensorAlignment = 64;
  bool relaxed = false;                         // not strict: as CompileOptions and the target's kind said
  std::string explain;                          // what `tessera explain` prints
  std::map<std::string, std::string> metadata;  // pallas_call's
  CostEstimate cost_estimate;                   // of one call: as given to pallas_call, else computed from the kernel
};

/// Iterations of one invocation that loops over `units` units of work (0: it has one, and no loop over them), with the
/// lines of the loops that add most to either number.
struct LoopTotal {
  int64_t at_least = 0;
  Loc at_least_loc;
  std::optional<int64_t> at_most = 0;
  Loc at_most_loc;
};
/// Steps of a dispatch, where the program's loops are cut into `total` of them: as many as its limit on iterations
/// surely allows, but at least 1.
int64_t steps_at_once(const Program& program, int64_t total, const DimValues* dims);
/// Without `dims`, as far as it is known before a call.
LoopTotal total_iterations(const std::vector<ProgramLoop>& loops, int64_t units, const DimValues* dims);
/// What CompileErrors of the compiler and of a launch say; `sizes`: " for n = 5", or nothing.
std::string loops_too_long(const std::string& kernel, int64_t iterations, const std::string& sizes,
                           const std::string& device, int64_t limit);
extern const char* const kShorterLoops;
/// What CompileErrors and DeviceErrors say of a wait that nothing can satisfy, as far as the numbers are known.
std::string wait_failed(const std::string& kernel, const WaitSite& site, std::optional<int64_t> holds,
                        std::optional<int64_t> amount);
extern const char* const kSignalFirst;

}  // namespace tessera
