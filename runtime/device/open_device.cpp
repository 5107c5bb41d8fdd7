#include "runtime/device/open_device.h"

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "runtime/device/choose.h"

namespace tessera::vulkan {
namespace {

std::string environment(const char* name) {
  const char* v = std::getenv(name);
  return v ? v : "";
}

std::string version(uint32_t v) {
  return std::to_string(VK_API_VERSION_MAJOR(v)) + "." + std::to_string(VK_API_VERSION_MINOR(v));
}

}  // namespace

OpenDevice::OpenDevice(const DeviceOptions& options, const ImportedDevice* imported)
    : options_(options), imported_(imported != nullptr) {
  options_.debug_info |= environment("TESSERA_DEBUG_INFO") == "1";
  if (imported) take_device(*imported);
  else choose_device();
  options_.allocation_callbacks = instance_->host();  // the caller's own may go
  if (imported) return;
  try {
    create_device();
  } catch (...) {
    const std::lock_guard lock(device_list());
    if (device_ && vk_.vkDestroyDevice) vk_.vkDestroyDevice(device_, vk_.host);
    throw;
  }
}

OpenDevice::~OpenDevice() {
  if (imported_) return;
  const std::lock_guard lock(device_list());
  vk_.vkDestroyDevice(device_, vk_.host);
}

void OpenDevice::choose_device() {
  const bool asked = environment("TESSERA_VALIDATION") == "1";
  const Validation validation = asked || (options_.validation && options_.log) ? Validation::print
                                : options_.validation                          ? Validation::collect
                                                                               : Validation::off;
  instance_ = std::make_unique<Instance>(options_.library, validation, options_.debug_info, options_.log,
                                         options_.allocation_callbacks);
  const std::vector<VkPhysicalDevice> devices = instance_->physical_devices();
  std::vector<Probe> probes = probe_all(*instance_, devices);
  const size_t chosen = choose(probes, options_);
  physical_ = devices[chosen];
  probe_ = std::move(probes[chosen]);
}

void OpenDevice::create_device() {
  const float priority = 1;
  VkDeviceQueueCreateInfo queue{};
  queue.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO;
  queue.queueFamilyIndex = probe_.queue_family;
  queue.queueCount = 1;
  queue.pQueuePriorities = &priority;
  VkDeviceCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO;
  info.pNext = &probe_.enable->core;
  probe_.enable->v13.pNext = probe_.of_code->chain(nullptr);
  info.queueCreateInfoCount = 1;
  info.pQueueCreateInfos = &queue;
  info.enabledExtensionCount = static_cast<uint32_t>(probe_.extensions.size());
  info.ppEnabledExtensionNames = probe_.extensions.data();
  const auto create = [&] {
    const std::lock_guard lock(device_list());
    return instance_->vk().vkCreateDevice(physical_, &info, instance_->vk().host, &device_);
  };
  check(create(), "vkCreateDevice", name());
  vk_ = load_device(instance_->vk(), device_, {probe_.extensions.begin(), probe_.extensions.end()},
                    instance_->debug_utils());
  queue_.family = probe_.queue_family;
  vk_.vkGetDeviceQueue(device_, queue_.family, 0, &queue_.handle);
}

void OpenDevice::take_device(const ImportedDevice& d) {
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
  queue_ = {d.queue, d.queue_family, d.lock_queue, d.unlock_queue};
  vk_ = load_device(vk, device_, d.device_extensions, instance_->debug_utils(), true);
}

}  // namespace tessera::vulkan
