// StreamTimes: when the calls of a CommandStream's frames ran. Internal to runtime/.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "runtime/record.h"
#include "runtime/submit/timestamps.h"

namespace tessera::vulkan {

class StreamTimes {
 public:
  /// Throws DeviceError where the queue has no timestamps.
  StreamTimes(const Device& device, const StreamOptions& options);

  /// The next calls are that frame's.
  void begin(uint64_t frame);
  /// Room for the frame's next call, whose queries are reset; false if the frame has had as many as there is room for.
  /// Takes no other memory.
  bool add(VkCommandBuffer commands, const std::shared_ptr<const Program>& program, int64_t bytes);
  /// Of the call that add() has made room for. `waits`: a barrier stands before it.
  void write_begin(VkCommandBuffer commands, bool waits) const;
  void write_end(VkCommandBuffer commands) const;
  std::vector<TimedCommand> trace(uint64_t frame);

 private:
  struct Call {
    std::shared_ptr<const Program> program;
    int64_t bytes = 0;
  };
  struct Slot {
    bool begun = false;
    uint64_t frame = 0;
    size_t used = 0;
    std::vector<Call> calls;
  };
  Slot* of(uint64_t frame);  ///< or null
  size_t newest() const;     ///< call of the pool: the one that add() has made room for

  std::shared_ptr<Context> context_;
  size_t calls_;                   // of a frame
  std::vector<Slot> slots_;        // a frame more than are in flight: one can be asked for until the next has begun
  size_t current_ = 0, next_ = 0;  // of slots_
  std::unique_ptr<Timestamps> timestamps_;
};

}  // namespace tessera::vulkan
