// Chooses one of the devices that Vulkan lists: the one that DeviceOptions or TESSERA_DEVICE names, else the best.
// Internal to runtime/. Read next: open_device.h.
#pragma once
#include <cstddef>
#include <vector>

#include "runtime/device/probe.h"

namespace tessera::vulkan {

std::vector<Probe> probe_all(const Instance& instance, const std::vector<VkPhysicalDevice>& devices);
/// The number of the one to use. Throws DeviceError, listing all of them, if none fits.
size_t choose(const std::vector<Probe>& probes, const DeviceOptions& options);

}  // namespace tessera::vulkan
