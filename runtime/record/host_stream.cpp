#include "runtime/record/host_stream.h"

#include <algorithm>
#include <mutex>
#include <string>

#include "engine/base/error.h"
#include "engine/base/plural.h"
#include "runtime/device/names.h"
#include "runtime/submit/pipeline.h"

namespace tessera::vulkan {

HostStream::HostStream(const Device& d, const StreamOptions& options) : device_(d) {
  if (options.timed_calls != 0) times_ = std::make_unique<StreamTimes>(d, options);
  accesses_.resize(64);
  copies_.reserve(16);
  buffers_.resize(32);
  arguments_.reserve(32);
}

void HostStream::begin(VkCommandBuffer c, uint64_t f) {
  if (c == VK_NULL_HANDLE) throw SpecError("CommandStream::begin: the command buffer is null");
  if (commands_ != VK_NULL_HANDLE)
    throw SpecError("CommandStream::begin: the recording of frame " + std::to_string(frame_) + " has not ended", {},
                    "call end() first, also for commands that are never submitted");
  Context& context = *device_.context();
  const std::lock_guard lock(context.mutex());
  context.recorder().require_alive();
  commands_ = c;
  frame_ = f;
  reported_ = false;
  waits_ = signals_ = 0;
  ordered_ = {};
  number_ = context.recorder().new_stream();
  begun_ = false;
  if (times_) times_->begin(f);
}

std::vector<TimedCommand> HostStream::trace(uint64_t frame) const {
  if (!times_)
    throw SpecError("CommandStream::trace: calls are recorded without times", {},
                    "make the stream with StreamOptions{.timed_calls = N}");
  return times_->trace(frame);
}

void HostStream::barrier(StageMask from, StageMask to) {
  memory_barrier(device_.context()->vk(), commands_, from, to);
  device_.context()->recorder().note_barrier(ordered_, from, to, number_);
}

// Before a command of that stage: the barrier that its accesses need, if any. What will come before
// the command buffer on the queue is not known yet, so the first one waits for all of it; from there on the recorder's
// numbers stand for this stream's commands. With the mutex held.
void HostStream::command(const std::string& what, Stage stage, std::span<const Access> list, bool indirect) {
  Recorder& recorder = device_.context()->recorder();
  const auto in = static_cast<StageMask>(mask(stage) | (indirect ? mask(Stage::indirect) : 0));
  constexpr StageMask kAll = mask(Stage::compute) | mask(Stage::transfer);
  const StageMask from = begun_ ? unordered(ordered_, in, list) : kAll;
  if (from) barrier(from, begun_ ? in : kAll | in);
  begun_ = true;
  if (unbegun_) times_->write_begin(commands_, from != 0);  // what waits for no other begins beside it
  unbegun_ = false;
  recorder.note(what, stage, list, number_);
  waits_ |= in;
  signals_ |= mask(stage);
}

namespace {
// Where nothing else differs.
std::string usages(const ImageState& a, const ImageState& b) {
  if (a.image.usage == b.image.usage || a.describe() != b.describe()) return "";
  return "; their usages are " + std::to_string(a.image.usage) + " and " + std::to_string(b.image.usage);
}
}  // namespace

// Where argument i lies, checked, and kept until the frame is done.
Buffer* HostStream::take(const HostCall& call, HostCall::Call& c, const Argument& argument, size_t i) {
  const Program& p = *call.program;
  const auto where = [&] { return p.name + ": " + p.args[i].origin + ": "; };
  if (argument.number())
    throw SpecError(where() + "a number is given, but the kernel takes an array", p.loc,
                    "numbers are for arguments by value: ts::by_value(dtype) in in_specs");
  if (const DeviceImage* image = argument.image()) {
    if (const bool writes = i >= call.num_inputs; !ImageState::good(argument.layouts(), writes))
      image->state()->check_layouts(where(), argument.layouts(), writes);
    if (!call.like[i])
      throw SpecError(where() + "an image is given, but PrepareOptions::images does not name this argument", p.loc);
    if (!call.like[i]->alike(*image->state(), call.shapes[i]))
      throw SpecError(
          where() + "the kernel has been prepared for " + call.like[i]->describe() +
              (call.version ? ", and resized to " +
                                  tessera::to_string(Shape(
                                      call.shapes[i].begin(),
                                      call.shapes[i].begin() + static_cast<int64_t>(call.like[i]->dims().size()))) +
                                  ","
                            : "") +
              " but is given " + image->state()->describe(),
          p.loc,
          "images of one argument have the same format, extent and usage" + usages(*call.like[i], *image->state()));
    if (!(image->state()->device == device_))
      throw SpecError(where() + "the image is on another Device than the call", p.loc);
    c.images[i] = image->state();
    return c.staging[call.staged[i].array].get();
  }
  if (call.like[i])
    throw SpecError(where() + "an array is given, but PrepareOptions::images names this argument", p.loc);
  const DeviceArray& a = *argument.array();
  std::shared_ptr<Buffer>& b = c.arguments[i];
  b.reset();
  std::shared_ptr<Buffer> memory = a.memory();
  // says what is wrong
  if (!memory && !(a.valid() && num_elements(call.shapes[i]) == 0)) memory = a.buffer(p.name + ": " + p.args[i].origin);
  if (a.dtype() != p.args[i].dtype || a.shape() != call.shapes[i])
    throw SpecError(where() + "the kernel has been prepared for " + std::string(name(p.args[i].dtype)) +
                        tessera::to_string(call.shapes[i]) + " but the array is " + std::string(name(a.dtype())) +
                        tessera::to_string(a.shape()),
                    p.loc);
  if (!(a.device() == device_)) throw SpecError(where() + "the array is on another Device than the call", p.loc);
  b = std::move(memory);
  return b.get();
}

// Of an output that is where an argument before it is.
void HostStream::check_apart(const HostCall& call, size_t output, size_t other) {
  const Program& p = *call.program;
  if (static_cast<int>(other) != p.args[output].alias)
    throw SpecError(p.name + ": " + p.args[output].origin + ": the array is " + p.args[other].origin + "'s too", p.loc,
                    "give outputs arrays of their own, or alias them in input_output_aliases");
}

void HostStream::read_image(const HostCall& call, const HostCall::Call& c, const Argument& argument, size_t i) {
  Buffer* own = c.staging[call.staged[i].array].get();
  const Access list[] = {{own, false, true, 0, own->size()}};
  begin_label(device_.context()->vk(), commands_, call.image_ranges[i]);
  command("read image", Stage::compute, list);
  const ImageState& image = *c.images[i];
  image.enter(commands_, false, argument.layouts());
  image.read(commands_, *own, call.program->args[i].dtype, call.channels[i]);
  image.leave(commands_, false, argument.layouts());
  end_label(device_.context()->vk(), commands_);
}

void HostStream::store_image(const HostCall& call, const HostCall::Call& c, const Argument& argument, size_t i) {
  const ImageState& image = *c.images[i];
  Buffer* own = c.staging[call.staged[i].array].get();
  Buffer* bytes = image.packed() ? c.staging[call.staged[i].texels].get() : nullptr;
  const DType dtype = call.program->args[i].dtype;
  const Access from{own, true, false, 0, own->size()};
  begin_label(device_.context()->vk(), commands_, call.image_ranges[i]);
  if (bytes) {
    const Access list[] = {from, {bytes, false, true, 0, bytes->size()}},
                 last[] = {{bytes, true, false, 0, bytes->size()}};
    command("pack image", Stage::compute, list);
    image.pack(commands_, *own, dtype, call.channels[i], *bytes);
    command("write image", Stage::transfer, last);
    image.enter(commands_, true, argument.layouts());
    image.copy(commands_, *bytes);
  } else {
    command("write image", Stage::compute, {&from, 1});
    image.enter(commands_, true, argument.layouts());
    image.store(commands_, *own, dtype, call.channels[i]);
  }
  image.leave(commands_, true, argument.layouts());
  end_label(device_.context()->vk(), commands_);
}

void HostStream::check(const HostCall& call, size_t arguments, const Indirect& indirect) const {
  const Program& p = *call.program;
  if (commands_ == VK_NULL_HANDLE)
    throw SpecError(p.name + ": record() outside begin() and end() of its CommandStream", p.loc);
  if (!(call.device == device_))
    throw SpecError(p.name + ": the kernel has been prepared for another Device than the CommandStream's", p.loc);
  if (arguments != p.args.size())
    throw SpecError(p.name + ": takes " + plural(call.num_inputs, "input") + " and " +
                        plural(p.args.size() - call.num_inputs, "output") + " but " + plural_is(arguments, "array") +
                        " given",
                    p.loc);
  if (indirect.groups && std::any_of(call.bound.slices.begin(), call.bound.slices.end(),
                                     [&](const GroupSlice& s) { return s.groups != call.bound.groups; }))
    throw SpecError(p.name + ": runs " + std::to_string(call.bound.count) +
                        " workgroups some after the others, which a dispatch whose size the device decides cannot",
                    p.loc, "launch the graph, or use smaller scratch");
}

void HostStream::check_room(const HostCall& call, size_t calls) const {
  check(call, call.program->args.size(), {});
  call.check_room(frame_, calls);
}

// Field by field: a copy of what has just been written in pieces would wait for them.
void HostStream::uses(Buffer* b, bool reads, bool writes, uint64_t offset, uint64_t size, bool indirect) {
  Access& a = accesses_[num_accesses_++];
  a.buffer = b;
  a.reads = reads;
  a.writes = writes;
  a.offset = offset;
  a.size = size;
  a.indirect = indirect;
}

// The addresses of the arrays into the call's block; what is copied before, and what each dispatch reads and writes.
void HostStream::take_arguments(const HostCall& call, HostCall::Call& c, std::span<const Argument> arguments) {
  const Program& p = *call.program;
  copies_.clear();
  num_accesses_ = 0;
  if (call.staging) call.staging->hold(c.staging);
  if (buffers_.size() < arguments.size()) buffers_.resize(arguments.size());
  if (accesses_.size() < arguments.size() + 3) accesses_.resize(arguments.size() + 3);
  for (size_t i = 0; i < arguments.size(); ++i) {
    const DeviceArray* const a = arguments[i].array();
    if (p.args[i].by_value) {
      buffers_[i] = nullptr;
      c.put_address(i, value_of(p, i, arguments[i].number()));
      continue;
    }
    // What has been found good the last time is so: memory is that of one type and Device.
    Buffer* b = buffers_[i] = a && c.version == call.version && a->is_at(c.arguments[i])
                                  ? c.arguments[i].get()
                                  : take(call, c, arguments[i], i);
    if (b && i >= call.num_inputs)
      for (size_t j = 0; j < i; ++j)
        if (buffers_[j] == b) check_apart(call, i, j);
    if (b && p.args[i].alias >= 0)
      if (Buffer* from = buffers_[static_cast<size_t>(p.args[i].alias)]; from != b) copies_.push_back({from, b});
    if (b && !c.own.empty() && c.own[i] && b != c.own[i].get() && !arguments[i].array()->donated()) {
      copies_.push_back({b, c.own[i].get()});
      b = c.own[i].get();
    }
    const uint64_t address = b ? b->address() : 0;
    check_alignment(p, i, address);
    c.put_address(i, address);
    if (b && (p.args[i].read || p.args[i].written)) uses(b, p.args[i].read, p.args[i].written, 0, b->size());
  }
  c.version = call.version;
  for (size_t i = 0; i < call.num_inputs; ++i)
    if (const DeviceArray* a = arguments[i].array(); a && a->donated())
      check_donation(p, i, call.num_inputs, [&](size_t j) { return buffers_[i] && buffers_[j] == buffers_[i]; });
  for (const auto& [from, to] : copies_) check_copy(*from, *to);
  if (c.scratch) uses(c.scratch.get(), true, true, 0, c.scratch->size());
  if (c.report) uses(c.report.get(), true, true, 0, c.report->size());
}

void HostStream::record(HostCall& call, std::span<const Argument> arguments, Indirect indirect) {
  check(call, arguments.size(), indirect);
  HostCall::Call& c = call.next(frame_);
  take_arguments(call, c, arguments);
  if (indirect.groups) uses(indirect.groups, false, false, indirect.offset, 12, true);

  Context& context = *device_.context();
  const DeviceTable& vk = context.vk();
  const std::lock_guard lock(context.mutex());
  context.recorder().require_alive();
  for (size_t n = 0; n < call.dispatches() && c.table; ++n) {
    const std::span<const std::byte> block = call.block(c, n);
    c.table->host_write(block.data(), block.size(), n * block_stride(block.size()));
  }
  if (has_names(vk)) begin_label(vk, commands_, call.range);
  timed_ = unbegun_ = times_ && times_->add(commands_, call.program, call.total_bytes());
  for (size_t i = 0; i < c.images.size() && i < call.num_inputs; ++i)
    if (call.like[i]) read_image(call, c, arguments[i], i);
  for (const auto& [from, to] : copies_) {
    const Access list[] = {{from, true, false, 0, from->size()}, {to, false, true, 0, to->size()}};
    command("copy", Stage::transfer, list);
    const VkBufferCopy region{from->offset(), to->offset(), std::min(from->size(), to->size())};
    vk.vkCmdCopyBuffer(commands_, from->handle(), to->handle(), 1, &region);
  }
  for (size_t n = 0; n < call.dispatches(); ++n) dispatch(call, c, n, indirect);
  for (size_t i = call.num_inputs; i < c.images.size(); ++i)
    if (call.like[i]) store_image(call, c, arguments[i], i);
  if (unbegun_) times_->write_begin(commands_, false);  // a call that does nothing
  if (timed_) times_->write_end(commands_);
  timed_ = unbegun_ = false;
  end_label(vk, commands_);
  bool outcomes = indirect.groups && indirect.groups->outcome;
  for (const std::shared_ptr<Buffer>& b : c.arguments) outcomes |= b && b->outcome;
  if (outcomes) pass_on(call, c, indirect.groups);
  ++call.current->used;
}

// Dispatch n of the call; with the mutex held.
void HostStream::dispatch(HostCall& call, const HostCall::Call& c, size_t n, const Indirect& indirect) {
  const DeviceTable& vk = device_.context()->vk();
  command(call.label, Stage::compute, {accesses_.data(), num_accesses_}, indirect.groups != nullptr);
  vk.vkCmdBindPipeline(commands_, VK_PIPELINE_BIND_POINT_COMPUTE, call.pipeline->handle());
  const uint64_t table = c.table ? c.table->address() + n * block_stride(c.block.size()) : 0;
  const std::span<const std::byte> block = c.table ? std::as_bytes(std::span(&table, 1)) : call.block(c, n);
  if (!block.empty())
    vk.vkCmdPushConstants(commands_, call.pipeline->layout(), VK_SHADER_STAGE_COMPUTE_BIT, 0,
                          static_cast<uint32_t>(block.size()), block.data());
  if (indirect.groups) {
    vk.vkCmdDispatchIndirect(commands_, indirect.groups->handle(), indirect.groups->offset() + indirect.offset);
  } else if (call.bound.slices.empty()) {
    vk.vkCmdDispatch(commands_, call.bound.groups[0], call.bound.groups[1], call.bound.groups[2]);
  } else {
    const GroupSlice& s = call.bound.slices[n];
    vk.vkCmdDispatchBase(commands_, s.base[0], s.base[1], s.base[2], s.groups[0], s.groups[1], s.groups[2]);
  }
  reported_ |= c.report != nullptr;
}

// What is computed from an array that is wrong, or may turn out so, is no better. A call that the device may leave out,
// by its `groups`, leaves its outputs as they are: they are no better than what they held, or than what decides. With
// the mutex held.
void HostStream::pass_on(const HostCall& call, const HostCall::Call& c, const Buffer* groups) {
  std::shared_ptr<Outcome> found;
  bool joined = false;
  const auto add = [&](const Buffer* b) {
    if (!b || !b->outcome || (b->outcome->settled && !b->outcome->error) || b->outcome == found ||
        (found && found->error))
      return;
    if (!found || b->outcome->error) {
      found = b->outcome;
      joined = false;
      return;
    }
    if (!joined) {  // two that are not known yet
      auto both = std::make_shared<Outcome>();
      both->sites.kernel = call.program->name;
      both->inputs.push_back(std::move(found));
      found = std::move(both);
      joined = true;
    }
    found->inputs.push_back(b->outcome);
  };
  add(groups);
  for (size_t i = 0; i < c.arguments.size(); ++i)
    if (i < call.num_inputs ? depends_on(*call.program, i) : groups != nullptr) add(c.arguments[i].get());
  if (joined) {
    found->value = device_.context()->recorder().submitted();
    device_.context()->follow(found);
  }
  for (size_t i = call.num_inputs; i < c.arguments.size(); ++i)
    if (const auto& b = c.arguments[i]; b && b->outcome != found) b->outcome = found;
}

void HostStream::record(HostCall& call, std::span<const DeviceArray> arrays, Indirect indirect) {
  arguments_.assign(arrays.begin(), arrays.end());
  record(call, std::span<const Argument>(arguments_), indirect);
}

void HostStream::end() {
  if (commands_ == VK_NULL_HANDLE) throw SpecError("CommandStream::end: there was no begin()");
  if (reported_) {
    Context& context = *device_.context();
    const std::lock_guard lock(context.mutex());
    barrier(mask(Stage::compute), mask(Stage::host));
  }
  scopes_ = {stage_flags(waits_), access_flags(waits_, true), stage_flags(signals_), access_flags(signals_, false)};
  commands_ = VK_NULL_HANDLE;
}

}  // namespace tessera::vulkan
