// Arrays over memory of others: a host's buffers, and what is shared by file descriptors.
#include "engine/base/error.h"
#include "runtime/interop.h"
#include "runtime/memory/buffer.h"
#include "runtime/submit/context.h"

namespace tessera {

DeviceArray import_buffer(const Device& device, const ImportedBuffer& buffer, Shape shape, DType dtype) {
  return DeviceArray::over(device, std::move(shape), dtype, [&](uint64_t bytes, const std::string& what) {
    return vulkan::Buffer::borrow(device.context(), buffer, bytes, what);
  });
}

DeviceArray shareable_array(const Device& device, Shape shape, DType dtype) {
  return DeviceArray::over(device, std::move(shape), dtype, [&](uint64_t size, const std::string& what) {
    return vulkan::Buffer::shareable(device.context(), size, what);
  });
}

SharedMemory share(const DeviceArray& array) {
  const auto memory = array.buffer("share");
  if (!memory) throw SpecError("share: the array has no elements, and so no memory");
  return memory->share();
}

DeviceArray import_memory(const Device& device, const SharedMemory& memory, Shape shape, DType dtype) {
  return DeviceArray::over(device, std::move(shape), dtype, [&](uint64_t size, const std::string& what) {
    return vulkan::Buffer::import_shared(device.context(), memory, size, what);
  });
}

}  // namespace tessera
