#include "runtime/submit/turns.h"

#include <algorithm>
#include <utility>

namespace tessera::vulkan {

Turns::Turn::Turn(Turns& turns, std::unique_lock<std::mutex>& lock, std::vector<Use> uses)
    : turns_(turns), uses_(std::move(uses)) {
  turns_.wait(lock, [&]() -> const std::vector<Use>& { return uses_; });
  turns_.open_.push_back(this);
}

Turns::Turn::~Turn() {
  {
    const std::lock_guard lock(turns_.mutex_);
    std::erase(turns_.open_, this);
  }
  turns_.ended_.notify_all();
}

void Turns::wait_for(std::unique_lock<std::mutex>& lock, const std::vector<Use>& uses) {
  ended_.wait(lock, [&] { return !meets(uses); });
}

// A thread does not wait for itself: what it prints in between may look at the arrays.
bool Turns::meets(const std::vector<Use>& uses) const {
  return std::any_of(open_.begin(), open_.end(), [&](const Turn* turn) {
    return turn->thread_ != std::this_thread::get_id() && std::any_of(uses.begin(), uses.end(), [&](const Use& a) {
             return a.buffer && std::any_of(turn->uses_.begin(), turn->uses_.end(), [&](const Use& b) {
                      return a.buffer == b.buffer && (a.writes || b.writes);
                    });
           });
  });
}

}  // namespace tessera::vulkan
