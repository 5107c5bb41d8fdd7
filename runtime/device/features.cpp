#include "runtime/device/features.h"

#include <cstddef>

#include "engine/base/error.h"

namespace tessera {

#define V11(member, gives, own, OWN)                      \
  {#member,                                               \
   "VkPhysicalDeviceVulkan11Features",                    \
   gives,                                                 \
   VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES, \
   offsetof(VkPhysicalDeviceVulkan11Features, member),    \
   VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_##OWN##_FEATURES,    \
   offsetof(own, member)}
#define V12(member, gives, own, OWN)                      \
  {#member,                                               \
   "VkPhysicalDeviceVulkan12Features",                    \
   gives,                                                 \
   VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES, \
   offsetof(VkPhysicalDeviceVulkan12Features, member),    \
   VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_##OWN##_FEATURES,    \
   offsetof(own, member)}
#define V13(member, gives, own, OWN)                      \
  {#member,                                               \
   "VkPhysicalDeviceVulkan13Features",                    \
   gives,                                                 \
   VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES, \
   offsetof(VkPhysicalDeviceVulkan13Features, member),    \
   VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_##OWN##_FEATURES,    \
   offsetof(own, member)}
#define CORE(member, gives)                                                                    \
  {#member,                                                                                    \
   "VkPhysicalDeviceFeatures",                                                                 \
   gives,                                                                                      \
   VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,                                               \
   offsetof(VkPhysicalDeviceFeatures2, features) + offsetof(VkPhysicalDeviceFeatures, member), \
   VK_STRUCTURE_TYPE_MAX_ENUM,                                                                 \
   0}

const std::vector<DeviceFeature>& required_device_features() {
  static const std::vector<DeviceFeature> all = {
      V12(bufferDeviceAddress, "kernels reach arrays by their addresses", VkPhysicalDeviceBufferDeviceAddressFeatures,
          BUFFER_DEVICE_ADDRESS),
      V12(vulkanMemoryModel, "kernels say which of their accesses others may see",
          VkPhysicalDeviceVulkanMemoryModelFeatures, VULKAN_MEMORY_MODEL),
      V12(timelineSemaphore, "calls are counted on a timeline", VkPhysicalDeviceTimelineSemaphoreFeatures,
          TIMELINE_SEMAPHORE),
      V13(synchronization2, "barriers and submissions are those of Vulkan 1.3",
          VkPhysicalDeviceSynchronization2Features, SYNCHRONIZATION_2),
  };
  return all;
}

const std::vector<DeviceFeature>& optional_device_features() {
  static const std::vector<DeviceFeature> all = {
      CORE(shaderInt16, "16-bit integers as they are"),
      CORE(shaderInt64, "64-bit integers and addresses as they are, not as two words"),
      CORE(shaderFloat64, "kernels with f64, which is not emulated"),
      CORE(shaderStorageImageWriteWithoutFormat,
           "results stored to images of every format that the device stores to by code without its name"),
      V11(storageBuffer16BitAccess, "loads and stores of 16 bits, not of the words around them",
          VkPhysicalDevice16BitStorageFeatures, 16BIT_STORAGE),
      V11(uniformAndStorageBuffer16BitAccess, "the same on drivers that ask for both",
          VkPhysicalDevice16BitStorageFeatures, 16BIT_STORAGE),
      V12(storageBuffer8BitAccess, "loads and stores of 8 bits, not of the words around them",
          VkPhysicalDevice8BitStorageFeatures, 8BIT_STORAGE),
      V12(uniformAndStorageBuffer8BitAccess, "the same on drivers that ask for both",
          VkPhysicalDevice8BitStorageFeatures, 8BIT_STORAGE),
      V12(shaderInt8, "8-bit integers as they are", VkPhysicalDeviceShaderFloat16Int8Features, SHADER_FLOAT16_INT8),
      V12(shaderFloat16, "f16 as it is, not by integer code", VkPhysicalDeviceShaderFloat16Int8Features,
          SHADER_FLOAT16_INT8),
      V12(vulkanMemoryModelDeviceScope, "atomics of the scope of one device", VkPhysicalDeviceVulkanMemoryModelFeatures,
          VULKAN_MEMORY_MODEL),
      V12(vulkanMemoryModelAvailabilityVisibilityChains, "chains of visibility between invocations",
          VkPhysicalDeviceVulkanMemoryModelFeatures, VULKAN_MEMORY_MODEL),
      V12(shaderBufferInt64Atomics, "atomics on 64-bit integers", VkPhysicalDeviceShaderAtomicInt64Features,
          SHADER_ATOMIC_INT64),
      V13(subgroupSizeControl, "subgroups of a size that the compiler chooses",
          VkPhysicalDeviceSubgroupSizeControlFeatures, SUBGROUP_SIZE_CONTROL),
      V13(computeFullSubgroups, "reductions within subgroups, which need them full",
          VkPhysicalDeviceSubgroupSizeControlFeatures, SUBGROUP_SIZE_CONTROL),
      V13(shaderIntegerDotProduct, "dot products of four 8-bit integers at once",
          VkPhysicalDeviceShaderIntegerDotProductFeatures, SHADER_INTEGER_DOT_PRODUCT),
      V13(maintenance4, "the memory an allocation will need known before its buffer is made",
          VkPhysicalDeviceMaintenance4Features, MAINTENANCE_4),
  };
  return all;
}

const std::vector<DeviceExtension>& optional_device_extensions() {
  static const std::vector<DeviceExtension> all = {
      {VK_EXT_MEMORY_BUDGET_EXTENSION_NAME, "errors of short memory say how much is available"},
      {VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME,
       "memory that the host has allocated as arrays, on devices that share it"},
      {VK_KHR_EXTERNAL_MEMORY_FD_EXTENSION_NAME, "arrays in memory that is shared with other devices and processes"},
  };
  return all;
}

namespace {

// A structure of a chain by its type.
const VkBaseInStructure* find(const void* chain, VkStructureType type) {
  for (auto* s = static_cast<const VkBaseInStructure*>(chain); s; s = s->pNext)
    if (s->sType == type) return s;
  return nullptr;
}

// The member for a feature, in whichever of the two structures is there.
const VkBool32* member(const void* chain, const DeviceFeature& f) {
  const auto at = [](const VkBaseInStructure* s, size_t offset) {
    return reinterpret_cast<const VkBool32*>(reinterpret_cast<const char*>(s) + offset);
  };
  if (const auto* s = find(chain, f.type)) return at(s, f.offset);
  if (f.own_type == VK_STRUCTURE_TYPE_MAX_ENUM) return nullptr;
  if (const auto* s = find(chain, f.own_type)) return at(s, f.own_offset);
  return nullptr;
}

template <class F> void each_feature(F f) {
  for (const DeviceFeature& feature : required_device_features()) f(feature);
  for (const DeviceFeature& feature : optional_device_features()) f(feature);
}

}  // namespace

std::vector<std::string> enable_device_features(const void* has, void* enable) {
  std::vector<std::string> homeless;
  each_feature([&](const DeviceFeature& f) {
    const VkBool32* there = member(has, f);
    if (!there || !*there) return;
    if (const VkBool32* to = member(enable, f)) *const_cast<VkBool32*>(to) = VK_TRUE;
    else homeless.emplace_back(f.name);
  });
  return homeless;
}

std::vector<const DeviceFeature*> missing_device_features(const void* has, const void* enabled) {
  std::vector<const DeviceFeature*> missing;
  each_feature([&](const DeviceFeature& f) {
    const VkBool32 *there = has ? member(has, f) : nullptr, *set = member(enabled, f);
    if ((!has || (there && *there)) && !(set && *set)) missing.push_back(&f);
  });
  return missing;
}

void enabled_by(const VkDeviceCreateInfo& info, ImportedDevice& device) {
  device.features = info.pNext;
  device.enabled_features = info.pEnabledFeatures;
  device.device_extensions.assign(info.ppEnabledExtensionNames,
                                  info.ppEnabledExtensionNames + info.enabledExtensionCount);
}

namespace vulkan {
Features::Features() {
  v13 = chained<VkPhysicalDeviceVulkan13Features>(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES, nullptr);
  v12 = chained<VkPhysicalDeviceVulkan12Features>(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES, &v13);
  v11 = chained<VkPhysicalDeviceVulkan11Features>(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES, &v12);
  core = chained<VkPhysicalDeviceFeatures2>(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, &v11);
}

// Not by the chain, which is shorter for a device below 1.3.
VkBool32& Features::at(const DeviceFeature& f) {
  char* base = nullptr;
  switch (f.type) {
    case VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2: base = reinterpret_cast<char*>(&core); break;
    case VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES: base = reinterpret_cast<char*>(&v11); break;
    case VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES: base = reinterpret_cast<char*>(&v12); break;
    case VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES: base = reinterpret_cast<char*>(&v13); break;
    default: throw InternalError(std::string("features.cpp has no structure for ") + f.name);
  }
  return *reinterpret_cast<VkBool32*>(base + f.offset);
}

void enable_known(const Features& has, Features& enable) {
  each_feature([&](const DeviceFeature& f) { enable.at(f) = has.at(f); });
}

void read_enabled(const void* chain, const VkPhysicalDeviceFeatures* enabled, Features& to) {
  if (enabled) to.core.features = *enabled;
  each_feature([&](const DeviceFeature& f) {
    if (const VkBool32* there = member(chain, f)) to.at(f) |= *there;
  });
}

}  // namespace vulkan
}  // namespace tessera
