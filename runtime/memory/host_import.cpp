// Memory that the host has allocated, as a Buffer: the pages around it are imported, and an offset leads to its first
// byte. Addresses beyond the array lie in the same pages but are never given to a kernel, whose accesses are all proved
// or tested to be inside its arrays.
#include <chrono>
#include <mutex>
#include <thread>

#include "runtime/device/names.h"
#include "runtime/memory/device_heap.h"

namespace tessera::vulkan {

std::shared_ptr<Buffer> Buffer::import_host(std::shared_ptr<DeviceHeap> heap, void* host, uint64_t size) {
  heap->require_alive();
  const uint64_t page = heap->probe().host_import_alignment;
  const Target& target = heap->probe().info.target;
  const auto first = reinterpret_cast<uintptr_t>(host);
  if (page == 0 || heap->always_stage() || first % kArgumentAlignment != 0) return nullptr;
  // Without accesses of 8 and 16 bits the last elements are written by the word around them, half of which may
  // lie outside the array.
  if (size % 4 != 0 && !(target.storage8 && target.storage16)) return nullptr;
  const uint64_t begin = first / page * page, bytes = (first + size + page - 1) / page * page - begin;
  if (bytes > static_cast<uint64_t>(heap->probe().info.max_array_bytes)) return nullptr;

  const DeviceTable& vk = heap->vk();
  VkDevice device = heap->handle();
  constexpr auto kHandleType = VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT;
  VkMemoryHostPointerPropertiesEXT properties{VK_STRUCTURE_TYPE_MEMORY_HOST_POINTER_PROPERTIES_EXT, nullptr, 0};
  if (vk.vkGetMemoryHostPointerPropertiesEXT(device, kHandleType, reinterpret_cast<void*>(begin), &properties) < 0)
    return nullptr;

  std::shared_ptr<Buffer> buffer(new Buffer(heap, size));
  const VkExternalMemoryBufferCreateInfo external{VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO, nullptr,
                                                  kHandleType};
  VkBufferCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO;
  info.pNext = &external;
  info.size = bytes;
  info.usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT |
               VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT;
  if (vk.vkCreateBuffer(device, &info, vk.host, &buffer->handle_) < 0) return nullptr;
  VkMemoryRequirements needs{};
  vk.vkGetBufferMemoryRequirements(device, buffer->handle_, &needs);
  const uint32_t type = heap->host_import_type(properties.memoryTypeBits & needs.memoryTypeBits);
  if (type == UINT32_MAX || needs.size > bytes) return nullptr;

  const VkImportMemoryHostPointerInfoEXT pointer{VK_STRUCTURE_TYPE_IMPORT_MEMORY_HOST_POINTER_INFO_EXT, nullptr,
                                                 kHandleType, reinterpret_cast<void*>(begin)};
  const VkMemoryAllocateFlagsInfo flags{VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO, &pointer,
                                        VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT, 0};
  const VkMemoryAllocateInfo allocate{VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, &flags, bytes, type};
  if (vk.vkAllocateMemory(device, &allocate, vk.host, &buffer->imported_) < 0) return nullptr;
  if (vk.vkBindBufferMemory(device, buffer->handle_, buffer->imported_, 0) < 0) return nullptr;
  if (has_names(vk)) {
    name_object(vk, device, buffer->handle_, std::to_string(size) + " bytes of the host's memory");
    name_object(vk, device, buffer->imported_, std::to_string(bytes) + " bytes of the host's memory");
  }
  buffer->offset_ = first - begin;
  const VkBufferDeviceAddressInfo address{VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO, nullptr, buffer->handle_};
  buffer->address_ = vk.vkGetBufferDeviceAddress(device, &address) + buffer->offset_;
  buffer->mapped_ = static_cast<std::byte*>(host);
  buffer->host_reads_ = true;
  return buffer;
}

uint32_t DeviceHeap::host_import_type(uint32_t allowed) const {
  for (uint32_t i = 0; i < 32; ++i)  // of coherent memory: nothing needs to be flushed
    if (allowed >> i & probe_.coherent_types >> i & 1) return i;
  return UINT32_MAX;
}

void Buffer::wait_unused() noexcept {
  for (;;) {
    try {
      uint64_t value;
      {
        std::lock_guard lock(heap_->mutex());
        if (heap_->lost()) return;  // and uses nothing
        value = hazards.used_at;
      }
      return heap_->wait(value);
    } catch (const std::exception&) {  // the device is lost, or the driver short of memory: then its owner may not have
                                       // it yet
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
}

}  // namespace tessera::vulkan
