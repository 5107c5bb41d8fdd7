// Features: the device features that Tessera uses, as Vulkan's structures and as one table (interop.h shows it to host
// programs). Internal to runtime/. Read next: probe.h.
#pragma once
#include "runtime/device/vulkan.h"
#include "runtime/interop.h"

namespace tessera::vulkan {

/// A structure of Vulkan's, zero but for its type and what follows it in the chain.
template <class T> T chained(VkStructureType type, void* next) {
  T s{};
  s.sType = type;
  s.pNext = next;
  return s;
}

/// Chained for VkDeviceCreateInfo or vkGetPhysicalDeviceFeatures2. Not movable: the structs point at each other.
struct Features {
  Features();
  Features(const Features&) = delete;
  Features& operator=(const Features&) = delete;
  VkBool32& at(const DeviceFeature& f);
  VkBool32 at(const DeviceFeature& f) const { return const_cast<Features*>(this)->at(f); }
  VkPhysicalDeviceFeatures2 core;
  VkPhysicalDeviceVulkan11Features v11;
  VkPhysicalDeviceVulkan12Features v12;
  VkPhysicalDeviceVulkan13Features v13;
};

/// What of the tables `has` has.
void enable_known(const Features& has, Features& enable);
/// What of the tables a host has enabled; `enabled` may be null.
void read_enabled(const void* chain, const VkPhysicalDeviceFeatures* enabled, Features& to);

}  // namespace tessera::vulkan
