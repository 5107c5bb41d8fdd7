#include "runtime/memory/device_heap.h"

#include <algorithm>

#include "engine/base/error.h"
#include "runtime/device/names.h"
#include "runtime/memory/vma.h"

namespace tessera::vulkan {

DeviceHeap::DeviceHeap(const DeviceOptions& options, const ImportedDevice* imported) : OpenDevice(options, imported) {
  if (imported) {
    pool_ = imported->memory;
    instance_->vk().vkGetPhysicalDeviceMemoryProperties(physical_, &memory_types_);
  }
  create_allocator(options.memory_limit);
}

DeviceHeap::~DeviceHeap() { vmaDestroyAllocator(allocator_); }

void DeviceHeap::create_allocator(int64_t memory_limit) {
  memory_bytes_ = probe_.info.memory_bytes;
  if (memory_limit > 0) memory_bytes_ = std::min(memory_bytes_, memory_limit);
  std::vector<VkDeviceSize> limits(VK_MAX_MEMORY_HEAPS,
                                   memory_limit > 0 ? static_cast<VkDeviceSize>(memory_limit) : VK_WHOLE_SIZE);
  VmaVulkanFunctions functions{};
  const InstanceTable& i = instance_->vk();
  functions.vkGetPhysicalDeviceProperties = i.vkGetPhysicalDeviceProperties;
  functions.vkGetPhysicalDeviceMemoryProperties = i.vkGetPhysicalDeviceMemoryProperties;
  functions.vkGetPhysicalDeviceMemoryProperties2KHR = i.vkGetPhysicalDeviceMemoryProperties2;
#define SET(f) functions.f = vk_.f;
  // clang-format off
  SET(vkAllocateMemory) SET(vkFreeMemory) SET(vkMapMemory) SET(vkUnmapMemory) SET(vkFlushMappedMemoryRanges)
  SET(vkInvalidateMappedMemoryRanges)
  SET(vkBindBufferMemory) SET(vkBindImageMemory) SET(vkGetBufferMemoryRequirements)
  SET(vkGetImageMemoryRequirements) SET(vkCreateBuffer) SET(vkDestroyBuffer)
  SET(vkCreateImage) SET(vkDestroyImage) SET(vkCmdCopyBuffer) SET(vkGetDeviceBufferMemoryRequirements)
  SET(vkGetDeviceImageMemoryRequirements)
  // clang-format on
#undef SET
  functions.vkGetBufferMemoryRequirements2KHR = vk_.vkGetBufferMemoryRequirements2;
  functions.vkGetImageMemoryRequirements2KHR = vk_.vkGetImageMemoryRequirements2;
  functions.vkBindBufferMemory2KHR = vk_.vkBindBufferMemory2;
  functions.vkBindImageMemory2KHR = vk_.vkBindImageMemory2;
  VmaDeviceMemoryCallbacks memory{};  // names the blocks
  memory.pUserData = this;
  memory.pfnAllocate = [](VmaAllocator, uint32_t type, VkDeviceMemory block, VkDeviceSize size, void* self) {
    const auto& c = *static_cast<const DeviceHeap*>(self);
    name_object(c.vk_, c.device_, block,
                "Tessera's memory of type " + std::to_string(type) + ", " + std::to_string(size) + " bytes");
  };
  VmaAllocatorCreateInfo info{};
  if (has_names(vk_)) info.pDeviceMemoryCallbacks = &memory;
  info.flags = VMA_ALLOCATOR_CREATE_BUFFER_DEVICE_ADDRESS_BIT;
  if (probe_.memory_budget) info.flags |= VMA_ALLOCATOR_CREATE_EXT_MEMORY_BUDGET_BIT;
  info.physicalDevice = physical_;
  info.device = device_;
  info.instance = instance_->handle();
  info.pVulkanFunctions = &functions;
  // what the allocator may call
  info.vulkanApiVersion = probe_.enable->v13.maintenance4 ? VK_API_VERSION_1_3 : VK_API_VERSION_1_2;
  info.pHeapSizeLimit = limits.data();
  info.pAllocationCallbacks = vk_.host;
  check(vmaCreateAllocator(&info, &allocator_), "vmaCreateAllocator", name());
}

void DeviceHeap::free_memory(const Garbage& g) {
  if (g.allocation) return vmaDestroyBuffer(allocator_, g.buffer, g.allocation);
  other_bytes_ -= g.other_bytes;
  vk_.vkDestroyBuffer(device_, g.buffer, vk_.host);
  if (g.piece.memory == VK_NULL_HANDLE) return vk_.vkFreeMemory(device_, g.imported, vk_.host);
  pieces_.erase({g.piece.memory, g.piece.offset});
  pool_.free(g.piece);
}

void DeviceHeap::free_garbage(uint64_t completed) {
  std::erase_if(garbage_, [&](const Garbage& g) {
    if (g.value > completed) return false;
    note_release(g.range);
    free_memory(g);
    return true;
  });
}

void DeviceHeap::free_all_garbage() {
  for (const Garbage& g : garbage_) free_memory(g);
}

int64_t DeviceHeap::allocated_bytes() {
  std::lock_guard lock(mutex_);
  if (!lost()) collect();
  VmaTotalStatistics statistics{};
  vmaCalculateStatistics(allocator_, &statistics);
  return static_cast<int64_t>(statistics.total.statistics.allocationBytes + other_bytes_);
}

std::string DeviceHeap::short_of_memory(uint64_t size, const std::string& what, VkResult r) {
  VmaBudget budgets[VK_MAX_MEMORY_HEAPS] = {};
  vmaGetHeapBudgets(allocator_, budgets);
  uint64_t held = 0, left = 0;
  {
    const std::lock_guard lock(mutex_);
    held = other_bytes_;
  }
  for (const VmaBudget& b : budgets) {
    held += b.statistics.allocationBytes;
    left = std::max(left, b.budget - std::min(b.usage, b.budget));
  }
  if (pool_.allocate)
    return what + ": " + std::to_string(size) + " bytes asked of ImportedDevice::memory on " + name() + ": " +
           to_string(r) + "; Tessera holds " + std::to_string(held) + holders();
  const auto total = static_cast<uint64_t>(memory_bytes_);
  const std::string available = probe_.memory_budget ? std::to_string(std::min(left, total - std::min(held, total)))
                                                     : "at most " + std::to_string(total - std::min(held, total));
  return what + ": " + std::to_string(size) + " bytes asked on " + name() + ": " + to_string(r) + "; of " +
         std::to_string(total) + " bytes " + available + " are available, and Tessera holds " + std::to_string(held) +
         holders();
}

std::string DeviceHeap::holders() {
  constexpr size_t kLines = 8;
  struct Sum {
    uint64_t bytes = 0, count = 0;
  };
  std::map<std::string, Sum> sums;
  {
    const std::lock_guard lock(mutex_);
    for (const Buffer* b : buffers_) {
      Sum& s = sums[b->what()];
      s.bytes += b->size();
      ++s.count;
    }
    for (const Garbage& g : garbage_) {
      Sum& s = sums["memory that calls in flight still use"];
      s.bytes += g.range.end - g.range.begin;
      ++s.count;
    }
  }
  std::vector<std::pair<std::string, Sum>> lines(sums.begin(), sums.end());
  std::stable_sort(lines.begin(), lines.end(),
                   [](const auto& a, const auto& b) { return a.second.bytes > b.second.bytes; });
  std::string text;
  for (size_t i = 0; i < lines.size() && i < kLines; ++i) {
    text += (i ? "\n  " : ":\n  ") + std::to_string(lines[i].second.bytes) + " " + lines[i].first;
    if (lines[i].second.count > 1) text += " (" + std::to_string(lines[i].second.count) + " of them)";
  }
  if (lines.size() <= kLines) return text;
  Sum rest;
  for (size_t i = kLines; i < lines.size(); ++i) {
    rest.bytes += lines[i].second.bytes;
    rest.count += lines[i].second.count;
  }
  return text + "\n  " + std::to_string(rest.bytes) + " in " + std::to_string(rest.count) +
         (rest.count == 1 ? " other" : " others");
}

}  // namespace tessera::vulkan
