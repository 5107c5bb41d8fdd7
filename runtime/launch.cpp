#include "runtime/launch.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <mutex>
#include <optional>

#include "engine/base/bind.h"
#include "engine/base/plural.h"
#include "runtime/bound.h"
#include "runtime/context.h"
#include "runtime/names.h"
#include "runtime/pipeline.h"

namespace tessera {

using vulkan::Access;
using vulkan::Bound;
using vulkan::Buffer;
using vulkan::Context;
using vulkan::GroupSlice;
using vulkan::has_names;
using vulkan::Memory;
using vulkan::name_object;
using vulkan::Outcome;

namespace {

CallSignature signature(const Program& p) {
  CallSignature s{p.name, p.loc, {}, 0, {}, {}};
  s.args.reserve(p.args.size());
  for (const ProgramArg& a : p.args) {
    s.args.push_back({a.origin, a.dtype, a.shape, a.loc});
    s.num_inputs += !a.is_output;
    for (const Extent& e : a.shape) e.collect_names(s.sizes);
  }
  for (const Extent& e : p.grid) {
    s.grid.push_back(&e);
    e.collect_names(s.sizes);
  }
  for (const Extent& e : p.extents) e.collect_names(s.sizes);
  p.num_units.collect_names(s.sizes);
  return s;
}

// The values of the program's extents, in its order.
std::vector<int64_t> extents(const Program& p, const DimValues& dims, const Device& device) {
  std::vector<int64_t> values;
  for (size_t i = 0; i < p.extents.size(); ++i) {
    const int64_t v = p.extents[i].eval(dims);
    if (p.steps_extent >= 0 && i == static_cast<size_t>(p.steps_extent) + 1 && !p.open_ended && v > Program::kMostSteps)
      throw CompileError(
          loops_too_long(p.name, v, bindings({p.extents[i]}, dims), device.info().name, p.max_loop_iterations), p.loc,
          kShorterLoops);
    if (!p.extent_is_64.at(i) && (v < std::numeric_limits<int32_t>::min() || v > std::numeric_limits<int32_t>::max()))
      throw SpecError(
          p.name + ": " + to_string(p.extents[i]) + " is " + std::to_string(v) + " but the kernel counts it in 32 bits",
          p.loc);
    values.push_back(v);
  }
  return values;
}

int64_t workgroups(const Program& p, const DimValues& dims, const DeviceInfo& device) {
  const int64_t n = p.num_units.eval(dims);
  if (n <= 0) return 0;
  constexpr int64_t most = std::numeric_limits<int32_t>::max();
  if (n > most)
    throw SpecError(
        p.name + ": the grid takes " + std::to_string(n) + " workgroups but a call has at most " + std::to_string(most),
        p.loc);
  // Nothing to write to, and no address for the code to read from (codegen/README.md: No access leaves its array).
  const auto is_empty = [&](const ProgramArg& a) {
    return std::any_of(a.shape.begin(), a.shape.end(), [&](const Extent& e) { return e.eval(dims) == 0; });
  };
  if (p.report_bytes == 0 && p.scratch_bytes == 0 && std::all_of(p.args.begin(), p.args.end(), is_empty)) return 0;
  if (p.max_workgroups == 0) return n;
  const int64_t usual = std::min<int64_t>(n, p.max_workgroups);
  if (p.max_loop_iterations == 0) return usual;
  // Where that makes each loop over too many units for the driver: more workgroups, within a quarter of the memory for
  // their arenas.
  const LoopTotal unit = total_iterations(p.loops, 0, &dims);
  const int64_t units =
      std::max<int64_t>(p.max_loop_iterations / std::max<int64_t>(unit.at_most.value_or(unit.at_least), 1) - 1, 1);
  const int64_t room =
      std::min(device.memory_bytes / 4, device.max_array_bytes) / std::max<int64_t>(p.scratch_bytes, 1);
  return std::max(usual, std::min(cdiv(n, units), room));
}

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

// As many workgroups as are launched: throws where the device cannot run them, and says which loop is the longest.
void check_dispatch(Bound& b, const Program& p, const DimValues& dims, const Device& device, uint64_t launched) {
  if (b.groups[2] > device.context()->probe().max_groups[2] ||
      launched > static_cast<uint64_t>(std::numeric_limits<int32_t>::max()))
    throw SpecError(p.name + ": the grid takes " + std::to_string(b.count) + " workgroups, which " +
                        device.info().name + " cannot launch at once",
                    p.loc);
  b.longest_loop = check_loops(p, dims, static_cast<int64_t>(launched), device.info().name);
}

}  // namespace

namespace vulkan {

std::vector<std::byte> argument_block(const Program& p, const std::vector<uint64_t>& addresses,
                                      const std::vector<int64_t>& sizes, const GroupSlice* units) {
  std::vector<std::byte> block;
  auto put = [&](auto v) {
    const size_t at = block.size();
    block.resize(at + sizeof v);
    std::memcpy(block.data() + at, &v, sizeof v);
  };
  const auto size = [&](size_t i) {
    const auto at = static_cast<int>(i);
    if (units && p.steps_extent >= 0 && at == p.steps_extent) return units->first_step;
    if (units && p.steps_extent >= 0 && at == p.steps_extent + 1) return units->end_step;
    return units && at == p.units_extent ? units->first + units->count : sizes[i];
  };
  for (size_t i = 0; i < addresses.size(); ++i)
    put(units && i == p.args.size() && p.scratch_bytes > 0
            ? addresses[i] - static_cast<uint64_t>(units->first) * static_cast<uint64_t>(p.scratch_bytes)
            : addresses[i]);
  for (size_t i = 0; i < sizes.size(); ++i)
    if (p.extent_is_64[i]) put(size(i));
  for (size_t i = 0; i < sizes.size(); ++i)
    if (!p.extent_is_64[i]) put(static_cast<int32_t>(size(i)));
  return block;
}

std::vector<std::vector<std::byte>> pushes_of(const std::shared_ptr<Context>& context, const Program& p,
                                              const std::vector<uint64_t>& addresses, const std::vector<int64_t>& sizes,
                                              const std::vector<GroupSlice>& slices, std::shared_ptr<Buffer>& table) {
  const bool by_units = slices.size() > 1 && slices_have_blocks(p);
  std::vector<std::vector<std::byte>> pushes;
  for (size_t i = 0; i < (by_units ? slices.size() : 1); ++i)
    pushes.push_back(argument_block(p, addresses, sizes, by_units ? &slices[i] : nullptr));
  if (!p.indirect_table || pushes[0].empty()) return pushes;
  const uint64_t stride = (pushes[0].size() + 15) / 16 * 16;
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
  const int64_t steps = p.open_ended
                            ? steps_at_once(p, total, &dims)
                            : std::min(steps_at_once(p, total, &dims), cdiv(total, static_cast<int64_t>(times) + 1));
  const int64_t room =
      std::min(context.memory_bytes() / 4, probe.info.max_array_bytes) / std::max<int64_t>(p.scratch_bytes, 1);
  const std::array<uint32_t, 3> groups = fold_workgroups(count, limits);
  const GroupSlice all{{0, 0, 0}, groups, 0, int64_t{groups[0]} * groups[1] * groups[2]};
  std::vector<GroupSlice> slices;
  if (count > room) slices = slice_workgroups(count, std::max<int64_t>(room, 1), limits);
  if (p.open_ended) return slice_open(slices, all, steps);
  if (slices.size() < 2 && steps >= total) return {};
  slices = slice_steps(slices, all, total, steps);
  // A submission takes longer than a dispatch of a few steps: as many are in one as the budget allows.
  const double share = times > 0 ? static_cast<double>(slices.size()) / times : kTogether;
  const auto together = static_cast<size_t>(std::clamp(share, 1.0, double{kTogether}));
  for (size_t i = 0; i + 1 < slices.size(); ++i) slices[i].ends = (i + 1) % together == 0;
  return slices;
}
}  // namespace

uint64_t arenas_of(const Program& p, const std::vector<GroupSlice>& slices, uint64_t launched) {
  if (p.steps_extent < 0 || slices.empty()) return launched;
  int64_t most = 0;
  for (const GroupSlice& s : slices) most = std::max(most, s.count);
  return static_cast<uint64_t>(most);
}

std::vector<GroupSlice> slices_of(Context& context, const Program& p, const DimValues& dims, int64_t workgroups) {
  constexpr int64_t kMost = 1024;  // beyond, submitting would cost more than it saves
  const double budget = context.watchdog_seconds();
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
  return by_units ? vulkan::slice_units(count, cdiv(count, wanted), workgroups, limits)
                  : vulkan::slice_workgroups(count, cdiv(count, wanted), limits);
}

Bound bind(const Program& p, const DimValues& dims, const Device& device) {
  Bound b;
  b.count = workgroups(p, dims, device.info());
  b.sizes = extents(p, dims, device);
  b.longest_loop = p.loc;
  if (b.count == 0) return b;
  const uint32_t* most = device.context()->probe().max_groups;
  b.groups = fold_workgroups(b.count, {most[0], most[1], most[2]});
  const uint64_t launched = uint64_t{b.groups[0]} * b.groups[1] * b.groups[2];
  check_dispatch(b, p, dims, device, launched);
  const uint64_t arenas =
      p.steps_extent >= 0 ? arenas_of(p, slices_of(*device.context(), p, dims, b.count), launched) : launched;
  if (p.scratch_bytes > 0 && __builtin_mul_overflow(static_cast<int64_t>(arenas), p.scratch_bytes, &b.scratch_bytes))
    b.scratch_bytes = std::numeric_limits<int64_t>::max();
  return b;
}

}  // namespace vulkan

