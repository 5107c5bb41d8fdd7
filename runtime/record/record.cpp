#include "runtime/record.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "engine/base/bind.h"
#include "engine/base/error.h"
#include "engine/base/plural.h"
#include "runtime/device/names.h"
#include "runtime/launch/bound.h"
#include "runtime/record/host_stream.h"
#include "runtime/submit/context.h"
#include "runtime/submit/pipeline.h"

namespace tessera {
namespace vulkan {
namespace {
void put_address(HostCall::Call& c, size_t position, uint64_t address) {
  std::memcpy(c.block.data() + 8 * position, &address, sizeof address);
}

Scopes scopes_of(const Program& p, bool dispatches, const std::vector<PrepareOptions::Image>& images) {
  Scopes s;
  const auto add = [&](Stage stage) {
    s.wait_stages |= stage_flags(mask(stage));
    s.wait_accesses |= access_flags(mask(stage), true);
    s.signal_stages |= stage_flags(mask(stage));
    s.signal_accesses |= access_flags(mask(stage), false);
  };
  for (const ProgramArg& a : p.args)
    if (a.alias >= 0 || (!a.is_output && a.written)) add(Stage::transfer);
  for (const PrepareOptions::Image& i : images) {
    add(Stage::compute);
    if (i.argument < p.args.size() && p.args[i.argument].is_output && i.like.state()->packed()) add(Stage::transfer);
  }
  if (dispatches) add(Stage::compute);
  return s;
}
}  // namespace

HostCall::HostCall(const Device& d, std::shared_ptr<const Program> p, const PrepareOptions& options)
    : device(d),
      program(std::move(p)),
      dims(options.dims),
      frames_in_flight(options.frames_in_flight),
      calls_per_frame(options.calls_per_frame) {
  const std::shared_ptr<Context>& context = device.context();
  const auto positive = [&](int v, const char* name) {
    if (v < 1)
      throw SpecError(program->name + ": PrepareOptions::" + name + " is " + std::to_string(v) + ", not 1 or more",
                      program->loc);
  };
  positive(frames_in_flight, "frames_in_flight");
  positive(calls_per_frame, "calls_per_frame");
  const auto value = [&](const Extent& e, const std::string& of) {
    std::vector<std::string> names;
    e.collect_names(names);
    for (const std::string& n : names)
      if (!dims.contains(n))
        throw SpecError(
            program->name + ": " + of + " has the run-time size " + n + ", which PrepareOptions::dims does not give",
            program->loc);
    return e.eval(dims);
  };
  for (const ProgramArg& a : program->args) {
    Shape s;
    for (const Extent& e : a.shape) s.push_back(value(e, a.origin));
    for (const int64_t size : s)
      if (size < 0)
        throw SpecError(program->name + ": " + a.origin + ": shape " + tessera::to_string(s) + " has a negative size",
                        program->loc);
    shapes.push_back(std::move(s));
    num_inputs += !a.is_output;
  }
  for (const Extent& e : program->grid) value(e, "the grid");
  for (const Extent& e : program->extents) value(e, "the code");
  value(program->num_units, "the grid");
  bound = vulkan::bind(*program, dims, device, Cut::loops);
  if (program->open_ended) tell_at_the_end(bound.slices);
  pipeline = &context->pipeline(*program);
  scopes = scopes_of(*program, bound.count > 0, options.images);
  label = "dispatch " + program->name;
  range = with_line(program->name, program->loc);
  alone = std::make_unique<HostStream>(device);

  const size_t n = program->args.size();
  like.resize(n);
  channels.resize(n);
  image_ranges.resize(n);
  for (const PrepareOptions::Image& i : options.images) {
    if (i.argument >= n)
      throw SpecError(program->name + ": PrepareOptions::images names argument " + std::to_string(i.argument) + " of " +
                          std::to_string(n),
                      program->loc);
    const ProgramArg& a = program->args[i.argument];
    const std::string where = program->name + ": " + a.origin + ": ";
    like[i.argument] = i.like.state();
    image_ranges[i.argument] = (a.is_output ? "write " : "read ") + a.origin;
    if (!(i.like.state()->device == device))
      throw SpecError(where + "the image is on another Device than the kernel", program->loc);
    channels[i.argument] = i.like.state()->check_shape(where, shapes[i.argument], a.dtype);
    if (a.is_output) i.like.state()->check_write(where);
    else i.like.state()->check_read(where);
  }
  std::vector<uint64_t> addresses(n, 0);
  if (program->scratch_bytes > 0) addresses.push_back(0);
  if (program->report_bytes > 0) addresses.push_back(0);
  const std::vector<std::byte> block = argument_block(*program, addresses, bound.sizes);
  for (const GroupSlice& s : bound.slices) slice_blocks.push_back(argument_block(*program, addresses, bound.sizes, &s));
  sum.resize(block.size());
  const auto bytes_of = [&](size_t i) {
    return static_cast<uint64_t>(num_elements(shapes[i]) * size_bytes(program->args[i].dtype));
  };
  slots.resize(static_cast<size_t>(frames_in_flight));
  for (Slot& slot : slots) {
    slot.calls.resize(static_cast<size_t>(calls_per_frame));
    slot.blocks.resize(slot.calls.size() * block.size());
    slot.arguments.resize(slot.calls.size() * n);
    for (size_t number = 0; number < slot.calls.size(); ++number) {
      Call& c = slot.calls[number];
      c.block = std::span(slot.blocks).subspan(number * block.size(), block.size());
      std::copy(block.begin(), block.end(), c.block.begin());
      c.arguments = std::span(slot.arguments).subspan(number * n, n);
      if (!options.images.empty()) {
        c.own.resize(n);
        c.packed.resize(n);
        c.images.resize(n);
      }
      for (size_t i = 0; i < n; ++i) {
        if (!like[i]) continue;
        c.own[i] = std::make_unique<Buffer>(context, bytes_of(i), Memory::scratch,
                                            program->name + ": the image " + program->args[i].origin);
        if (i >= num_inputs && like[i]->packed())
          c.packed[i] = std::make_unique<Buffer>(context, like[i]->packed_bytes(), Memory::scratch,
                                                 program->name + ": the texels of " + program->args[i].origin);
      }
      if (bound.count > 0)
        for (size_t i = 0; i < num_inputs; ++i)
          if (program->args[i].written && bytes_of(i) && !like[i])
            c.own.resize(n),
                c.own[i] = std::make_unique<Buffer>(context, bytes_of(i), Memory::array,
                                                    program->name + ": the copy of " + program->args[i].origin);
      if (bound.count == 0) continue;
      if (program->scratch_bytes > 0) {
        c.scratch = scratch_of(context, *program, bound);
        put_address(c, n, c.scratch->address());
      }
      if (program->report_bytes > 0) take_report(c);
      if (program->indirect_table)
        c.table = std::make_unique<Buffer>(context, block_stride(c) * (dispatches() - 1) + block.size(), Memory::upload,
                                           program->name + ": the argument table of a frame");
    }
  }
}

HostCall::~HostCall() {
  if (device.context()->ended()) return;
  for (Slot& slot : slots) {
    try {
      restart(slot, slot.frame);
    } catch (...) {  // the device is lost, or memory is short
    }
  }
}

void HostCall::take_report(Call& c) {
  Context& context = *device.context();
  c.report = context.report_buffer(*program);
  const std::lock_guard lock(context.mutex());
  context.clear_report("recording of " + program->name, *c.report, *program);
  put_address(c, program->args.size() + (program->scratch_bytes > 0), c.report->address());
}

// Addresses are 0 in a slice's own block, but for how far its arena lies before the call's.
std::span<const std::byte> HostCall::block(const Call& c, size_t dispatch) {
  if (bound.slices.empty()) return c.block;
  std::copy(slice_blocks[dispatch].begin(), slice_blocks[dispatch].end(), sum.begin());
  const size_t addresses = program->args.size() + (program->scratch_bytes > 0) + (program->report_bytes > 0);
  for (size_t at = 0; at < addresses * sizeof(uint64_t); at += sizeof(uint64_t)) {
    uint64_t a, b;
    std::memcpy(&a, &c.block[at], sizeof a);
    std::memcpy(&b, &sum[at], sizeof b);
    a += b;
    std::memcpy(&sum[at], &a, sizeof a);
  }
  return sum;
}

// The slot's last frame is done: its reports are read. Its arrays go when others take their place, or with the next
// frame in which there are fewer calls.
void HostCall::restart(Slot& slot, uint64_t frame) {
  for (size_t i = slot.used; i < slot.calls.size(); ++i) {
    for (auto& a : slot.calls[i].arguments) a.reset();
    for (auto& image : slot.calls[i].images) image.reset();
  }
  for (size_t i = 0; i < slot.used; ++i) {
    Call& c = slot.calls[i];
    if (program->report_bytes == 0 || bound.count == 0) continue;
    if (!c.report) {  // it could not be taken when it was to be
      take_report(c);
      continue;
    }
    uint32_t words[8] = {};
    c.report->host_read(words, 0, sizeof words);
    if (words[PrintReport::kFlags] == 0 &&
        (program->prints.empty() || (words[PrintReport::kUsed] == 0 && words[PrintReport::kDropped] == 0)))
      continue;
    Context& context = *device.context();
    context.settle_now(outcome_of(*program, dims, bound.longest_loop, std::move(c.report)));
    take_report(c);
  }
  slot.frame = frame;
  slot.used = 0;
}

HostCall::Call& HostCall::next(uint64_t frame) {
  if (frame < newest)
    throw SpecError(
        program->name + ": frame " + std::to_string(frame) + " is recorded after frame " + std::to_string(newest),
        program->loc, "number frames upwards");
  if (!current || newest != frame) {
    Slot& slot = slots[frame % slots.size()];
    if (slot.frame != frame) restart(slot, frame);
    newest = frame;
    current = &slot;
  }
  if (current->used == current->calls.size())
    throw SpecError(program->name + ": frame " + std::to_string(frame) + " has " + plural(current->used + 1, "call") +
                        " but PrepareOptions::calls_per_frame is " + std::to_string(calls_per_frame),
                    program->loc);
  return current->calls[current->used];
}

// ---- HostStream

HostStream::HostStream(const Device& d) : device_(d) {
  accesses_.resize(64);
  copies_.reserve(16);
  buffers_.resize(32);
  arguments_.reserve(32);
}

void HostStream::begin(VkCommandBuffer c, uint64_t f) {
  if (c == VK_NULL_HANDLE) throw SpecError("CommandStream::begin: the command buffer is null");
  commands_ = c;
  frame_ = f;
  reported_ = false;
  waits_ = signals_ = 0;
  Context& context = *device_.context();
  const std::lock_guard lock(context.mutex());
  context.recorder().require_alive();
  ordered_ = {};
  number_ = context.recorder().new_stream();
  begun_ = false;
}

void HostStream::barrier(StageMask from, StageMask to) {
  memory_barrier(device_.context()->vk(), commands_, from, to);
  device_.context()->recorder().note_barrier(ordered_, from, to, number_);
}

// Before a command of that stage: the barrier that its accesses need, if any. What the command buffer will find before
// it on the queue nobody knows yet, so the first one waits for all of it; from there on the recorder's numbers stand
// for this stream's commands. With the mutex held.
void HostStream::command(const std::string& what, Stage stage, std::span<const Access> list, bool indirect) {
  Recorder& recorder = device_.context()->recorder();
  const auto in = static_cast<StageMask>(mask(stage) | (indirect ? mask(Stage::indirect) : 0));
  constexpr StageMask kAll = mask(Stage::compute) | mask(Stage::transfer);
  if (!begun_) barrier(kAll, kAll | in);
  else if (const StageMask from = unordered(ordered_, in, list)) barrier(from, in);
  begun_ = true;
  recorder.note(what, stage, list, number_);
  waits_ |= in;
  signals_ |= mask(stage);
}

// Where argument i lies, checked, and kept until the frame is done.
Buffer* HostStream::take(const HostCall& call, HostCall::Call& c, const Argument& argument, size_t i) {
  const Program& p = *call.program;
  const auto where = [&] { return p.name + ": " + p.args[i].origin + ": "; };
  if (const DeviceImage* image = argument.image()) {
    if (const bool writes = i >= call.num_inputs; !ImageState::good(argument.layouts(), writes))
      image->state()->check_layouts(where(), argument.layouts(), writes);
    if (!call.like[i])
      throw SpecError(where() + "an image is given, but PrepareOptions::images does not name this argument", p.loc);
    if (!call.like[i]->alike(*image->state()))
      throw SpecError(where() + "the kernel has been prepared for " + call.like[i]->describe() + " but is given " +
                          image->state()->describe(),
                      p.loc, "images of one argument have the same format, extent and usage");
    if (!(image->state()->device == device_))
      throw SpecError(where() + "the image is on another Device than the call", p.loc);
    c.images[i] = image->state();
    return c.own[i].get();
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
  Buffer* own = c.own[i].get();
  const Access list[] = {{own, false, true, 0, own->size()}};
  begin_label(device_.context()->vk(), commands_, call.image_ranges[i]);
  command("read image", Stage::compute, list);
  const ImageState& image = *c.images[i];
  image.enter(commands_, false, argument.layouts().before);
  image.read(commands_, *own, call.program->args[i].dtype, call.channels[i]);
  image.leave(commands_, false, argument.layouts().after);
  end_label(device_.context()->vk(), commands_);
}

void HostStream::store_image(const HostCall& call, const HostCall::Call& c, const Argument& argument, size_t i) {
  Buffer *own = c.own[i].get(), *bytes = c.packed[i].get();
  const ImageState& image = *c.images[i];
  const DType dtype = call.program->args[i].dtype;
  const Access from{own, true, false, 0, own->size()};
  begin_label(device_.context()->vk(), commands_, call.image_ranges[i]);
  if (bytes) {
    const Access list[] = {from, {bytes, false, true, 0, bytes->size()}},
                 last[] = {{bytes, true, false, 0, bytes->size()}};
    command("pack image", Stage::compute, list);
    image.pack(commands_, *own, dtype, call.channels[i], *bytes);
    command("write image", Stage::transfer, last);
    image.enter(commands_, true, argument.layouts().before);
    image.copy(commands_, *bytes);
  } else {
    command("write image", Stage::compute, {&from, 1});
    image.enter(commands_, true, argument.layouts().before);
    image.store(commands_, *own, dtype, call.channels[i]);
  }
  image.leave(commands_, true, argument.layouts().after);
  end_label(device_.context()->vk(), commands_);
}

void HostStream::record(HostCall& call, std::span<const Argument> arguments, Indirect indirect) {
  const Program& p = *call.program;
  if (commands_ == VK_NULL_HANDLE)
    throw SpecError(p.name + ": record() outside begin() and end() of its CommandStream", p.loc);
  if (!(call.device == device_))
    throw SpecError(p.name + ": the kernel has been prepared for another Device than the CommandStream's", p.loc);
  if (arguments.size() != p.args.size())
    throw SpecError(p.name + ": takes " + plural(call.num_inputs, "input") + " and " +
                        plural(p.args.size() - call.num_inputs, "output") + " but " +
                        plural_is(arguments.size(), "array") + " given",
                    p.loc);
  HostCall::Call& c = call.next(frame_);
  copies_.clear();
  if (buffers_.size() < arguments.size()) buffers_.resize(arguments.size());
  if (accesses_.size() < arguments.size() + 3) accesses_.resize(arguments.size() + 3);
  size_t num_accesses = 0;
  // Field by field: a copy of what has just been written in pieces would wait for them.
  const auto uses = [&](Buffer* b, bool reads, bool writes, uint64_t offset, uint64_t size, bool indirectly = false) {
    Access& a = accesses_[num_accesses++];
    a.buffer = b;
    a.reads = reads;
    a.writes = writes;
    a.offset = offset;
    a.size = size;
    a.indirect = indirectly;
  };
  const size_t dispatches = call.dispatches();
  if (indirect.groups && std::any_of(call.bound.slices.begin(), call.bound.slices.end(),
                                     [&](const GroupSlice& s) { return s.groups != call.bound.groups; }))
    throw SpecError(p.name + ": runs " + std::to_string(call.bound.count) +
                        " workgroups some after the others, which a dispatch whose size the device decides cannot",
                    p.loc, "launch the graph, or use smaller scratch");
  for (size_t i = 0; i < arguments.size(); ++i) {
    const DeviceArray* const a = arguments[i].array();
    // What has been found good the last time is so: memory is that of one type and Device.
    Buffer* b = buffers_[i] = a && a->is_at(c.arguments[i]) ? c.arguments[i].get() : take(call, c, arguments[i], i);
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
    put_address(c, i, address);
    if (b && (p.args[i].read || p.args[i].written)) uses(b, p.args[i].read, p.args[i].written, 0, b->size());
  }
  for (const auto& [from, to] : copies_) check_copy(*from, *to);
  if (c.scratch) uses(c.scratch.get(), true, true, 0, c.scratch->size());
  if (c.report) uses(c.report.get(), true, true, 0, c.report->size());
  if (indirect.groups) uses(indirect.groups, false, false, indirect.offset, 12, true);

  Context& context = *device_.context();
  const DeviceTable& vk = context.vk();
  const std::lock_guard lock(context.mutex());
  context.recorder().require_alive();
  for (size_t n = 0; n < dispatches && c.table; ++n) {
    const std::span<const std::byte> block = call.block(c, n);
    c.table->host_write(block.data(), block.size(), n * call.block_stride(c));
  }
  if (has_names(vk)) begin_label(vk, commands_, call.range);
  for (size_t i = 0; i < c.images.size() && i < call.num_inputs; ++i)
    if (call.like[i]) read_image(call, c, arguments[i], i);
  for (const auto& [from, to] : copies_) {
    const Access list[] = {{from, true, false, 0, to->size()}, {to, false, true, 0, to->size()}};
    command("copy", Stage::transfer, list);
    const VkBufferCopy region{from->offset(), to->offset(), to->size()};
    vk.vkCmdCopyBuffer(commands_, from->handle(), to->handle(), 1, &region);
  }
  for (size_t n = 0; n < dispatches; ++n) {
    command(call.label, Stage::compute, {accesses_.data(), num_accesses}, indirect.groups != nullptr);
    vk.vkCmdBindPipeline(commands_, VK_PIPELINE_BIND_POINT_COMPUTE, call.pipeline->handle());
    const uint64_t table = c.table ? c.table->address() + n * call.block_stride(c) : 0;
    const std::span<const std::byte> block = c.table ? std::as_bytes(std::span(&table, 1)) : call.block(c, n);
    if (!block.empty())
      vk.vkCmdPushConstants(commands_, call.pipeline->layout(), VK_SHADER_STAGE_COMPUTE_BIT, 0,
                            static_cast<uint32_t>(block.size()), block.data());
    if (indirect.groups)
      vk.vkCmdDispatchIndirect(commands_, indirect.groups->handle(), indirect.groups->offset() + indirect.offset);
    else if (call.bound.slices.empty())
      vk.vkCmdDispatch(commands_, call.bound.groups[0], call.bound.groups[1], call.bound.groups[2]);
    else {
      const GroupSlice& s = call.bound.slices[n];
      vk.vkCmdDispatchBase(commands_, s.base[0], s.base[1], s.base[2], s.groups[0], s.groups[1], s.groups[2]);
    }
    reported_ |= c.report != nullptr;
  }
  for (size_t i = call.num_inputs; i < c.images.size(); ++i)
    if (call.like[i]) store_image(call, c, arguments[i], i);
  end_label(vk, commands_);
  bool outcomes = false;
  for (const std::shared_ptr<Buffer>& b : c.arguments) outcomes |= b && b->outcome;
  if (outcomes) pass_on(call, c);
  ++call.current->used;
}

// What is computed from an array that is wrong, or may turn out so, is no better. With the mutex held.
void HostStream::pass_on(const HostCall& call, const HostCall::Call& c) {
  const std::vector<ProgramArg>& args = call.program->args;
  std::shared_ptr<Outcome> found;
  bool joined = false;
  for (size_t i = 0; i < call.num_inputs; ++i) {
    const Buffer* b = c.arguments[i].get();
    if (!b || !b->outcome || (b->outcome->settled && !b->outcome->error) || b->outcome == found ||
        (found && found->error))
      continue;
    if (!depends_on(*call.program, i)) continue;
    if (!found || b->outcome->error) {
      found = b->outcome;
      joined = false;
      continue;
    }
    if (!joined) {  // two that are not known yet
      auto both = std::make_shared<Outcome>();
      both->kernel = call.program->name;
      both->inputs.push_back(std::move(found));
      found = std::move(both);
      joined = true;
    }
    found->inputs.push_back(b->outcome);
  }
  if (joined) {
    found->value = device_.context()->recorder().submitted();
    device_.context()->follow(found);
  }
  for (size_t i = call.num_inputs; i < args.size(); ++i)
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

}  // namespace vulkan

PreparedKernel::PreparedKernel(const Device& device, std::shared_ptr<const Program> program,
                               const PrepareOptions& options)
    : call_(std::make_unique<vulkan::HostCall>(device, std::move(program), options)) {}
PreparedKernel::PreparedKernel(const Device& device, Program program, const PrepareOptions& options)
    : PreparedKernel(device, std::make_shared<const Program>(std::move(program)), options) {}
PreparedKernel::PreparedKernel(PreparedKernel&&) noexcept = default;
PreparedKernel& PreparedKernel::operator=(PreparedKernel&&) noexcept = default;
PreparedKernel::~PreparedKernel() = default;
const Program& PreparedKernel::program() const { return *call_->program; }
const Shape& PreparedKernel::shape(size_t i) const { return call_->shapes.at(i); }
DType PreparedKernel::dtype(size_t i) const { return call_->program->args.at(i).dtype; }
std::array<uint32_t, 3> PreparedKernel::groups() const {
  return call_->bound.count > 0 ? call_->bound.groups : std::array<uint32_t, 3>{};
}
Scopes PreparedKernel::scopes() const { return call_->scopes; }
Scopes PreparedKernel::record(VkCommandBuffer commands, uint64_t frame, std::span<const Argument> arguments) {
  call_->alone->begin(commands, frame);
  call_->alone->record(*call_, arguments);
  call_->alone->end();
  return call_->alone->scopes();
}

CommandStream::CommandStream(const Device& device) : stream_(std::make_unique<vulkan::HostStream>(device)) {}
CommandStream::CommandStream(CommandStream&&) noexcept = default;
CommandStream& CommandStream::operator=(CommandStream&&) noexcept = default;
CommandStream::~CommandStream() = default;
void CommandStream::begin(VkCommandBuffer commands, uint64_t frame) { stream_->begin(commands, frame); }
Scopes CommandStream::record(PreparedKernel& kernel, std::span<const Argument> arguments) {
  stream_->record(*kernel.call_, arguments);
  return kernel.call_->scopes;
}
Scopes CommandStream::record(PreparedKernel& kernel, std::span<const DeviceArray> arrays) {
  stream_->record(*kernel.call_, arrays);
  return kernel.call_->scopes;
}
Scopes CommandStream::record_indirect(PreparedKernel& kernel, std::span<const DeviceArray> arrays,
                                      const DeviceArray& groups, uint64_t offset) {
  stream_->record(*kernel.call_, arrays, {groups.memory().get(), offset});
  Scopes s = kernel.call_->scopes;
  s.wait_stages |= vulkan::stage_flags(mask(Stage::indirect));
  s.wait_accesses |= vulkan::access_flags(mask(Stage::indirect), true);
  return s;
}
Scopes CommandStream::end() {
  stream_->end();
  return stream_->scopes();
}

}  // namespace tessera
