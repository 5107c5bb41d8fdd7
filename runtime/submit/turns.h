// Turns: calls of several threads that touch the same arrays run one after another, also where one takes several
// submissions or the host's own reading or writing, between which the Context's mutex is free. Internal to runtime/.
// Read next: context.h, whose they are.
#pragma once
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

namespace tessera::vulkan {

class Buffer;

/// All members with the Context's mutex held, but for a Turn's end.
class Turns {
 public:
  explicit Turns(std::mutex& mutex) : mutex_(mutex) {}

  struct Use {
    const Buffer* buffer;  // or null
    bool writes;
  };
  /// What goes on beyond the next release of the mutex. Its buffers are there until it ends.
  class Turn {
   public:
    /// Waits as wait() does.
    Turn(Turns& turns, std::unique_lock<std::mutex>& lock, std::vector<Use> uses);
    ~Turn();  ///< without the mutex
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    friend class Turns;
    Turns& turns_;
    const std::thread::id thread_ = std::this_thread::get_id();
    const std::vector<Use> uses_;
  };

  /// Until no turn of another thread writes what `uses()` names, or reads what it writes.
  template <class Uses> void wait(std::unique_lock<std::mutex>& lock, const Uses& uses) {
    if (!open_.empty()) wait_for(lock, uses());
  }

 private:
  void wait_for(std::unique_lock<std::mutex>& lock, const std::vector<Use>& uses);
  bool meets(const std::vector<Use>& uses) const;

  std::mutex& mutex_;
  std::condition_variable ended_;
  std::vector<const Turn*> open_;
};

}  // namespace tessera::vulkan