namespace {

bool has_alias(const Program& p, size_t input) {
  return std::any_of(p.args.begin(), p.args.end(),
                     [&](const ProgramArg& a) { return a.alias == static_cast<int>(input); });
}

// Where the arrays that a call reads come from, as far as that may yet turn out wrong, or has; with the mutex held.
std::vector<std::shared_ptr<Outcome>> doubts(const Program& p, const std::vector<std::shared_ptr<Buffer>>& buffers) {
  std::vector<std::shared_ptr<Outcome>> found;
  for (size_t i = 0; i < buffers.size(); ++i) {
    if (p.args[i].is_output || !(p.args[i].read || p.args[i].written || has_alias(p, i)) || !buffers[i]) continue;
    const std::shared_ptr<Outcome>& o = buffers[i]->outcome;
    if (o && (!o->settled || o->error) && std::find(found.begin(), found.end(), o) == found.end()) found.push_back(o);
  }
  return found;
}

// A donated argument's memory goes to one output, or is the call's to write to, so nothing else may be in it.
void check_donation(const Program& p, const std::vector<DeviceArray>& inputs,
                    const std::vector<std::shared_ptr<Buffer>>& buffers, size_t i) {
  if (!inputs[i].donated()) return;
  const std::string where = p.name + ": argument " + std::to_string(i) + " is donated, but ";
  if (!has_alias(p, i) && !p.args[i].written)
    throw SpecError(where + "no output is aliased to it", p.loc,
                    "name one in input_output_aliases, or leave donate() out");
  for (size_t j = 0; j < inputs.size(); ++j)
    if (j != i && buffers[i] && buffers[j] == buffers[i])
      throw SpecError(where + "argument " + std::to_string(j) + " is the same array", p.loc, "copy() one of them");
}

DeviceArray checked_output(const Device& device, const Program& p, const CallSignature& call, size_t position,
                           const DeviceArray& a, const DimValues& dims) {
  if (!a.valid())
    throw SpecError(p.name + ": " + p.args[position].origin +
                        ": no array is given for it, and it takes the memory of no donated argument",
                    p.loc);
  const Shape shape = bind_shape(call, position, dims);
  if (a.dtype() != p.args[position].dtype || a.shape() != shape)
    throw SpecError(p.name + ": " + p.args[position].origin + ": the result is " +
                        std::string(name(p.args[position].dtype)) + to_string(shape) + " but its array is " +
                        std::string(name(a.dtype())) + to_string(a.shape()),
                    p.loc);
  if (!(a.device() == device))
    throw SpecError(p.name + ": " + p.args[position].origin + ": the array is on another Device than the call", p.loc);
  return a;
}

}  // namespace

