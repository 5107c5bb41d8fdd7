// Device memory out of its host's own allocator (ImportedDevice::memory): what each kind of buffer requires, and
// whether the answer will do.
#include <algorithm>
#include <mutex>

#include "engine/base/error.h"
#include "engine/base/plural.h"
#include "runtime/memory/device_heap.h"

namespace tessera::vulkan {
namespace {
constexpr VkMemoryPropertyFlags kMapped = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;

std::string flags_text(VkMemoryPropertyFlags f) {
  std::string s;
  const auto add = [&](VkMemoryPropertyFlags bit, const char* name) {
    if (f & bit) s += (s.empty() ? "" : " and ") + std::string(name);
  };
  add(VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT, "HOST_VISIBLE");
  add(VK_MEMORY_PROPERTY_HOST_COHERENT_BIT, "HOST_COHERENT");
  return s;
}
}  // namespace

// Coherent memory alone is mapped, so that nothing has to be flushed: every device has a type of it, which every buffer
// may lie in.
MemoryRequest DeviceHeap::pool_request(Memory kind, const VkMemoryRequirements& needs, std::string_view what) const {
  MemoryRequest q{needs.size, needs.alignment, 0, 0, 0, what};
  switch (kind) {
    case Memory::array:
      q.preferred = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
      if (always_stage()) break;
      if (probe_.unified) q.required = kMapped, q.preferred |= VK_MEMORY_PROPERTY_HOST_CACHED_BIT;
      else if (probe_.host_writes_arrays) q.preferred |= kMapped;
      break;
    case Memory::upload: q.required = kMapped; break;
    case Memory::download: q.required = kMapped, q.preferred = VK_MEMORY_PROPERTY_HOST_CACHED_BIT; break;
    case Memory::scratch: q.preferred = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT; break;
  }
  // Types that a feature has to be enabled for, or that are for images only.
  constexpr VkMemoryPropertyFlags kOthers = VK_MEMORY_PROPERTY_PROTECTED_BIT | VK_MEMORY_PROPERTY_LAZILY_ALLOCATED_BIT |
                                            VK_MEMORY_PROPERTY_DEVICE_COHERENT_BIT_AMD |
                                            VK_MEMORY_PROPERTY_DEVICE_UNCACHED_BIT_AMD;
  for (uint32_t t = 0; t < memory_types_.memoryTypeCount; ++t) {
    const VkMemoryPropertyFlags has = memory_types_.memoryTypes[t].propertyFlags;
    if ((needs.memoryTypeBits >> t & 1) && (has & q.required) == q.required && !(has & kOthers))
      q.memory_type_bits |= uint32_t{1} << t;
  }
  return q;
}

std::string DeviceHeap::wrong_piece(const MemoryRequest& q, const MemoryPiece& p) const {
  const std::string gave = "ImportedDevice::memory: allocate gave ";
  if (p.memory == VK_NULL_HANDLE) return gave + "no VkDeviceMemory";
  if (p.size < q.size) return gave + plural(p.size, "byte") + " but " + plural(q.size, "byte") + " were asked";
  if (p.offset % q.alignment != 0)
    return gave + "offset " + std::to_string(p.offset) + " but a multiple of " + std::to_string(q.alignment) +
           " was asked";
  if (p.memory_type >= 32 || !(q.memory_type_bits >> p.memory_type & 1)) {
    std::string types;
    for (uint32_t t = 0; t < 32; ++t)
      if (q.memory_type_bits >> t & 1) types += (types.empty() ? "" : ", ") + std::to_string(t);
    return gave + "memory of type " + std::to_string(p.memory_type) + " but one of " + types + " was asked";
  }
  if (q.required && !p.mapped) return gave + "memory that is not mapped but " + flags_text(q.required) + " was asked";
  const auto key = [](const MemoryPiece& m) { return std::pair{m.memory, m.offset}; };
  const auto next = pieces_.lower_bound(key(p));
  const auto meets = [&](auto it) {
    return it->first.first == p.memory && it->first.second < p.offset + p.size &&
           p.offset < it->first.second + it->second;
  };
  if ((next != pieces_.end() && meets(next)) || (next != pieces_.begin() && meets(std::prev(next))))
    return gave + plural(p.size, "byte") + " at offset " + std::to_string(p.offset) +
           " of a VkDeviceMemory, some of which it has given before and not got back";
  return "";
}

VkResult Buffer::take_from_pool(Memory kind, const VkBufferCreateInfo& info, VkDeviceSize alignment) {
  DeviceHeap& c = *heap_;
  if (const VkResult r = c.vk_.vkCreateBuffer(c.device_, &info, c.vk_.host, &handle_); r < 0) return r;
  const auto give_up = [&](bool given) {
    if (given) c.pool_.free(piece_);
    piece_ = {};
    c.vk_.vkDestroyBuffer(c.device_, handle_, c.vk_.host);
    handle_ = VK_NULL_HANDLE;
  };
  VkMemoryRequirements needs{};
  c.vk_.vkGetBufferMemoryRequirements(c.device_, handle_, &needs);
  needs.alignment = std::max(needs.alignment, alignment);
  const MemoryRequest request = c.pool_request(kind, needs, what_);
  VkResult r;
  try {
    r = c.pool_.allocate(request, piece_);
  } catch (...) {
    give_up(false);
    throw;
  }
  if (r != VK_SUCCESS) {
    give_up(false);
    if (r > 0)
      throw SpecError(what_ + ": ImportedDevice::memory: allocate returned " + to_string(r), {},
                      "return VK_SUCCESS, or why there is no memory");
    return r;
  }
  std::string wrong;
  {
    const std::lock_guard lock(c.mutex_);
    wrong = c.wrong_piece(request, piece_);
    if (wrong.empty()) {
      c.pieces_.emplace(std::pair{piece_.memory, piece_.offset}, piece_.size);
      c.other_bytes_ += other_bytes_ = request.size;
    }
  }
  if (!wrong.empty()) {
    give_up(true);
    throw SpecError(what_ + ": " + wrong);
  }
  r = c.vk_.vkBindBufferMemory(c.device_, handle_, piece_.memory, piece_.offset);
  if (r < 0) {
    {
      const std::lock_guard lock(c.mutex_);
      c.pieces_.erase({piece_.memory, piece_.offset});
      c.other_bytes_ -= other_bytes_;
    }
    give_up(true);
    return r;
  }
  const VkMemoryPropertyFlags has = c.memory_types_.memoryTypes[piece_.memory_type].propertyFlags;
  const bool wanted = request.required || (request.preferred & VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT);
  mapped_ = wanted && (has & kMapped) == kMapped ? static_cast<std::byte*>(piece_.mapped) : nullptr;
  host_reads_ = mapped_ && (has & VK_MEMORY_PROPERTY_HOST_CACHED_BIT) && (kind == Memory::download || c.probe_.unified);
  return VK_SUCCESS;
}

}  // namespace tessera::vulkan
