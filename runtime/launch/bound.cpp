#include "runtime/launch/bound.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <mutex>

#include "engine/base/bind.h"
#include "engine/base/error.h"
#include "runtime/launch.h"
#include "runtime/submit/context.h"

namespace tessera::vulkan {
namespace {

// Loops that the driver would leave before their end, as far as the sizes tell. Returns the line of the longest, for
// what the call may report.
Loc check_loops(const Program& p, const DimValues& dims, int64_t launched, const std::string& device) {
  if (p.max_loop_iterations == 0) return p.loc;
  const LoopTotal total =
      total_iterations(p.loops, p.max_workgroups > 0 ? cdiv(p.num_units.eval(dims), launched) : 0, &dims);
  if (total.at_least <= p.max_loop_iterations) return total.at_most_loc;
  std::vector<Extent> sizes{p.num_units};
  for (const ProgramLoop& l : p.loops) sizes.push_back(l.at_least);
  throw CompileError(loops_too_long(p.name, total.at_least, bindings(sizes, dims), device, p.max_loop_iterations),
                     total.at_least_loc, kShorterLoops);
}

// Of a slice of the units of work that workgroups loop over, which ends with its own last one and whose arena begins
// with its first; or of steps.
std::vector<std::byte> slice_block(const Program& p, std::vector<uint64_t> addresses, std::vector<int64_t> sizes,
                                   const GroupSlice& units) {
  if (p.steps_extent >= 0) {
    sizes[static_cast<size_t>(p.steps_extent)] = units.first_step;
    sizes[static_cast<size_t>(p.steps_extent) + 1] = units.end_step;
  }
  if (p.units_extent >= 0) sizes[static_cast<size_t>(p.units_extent)] = units.first + units.count;
  if (p.scratch_bytes > 0)
    addresses[p.args.size()] -= static_cast<uint64_t>(units.first) * static_cast<uint64_t>(p.scratch_bytes);
  return argument_block(p, addresses, sizes);
}

}  // namespace

std::vector<std::vector<std::byte>> argument_blocks(const Program& p, const std::vector<uint64_t>& addresses,
                                                    const Bound& bound) {
  // Of programs whose workgroups loop over units, or whose loops are cut: a slice's bounds, and where its arena begins.
  const bool slices_have_blocks = p.max_workgroups > 0 || p.steps_extent >= 0;
  if (!bound.cut() || !slices_have_blocks) return {argument_block(p, addresses, bound.sizes)};
  std::vector<std::vector<std::byte>> blocks;
  for (const GroupSlice& s : bound.slices) blocks.push_back(slice_block(p, addresses, bound.sizes, s));
  return blocks;
}

std::vector<std::vector<std::byte>> pushes_of(const std::shared_ptr<Context>& context, const Program& p,
                                              const std::vector<uint64_t>& addresses, const Bound& bound,
                                              std::shared_ptr<Buffer>& table) {
  std::vector<std::vector<std::byte>> pushes = argument_blocks(p, addresses, bound);
  if (!p.indirect_table || pushes[0].empty()) return pushes;
  const uint64_t stride = block_stride(pushes[0].size());
  std::vector<std::byte> all(stride * (pushes.size() - 1) + pushes[0].size());
  for (size_t i = 0; i < pushes.size(); ++i)
    std::copy(pushes[i].begin(), pushes[i].end(), all.begin() + static_cast<std::ptrdiff_t>(i * stride));
  table = std::make_shared<Buffer>(context, all.size(), Memory::upload, p.name + ": the argument table");
  table->host_write(all.data(), all.size());
  for (size_t i = 0; i < pushes.size(); ++i) {
    const uint64_t address = table->address() + i * stride;
    pushes[i].resize(sizeof address);
    std::memcpy(pushes[i].data(), &address, sizeof address);
  }
  return pushes;
}

double seconds_of(Context& context, const Program& p, const DimValues& dims) {
  const double work = work_of(p, dims);
  if (work <= 0) return 0;
  std::lock_guard lock(context.mutex());
  return context.pace().seconds(work, p.spirv.data());
}

namespace {
// Of a program whose loops are cut: as many steps at once as the driver's loops and the watchdog, of which they would
// take so many times the budget, allow; and where the arenas of all units would take more than a quarter of the memory,
// some of the units after the others.
std::vector<GroupSlice> cut_slices(Context& context, const Program& p, const DimValues& dims, int64_t count,
                                   double times) {
  if (count == 0) return {};
  const Probe& probe = context.probe();
  const std::array<uint32_t, 3> limits{probe.max_groups[0], probe.max_groups[1], probe.max_groups[2]};
  const int64_t total = p.extents[static_cast<size_t>(p.steps_extent) + 1].eval(dims);
  const int64_t room =
      std::min(context.memory_bytes() / 4, probe.info.max_array_bytes) / std::max<int64_t>(p.scratch_bytes, 1);
  const std::array<uint32_t, 3> groups = fold_workgroups(count, limits);
  const GroupSlice all{{0, 0, 0}, groups, 0, int64_t{groups[0]} * groups[1] * groups[2]};
  std::vector<GroupSlice> slices;
  if (count > room) slices = slice_workgroups(count, std::max<int64_t>(room, 1), limits);
  int64_t steps = steps_at_once(p, total, &dims);
  if (p.open_ended) return slice_open(slices, all, steps);
  // each of these takes its share of the time
  const double each = times / static_cast<double>(std::max<size_t>(slices.size(), 1));
  steps = std::min(steps, cdiv(total, static_cast<int64_t>(each) + 1));
  if (slices.size() < 2 && steps >= total) return {};
  slices = slice_steps(slices, all, total, steps);
  // A submission takes longer than a dispatch of a few steps: as many are in one as the budget allows.
  const double share = times > 0 ? static_cast<double>(slices.size()) / times : kTogether;
  const auto together = static_cast<size_t>(std::clamp(share, 1.0, double{kTogether}));
  for (size_t i = 0; i + 1 < slices.size(); ++i) slices[i].ends = (i + 1) % together == 0;
  return slices;
}

// A call that may take longer than the watchdog allows, cut: its `workgroups`, or where they loop over units of work,
// those. Else nothing. Programs whose loops are cut (Program::steps_extent) run some steps of all units in each slice,
// or where their arenas do not fit memory together, all steps of some units before those of others.
std::vector<GroupSlice> slices_of(Context& context, const Program& p, const DimValues& dims, int64_t workgroups,
                                  Cut cut) {
  constexpr int64_t kMost = 1024;  // beyond, submitting would cost more than it saves
  const double budget = cut == Cut::watchdog ? context.watchdog_seconds() : 0;
  if (p.steps_extent >= 0)
    return cut_slices(context, p, dims, workgroups,
                      budget > 0 ? std::min(seconds_of(context, p, dims) / budget, static_cast<double>(kMost)) : 0);
  const bool by_units = p.max_workgroups > 0;
  const int64_t count = by_units ? p.num_units.eval(dims) : workgroups;
  if (budget == 0 || (by_units && p.units_extent < 0) || count < 2) return {};
  const double times = seconds_of(context, p, dims) / budget;
  if (times <= 1) return {};
  const int64_t wanted =
      times < static_cast<double>(std::min(count, kMost)) ? static_cast<int64_t>(times) + 1 : std::min(count, kMost);
  const uint32_t* most = context.probe().max_groups;
  const std::array<uint32_t, 3> limits{most[0], most[1], most[2]};
  return by_units ? slice_units(count, cdiv(count, wanted), workgroups, limits)
                  : slice_workgroups(count, cdiv(count, wanted), limits);
}
}  // namespace

Bound bind(const Program& p, const DimValues& dims, const Device& device, Cut cut) {
  Bound b;
  rebind(p, dims, device, cut, b);
  return b;
}

void rebind(const Program& p, const DimValues& dims, const Device& device, Cut cut, Bound& b) {
  b.groups = {1, 1, 1};
  b.slices.clear();
  b.arenas = 0;
  b.scratch_bytes = 0;
  b.count = workgroups_of(p, dims, std::min(device.info().memory_bytes / 4, device.info().max_array_bytes));
  extents_of(p, dims, device.info().name, b.sizes);
  b.longest_loop = p.loc;
  if (b.count == 0) return;
  const uint32_t* most = device.context()->probe().max_groups;
  b.groups = fold_workgroups(b.count, {most[0], most[1], most[2]});
  if (cut == Cut::watchdog || (cut == Cut::loops && p.steps_extent >= 0))
    b.slices = slices_of(*device.context(), p, dims, b.count, cut);
  const uint64_t launched =
      b.cut() ? static_cast<uint64_t>(b.count) : uint64_t{b.groups[0]} * b.groups[1] * b.groups[2];
  if (b.groups[2] > most[2] || launched > static_cast<uint64_t>(std::numeric_limits<int32_t>::max()))
    throw SpecError(p.name + ": the grid takes " + std::to_string(b.count) + " workgroups, which " +
                        device.info().name + " cannot launch at once",
                    p.loc);
  b.longest_loop = check_loops(p, dims, static_cast<int64_t>(launched), device.info().name);
  b.arenas = launched;
  if (p.steps_extent >= 0 && !b.slices.empty())
    b.arenas = static_cast<uint64_t>(
        std::max_element(b.slices.begin(), b.slices.end(), [](const GroupSlice& x, const GroupSlice& y) {
          return x.count < y.count;
        })->count);
  if (p.scratch_bytes > 0 && __builtin_mul_overflow(static_cast<int64_t>(b.arenas), p.scratch_bytes, &b.scratch_bytes))
    b.scratch_bytes = std::numeric_limits<int64_t>::max();
}

std::unique_ptr<Buffer> scratch_of(const std::shared_ptr<Context>& context, const Program& p, const Bound& b) {
  return std::make_unique<Buffer>(context, static_cast<uint64_t>(b.scratch_bytes), Memory::scratch,
                                  p.name + ": the scratch arena of " + std::to_string(b.arenas) + " workgroups");
}

bool depends_on(const Program& p, size_t input) {
  const auto aliased = [&](const ProgramArg& a) { return a.alias == static_cast<int>(input); };
  return p.args[input].read || p.args[input].written || std::any_of(p.args.begin(), p.args.end(), aliased);
}

void misaligned(const Program& p, size_t argument, uint64_t address) {
  throw DeviceError(p.name + ": " + p.args[argument].origin + ": the array lies at address " + std::to_string(address) +
                        ", which is no multiple of " + std::to_string(p.alignment),
                    p.loc);
}

}  // namespace tessera::vulkan
