#include "runtime/submit/recorder.h"

#include <algorithm>
#include <exception>

#include "engine/base/error.h"
#include "runtime/submit/pipeline.h"

namespace tessera::vulkan {
namespace {
constexpr size_t kStages = 4;
constexpr size_t position(Stage s) {
  return s == Stage::compute ? 0 : s == Stage::transfer ? 1 : s == Stage::host ? 2 : 3;
}
constexpr StageMask at(size_t position) { return static_cast<StageMask>(1 << position); }

AddressRange range(const Buffer& b, uint64_t offset, uint64_t size) {
  return {b.address() + offset, b.address() + offset + size};
}
}  // namespace

VkPipelineStageFlags2 stage_flags(StageMask m) {
  VkPipelineStageFlags2 s = 0;
  if (m & mask(Stage::compute)) s |= VK_PIPELINE_STAGE_2_COMPUTE_SHADER_BIT;
  if (m & mask(Stage::transfer)) s |= VK_PIPELINE_STAGE_2_ALL_TRANSFER_BIT;
  if (m & mask(Stage::host)) s |= VK_PIPELINE_STAGE_2_HOST_BIT;
  if (m & mask(Stage::indirect)) s |= VK_PIPELINE_STAGE_2_DRAW_INDIRECT_BIT;
  return s;
}
VkAccessFlags2 access_flags(StageMask m, bool reads) {
  VkAccessFlags2 a = 0;
  if (m & mask(Stage::compute)) a |= VK_ACCESS_2_SHADER_WRITE_BIT | (reads ? VK_ACCESS_2_SHADER_READ_BIT : 0);
  if (m & mask(Stage::transfer)) a |= VK_ACCESS_2_TRANSFER_WRITE_BIT | (reads ? VK_ACCESS_2_TRANSFER_READ_BIT : 0);
  if (m & mask(Stage::host)) a |= VK_ACCESS_2_HOST_READ_BIT;
  if (reads && (m & mask(Stage::indirect))) a |= VK_ACCESS_2_INDIRECT_COMMAND_READ_BIT;
  return a;
}

void memory_barrier(const DeviceTable& vk, VkCommandBuffer commands, StageMask from, StageMask to) {
  const VkMemoryBarrier2 memory{VK_STRUCTURE_TYPE_MEMORY_BARRIER_2, nullptr,         stage_flags(from),
                                access_flags(from, false),          stage_flags(to), access_flags(to, true)};
  VkDependencyInfo info{};
  info.sType = VK_STRUCTURE_TYPE_DEPENDENCY_INFO;
  info.memoryBarrierCount = 1;
  info.pMemoryBarriers = &memory;
  vk.vkCmdPipelineBarrier2(commands, &info);
}

void check_copy(const Buffer& from, const Buffer& to) {
  const auto need = [](const Buffer& b, VkBufferUsageFlags usage, const char* way, const char* flag) {
    if (!(b.usage() & usage))
      throw SpecError(b.what() + ": is to be copied " + way + ", but its VkBuffer has been made without " + flag);
  };
  need(from, VK_BUFFER_USAGE_TRANSFER_SRC_BIT, "from", "VK_BUFFER_USAGE_TRANSFER_SRC_BIT");
  need(to, VK_BUFFER_USAGE_TRANSFER_DST_BIT, "to", "VK_BUFFER_USAGE_TRANSFER_DST_BIT");
}

Recorder::Recorder(const DeviceTable& vk, VkDevice device, Queue queue, std::string device_name, bool log,
                   bool imported)
    : vk_(vk),
      device_(device),
      queue_(std::move(queue)),
      name_(std::move(device_name)),
      log_on_(log),
      imported_(imported) {
  VkSemaphoreTypeCreateInfo type{VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO, nullptr, VK_SEMAPHORE_TYPE_TIMELINE, 0};
  VkSemaphoreCreateInfo semaphore{VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, &type, 0};
  check(vk_.vkCreateSemaphore(device_, &semaphore, vk_.host, &timeline_), "vkCreateSemaphore", name_);
  VkCommandPoolCreateInfo pool{VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO, nullptr,
                               VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT | VK_COMMAND_POOL_CREATE_TRANSIENT_BIT,
                               queue_.family};
  name_object(vk_, device_, timeline_, "Tessera's timeline");
  const VkResult r = vk_.vkCreateCommandPool(device_, &pool, vk_.host, &pool_);
  if (r < 0) vk_.vkDestroySemaphore(device_, timeline_, vk_.host);
  check(r, "vkCreateCommandPool", name_);
  name_object(vk_, device_, pool_, "Tessera's command buffers");
}

Recorder::~Recorder() {
  vk_.vkDestroyCommandPool(device_, pool_, vk_.host);
  vk_.vkDestroySemaphore(device_, timeline_, vk_.host);
}

VkCommandBuffer Recorder::open() {
  if (open_) return open_;
  completed();
  return open_ = begin(VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT);
}

VkCommandBuffer Recorder::begin(VkCommandBufferUsageFlags usage) {
  if (idle_.empty()) {
    VkCommandBuffer commands = VK_NULL_HANDLE;
    VkCommandBufferAllocateInfo info{VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO, nullptr, pool_,
                                     VK_COMMAND_BUFFER_LEVEL_PRIMARY, 1};
    check(vk_.vkAllocateCommandBuffers(device_, &info, &commands), "vkAllocateCommandBuffers", name_);
    name_object(vk_, device_, commands, "Tessera's commands");
    idle_.push_back(commands);
  } else {
    check(vk_.vkResetCommandBuffer(idle_.back(), 0), "vkResetCommandBuffer", name_);
  }
  const VkCommandBufferBeginInfo info{VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO, nullptr, usage, nullptr};
  check(vk_.vkBeginCommandBuffer(idle_.back(), &info), "vkBeginCommandBuffer", name_);
  const VkCommandBuffer commands = idle_.back();
  idle_.pop_back();
  return commands;
}

VkCommandBuffer Recorder::begin_replayable() {
  require_alive();
  return begin(VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT);
}
void Recorder::end_replayable(VkCommandBuffer commands) {
  check_alive(vk_.vkEndCommandBuffer(commands), "vkEndCommandBuffer");
}
void Recorder::retire(VkCommandBuffer commands) {
  if (completed_ == submitted_) idle_.push_back(commands);
  else in_flight_.push_back({commands, submitted_, {}});
}

void Recorder::close() {
  if (!open_) return;
  check(vk_.vkEndCommandBuffer(open_), "vkEndCommandBuffer", name_);
  closed_.push_back(open_);
  own_.push_back(open_);
  open_ = VK_NULL_HANDLE;
}

void Recorder::replay(const std::string& what, VkCommandBuffer commands, std::span<const Access> list,
                      std::span<const LogEntry> log) {
  const bool indirect = std::any_of(list.begin(), list.end(), [](const Access& a) { return a.indirect; });
  order(static_cast<StageMask>(mask(Stage::compute) | mask(Stage::transfer) | (indirect ? mask(Stage::indirect) : 0)),
        list);
  ++number_;
  for (const Access& a : list) {
    Hazards& h = a.buffer->hazards;
    for (int s = 0; s < 2; ++s) {
      if (a.reads || a.indirect) h.read_by[s] = number_;
      if (a.writes) h.written_by[s] = number_;
    }
    if (a.writes) {
      h.readable_at = 0;
      std::erase(shown_, a.buffer);
    }
    touched_.push_back(a.buffer);
  }
  for (const LogEntry& entry : log) {
    add(entry);
    if (log_on_) log_.back().what = what + ": " + entry.what;
  }
  close();
  closed_.push_back(commands);
}

void Recorder::barrier(StageMask from, StageMask to) {
  memory_barrier(vk_, open(), from, to);
  note_barrier(ordered_, from, to, 0);
  for (size_t t = 0; t < kStages; ++t)
    if (to & at(t)) barriers_[t] |= from;
}

void Recorder::note_barrier(Ordered& ordered, StageMask from, StageMask to, uint64_t stream) {
  uint64_t chained[kStages] = {};  // what the barriers so far have ordered before a stage in `from`
  for (size_t s = 0; s < kStages; ++s) {
    if (from & at(s)) chained[s] = number_;
    for (size_t via = 0; via < kStages; ++via)
      if (from & at(via)) chained[s] = std::max(chained[s], ordered[s][via]);
  }
  for (size_t s = 0; s < kStages; ++s)
    for (size_t t = 0; t < kStages; ++t)
      if (to & at(t)) ordered[s][t] = std::max(ordered[s][t], chained[s]);
  if (log_on_) add({.event = LogEntry::Barrier{from, to}, .what = "barrier", .stream = stream});
}

// One barrier before commands of those stages covers whatever of their accesses is not ordered yet.
void Recorder::order(StageMask to, std::span<const Access> list) {
  open();
  if (const StageMask from = static_cast<StageMask>(unordered(ordered_, to, list) | recorded(to, list)))
    barrier(from, to);
}

// What a host has recorded may have been submitted since any barrier of an earlier submission.
StageMask Recorder::recorded(StageMask to, std::span<const Access> list) const {
  StageMask from = 0;
  for (const Access& a : list) {
    const Hazards& h = a.buffer->hazards;
    const StageMask conflicts = h.recorded_writes | (a.writes ? h.recorded_reads : StageMask{0});
    for (size_t t = 0; conflicts && t < kStages; ++t)
      if (to & at(t)) from |= static_cast<StageMask>(conflicts & ~barriers_[t]);
  }
  return from;
}

Hazards Recorder::used_by_anything() const {
  Hazards h;
  for (size_t s = 0; s < 2; ++s) h.written_by[s] = h.read_by[s] = number_;
  h.used_at = submitted_;
  if (streams_ > 0) h.recorded_writes = h.recorded_reads = mask(Stage::compute) | mask(Stage::transfer);
  return h;
}

StageMask unordered(const Ordered& ordered, StageMask to, std::span<const Access> list) {
  // What comes behind `limit` has not been waited for by all of those stages. Few branches: this is done for every call
  // that a host records.
  uint64_t limit[2];
  for (size_t s = 0; s < 2; ++s)
    limit[s] = std::min(to & at(0) ? ordered[s][0] : ~uint64_t{0}, to & at(1) ? ordered[s][1] : ~uint64_t{0});
  bool late[2] = {}, indirect = false;
  for (const Access& a : list) {
    const Hazards& h = a.buffer->hazards;
    for (size_t s = 0; s < 2; ++s) late[s] |= (h.written_by[s] > limit[s]) | (a.writes & (h.read_by[s] > limit[s]));
    indirect |= a.indirect;
  }
  if (indirect)
    for (const Access& a : list)
      for (size_t s = 0; s < 2; ++s)
        late[s] |= a.indirect && a.buffer->hazards.written_by[s] > ordered[s][position(Stage::indirect)];
  return static_cast<StageMask>((late[0] ? at(0) : 0) | (late[1] ? at(1) : 0));
}

void Recorder::access(std::string_view verb, std::string_view what, Stage stage, std::span<const Access> list,
                      bool indirect) {
  order(static_cast<StageMask>(mask(stage) | (indirect ? mask(Stage::indirect) : 0)), list);
  note(log_on_ ? std::string(verb).append(what) : std::string(), stage, list, 0);
}

void Recorder::note(const std::string& what, Stage stage, std::span<const Access> list, uint64_t stream) {
  const size_t to = position(stage);
  const StageMask foreign = stream == 0 ? StageMask{0} : mask(stage);
  ++number_;
  for (const Access& a : list) {
    Hazards& h = a.buffer->hazards;
    if (a.reads || a.indirect) {
      h.read_by[to] = number_;
      h.recorded_reads |= foreign;
    }
    if (a.writes) {
      h.written_by[to] = number_;
      h.recorded_writes |= foreign;
      h.readable_at = 0;
      if (!shown_.empty()) std::erase(shown_, a.buffer);
    }
    if (stream == 0) touched_.push_back(a.buffer);  // of a submission here
  }
  if (!log_on_) return;
  LogEntry::Command command{.stage = stage};
  for (const Access& a : list) {
    if (a.reads) command.reads.push_back(range(*a.buffer, a.offset, a.size));
    if (a.writes) command.writes.push_back(range(*a.buffer, a.offset, a.size));
    if (a.indirect) command.indirect.push_back(range(*a.buffer, a.offset, a.size));
  }
  add({.event = std::move(command), .what = what, .stream = stream});
}

void Recorder::dispatch(const std::string& name, const Pipeline& pipeline, std::span<const std::byte> push,
                        const std::array<uint32_t, 3>& groups, std::span<const Access> list,
                        const std::array<uint32_t, 3>* base) {
  access("dispatch ", name, Stage::compute, list);
  bind(pipeline, push);
  if (base) vk_.vkCmdDispatchBase(open_, (*base)[0], (*base)[1], (*base)[2], groups[0], groups[1], groups[2]);
  else vk_.vkCmdDispatch(open_, groups[0], groups[1], groups[2]);
}

void Recorder::dispatch_indirect(const std::string& name, const Pipeline& pipeline, std::span<const std::byte> push,
                                 const Buffer& groups, uint64_t offset, std::span<const Access> list) {
  access("dispatch ", name, Stage::compute, list, true);
  bind(pipeline, push);
  vk_.vkCmdDispatchIndirect(open_, groups.handle(), groups.offset() + offset);
}

void Recorder::bind(const Pipeline& pipeline, std::span<const std::byte> push) {
  vk_.vkCmdBindPipeline(open_, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline.handle());
  if (!push.empty())
    vk_.vkCmdPushConstants(open_, pipeline.layout(), VK_SHADER_STAGE_COMPUTE_BIT, 0, static_cast<uint32_t>(push.size()),
                           push.data());
}

VkCommandBuffer Recorder::command(const std::string& name, Stage stage, std::span<const Access> list) {
  access("", name, stage, list);
  return open_;
}

void Recorder::copy(Buffer& from, uint64_t from_offset, Buffer& to, uint64_t to_offset, uint64_t size) {
  check_copy(from, to);
  const Access list[] = {{&from, true, false, from_offset, size}, {&to, false, true, to_offset, size}};
  access("", "copy", Stage::transfer, list);
  const VkBufferCopy region{from.offset() + from_offset, to.offset() + to_offset, size};
  vk_.vkCmdCopyBuffer(open_, from.handle(), to.handle(), 1, &region);
}

void Recorder::update(Buffer& to, uint64_t offset, std::span<const std::byte> bytes) {
  const Access list[] = {{&to, false, true, offset, bytes.size()}};
  access("", "update", Stage::transfer, list);
  vk_.vkCmdUpdateBuffer(open_, to.handle(), to.offset() + offset, bytes.size(), bytes.data());
}

void Recorder::show_host(std::span<Buffer* const> buffers) {
  StageMask from = 0;
  for (const Buffer* b : buffers) {
    for (size_t s = 0; s < 2; ++s)
      if (b->hazards.written_by[s] > ordered_[s][position(Stage::host)]) from |= at(s);
    from |= static_cast<StageMask>(b->hazards.recorded_writes & ~barriers_[position(Stage::host)]);
  }
  if (from) barrier(from, mask(Stage::host));
  shown_.insert(shown_.end(), buffers.begin(), buffers.end());
}

// The buffers keep the numbers of commands that do not run, which costs later commands a barrier; the barriers among
// them order nothing.
void Recorder::undo(size_t logged) {
  signals_.clear();
  touched_.clear();
  shown_.clear();
  barriers_ = {};
  if (log_on_) {
    const auto never_ran = [](const LogEntry& e) { return e.command() || e.barrier(); };
    log_.erase(std::remove_if(log_.begin() + static_cast<std::ptrdiff_t>(logged), log_.end(), never_ran), log_.end());
  }
  if (!open_ && closed_.empty()) return;
  for (auto& row : ordered_)
    for (uint64_t& number : row) number = 0;
  idle_.insert(idle_.end(), own_.begin(), own_.end());
  own_.clear();
  closed_.clear();
  if (open_) idle_.push_back(open_);
  open_ = VK_NULL_HANDLE;
}

uint64_t Recorder::submit_open(Work work) {
  if (closed_.empty()) open();
  close();
  const uint64_t value = submitted_ + 1;
  std::vector<VkCommandBufferSubmitInfo> commands;
  for (VkCommandBuffer c : closed_) commands.push_back({VK_STRUCTURE_TYPE_COMMAND_BUFFER_SUBMIT_INFO, nullptr, c, 0});
  std::vector<VkSemaphoreSubmitInfo> signals = signals_;
  signals.push_back(
      {VK_STRUCTURE_TYPE_SEMAPHORE_SUBMIT_INFO, nullptr, timeline_, value, VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT, 0});
  VkSubmitInfo2 info{VK_STRUCTURE_TYPE_SUBMIT_INFO_2,
                     nullptr,
                     0,
                     static_cast<uint32_t>(waits_.size()),
                     waits_.data(),
                     static_cast<uint32_t>(commands.size()),
                     commands.data(),
                     static_cast<uint32_t>(signals.size()),
                     signals.data()};
  if (queue_.lock) queue_.lock();
  const VkResult submitted = vk_.vkQueueSubmit2(queue_.handle, 1, &info, VK_NULL_HANDLE);
  std::exception_ptr thrown;  // by the host's own: the commands are on the queue all the same
  try {
    if (queue_.unlock) queue_.unlock();
  } catch (...) {
    thrown = std::current_exception();
  }
  check_alive(submitted, "vkQueueSubmit2 of " + work.what);
  submitted_ = value;
  for (const VkSemaphoreSubmitInfo& s : signals_) signalling_.push_back({s.semaphore, s.value, value});
  waits_.clear();
  signals_.clear();
  add({.event = LogEntry::Submit{value}, .what = work.what});
  for (VkCommandBuffer c : own_) in_flight_.push_back({c, value, work});
  own_.clear();
  closed_.clear();
  barriers_ = {};
  for (Buffer* b : touched_) b->hazards.used_at = value;
  for (Buffer* b : shown_) b->hazards.readable_at = value;
  touched_.clear();
  shown_.clear();
  if (thrown) std::rethrow_exception(thrown);
  return value;
}

uint64_t Recorder::signalled(VkSemaphore semaphore) {
  const uint64_t done = completed();
  std::erase_if(signalling_, [&](const Signal& s) { return s.at <= done; });
  uint64_t value = 0;
  // an error here is told by the submission
  if (vk_.vkGetSemaphoreCounterValue(device_, semaphore, &value) < 0) value = 0;
  for (const Signal& s : signalling_)
    if (s.semaphore == semaphore) value = std::max(value, s.value);
  return value;
}

uint64_t Recorder::completed() {
  require_alive();
  if (completed_ == submitted_) return completed_;
  uint64_t value = 0;
  const VkResult r = vk_.vkGetSemaphoreCounterValue(device_, timeline_, &value);
  if (r == VK_ERROR_DEVICE_LOST) check_alive(r, "vkGetSemaphoreCounterValue");
  if (r >= 0) note_completed(value);
  return completed_;
}

void Recorder::note_completed(uint64_t value) {
  if (value <= completed_) return;
  completed_ = value;
  for (; !in_flight_.empty() && in_flight_.front().value <= value; in_flight_.pop_front()) {
    idle_.push_back(in_flight_.front().commands);
    if (!in_flight_.front().work.what.empty()) last_finished_ = std::move(in_flight_.front().work);
  }
  add({.event = LogEntry::Completed{value}, .what = "wait"});
}

namespace {
const char* what_to_do(bool imported) {
  return imported ? "its host makes a new device and imports that"
                  : "Device::recover() makes it usable again, without the contents of its arrays";
}
std::string text(const Work& w) { return w.what + (w.part.empty() ? "" : ", " + w.part); }
}  // namespace

void Recorder::require_alive() const {
  if (lost_)
    throw DeviceError("the device " + name_ + " was lost in an earlier call: " + lost_what_, lost_loc_,
                      what_to_do(imported_));
}

void Recorder::check_alive(VkResult r, const std::string& call) {
  if (r >= 0) return;
  if (r != VK_ERROR_DEVICE_LOST) throw DeviceError(call + " on " + name_ + ": " + to_string(r));
  require_alive();
  lost_ = true;
  uint64_t value = 0;  // a device that is lost may still say how far it got
  if (vk_.vkGetSemaphoreCounterValue(device_, timeline_, &value) >= 0 && value <= submitted_) note_completed(value);
  lost_what_ = call + " on " + name_ + ": " + to_string(r);
  if (in_flight_.empty()) {
    lost_what_ += "; nothing was running";
  } else {
    lost_what_ += "; it was running " + text(in_flight_.front().work);
    lost_loc_ = in_flight_.front().work.loc;
  }
  if (!last_finished_.what.empty()) lost_what_ += "; it had finished " + text(last_finished_);
  throw DeviceError(lost_what_, lost_loc_, what_to_do(imported_));
}

void Recorder::note_host_read(const std::string& what, const Buffer& buffer, uint64_t offset, uint64_t size) {
  add({.event = LogEntry::HostRead{range(buffer, offset, size)}, .what = what});
}
void Recorder::note_host_write(const std::string& what, const Buffer& buffer, uint64_t size) {
  add({.event = LogEntry::HostWrite{range(buffer, 0, size)}, .what = what});
}
void Recorder::note_release(AddressRange freed) { add({.event = LogEntry::Release{freed}, .what = "the allocator"}); }

}  // namespace tessera::vulkan