DimValues bind_dims(const Program& p, const std::vector<std::pair<DType, Shape>>& inputs, const DimValues& given) {
  return bind_dims(signature(p), inputs, given);
}

std::vector<std::pair<DType, Shape>> output_types(const Program& p, const std::vector<std::pair<DType, Shape>>& inputs,
                                                  const DimValues& given) {
  const CallSignature call = signature(p);
  const DimValues dims = bind_dims(call, inputs, given);
  std::vector<std::pair<DType, Shape>> types;
  for (size_t i = inputs.size(); i < p.args.size(); ++i) types.emplace_back(p.args[i].dtype, bind_shape(call, i, dims));
  return types;
}

std::array<uint32_t, 3> fold_workgroups(int64_t count, const std::array<uint32_t, 3>& limits) {
  auto up = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  const int64_t z = up(count, static_cast<int64_t>(limits[0]) * limits[1]);
  const int64_t y = up(up(count, z), limits[0]);
  const int64_t x = up(up(count, z), y);
  return {static_cast<uint32_t>(x), static_cast<uint32_t>(y), static_cast<uint32_t>(z)};
}

void prepare(const Device& device, const Program& program) { device.context()->pipeline(program); }
PipelineCounts pipeline_counts(const Device& device) {
  return {device.context()->pipelines_made, device.context()->pipelines_from_disk};
}

