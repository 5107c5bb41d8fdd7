#include "runtime/launch.h"

#include <algorithm>
#include <limits>
#include <mutex>
#include <optional>

#include "engine/base/bind.h"
#include "engine/base/plural.h"
#include "runtime/device/names.h"
#include "runtime/launch/bound.h"
#include "runtime/submit/context.h"
#include "runtime/submit/pipeline.h"

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
  const int64_t count = bound.count = vulkan::workgroups_of(p, dims, device.info());
  for (size_t i = 0; i < inputs.size(); ++i)
    if (p.args[i].written && count > 0 && buffers[i] && !inputs[i].donated()) {
      const DeviceArray own(device, shapes[i].second, shapes[i].first);
      copies.emplace_back(buffers[i], own.buffer(p.name));
      buffers[i] = copies.back().second;
    }
  const std::vector<int64_t> sizes = vulkan::extents_of(p, dims, device);
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
  vulkan::check_dispatch(bound, p, dims, device, launched);

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
