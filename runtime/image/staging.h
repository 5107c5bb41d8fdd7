// Staging: the arrays that recorded calls read their images into and write them from. All recorded calls of a device
// share them, whatever the frames and the calls of a frame. Internal to runtime/. Read next: record/host_call.cpp.
#pragma once
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "runtime/memory/buffer.h"

namespace tessera::vulkan {

/// Pieces of memory, the k-th as large as the k-th largest that any prepared kernel needs. Sharing them is sound
/// because command buffers execute in the order of submission to one queue, each stream begins with a barrier from
/// everything before it, and within a stream each piece's accesses are ordered like those of any array. A call keeps
/// the pieces that it was recorded with, so they may be replaced by larger ones.
class Staging {
 public:
  struct Need {
    uint64_t bytes;
    std::string what;  // names the piece in errors
  };

  /// What one prepared kernel needs at once. The pieces are at least this large until the lease ends.
  class Lease {
   public:
    /// The largest need first. Throws DeviceError if memory is short; then nothing has changed.
    Lease(std::shared_ptr<Staging> staging, const std::shared_ptr<DeviceHeap>& heap, const std::vector<Need>& needs);
    ~Lease();
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    /// The pieces as they are now, one per need. Allocates nothing.
    void hold(std::span<std::shared_ptr<Buffer>> pieces) const;

   private:
    std::shared_ptr<Staging> staging_;
    std::list<std::vector<uint64_t>>::iterator bytes_;
  };

 private:
  std::vector<uint64_t> largest() const;

  std::mutex mutex_;
  std::list<std::vector<uint64_t>> bytes_;  // per lease
  std::vector<std::shared_ptr<Buffer>> pieces_;
};

}  // namespace tessera::vulkan
