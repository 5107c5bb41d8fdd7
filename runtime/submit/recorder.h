// Recorder: commands on one queue, with the memory barriers that their reads and writes need and no others. Every
// submission advances a timeline; nothing here waits. All calls are made with the Context's mutex held. Internal to
// runtime/. Read next: order.h, the proof.
#pragma once
#include <array>
#include <cstddef>
#include <deque>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/error.h"
#include "runtime/device/names.h"
#include "runtime/device/open_device.h"
#include "runtime/device/vulkan.h"
#include "runtime/memory/buffer.h"
#include "runtime/order.h"

namespace tessera::vulkan {

class Pipeline;

/// A use of bytes [offset, offset + size) of a buffer by one command; `indirect`: its numbers of workgroups are read
/// there.
struct Access {
  Buffer* buffer;
  bool reads, writes;
  uint64_t offset, size;
  bool indirect = false;
};

/// What a submission does, for the error that says during which one the device was lost.
struct Work {
  std::string what;  // "softmax"
  std::string part;  // "workgroups 0 to 63 of 64", or nothing
  Loc loc;
};

VkPipelineStageFlags2 stage_flags(StageMask stages);
VkAccessFlags2 access_flags(StageMask stages, bool reads);  // writes, and reads too if `reads`
void memory_barrier(const DeviceTable& vk, VkCommandBuffer commands, StageMask from, StageMask to);
/// Throws SpecError where a host's buffer may not be copied.
void check_copy(const Buffer& from, const Buffer& to);

/// [from][to] (compute, transfer, host, indirect): commands of stage `from` up to this number come before anything new
/// in `to`.
using Ordered = std::array<std::array<uint64_t, 4>, 4>;
/// Stages that such accesses in stages `to` have to wait for. Only compute and transfer need to be waited for: what
/// waits for a dispatch waits for the reading of its size.
StageMask unordered(const Ordered& ordered, StageMask to, std::span<const Access> accesses);

class Recorder {
 public:
  /// `imported`: the device is its host's, who alone can replace it if it is lost.
  Recorder(const DeviceTable& vk, VkDevice device, Queue queue, std::string device_name, bool log, bool imported);
  ~Recorder();  // the device is idle
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  /// `base`: of the workgroups' numbers; with it, `pipeline` has been made for that.
  void dispatch(const std::string& name, const Pipeline& pipeline, std::span<const std::byte> push,
                const std::array<uint32_t, 3>& groups, std::span<const Access> accesses,
                const std::array<uint32_t, 3>* base = nullptr);
  /// The same of as many workgroups as three u32 at `offset` in `groups` say, an access of which is in the list.
  void dispatch_indirect(const std::string& name, const Pipeline& pipeline, std::span<const std::byte> push,
                         const Buffer& groups, uint64_t offset, std::span<const Access> accesses);
  /// A command that the caller records into what this returns.
  VkCommandBuffer command(const std::string& name, Stage stage, std::span<const Access> accesses);
  void copy(Buffer& from, uint64_t from_offset, Buffer& to, uint64_t to_offset, uint64_t size);
  /// The host's bytes, at most 65,536 and in words, into a buffer, without memory of their own.
  void update(Buffer& to, uint64_t offset, std::span<const std::byte> bytes);

  /// Commands that are recorded once and replayed any number of times, by dispatches and copies into the command buffer
  /// that begin_replayable() returns.
  VkCommandBuffer begin_replayable();
  void end_replayable(VkCommandBuffer commands);
  /// Puts them after what has been recorded so far; `accesses` are those of all of them, `log` their own entries, if a
  /// log is kept.
  void replay(const std::string& what, VkCommandBuffer commands, std::span<const Access> accesses,
              std::span<const LogEntry> log);
  /// They will not be replayed again.
  void retire(VkCommandBuffer commands);
  bool logs() const { return log_on_; }

  /// The next submission waits for, or signals when it and all before it are done, a timeline semaphore of the host's.
  void wait_next(VkSemaphore semaphore, uint64_t value) {
    waits_.push_back(
        {VK_STRUCTURE_TYPE_SEMAPHORE_SUBMIT_INFO, nullptr, semaphore, value, VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT, 0});
  }
  /// The value that such a semaphore has, or will have by what has been submitted here.
  uint64_t signalled(VkSemaphore semaphore);
  void signal_next(VkSemaphore semaphore, uint64_t value) {
    signals_.push_back(
        {VK_STRUCTURE_TYPE_SEMAPHORE_SUBMIT_INFO, nullptr, semaphore, value, VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT, 0});
  }

