// What a call of a Program is once its sizes are known: how many workgroups, what it pushes, what may go wrong. Shared
// by launch.h, which records it for one submission, and call/graph.h, which records it once for many. Internal to
// runtime/.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "codegen/program/program.h"
#include "runtime/device.h"
#include "runtime/submit/slices.h"

namespace tessera::vulkan {

class Buffer;
class Context;

struct Bound {
  int64_t count = 0;                        // workgroups wanted; 0: nothing is dispatched
  std::array<uint32_t, 3> groups{1, 1, 1};  // dispatched
  std::vector<int64_t> sizes;               // the program's extents
  Loc longest_loop;
  int64_t scratch_bytes = 0;  // of all workgroups
};
/// Workgroups of a call: 0 where it has nothing to do. Throws SpecError if they are too many for any device.
int64_t workgroups_of(const Program& program, const DimValues& dims, const DeviceInfo& device);
/// The values of the program's extents, in its order. Throws SpecError or CompileError where one is too large.
std::vector<int64_t> extents_of(const Program& program, const DimValues& dims, const Device& device);
/// As many workgroups as are launched: throws where the device cannot run them, and says which loop is the longest.
void check_dispatch(Bound& bound, const Program& program, const DimValues& dims, const Device& device,
                    uint64_t launched);
/// All of that. `dims` is complete. Throws SpecError or CompileError where the device cannot run so much.
Bound bind(const Program& program, const DimValues& dims, const Device& device);
/// The push-constant block (or the table) in its order: addresses, the arena's and the report's last, then 64-bit
/// extents, then 32-bit ones. `units`: a slice of the units of work that workgroups loop over, which ends with its own
/// last one and whose arena begins with its first.
std::vector<std::byte> argument_block(const Program& program, const std::vector<uint64_t>& addresses,
                                      const std::vector<int64_t>& sizes, const GroupSlice* units = nullptr);

/// What a dispatch pushes, or where workgroups loop over units, what each of the slices does: the block, or the address
/// of one in `table`, which is made for programs that want that; it is to be noted as written by the host.
std::vector<std::vector<std::byte>> pushes_of(const std::shared_ptr<Context>& context, const Program& program,
                                              const std::vector<uint64_t>& addresses, const std::vector<int64_t>& sizes,
                                              const std::vector<GroupSlice>& slices, std::shared_ptr<Buffer>& table);

/// Each slice has a block of its own: its bounds, and where its arena begins.
inline bool slices_have_blocks(const Program& p) { return p.max_workgroups > 0 || p.steps_extent >= 0; }

/// How long a call may take, as far as that can be estimated: else 0.
double seconds_of(Context& context, const Program& program, const DimValues& dims);

/// A call that may take longer than the watchdog allows, cut: its `workgroups`, or where they loop over units of work,
/// those. Else nothing. Programs whose loops are cut (Program::steps_extent) run some steps of all units in each slice,
/// or where their arenas do not fit memory together, all steps of some units before those of others.
std::vector<GroupSlice> slices_of(Context& context, const Program& program, const DimValues& dims, int64_t workgroups);

/// Workgroups that have an arena at the same time, of so many and in such slices.
uint64_t arenas_of(const Program& program, const std::vector<GroupSlice>& slices, uint64_t launched);

}  // namespace tessera::vulkan