namespace {

// `into`: the outputs' arrays, or null where they are to be made.
std::vector<DeviceArray> launch(const Device& device, const Program& p, const std::vector<DeviceArray>& inputs,
                                const std::vector<DeviceArray>* into, const DimValues& given) {
  const std::shared_ptr<Context>& context = device.context();

  // What may fail comes before anything is recorded.
  std::vector<std::shared_ptr<Buffer>> buffers;
  std::vector<std::pair<DType, Shape>> shapes;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::string where = p.name + ": argument " + std::to_string(i);
    buffers.push_back(inputs[i].buffer(where));
    if (!(inputs[i].device() == device))
      throw SpecError(where + ": the array is on another Device than the call", p.loc);
    shapes.emplace_back(inputs[i].dtype(), inputs[i].shape());
  }
  const CallSignature call = signature(p);
  const DimValues dims = bind_dims(call, shapes, given);
  std::vector<DeviceArray> outputs;
  for (size_t i = inputs.size(); i < p.args.size(); ++i) {
    const int alias = p.args[i].alias;
    const bool takes = alias >= 0 && inputs[static_cast<size_t>(alias)].donated();
    if (takes && into && into->at(i - inputs.size()).valid())
      throw SpecError(p.name + ": " + p.args[i].origin +
                          ": an array is given for it, but it takes the memory of argument " + std::to_string(alias) +
                          ", which is donated",
                      p.loc, "give no array for it, or do not donate the argument");
    if (takes) outputs.push_back(inputs[static_cast<size_t>(alias)].share());
    else if (into) outputs.push_back(checked_output(device, p, call, i, into->at(i - inputs.size()), dims));
    else outputs.emplace_back(device, bind_shape(call, i, dims), p.args[i].dtype);
    buffers.push_back(outputs.back().buffer(p.name));
    if (into && !takes && buffers.back())
      for (size_t j = 0; j < i; ++j)
        if (buffers[j] == buffers.back())
          throw SpecError(p.name + ": " + p.args[i].origin + ": the array is " + p.args[j].origin + "'s too", p.loc,
                          "give outputs arrays of their own, or donate the argument that one is aliased to");
    if (has_names(context->vk()) && !takes && !into && buffers.back())
      name_object(context->vk(), context->handle(), buffers.back()->handle(),
                  buffers.back()->what() + ", " + p.args[i].origin + " of " + p.name);
  }
  for (size_t i = 0; i < inputs.size(); ++i) check_donation(p, inputs, buffers, i);
  // Copies of aliased inputs into outputs that have memory of their own, and of inputs that the code writes.
  std::vector<std::pair<std::shared_ptr<Buffer>, std::shared_ptr<Buffer>>> copies;
  for (size_t i = inputs.size(); i < p.args.size(); ++i)
    if (p.args[i].alias >= 0 && buffers[i])
      if (const auto& from = buffers[static_cast<size_t>(p.args[i].alias)]; from != buffers[i])
        copies.emplace_back(from, buffers[i]);
  const std::vector<std::shared_ptr<Buffer>> given_buffers = buffers;
  Bound bound;
  const int64_t count = bound.count = workgroups(p, dims, device.info());
  for (size_t i = 0; i < inputs.size(); ++i)
    if (p.args[i].written && count > 0 && buffers[i] && !inputs[i].donated()) {
      const DeviceArray own(device, shapes[i].second, shapes[i].first);
      copies.emplace_back(buffers[i], own.buffer(p.name));
      buffers[i] = copies.back().second;
    }
  const std::vector<int64_t> sizes = extents(p, dims, device);
  const std::vector<GroupSlice> slices = vulkan::slices_of(*context, p, dims, count);
  const bool by_units = slices.size() > 1 && p.max_workgroups > 0,
             own_blocks = slices.size() > 1 && vulkan::slices_have_blocks(p);
  const vulkan::Pipeline& pipeline = context->pipeline(p);
  const auto give = [&] {
    for (size_t i = 0; i < inputs.size(); ++i)
      if (inputs[i].donated()) inputs[i].give_to(p.name);
  };
  if (count == 0 && copies.empty()) {
    give();
    return outputs;
  }
  const uint32_t* most = context->probe().max_groups;
  const std::array<uint32_t, 3> groups = bound.groups =
      fold_workgroups(std::max<int64_t>(count, 1), {most[0], most[1], most[2]});
  const uint64_t launched =
      slices.size() > 1 ? static_cast<uint64_t>(count) : uint64_t{groups[0]} * groups[1] * groups[2];
  const int64_t parts = by_units ? p.num_units.eval(dims) : static_cast<int64_t>(launched);
  check_dispatch(bound, p, dims, device, launched);