  // Commands in a command buffer of the host's (record/host_stream.h), which it submits to this queue whenever it
  // likes. Nothing outside relies on the barriers in there:
  /// Its number in the log.
  uint64_t new_stream() { return ++streams_; }
  /// A command; `stream` 0: of a submission here.
  void note(const std::string& what, Stage stage, std::span<const Access> accesses, uint64_t stream);
  /// `ordered`: what is so in that command buffer.
  void note_barrier(Ordered& ordered, StageMask from, StageMask to, uint64_t stream);
  /// Of memory that any command so far may have used, ours or the host's.
  Hazards used_by_anything() const;

  /// Makes what has been recorded so far visible to the host, for those buffers once this submission is done.
  void show_host(std::span<Buffer* const> buffers);
  /// Calls `record`, hands what it recorded to the queue and returns the timeline value at which that is done. `what`
  /// names it in errors, and with `part` and `loc` it is what the device is said to have been lost in. If it throws,
  /// nothing has been recorded, and all but a lost device is as before; only what the host's own unlock throws comes
  /// after the submission.
  template <class F> uint64_t submit(const std::string& what, F record, const std::string& part = {}, Loc loc = {}) {
    require_alive();
    const size_t logged = log_.size();
    const uint64_t before = submitted_;
    try {
      if (!has_names(vk_)) {
        record();
        return submit_open({what, part, loc});
      }
      const std::string name = with_line(what + (part.empty() ? "" : ", " + part), loc);
      begin_label(vk_, open(), name);
      record();
      end_label(vk_, open());
      name_object(vk_, device_, open(), name);
      return submit_open({what, part, loc});
    } catch (...) {
      if (submitted_ == before) undo(logged);
      throw;
    }
  }

  VkCommandBuffer commands() { return open(); }  // that are being recorded, for what is neither dispatch nor copy

  uint64_t number() const { return number_; }  // of the last command
  uint64_t submitted() const { return submitted_; }
  uint64_t completed();  // asks the driver; as far as it is known, where that is short of memory
  uint64_t known_completed() const { return completed_; }
  void note_completed(uint64_t value);  // the caller has waited for it
  VkSemaphore timeline() const { return timeline_; }
  bool lost() const { return lost_; }
  /// Throws DeviceError if the device has been lost.
  void require_alive() const;
  /// Throws the DeviceError for what `call` has returned, if it is an error. VK_ERROR_DEVICE_LOST is the device's end.
  void check_alive(VkResult r, const std::string& call);

  // For the log only:
  void note_host_read(const std::string& what, const Buffer& buffer, uint64_t offset, uint64_t size);
  void note_host_write(const std::string& what, const Buffer& buffer, uint64_t size);
  void note_release(AddressRange range);
  const CommandLog& log() const { return log_; }

 private:
  struct Recording {
    VkCommandBuffer commands;
    uint64_t value;
    Work work;
  };
  VkCommandBuffer open();
  uint64_t submit_open(Work work);
  void undo(size_t logged);  // what has been recorded since then will not run
  void access(std::string_view verb, std::string_view what, Stage stage, std::span<const Access> accesses,
              bool indirect = false);
  void bind(const Pipeline& pipeline, std::span<const std::byte> push);
  StageMask recorded(StageMask to, std::span<const Access> accesses) const;
  void order(StageMask stages, std::span<const Access> accesses);
  VkCommandBuffer begin(VkCommandBufferUsageFlags usage);
  void close();
  void barrier(StageMask from, StageMask to);
  void add(LogEntry entry) {
    if (log_on_) log_.push_back(std::move(entry));
  }

  const DeviceTable& vk_;
  VkDevice device_;
  Queue queue_;
  std::string name_;
  VkSemaphore timeline_ = VK_NULL_HANDLE;
  VkCommandPool pool_ = VK_NULL_HANDLE;
  VkCommandBuffer open_ = VK_NULL_HANDLE;
  // of this submission: those before open_, and which of them go back to idle_
  std::vector<VkCommandBuffer> closed_, own_;
  std::vector<VkSemaphoreSubmitInfo> waits_, signals_;  // of the host's, for the next submission
  struct Signal {
    VkSemaphore semaphore;
    uint64_t value, at;
  };
  std::vector<Signal> signalling_;  // of the host's, by submissions that may not be done
  std::deque<Recording> in_flight_;
  std::vector<VkCommandBuffer> idle_;
  std::vector<Buffer*> touched_, shown_;  // since the last submit
  uint64_t number_ = 0;                   // of the last command
  Ordered ordered_ = {};
  std::array<StageMask, 4> barriers_ = {};  // in this submission: [to] the stages that one before `to` waits for
  uint64_t streams_ = 0;
  uint64_t submitted_ = 0, completed_ = 0;
  bool lost_ = false;
  std::string lost_what_;  // lost_: in which call, and what was running
  Loc lost_loc_;
  Work last_finished_;
  bool log_on_, imported_;
  CommandLog log_;
};

}  // namespace tessera::vulkan
