#include "runtime/memory/buffer.h"

#include <cstring>
#include <mutex>

#include "engine/base/error.h"
#include "runtime/device/names.h"
#include "runtime/memory/device_heap.h"
#include "runtime/memory/vma.h"

namespace tessera::vulkan {

Buffer::Buffer(std::shared_ptr<DeviceHeap> heap, uint64_t size, Memory kind, const std::string& what)
    : size_(size), heap_(std::move(heap)), what_(what) {
  DeviceHeap& c = *heap_;
  const auto most = static_cast<uint64_t>(c.probe_.info.max_array_bytes);
  if (size > most)
    throw DeviceError(what + " takes " + std::to_string(size) + " bytes but a buffer of " + c.name() + " has at most " +
                      std::to_string(most));

  VkBufferCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO;
  // devices without 8 and 16-bit accesses reach the last elements by whole words
  info.size = (size + 3) & ~uint64_t{3};
  info.usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT |
               VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT |
               VK_BUFFER_USAGE_INDIRECT_BUFFER_BIT;
  constexpr VkDeviceSize kAlignment = 64;
  auto attempt = [&] {
    return c.pool_.allocate ? take_from_pool(kind, info, kAlignment) : take_from_allocator(kind, info, kAlignment);
  };
  {
    std::lock_guard lock(c.mutex_);
    c.collect();
  }
  const VkResult r = c.allocate(attempt);
  if (r < 0) throw DeviceError(c.short_of_memory(size, what, r));
  name_object(c.vk_, c.device_, handle_, what_);
  const VkBufferDeviceAddressInfo address{VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO, nullptr, handle_};
  address_ = c.vk_.vkGetBufferDeviceAddress(c.device_, &address);
  std::lock_guard lock(c.mutex_);
  c.buffers_.insert(this);
}

VkResult Buffer::take_from_allocator(Memory kind, const VkBufferCreateInfo& info, VkDeviceSize alignment) {
  DeviceHeap& c = *heap_;
  VmaAllocationCreateInfo how{};
  how.usage = VMA_MEMORY_USAGE_AUTO_PREFER_DEVICE;
  switch (kind) {
    case Memory::array:
      if (c.always_stage()) break;
      if (c.probe_.unified) how.flags = VMA_ALLOCATION_CREATE_MAPPED_BIT | VMA_ALLOCATION_CREATE_HOST_ACCESS_RANDOM_BIT;
      else if (c.probe_.host_writes_arrays)
        how.flags = VMA_ALLOCATION_CREATE_MAPPED_BIT | VMA_ALLOCATION_CREATE_HOST_ACCESS_SEQUENTIAL_WRITE_BIT |
                    VMA_ALLOCATION_CREATE_HOST_ACCESS_ALLOW_TRANSFER_INSTEAD_BIT;
      break;
    case Memory::upload:
      how.usage = VMA_MEMORY_USAGE_AUTO_PREFER_HOST;
      how.flags = VMA_ALLOCATION_CREATE_MAPPED_BIT | VMA_ALLOCATION_CREATE_HOST_ACCESS_SEQUENTIAL_WRITE_BIT;
      break;
    case Memory::download:
      how.usage = VMA_MEMORY_USAGE_AUTO_PREFER_HOST;
      how.flags = VMA_ALLOCATION_CREATE_MAPPED_BIT | VMA_ALLOCATION_CREATE_HOST_ACCESS_RANDOM_BIT;
      break;
    case Memory::scratch: break;
  }
  VmaAllocationInfo got{};
  if (const VkResult r =
          vmaCreateBufferWithAlignment(c.allocator_, &info, &how, alignment, &handle_, &allocation_, &got);
      r < 0)
    return r;
  VkMemoryPropertyFlags properties = 0;
  vmaGetAllocationMemoryProperties(c.allocator_, allocation_, &properties);
  // Without always_stage, memory that happens to be mappable is mapped only where `how` asked for it.
  mapped_ = static_cast<std::byte*>(got.pMappedData);
  host_reads_ =
      mapped_ && (properties & VK_MEMORY_PROPERTY_HOST_CACHED_BIT) && (kind == Memory::download || c.probe_.unified);
  return VK_SUCCESS;
}

Buffer::~Buffer() {
  DeviceHeap& c = *heap_;
  if (handle_ == VK_NULL_HANDLE || c.ended()) return;
  if (borrowed_) {
    std::lock_guard lock(c.mutex_);
    std::erase(c.borrowed_, this);
    return;
  }
  if (!imported() && !allocation_ && !piece_.memory) {  // an import that failed half way
    c.vk_.vkDestroyBuffer(c.device_, handle_, c.vk_.host);
    return;
  }
  const DeviceHeap::Garbage g{
      handle_, allocation_, imported_, piece_, other_bytes_, hazards.used_at, {address_, address_ + size_}};
  std::lock_guard lock(c.mutex_);
  c.buffers_.erase(this);
  c.garbage_.push_back(g);
  try {
    c.collect();
  } catch (const DeviceError&) {
    // The device is lost; the garbage goes with the context.
  }
}

void Buffer::host_write(const void* from, uint64_t size, uint64_t to) {
  std::memcpy(mapped_ + to, from, size);
  const VkResult r = !allocation_ ? VK_SUCCESS : vmaFlushAllocation(heap_->allocator_, allocation_, to, size);
  if (r < 0) check(r, (what_ + ": vkFlushMappedMemoryRanges").c_str(), heap_->name());
}

void Buffer::host_read(void* to, uint64_t offset, uint64_t size) const {
  if (allocation_)
    check(vmaInvalidateAllocation(heap_->allocator_, allocation_, offset, size),
          (what_ + ": vkInvalidateMappedMemoryRanges").c_str(), heap_->name());
  std::memcpy(to, mapped_ + offset, size);
}

}  // namespace tessera::vulkan
