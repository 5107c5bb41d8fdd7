// Context: the state that the handles of one Device share: its memory (memory/device_heap.h), the submissions to its
// queue, the recorder of commands, pipelines, and calls whose report is still to be read. Internal to runtime/. Read
// next: recorder.h.
#pragma once
#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "codegen/program/choices.h"
#include "runtime/memory/buffer.h"
#include "runtime/memory/device_heap.h"
#include "runtime/submit/outcome.h"
#include "runtime/submit/pace.h"
#include "runtime/submit/recorder.h"
#include "runtime/submit/turns.h"

namespace tessera {
struct Program;
}

namespace tessera::vulkan {

class Pipeline;

class Context final : public DeviceHeap {
 public:
  static std::shared_ptr<Context> create(const DeviceOptions& options);
  static std::shared_ptr<Context> import(const ImportedDevice& device, const DeviceOptions& options);
  /// A new one on the same device, with the programs that have been compiled for this one.
  std::shared_ptr<Context> again();
  ~Context();
  /// The process ends: what runs is awaited (unless it runs for another process, which this one is a fork of), and
  /// destructors call nothing of Vulkan's any more, whose libraries end with it. Internal to process_end.cpp.
  void end(bool waits) noexcept;

  Recorder& recorder() { return *recorder_; }  // with mutex() held
  Pace& pace() { return *pace_; }              // with mutex() held
  Turns& turns() { return turns_; }            // with mutex() held
  double watchdog_seconds() const { return options_.watchdog_seconds; }
  const LogCallback& log_callback() const { return options_.log; }

  void require_alive() override;
  void wait(uint64_t value) override;
  void wait_all() override;
  /// The pipeline for a program, made if need be. Throws CompileError if the program exceeds the device's limits.
  const Pipeline& pipeline(const Program& program);
  VkPipelineCache hosts_pipeline_cache() const { return hosts_pipeline_cache_; }  // or null

  // Reports (outcome.cpp):
  /// Memory for one. The caller clears it, has a submission write it, and hands it on with the call's outcome.
  std::unique_ptr<Buffer> report_buffer(const Program& program);
  void clear_report(const std::string& what, Buffer& report, const Program& program);  // with mutex() held
  // of a Program that is open_ended, whose dispatches until now are done; forgets it. With mutex() held
  bool steps_left(Buffer& report);
  // of a call that is done, and whose errors wait() is to tell; without mutex()
  void settle_now(const std::shared_ptr<Outcome>& outcome);
  void follow(std::shared_ptr<Outcome> outcome);  // the call has been submitted; with mutex() held
  /// Throws what went wrong with a call that has been waited for, or with one that its inputs come from.
  void throw_if_wrong(const std::shared_ptr<Outcome>& outcome);
  /// Hands on what settled calls have printed; without mutex(). `waits`: for another thread that is doing so, whose
  /// callback may wait for the caller; else what there is comes the next time.
  void say(bool waits = true);
  int64_t print_bytes() const { return print_bytes_; }
  /// Throws the first error of a settled call that was not thrown yet.
  void throw_untold();

  std::atomic<uint64_t> pipelines_made = 0, pipelines_from_disk = 0;

  /// Programs by a key of the caller's, for as long as the device lives: runtime/call keeps compiled kernels here.
  std::mutex programs_mutex;
  std::map<std::string, std::shared_ptr<const Program>, std::less<>> programs;

  /// What a tuning file says of kernels, by digest (runtime/call/tuning.h); none: TESSERA_TUNING was not read yet.
  std::mutex choices_mutex;
  std::optional<std::map<std::string, ScheduleChoices, std::less<>>> choices;

  /// Whether the device multiplies matrices of a shape (its text) rightly, as far as runtime/call has tried.
  std::recursive_mutex matrices_mutex;
  std::map<std::string, bool> matrices_right;

  /// What runtime/image shares among the images of a device, likewise; it goes before the device does.
  std::mutex images_mutex;
  std::shared_ptr<void> images;

 protected:
  bool lost() const override;
  void collect() override;  // settles what is done, too
  void note_release(AddressRange range) override;
  Hazards used_by_anything() override;

 private:
  Context(const DeviceOptions& options, const ImportedDevice* imported);
  VkResult idle();
  void settle(Outcome& o);
  void read_prints(Outcome& o, const std::vector<uint32_t>& header);

  std::unique_ptr<Recorder> recorder_;
  std::unique_ptr<Pace> pace_;  // goes before the recorder
  Turns turns_{mutex_};
  std::deque<std::shared_ptr<Outcome>> in_flight_;  // in the order of their submissions
  std::deque<std::shared_ptr<const Error>> untold_;
  std::vector<std::string> lines_;    // printed, and not handed on
  std::recursive_mutex print_mutex_;  // of say(); taken before mutex_
  int64_t print_bytes_ = 0;
  VkPipelineCache hosts_pipeline_cache_ = VK_NULL_HANDLE;
  std::vector<std::unique_ptr<Buffer>> reports_;  // idle
  std::mutex pipelines_mutex_;
  std::unordered_multimap<uint64_t, std::unique_ptr<Pipeline>> pipelines_;
};

}  // namespace tessera::vulkan
