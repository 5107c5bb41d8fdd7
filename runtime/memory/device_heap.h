// DeviceHeap: the memory of a device: the allocator, or the host program's own pool, and memory without an owner that
// the device still uses. It does not track uses of memory; the queue's side (submit/context.h) reports them. Internal
// to runtime/. Read next: buffer.h.
#pragma once
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "runtime/device/open_device.h"
#include "runtime/interop.h"
#include "runtime/memory/buffer.h"
#include "runtime/order.h"

struct VmaAllocator_T;

namespace tessera::vulkan {

class DeviceHeap : public OpenDevice {
 public:
  /// Guards what the queue has been told, the hazards of all buffers, and the garbage. Never held while waiting.
  std::mutex& mutex() { return mutex_; }
  bool always_stage() const { return options_.always_stage; }
  int64_t memory_bytes() const { return memory_bytes_; }  // of the largest device-local heap, or the limit on it
  // a memory type of those bits that imports can have; UINT32_MAX: none
  uint32_t host_import_type(uint32_t allowed) const;
  /// attempt(), and once more when it finds no memory and all calls in flight, which may hold what is needed, are done.
  template <class F> VkResult allocate(const F& attempt) {
    const VkResult r = attempt();
    if (r != VK_ERROR_OUT_OF_DEVICE_MEMORY && r != VK_ERROR_OUT_OF_HOST_MEMORY) return r;
    wait_all();
    return attempt();
  }
  int64_t allocated_bytes();
  /// The process has ended: destructors call nothing of Vulkan's any more.
  bool ended() const { return ended_; }

  // What the heap needs of the queue.
  /// Throws DeviceError if the device has been lost; without mutex().
  virtual void require_alive() = 0;
  /// Waits until the timeline has reached `value`; without mutex().
  virtual void wait(uint64_t value) = 0;
  virtual void wait_all() = 0;

 protected:
  friend class Buffer;
  struct Garbage {
    VkBuffer buffer;
    VmaAllocation_T* allocation;
    VkDeviceMemory imported;
    MemoryPiece piece;
    uint64_t other_bytes;
    uint64_t value;  // the timeline's when the device is done with it
    AddressRange range;
  };
  DeviceHeap(const DeviceOptions& options, const ImportedDevice* imported);
  ~DeviceHeap();  // the garbage is gone

  // And these with mutex() held:
  virtual bool lost() const = 0;
  /// Frees garbage that the device is done with, and learns what calls that are done have to say. Throws DeviceError if
  /// the device has been lost.
  virtual void collect() = 0;
  virtual void note_release(AddressRange range) = 0;
  /// Of memory that any command so far may have used, ours or its host's.
  virtual Hazards used_by_anything() = 0;

  bool has_garbage() const { return !garbage_.empty(); }
  void free_garbage(uint64_t completed);  // what the device is done with; with mutex() held
  void free_all_garbage();                // the device is idle

  std::atomic<bool> ended_ = false;
  std::mutex mutex_;

 private:
  void create_allocator(int64_t memory_limit);
  void free_memory(const Garbage& g);
  std::string short_of_memory(uint64_t size, const std::string& what, VkResult r);
  std::string holders();  // a table of what holds most memory
  MemoryRequest pool_request(Memory kind, const VkMemoryRequirements& needs, std::string_view what) const;
  // nothing if all is well; with mutex() held
  std::string wrong_piece(const MemoryRequest& request, const MemoryPiece& piece) const;

  VmaAllocator_T* allocator_ = nullptr;
  MemoryPool pool_;  // a host's; without functions: memory is the allocator's
  VkPhysicalDeviceMemoryProperties memory_types_{};
  // of the pool's: sizes by place; guarded by mutex_
  std::map<std::pair<VkDeviceMemory, VkDeviceSize>, VkDeviceSize> pieces_;
  int64_t memory_bytes_ = 0;
  std::vector<Garbage> garbage_;
  std::unordered_set<const Buffer*> buffers_;  // whose memory is the device's
  // of the device's memory that is none of the allocator's; guarded by mutex_
  uint64_t other_bytes_ = 0;
  std::vector<const Buffer*> borrowed_;  // whose memory is a host's
};

}  // namespace tessera::vulkan
