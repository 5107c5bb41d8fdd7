// Timestamps: the device's time before and after each of some commands, in a query pool. Internal to runtime/.
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "runtime/submit/context.h"
#include "runtime/trace.h"

namespace tessera::vulkan {

class Timestamps {
 public:
  /// Of so many commands, which `name` is for people to read. Null if the device's queue writes no timestamps, or the
  /// driver makes no pool.
  static std::unique_ptr<Timestamps> make(const std::shared_ptr<Context>& context, size_t commands, const char* name);
  ~Timestamps();
  Timestamps(const Timestamps&) = delete;
  Timestamps& operator=(const Timestamps&) = delete;

  /// Of `count` commands from `first` on, in a command buffer outside a render pass, before their times are written.
  void reset(VkCommandBuffer commands, size_t first, size_t count) const;
  /// Of command n. `waits`: for all commands before it.
  void write_begin(VkCommandBuffer commands, size_t n, bool waits) const;
  void write_end(VkCommandBuffer commands, size_t n) const;

  /// In steps of Probe::timestamp_period.
  struct Ticks {
    uint64_t begin, end;
  };
  /// Those that have been written since they were reset, which they have been; the device is done with them.
  void read(size_t first, std::span<std::optional<Ticks>> ticks);

 private:
  Timestamps(std::shared_ptr<Context> context, VkQueryPool pool);
  void write(VkCommandBuffer commands, size_t query, VkPipelineStageFlags2 stage) const;

  std::shared_ptr<Context> context_;
  VkQueryPool pool_;
  std::vector<uint64_t> values_;  // room for what read() reads: each with whether it is there
};

/// Sets the times of commands that ran at those ticks, from the earliest on; both have one size.
void set_times(const Probe& probe, std::span<TimedCommand> commands, std::span<const Timestamps::Ticks> ticks);

}  // namespace tessera::vulkan