  std::vector<uint64_t> addresses;
  for (const auto& b : buffers) addresses.push_back(b ? b->address() : 0);
  for (size_t i = 0; i < addresses.size(); ++i)
    if (p.alignment > 1 && addresses[i] % static_cast<uint64_t>(p.alignment) != 0)
      throw DeviceError(p.name + ": " + p.args[i].origin + ": the array lies at address " +
                            std::to_string(addresses[i]) + ", which is no multiple of " + std::to_string(p.alignment),
                        p.loc);
  std::optional<Buffer> scratch;
  if (p.scratch_bytes > 0) {
    uint64_t bytes;
    const uint64_t arenas = vulkan::arenas_of(p, slices, launched);
    if (__builtin_mul_overflow(arenas, static_cast<uint64_t>(p.scratch_bytes), &bytes))
      bytes = std::numeric_limits<uint64_t>::max();
    scratch.emplace(context, bytes, Memory::scratch,
                    p.name + ": the scratch arena of " + std::to_string(arenas) + " workgroups");
    addresses.push_back(scratch->address());
  }
  std::unique_ptr<Buffer> report;
  if (p.report_bytes > 0) {
    report =
        context->report_buffer(static_cast<uint64_t>(p.report_bytes + (p.prints.empty() ? 0 : context->print_bytes())),
                               p.name + ": the report");
    addresses.push_back(report->address());
  }
  std::shared_ptr<Buffer> table;
  const std::vector<std::vector<std::byte>> pushes = vulkan::pushes_of(context, p, addresses, sizes, slices, table);

  std::vector<Access> accesses;
  std::vector<Buffer*> shown;
  for (size_t i = 0; i < buffers.size(); ++i) {
    if (!buffers[i]) continue;
    // An argument that the code neither reads nor writes is still kept until the call is done.
    accesses.push_back({buffers[i].get(), p.args[i].read, p.args[i].written, 0, buffers[i]->size()});
    if ((p.args[i].written || p.args[i].alias >= 0) && buffers[i]->host_reads()) shown.push_back(buffers[i].get());
  }
  if (scratch) accesses.push_back({&*scratch, true, true, 0, scratch->size()});
  if (table) accesses.push_back({table.get(), true, false, 0, table->size()});
  if (report) {
    accesses.push_back({report.get(), true, true, 0, report->size()});
    shown.push_back(report.get());
  }

