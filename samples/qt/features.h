// A device of Qt's with the features that kernels need. QVulkanWindow (before Qt 6.7) makes its device with the
// features of Vulkan 1.0 alone. Qt loads the Vulkan library that QT_VULKAN_LIB names: this one, which passes everything
// on to the system's and adds features where the device is made. In a shared library of its own.
#pragma once
#include <vulkan/vulkan_core.h>

extern "C" {

/// Makes Qt load this library: before the first QVulkanInstance. `enable` is called with the features that a physical
/// device has and those to be enabled, two chains from VkPhysicalDeviceFeatures2 on with the structures of Vulkan 1.1
/// to 1.3, when Qt makes a device.
void features_for_qt(void (*enable)(const void* has, void* enable));
/// What the last device was made with; valid until the next one is.
const VkDeviceCreateInfo* features_created_with(void);
/// The system's, as Qt sees it.
PFN_vkGetInstanceProcAddr features_loader(void);
}
