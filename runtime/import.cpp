// What belongs to a host that has Vulkan already: its device as a Device, its buffers as arrays, memory that others
// share, its semaphores.
#include <algorithm>

#include "engine/base/error.h"
#include "runtime/context.h"
#include "runtime/interop.h"

namespace tessera {

Device Device::import(const ImportedDevice& device, const DeviceOptions& options) {
  return Device(vulkan::Context::import(device, options));
}

DeviceArray import_buffer(const Device& device, const ImportedBuffer& buffer, Shape shape, DType dtype) {
  return DeviceArray::over(device, std::move(shape), dtype, [&](uint64_t bytes, const std::string& what) {
    return vulkan::Buffer::borrow(device.context(), buffer, bytes, what);
  });
}

void wait_for(const Device& device, VkSemaphore semaphore, uint64_t value) {
  if (semaphore == VK_NULL_HANDLE) throw SpecError("wait_for: the semaphore is null");
  vulkan::Context& context = *device.context();
  const std::lock_guard lock(context.mutex());
  context.recorder().require_alive();
  context.recorder().wait_next(semaphore, value);
}

void signal(const Device& device, VkSemaphore semaphore, uint64_t value) {
  if (semaphore == VK_NULL_HANDLE) throw SpecError("signal: the semaphore is null");
  vulkan::Context& context = *device.context();
  const std::lock_guard lock(context.mutex());
  context.recorder().require_alive();
  if (const uint64_t reached = context.recorder().signalled(semaphore); value <= reached)
    throw SpecError("signal: the semaphore is to be set to " + std::to_string(value) + " but has the value " +
                        std::to_string(reached) + " already, or will have it before",
                    {}, "a timeline only rises: signal a greater value");
  context.recorder().submit("a signal", [&] { context.recorder().signal_next(semaphore, value); });
}

bool is_enabled(const Device& device, const DeviceFeature& feature) {
  return device.context()->probe().enable->at(feature) == VK_TRUE;
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
