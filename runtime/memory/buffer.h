// Buffer: a piece of memory with a device address, and the accesses that the queue has been given for it. Internal to
// runtime/. Read next: device_heap.h, which allocates and frees it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "runtime/device/vulkan.h"
#include "runtime/interop.h"
#include "runtime/order.h"

struct VmaAllocation_T;

namespace tessera::vulkan {

class DeviceHeap;
struct Outcome;

/// What the queue has been told to do with a buffer. Commands are numbered from 1; 0: never.
struct Hazards {
  uint64_t written_by[2] = {};  // number of the last command that writes it, per stage (compute, transfer)
  uint64_t read_by[2] = {};     // and that reads it
  uint64_t used_at = 0;         // timeline value of the last submission that uses it
  // timeline value at which the host sees the last write through a mapping; 0: no barrier for that yet
  uint64_t readable_at = 0;
  // Stages in which commands in a host's command buffers write and read it: they may run before or after any submission
  // of ours.
  StageMask recorded_writes = 0, recorded_reads = 0;
  bool recorded() const { return recorded_writes || recorded_reads; }
};

/// Arrays that others have placed lie at a multiple of it: what vector loads rely on (Program::alignment).
inline constexpr uint64_t kArgumentAlignment = 16;

enum class Memory : uint8_t {
  array,     // the device's own; mapped too where that costs nothing
  upload,    // written by the host, read by the device: staging, argument tables
  download,  // written by the device, read by the host: staging, reports
  scratch,   // the device's own, for one call
};

/// Owned by whoever holds it; when it goes, its memory is kept until the device has finished the work that uses it.
class Buffer {
 public:
  /// `what` names the asker in the error, "f32[1024, 1024]". size > 0. Throws DeviceError when it is beyond the
  /// device's limits (before asking the driver) or when memory is short even after all work in flight has finished.
  Buffer(std::shared_ptr<DeviceHeap> heap, uint64_t size, Memory kind, const std::string& what);
  /// Memory of the host's own, used in place: `host` to `host + size`, and nothing beyond. Null where the device or its
  /// driver will not have it; then the caller copies. The owner of the memory keeps it until wait_unused() has
  /// returned. (host_import.cpp)
  static std::shared_ptr<Buffer> import_host(std::shared_ptr<DeviceHeap> heap, void* host, uint64_t size);
  /// A range of a host's buffer, which keeps it (borrow.cpp).
  static std::shared_ptr<Buffer> borrow(std::shared_ptr<DeviceHeap> heap, const ImportedBuffer& from, uint64_t size,
                                        const std::string& what);
  /// In memory that others share, or may (shared_memory.cpp).
  static std::shared_ptr<Buffer> shareable(std::shared_ptr<DeviceHeap> heap, uint64_t size, const std::string& what);
  static std::shared_ptr<Buffer> import_shared(std::shared_ptr<DeviceHeap> heap, const SharedMemory& memory,
                                               uint64_t size, const std::string& what);
  /// Throws SpecError if it is not shareable.
  SharedMemory share() const;
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  VkBuffer handle() const { return handle_; }
  uint64_t offset() const { return offset_; }    // of the first byte in handle()
  uint64_t address() const { return address_; }  // of it; a multiple of 64, or of 16 if imported
  uint64_t size() const { return size_; }
  bool mapped() const { return mapped_ != nullptr; }
  VkBufferUsageFlags usage() const { return usage_; }
  bool host_reads() const { return host_reads_; }  // mapped, and reading it is fast
  /// Copies through the mapping; the caller has made sure that the device is done with the bytes.
  void host_write(const void* from, uint64_t size, uint64_t to = 0);
  void host_read(void* to, uint64_t offset, uint64_t size) const;
  bool is_at(const void* host) const { return imported() && mapped_ == host; }
  bool borrowed() const { return borrowed_; }
  bool imported() const { return imported_ != VK_NULL_HANDLE; }
  /// Returns when no submission uses it any more, or the device is lost.
  void wait_unused() noexcept;

  const std::string& what() const { return what_; }  // "f32[1024, 1024]"

  Hazards hazards;  // guarded by the heap's mutex
  // of the call that its contents come from, if that can fail; guarded by the heap's mutex
  std::shared_ptr<Outcome> outcome;

 private:
  VkResult take_from_pool(Memory kind, const VkBufferCreateInfo& info, VkDeviceSize alignment);  // memory_pool.cpp
  VkResult take_from_allocator(Memory kind, const VkBufferCreateInfo& info, VkDeviceSize alignment);
  Buffer(std::shared_ptr<DeviceHeap> heap, uint64_t size) : size_(size), heap_(std::move(heap)) {}

  uint64_t address_ = 0, size_ = 0, offset_ = 0;  // beside hazards: recording reads both
  std::shared_ptr<DeviceHeap> heap_;
  std::string what_;
  VkBuffer handle_ = VK_NULL_HANDLE;
  VmaAllocation_T* allocation_ = nullptr;
  VkDeviceMemory imported_ = VK_NULL_HANDLE;  // instead of allocation_
  MemoryPiece piece_;                         // or this one
  uint64_t other_bytes_ = 0;                  // in DeviceHeap::other_bytes_
  SharedMemory shared_;                       // of it, if it is shareable: all but the descriptor
  std::byte* mapped_ = nullptr;
  bool host_reads_ = false, borrowed_ = false;
  VkBufferUsageFlags usage_ = ~VkBufferUsageFlags{0};
};

}  // namespace tessera::vulkan