  std::unique_lock lock(context->mutex());
  if (table) context->recorder().note_host_write("launch of " + p.name, *table, table->size());
  if (report) context->clear_report("launch of " + p.name, *report, p.prints.empty() ? 0 : context->print_bytes());
  std::vector<std::shared_ptr<Outcome>> from = doubts(p, given_buffers);
  const double work = vulkan::work_of(p, dims);
  uint64_t value = 0;
  const bool whole = slices.size() < 2;
  const auto work_of_slice = [&](const GroupSlice& s) {
    const double steps = p.steps_extent < 0 ? 1
                         : p.open_ended     ? 1.0 / vulkan::kOpenDispatches
                                            : static_cast<double>(s.end_step - s.first_step) /
                                              static_cast<double>(sizes[static_cast<size_t>(p.steps_extent) + 1]);
    return work * steps * static_cast<double>(s.count) / static_cast<double>(parts);
  };
  const auto submit = [&](size_t first, size_t end) {
    int timer = -1;
    double part = whole ? work : 0;
    for (size_t n = first; n < end && !whole; ++n) part += work_of_slice(slices[n]);
    const std::string where = whole ? "workgroups 0 to " + std::to_string(parts - 1) + " of " + std::to_string(parts)
                                    : vulkan::text(slices, end - 1, by_units);
    try {
      value = context->recorder().submit(
          p.name,
          [&] {
            if (first == 0)
              for (const auto& [source, to] : copies) context->recorder().copy(*source, 0, *to, 0, to->size());
            if (count > 0) {
              timer = context->pace().begin(context->recorder(), part);
              for (size_t n = first; n < end; ++n)
                context->recorder().dispatch(p.name, pipeline.handle(), pipeline.layout(), pushes[own_blocks ? n : 0],
                                             whole ? groups : slices[n].groups, accesses,
                                             whole ? nullptr : &slices[n].base);
              context->pace().end(context->recorder(), timer);
            }
            context->recorder().show_host(shown);
          },
          where, p.loc);
    } catch (...) {
      context->pace().submitted(timer, 0, 0, nullptr);
      throw;
    }
    context->pace().submitted(timer, value, part, p.spirv.data());
  };
  if (whole) {
    submit(0, 1);
  } else {
    try {
      for (size_t first = 0, n = 0; n < slices.size(); ++n) {
        if (!slices[n].ends) continue;
        submit(first, n + 1);
        first = n + 1;
        if (!slices[n].tells) continue;
        lock.unlock();
        context->wait(value);
        lock.lock();
        first = vulkan::after_telling(slices, n, context->steps_left(*report));
        n = first - 1;
      }
    } catch (...) {
      if (value) give();  // what the first slices have changed is no argument any more
      throw;
    }
  }
  give();
  if (!report && from.empty()) {
    for (size_t i = inputs.size(); i < buffers.size(); ++i)
      // what went wrong with an array's former contents is of no matter any more
      if (buffers[i]) buffers[i]->outcome = nullptr;
    return outputs;
  }
  const std::shared_ptr<Outcome> outcome = vulkan::outcome_of(p, dims, bound.longest_loop, std::move(report));
  outcome->value = value;
  outcome->inputs = std::move(from);
  for (size_t i = inputs.size(); i < buffers.size(); ++i)
    if (buffers[i]) buffers[i]->outcome = outcome;
  context->follow(outcome);
  return outputs;
}

}  // namespace

std::vector<DeviceArray> launch(const Device& device, const Program& p, const std::vector<DeviceArray>& inputs,
                                const DimValues& dims) {
  return launch(device, p, inputs, nullptr, dims);
}

std::vector<DeviceArray> launch_into(const Device& device, const Program& p, const std::vector<DeviceArray>& inputs,
                                     const std::vector<DeviceArray>& outputs, const DimValues& dims) {
  if (outputs.size() + inputs.size() != p.args.size())
    throw SpecError(p.name + ": gives " + plural(p.args.size() - std::min(p.args.size(), inputs.size()), "output") +
                        " but " + plural_is(outputs.size(), "array") + " given for them",
                    p.loc);
  return launch(device, p, inputs, &outputs, dims);
}

}  // namespace tessera
