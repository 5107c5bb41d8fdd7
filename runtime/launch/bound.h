// A call of a Program whose sizes are known: the number of workgroups, its slices, the pushed values, the possible
// errors. launch.h (which records it for one submission), record.h (for each frame of a host program) and call/graph.h
// (once for many calls) all use it. Internal to runtime/.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "codegen/program/program.h"
#include "runtime/device.h"
#include "runtime/launch/arguments.h"
#include "runtime/submit/slices.h"

namespace tessera::vulkan {

class Buffer;
class Context;

/// What of a call may be cut into slices that run one after another.
enum class Cut : uint8_t {
  none,
  loops,     // of programs whose loops are cut into steps (Program::steps_extent): by the sizes alone, so that it
             // is the same each time
  watchdog,  // and calls that may take longer than the watchdog allows
};

struct Bound {
  int64_t count = 0;                        // workgroups wanted; 0: nothing is dispatched
  std::array<uint32_t, 3> groups{1, 1, 1};  // dispatched, if it is not cut
  std::vector<int64_t> sizes;               // the program's extents
  std::vector<GroupSlice> slices;           // if it is cut
  Loc longest_loop;
  uint64_t arenas = 0;        // workgroups that have one at the same time,
  int64_t scratch_bytes = 0;  // of all of these
  bool cut() const { return slices.size() > 1; }
};
/// All that follows from a call's sizes. `dims` is complete. Throws SpecError or CompileError where the device cannot
/// run so much, or a size is too large for the code.
Bound bind(const Program& program, const DimValues& dims, const Device& device, Cut cut = Cut::watchdog);
/// The same in place of another binding of the program; allocates nothing unless loops are cut.
void rebind(const Program& program, const DimValues& dims, const Device& device, Cut cut, Bound& bound);
/// What the call's results are computed from: wrong if that input is.
bool depends_on(const Program& program, size_t input);
/// The scratch arenas of a call, which must have some.
std::unique_ptr<Buffer> scratch_of(const std::shared_ptr<Context>& context, const Program& program, const Bound& bound);

/// The blocks of a call, each what a dispatch pushes or finds in a table: addresses, the arena's and the report's last,
/// then 64-bit extents, then 32-bit ones. One block; or of a call that is cut one for each slice, if these have blocks
/// of their own.
std::vector<std::vector<std::byte>> argument_blocks(const Program& program, const std::vector<uint64_t>& addresses,
                                                    const Bound& bound);
/// From block to block in a table.
inline uint64_t block_stride(uint64_t block_bytes) { return (block_bytes + 15) / 16 * 16; }

/// What a dispatch pushes, or where workgroups loop over units, what each of the slices does: the block, or the address
/// of one in `table`, which is made for programs that want that; it is to be noted as written by the host.
std::vector<std::vector<std::byte>> pushes_of(const std::shared_ptr<Context>& context, const Program& program,
                                              const std::vector<uint64_t>& addresses, const Bound& bound,
                                              std::shared_ptr<Buffer>& table);

/// How long a call may take, as far as that can be estimated: else 0.
double seconds_of(Context& context, const Program& program, const DimValues& dims);

[[noreturn]] void misaligned(const Program& p, size_t argument, uint64_t address);
/// Throws DeviceError if an array lies where the code cannot read it.
inline void check_alignment(const Program& p, size_t argument, uint64_t address) {
  if ((address & static_cast<uint64_t>(p.alignment - 1)) != 0) misaligned(p, argument, address);  // a power of two
}

}  // namespace tessera::vulkan
