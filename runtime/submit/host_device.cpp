// What belongs to a host that has Vulkan already: its device as a Device, its semaphores.
#include <mutex>

#include "engine/base/error.h"
#include "runtime/interop.h"
#include "runtime/submit/context.h"

namespace tessera {

Device Device::import(const ImportedDevice& device, const DeviceOptions& options) {
  return Device(vulkan::Context::import(device, options));
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

}  // namespace tessera
