// Memory shared by file descriptors. It bypasses the allocator: such memory is an allocation of its own, whose size and
// type the other side has to be given.
#include <algorithm>
#include <mutex>

#include "engine/base/error.h"
#include "engine/base/platform.h"
#include "engine/base/plural.h"
#include "runtime/device/names.h"
#include "runtime/interop.h"
#include "runtime/memory/device_heap.h"

namespace tessera::vulkan {
namespace {

constexpr auto kHandle = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT;
constexpr VkBufferUsageFlags kUsage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT |
                                      VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT;

/// Whether the driver exports or imports such buffers; throws if neither.
VkExternalMemoryFeatureFlags abilities(DeviceHeap& c, const std::string& where,
                                       VkExternalMemoryFeatureFlagBits wanted) {
  if (!platform::kFileDescriptors)
    throw DeviceError(where + "memory is shared by file descriptors, which Windows does not have");
  if (!c.vk().vkGetMemoryFdKHR)
    throw DeviceError(where + "VK_KHR_external_memory_fd is not enabled on " + c.name(), {},
                      c.imported()
                          ? "enable it when the device is made, and list it in ImportedDevice::device_extensions"
                          : "its driver does not have it");
  const VkPhysicalDeviceExternalBufferInfo info{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_BUFFER_INFO, nullptr, 0,
                                                kUsage, kHandle};
  VkExternalBufferProperties has{};
  has.sType = VK_STRUCTURE_TYPE_EXTERNAL_BUFFER_PROPERTIES;
  c.instance().vk().vkGetPhysicalDeviceExternalBufferProperties(c.physical(), &info, &has);
  const VkExternalMemoryFeatureFlags features = has.externalMemoryProperties.externalMemoryFeatures;
  if (!(features & wanted)) throw DeviceError(where + c.name() + " shares no memory of buffers");
  return features;
}

VkBuffer make_buffer(DeviceHeap& c, uint64_t size, const std::string& where) {
  const VkExternalMemoryBufferCreateInfo external{VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO, nullptr,
                                                  kHandle};
  VkBufferCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO;
  info.pNext = &external;
  info.size = size;
  info.usage = kUsage;
  VkBuffer b = VK_NULL_HANDLE;
  check(c.vk().vkCreateBuffer(c.handle(), &info, c.vk().host, &b), (where + "vkCreateBuffer").c_str(), c.name());
  return b;
}

void name_objects(DeviceHeap& c, const std::string& what, VkBuffer buffer, VkDeviceMemory memory) {
  if (!has_names(c.vk())) return;
  name_object(c.vk(), c.handle(), buffer, what);
  name_object(c.vk(), c.handle(), memory, what + ", shared");
}

}  // namespace

std::shared_ptr<Buffer> Buffer::shareable(std::shared_ptr<DeviceHeap> heap, uint64_t size, const std::string& what) {
  const std::string where = "shareable_array: " + what + ": ";
  DeviceHeap& c = *heap;
  c.require_alive();
  const bool dedicated =
      abilities(c, where, VK_EXTERNAL_MEMORY_FEATURE_EXPORTABLE_BIT) & VK_EXTERNAL_MEMORY_FEATURE_DEDICATED_ONLY_BIT;
  std::shared_ptr<Buffer> b(new Buffer(heap, size));
  b->what_ = what;
  b->handle_ = make_buffer(c, (size + 3) & ~uint64_t{3}, where);
  VkMemoryRequirements needs{};
  c.vk().vkGetBufferMemoryRequirements(c.handle(), b->handle_, &needs);
  VkPhysicalDeviceMemoryProperties memory{};
  c.instance().vk().vkGetPhysicalDeviceMemoryProperties(c.physical(), &memory);
  uint32_t type = UINT32_MAX;
  for (const VkMemoryPropertyFlags wanted :
       {VkMemoryPropertyFlags{VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT}, VkMemoryPropertyFlags{0}})
    for (uint32_t t = 0; t < memory.memoryTypeCount && type == UINT32_MAX; ++t)
      if ((needs.memoryTypeBits >> t & 1) && (memory.memoryTypes[t].propertyFlags & wanted) == wanted) type = t;
  const VkMemoryDedicatedAllocateInfo own{VK_STRUCTURE_TYPE_MEMORY_DEDICATED_ALLOCATE_INFO, nullptr, VK_NULL_HANDLE,
                                          b->handle_};
  const VkExportMemoryAllocateInfo exported{VK_STRUCTURE_TYPE_EXPORT_MEMORY_ALLOCATE_INFO, dedicated ? &own : nullptr,
                                            kHandle};
  const VkMemoryAllocateFlagsInfo flags{VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO, &exported,
                                        VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT, 0};
  const VkMemoryAllocateInfo allocate{VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, &flags, needs.size, type};
  const VkResult r =
      c.allocate([&] { return c.vk().vkAllocateMemory(c.handle(), &allocate, c.vk().host, &b->imported_); });
  if (r < 0) throw DeviceError(c.short_of_memory(needs.size, "shareable_array: " + what, r));
  name_objects(c, what, b->handle_, b->imported_);
  check(c.vk().vkBindBufferMemory(c.handle(), b->handle_, b->imported_, 0), (where + "vkBindBufferMemory").c_str(),
        c.name());
  const VkBufferDeviceAddressInfo address{VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO, nullptr, b->handle_};
  b->address_ = c.vk().vkGetBufferDeviceAddress(c.handle(), &address);
  b->shared_ = {-1, needs.size, type, dedicated, 0};
  const std::lock_guard lock(c.mutex());
  c.other_bytes_ += b->other_bytes_ = needs.size;
  c.buffers_.insert(b.get());
  return b;
}

SharedMemory Buffer::share() const {
  if (shared_.size == 0)
    throw SpecError("share: " + what_ + " is in memory of its own", {}, "make it with shareable_array()");
  SharedMemory s = shared_;
  const VkMemoryGetFdInfoKHR info{VK_STRUCTURE_TYPE_MEMORY_GET_FD_INFO_KHR, nullptr, imported_, kHandle};
  check(heap_->vk().vkGetMemoryFdKHR(heap_->handle(), &info, &s.fd), ("share: " + what_ + ": vkGetMemoryFdKHR").c_str(),
        heap_->name());
  return s;
}

std::shared_ptr<Buffer> Buffer::import_shared(std::shared_ptr<DeviceHeap> heap, const SharedMemory& from, uint64_t size,
                                              const std::string& what) {
  const std::string where = "import_memory: " + what + ": ";
  DeviceHeap& c = *heap;
  c.require_alive();
  if (from.fd < 0) throw SpecError(where + "the file descriptor is " + std::to_string(from.fd));
  if (from.offset > from.size || size > from.size - from.offset)
    throw SpecError(where + plural(size, "byte") + " from offset " + std::to_string(from.offset) +
                    " do not fit memory of " + plural(from.size, "byte"));
  if (size % 4 != 0 && from.offset + ((size + 3) & ~uint64_t{3}) > from.size)
    throw SpecError(where + "its last word does not fit memory of " + plural(from.size, "byte"));
  if (from.offset % kArgumentAlignment != 0)
    throw SpecError(where + "offset " + std::to_string(from.offset) + " is no multiple of " +
                    std::to_string(kArgumentAlignment));
  abilities(c, where, VK_EXTERNAL_MEMORY_FEATURE_IMPORTABLE_BIT);
  std::shared_ptr<Buffer> b(new Buffer(heap, size));
  b->what_ = what;
  b->handle_ = make_buffer(c, (from.offset + size + 3) & ~uint64_t{3}, where);
  VkMemoryRequirements needs{};
  c.vk().vkGetBufferMemoryRequirements(c.handle(), b->handle_, &needs);
  if (needs.size > from.size || from.memory_type >= 32 || !(needs.memoryTypeBits >> from.memory_type & 1))
    throw SpecError(where + "a buffer of " + plural(needs.size, "byte") + " cannot lie in memory of " +
                    plural(from.size, "byte") + " of type " + std::to_string(from.memory_type));
  const VkMemoryDedicatedAllocateInfo own{VK_STRUCTURE_TYPE_MEMORY_DEDICATED_ALLOCATE_INFO, nullptr, VK_NULL_HANDLE,
                                          b->handle_};
  struct Descriptor {  // an import takes it, and what fails after that closes it: so the caller's own goes last
    int fd;
    ~Descriptor() {
      if (fd >= 0) platform::close_descriptor(fd);
    }
  } copy{platform::duplicate(from.fd)};
  if (copy.fd < 0) throw SpecError(where + "file descriptor " + std::to_string(from.fd) + " is not open");
  const VkImportMemoryFdInfoKHR import{VK_STRUCTURE_TYPE_IMPORT_MEMORY_FD_INFO_KHR, from.dedicated ? &own : nullptr,
                                       kHandle, copy.fd};
  const VkMemoryAllocateFlagsInfo flags{VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO, &import,
                                        VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT, 0};
  const VkMemoryAllocateInfo allocate{VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, &flags, from.size, from.memory_type};
  check(c.vk().vkAllocateMemory(c.handle(), &allocate, c.vk().host, &b->imported_),
        (where + "vkAllocateMemory").c_str(), c.name());
  copy.fd = -1;
  name_objects(c, what, b->handle_, b->imported_);
  check(c.vk().vkBindBufferMemory(c.handle(), b->handle_, b->imported_, 0), (where + "vkBindBufferMemory").c_str(),
        c.name());
  const VkBufferDeviceAddressInfo address{VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO, nullptr, b->handle_};
  b->offset_ = from.offset;
  b->address_ = c.vk().vkGetBufferDeviceAddress(c.handle(), &address) + from.offset;
  platform::close_descriptor(from.fd);
  return b;
}

}  // namespace tessera::vulkan
