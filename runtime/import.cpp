// What belongs to a host that has Vulkan already: its device as a Device, its buffers as arrays.
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

namespace vulkan {
namespace {
std::string version(uint32_t v) {
  return std::to_string(VK_API_VERSION_MAJOR(v)) + "." + std::to_string(VK_API_VERSION_MINOR(v));
}
}  // namespace

void Context::take_device(const ImportedDevice& d) {
  const auto give = [](bool there, const char* member) {
    if (!there) throw SpecError(std::string("Device::import: ImportedDevice::") + member + " is null");
  };
  give(d.get_instance_proc_addr, "get_instance_proc_addr");
  give(d.instance, "instance");
  give(d.physical_device, "physical_device");
  give(d.device, "device");
  give(d.queue, "queue");
  if (!d.lock_queue != !d.unlock_queue)
    throw SpecError(std::string("Device::import: ") +
                    (d.lock_queue ? "lock_queue comes without unlock_queue" : "unlock_queue comes without lock_queue"));
  if (!d.memory.allocate != !d.memory.free)
    throw SpecError(std::string("Device::import: ImportedDevice::memory has ") +
                    (d.memory.allocate ? "allocate but not free" : "free but not allocate"));
  if (d.api_version < VK_API_VERSION_1_3)
    throw DeviceError(
        "Device::import: the instance has been made for Vulkan " + version(d.api_version) + " and Tessera needs 1.3",
        {}, "set VkApplicationInfo::apiVersion and ImportedDevice::api_version to VK_API_VERSION_1_3 or more");
  const auto& extensions = d.instance_extensions;
  instance_ = std::make_unique<Instance>(
      d.get_instance_proc_addr, d.instance,
      std::find(extensions.begin(), extensions.end(), VK_EXT_DEBUG_UTILS_EXTENSION_NAME) != extensions.end(),
      options_.allocation_callbacks);
  const InstanceTable& vk = instance_->vk();
  uint32_t families = 0;
  vk.vkGetPhysicalDeviceQueueFamilyProperties(d.physical_device, &families, nullptr);
  std::vector<VkQueueFamilyProperties> family(families);
  vk.vkGetPhysicalDeviceQueueFamilyProperties(d.physical_device, &families, family.data());
  if (d.queue_family >= families)
    throw SpecError("Device::import: queue_family is " + std::to_string(d.queue_family) + " but the device has " +
                    std::to_string(families) + (families == 1 ? " queue family" : " queue families"));
  if (!(family[d.queue_family].queueFlags & VK_QUEUE_COMPUTE_BIT))
    throw SpecError("Device::import: the queues of family " + std::to_string(d.queue_family) + " cannot compute", {},
                    "import one of a family with VK_QUEUE_COMPUTE_BIT");
  physical_ = d.physical_device;
  probe_ = vulkan::probe(*instance_, physical_, 0, &d);
  for (const DeviceFeature& f : required_device_features())
    if (!probe_.enable->at(f))
      throw DeviceError(std::string("Device::import: ") + f.name + " is not enabled on " + name() + ": " + f.gives, {},
                        std::string("set ") + f.structure + "::" + f.name +
                            " in the VkDeviceCreateInfo and pass that chain as ImportedDevice::features; "
                            "required_device_features() lists all");
  if (!probe_.info.lacks.empty())
    throw DeviceError("Device::import: " + name() + " lacks " + probe_.info.lacks[0] + ", which Tessera needs");
  device_ = d.device;
  pool_ = d.memory;
  vk.vkGetPhysicalDeviceMemoryProperties(physical_, &memory_types_);
  queue_ = {d.queue, d.queue_family, d.lock_queue, d.unlock_queue};
  vk_ = load_device(vk, device_, d.device_extensions, instance_->debug_utils(), true);
}

std::shared_ptr<Buffer> Buffer::borrow(std::shared_ptr<Context> context, const ImportedBuffer& from, uint64_t size,
                                       const std::string& what) {
  const std::string where = "import_buffer: " + what + ": ";
  context->require_alive();
  if (!context->imported())
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
  const Target& target = context->probe().info.target;
  if (size % 4 != 0 && !(target.storage8 && target.storage16))
    throw SpecError(
        where + "takes " + bytes(size) +
            ", no whole words, and without 8 and 16-bit accesses the last word would be written whole",
        {}, "enable storageBuffer8BitAccess and storageBuffer16BitAccess, or give the array a size of whole words");
  const VkBufferDeviceAddressInfo info{VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO, nullptr, from.buffer};
  const uint64_t begin = context->vk().vkGetBufferDeviceAddress(context->handle(), &info),
                 address = begin + from.offset;
  if (begin == 0) throw SpecError(where + "the VkBuffer has no address", {}, "bind it to memory before it is imported");
  if (address % vulkan::kArgumentAlignment != 0)
    throw SpecError(where + "offset " + std::to_string(from.offset) + " leads to no multiple of " +
                        std::to_string(vulkan::kArgumentAlignment) + " among the device's addresses",
                    {}, "let the array begin at such a place of the VkBuffer");
  std::shared_ptr<Buffer> b(new Buffer(context, size));
  const std::lock_guard lock(context->mutex());
  for (const Buffer* other : context->borrowed_)
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
  const uint64_t last = context->recorder().number();
  for (size_t s = 0; s < 2; ++s) b->hazards.written_by[s] = b->hazards.read_by[s] = last;
  b->hazards.used_at = context->recorder().submitted();
  context->recorder().note_all_foreign(*b);
  context->borrowed_.push_back(b.get());
  return b;
}

}  // namespace vulkan

bool is_enabled(const Device& device, const DeviceFeature& feature) {
  return device.context()->probe().enable->at(feature) == VK_TRUE;
}

}  // namespace tessera
