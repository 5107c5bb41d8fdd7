// A range of a buffer that the device's host has made, as a Buffer.
#include <mutex>

#include "engine/base/error.h"
#include "runtime/interop.h"
#include "runtime/memory/device_heap.h"

namespace tessera::vulkan {

std::shared_ptr<Buffer> Buffer::borrow(std::shared_ptr<DeviceHeap> heap, const ImportedBuffer& from, uint64_t size,
                                       const std::string& what) {
  const std::string where = "import_buffer: " + what + ": ";
  heap->require_alive();
  if (!heap->imported())
    throw SpecError(where + "this Device is none that the host has made", {},
                    "import the host's device: Device::import()");
  if (from.buffer == VK_NULL_HANDLE) throw SpecError(where + "ImportedBuffer::buffer is null");
  if (!(from.usage & VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT))
    throw SpecError(where + "the VkBuffer has been made without VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT", {},
                    "make it with that, and its memory with VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT: kernels reach "
                    "arrays by their addresses");
  const auto bytes = [](uint64_t n) { return std::to_string(n) + " bytes"; };
  if (from.offset > from.size || size > from.size - from.offset)
    throw SpecError(where + bytes(size) + " from offset " + std::to_string(from.offset) + " do not fit a VkBuffer of " +
                    bytes(from.size));
  const Target& target = heap->probe().info.target;
  if (size % 4 != 0 && !(target.storage8 && target.storage16))
    throw SpecError(
        where + "takes " + bytes(size) +
            ", no whole words, and without 8 and 16-bit accesses the last word would be written whole",
        {}, "enable storageBuffer8BitAccess and storageBuffer16BitAccess, or give the array a size of whole words");
  const VkBufferDeviceAddressInfo info{VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO, nullptr, from.buffer};
  const uint64_t begin = heap->vk().vkGetBufferDeviceAddress(heap->handle(), &info), address = begin + from.offset;
  if (begin == 0) throw SpecError(where + "the VkBuffer has no address", {}, "bind it to memory before it is imported");
  if (address % kArgumentAlignment != 0)
    throw SpecError(where + "offset " + std::to_string(from.offset) + " leads to no multiple of " +
                        std::to_string(kArgumentAlignment) + " among the device's addresses",
                    {}, "let the array begin at such a place of the VkBuffer");
  std::shared_ptr<Buffer> b(new Buffer(heap, size));
  const std::lock_guard lock(heap->mutex());
  for (const Buffer* other : heap->borrowed_)
    if (address < other->address() + other->size() && other->address() < address + size)
      throw SpecError(where + "some of its bytes are " + other->what() +
                          " already, which has been imported from offset " + std::to_string(other->offset()),
                      {}, "use that array, or let it go first");
  b->what_ = what;
  b->handle_ = from.buffer;
  b->usage_ = from.usage;
  b->borrowed_ = true;
  b->offset_ = from.offset;
  b->address_ = address;
  // The bytes may have been another array's just now, whose calls still run.
  b->hazards = heap->used_by_anything();
  heap->borrowed_.push_back(b.get());
  return b;
}

}  // namespace tessera::vulkan
