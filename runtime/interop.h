// Interop: Tessera inside a program that has Vulkan already. What to enable on its device, its device as a Device, its buffers as DeviceArrays. This header
// includes Vulkan's own types and calls none of its functions: all go through the vkGetInstanceProcAddr that the host gives.
// Nothing is used beyond what the host says is enabled: the Target follows from that, and no function of an extension that is not listed is ever looked up.
// Read next: record.h, kernels in the host's command buffers.
#pragma once
#include <vulkan/vulkan_core.h>

#include <functional>
#include <string>
#include <vector>

#include "runtime/device.h"
#include "runtime/device_array.h"

namespace tessera {

/// A feature of a device that Tessera needs or uses.
struct DeviceFeature {
  const char* name;         ///< "bufferDeviceAddress"
  const char* structure;    ///< "VkPhysicalDeviceVulkan12Features", whose member it is
  const char* gives;        ///< one sentence: what Tessera does with it
  VkStructureType type;     ///< of that structure,
  size_t offset;            ///< where the member lies
  VkStructureType own_type; ///< of the structure that has this feature without the others of its version, with the member at `own_offset`; MAX_ENUM: none
  size_t own_offset;
};
/// What has to be enabled. Every driver of Vulkan 1.3 has all of them.
const std::vector<DeviceFeature>& required_device_features();
/// What makes code shorter or faster, and kernels of some dtypes possible, where the device has it.
const std::vector<DeviceFeature>& optional_device_features();

/// An extension of a device that Tessera uses where it is enabled. None is needed.
struct DeviceExtension {
  const char* name;   ///< "VK_EXT_memory_budget"
  const char* gives;
};
const std::vector<DeviceExtension>& optional_device_extensions();

/// Sets in the chain that begins at `enable` (a VkDeviceCreateInfo's pNext) what required_ and optional_device_features() list and the chain at `has`, which
/// vkGetPhysicalDeviceFeatures2 has filled, shows. Other members stay. Returns the names of those that no structure in `enable` has a member for.
std::vector<std::string> enable_device_features(const void* has, void* enable);

/// A device that the host has made and keeps. It outlives the Device and all that is made of it (arrays, kernels, prepared calls); none of them destroys it, and when the
/// last of them has gone no object of theirs is left. Structures and strings pointed to are read by import() and not kept.
struct ImportedDevice {
  PFN_vkGetInstanceProcAddr get_instance_proc_addr = nullptr;
  VkInstance instance = VK_NULL_HANDLE;
  uint32_t api_version = 0;                  ///< VkApplicationInfo::apiVersion of the instance
  VkPhysicalDevice physical_device = VK_NULL_HANDLE;
  VkDevice device = VK_NULL_HANDLE;
  VkQueue queue = VK_NULL_HANDLE;            ///< with compute: what uploads, downloads and launch() submit to, and the family of the command buffers of record.h
  uint32_t queue_family = 0;
  /// What has been enabled: VkDeviceCreateInfo's pNext (VkPhysicalDeviceFeatures2 and the structures of features; others are passed over) and pEnabledFeatures.
  const void* features = nullptr;
  const VkPhysicalDeviceFeatures* enabled_features = nullptr;
  std::vector<std::string> device_extensions, instance_extensions;
  /// Called around each vkQueueSubmit2 of ours, from whichever thread submits; a host that uses `queue` from several threads, or another than Tessera's calls come
  /// from, holds in them the mutex that it has for the queue. Without them the host lets no two threads meet. They call nothing of Tessera.
  std::function<void()> lock_queue, unlock_queue;
};

/// Takes extensions and features from what the host has made its device with.
void enabled_by(const VkDeviceCreateInfo& info, ImportedDevice& device);

/// A range of a VkBuffer of the host's, which keeps it alive until no call uses the array any more (DeviceArray::wait_unused(), and its own fences for what is recorded).
struct ImportedBuffer {
  VkBuffer buffer = VK_NULL_HANDLE;
  VkDeviceSize size = 0;            ///< of the whole buffer, VkBufferCreateInfo::size
  VkBufferUsageFlags usage = 0;     ///< VkBufferCreateInfo::usage: with SHADER_DEVICE_ADDRESS; TRANSFER_SRC for download(), TRANSFER_DST for write()
  VkDeviceSize offset = 0;          ///< where the array begins
};
/// The range as an array: contents and memory are the host's, shared. The buffer belongs to the imported queue's family (or is concurrent). Throws SpecError if the array does not fit
/// or lies badly, if the usage lacks what addresses need, or if a part of the range is an array of this Device already.
DeviceArray import_buffer(const Device& device, const ImportedBuffer& buffer, Shape shape, DType dtype);

}  // namespace tessera
