#include "runtime/device/probe.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>

namespace tessera::vulkan {
namespace {

std::string kind_name(VkPhysicalDeviceType t) {
  switch (t) {
    case VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU: return "discrete GPU";
    case VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU: return "integrated GPU";
    case VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU: return "virtual GPU";
    case VK_PHYSICAL_DEVICE_TYPE_CPU: return "CPU";
    default: return "other";
  }
}

std::string version_name(uint32_t v) {
  return std::to_string(VK_API_VERSION_MAJOR(v)) + "." + std::to_string(VK_API_VERSION_MINOR(v)) + "." +
         std::to_string(VK_API_VERSION_PATCH(v));
}

std::vector<std::string> device_extensions(const Instance& instance, VkPhysicalDevice device) {
  const auto properties = enumerate<VkExtensionProperties>(
      "vkEnumerateDeviceExtensionProperties", "a device", [&](uint32_t* n, VkExtensionProperties* to) {
        return instance.vk().vkEnumerateDeviceExtensionProperties(device, nullptr, n, to);
      });
  std::vector<std::string> names;
  for (const VkExtensionProperties& e : properties) names.emplace_back(e.extensionName);
  return names;
}

std::vector<std::string> missing(const Features& has, uint32_t api_version, bool has_queue) {
  std::vector<std::string> lacks;
  auto need = [&](bool there, const char* name) {
    if (!there) lacks.emplace_back(name);
  };
  need(api_version >= VK_API_VERSION_1_3, "Vulkan 1.3");
  need(has_queue, "a compute queue");
  for (const DeviceFeature& f : required_device_features()) need(has.at(f), f.name);
  return lacks;
}

}  // namespace

Probe probe(const Instance& instance, VkPhysicalDevice device, int index, const ImportedDevice* imported) {
  const InstanceTable& vk = instance.vk();
  Probe p;
  const std::vector<std::string> extensions =
      imported ? imported->device_extensions : device_extensions(instance, device);
  auto has_extension = [&](const char* name) {
    return std::find(extensions.begin(), extensions.end(), name) != extensions.end();
  };

  // A device below 1.3 must not be asked for the structs of 1.3.
  auto basic = chained<VkPhysicalDeviceProperties2>(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, nullptr);
  vk.vkGetPhysicalDeviceProperties2(device, &basic);
  const bool modern = basic.properties.apiVersion >= VK_API_VERSION_1_3;

  void* next = nullptr;
  auto sm = chained<VkPhysicalDeviceShaderSMBuiltinsPropertiesNV>(
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_SM_BUILTINS_PROPERTIES_NV, nullptr);
  auto amd = chained<VkPhysicalDeviceShaderCorePropertiesAMD>(
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_CORE_PROPERTIES_AMD, nullptr);
  if (has_extension(VK_NV_SHADER_SM_BUILTINS_EXTENSION_NAME)) {
    sm.pNext = next;
    next = &sm;
  }
  if (has_extension(VK_AMD_SHADER_CORE_PROPERTIES_EXTENSION_NAME)) {
    amd.pNext = next;
    next = &amd;
  }
  auto import = chained<VkPhysicalDeviceExternalMemoryHostPropertiesEXT>(
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_MEMORY_HOST_PROPERTIES_EXT, nullptr);
  const bool imports = has_extension(VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME);
  if (imports) {
    import.pNext = next;
    next = &import;
  }
  auto p13 = chained<VkPhysicalDeviceVulkan13Properties>(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_PROPERTIES, next);
  auto p12 = chained<VkPhysicalDeviceVulkan12Properties>(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_PROPERTIES, &p13);
  auto p11 = chained<VkPhysicalDeviceVulkan11Properties>(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES, &p12);
  auto properties =
      chained<VkPhysicalDeviceProperties2>(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, modern ? &p11 : nullptr);
  vk.vkGetPhysicalDeviceProperties2(device, &properties);
  const VkPhysicalDeviceProperties& props = properties.properties;
  const VkPhysicalDeviceLimits& limits = props.limits;

  Features has;
  if (!modern) has.core.pNext = nullptr;
  if (imported) read_enabled(imported->features, imported->enabled_features, has);
  else vk.vkGetPhysicalDeviceFeatures2(device, &has.core);
  p.enable = std::make_unique<Features>();
  enable_known(has, *p.enable);

  uint32_t families = 0;
  vk.vkGetPhysicalDeviceQueueFamilyProperties(device, &families, nullptr);
  std::vector<VkQueueFamilyProperties> family(families);
  vk.vkGetPhysicalDeviceQueueFamilyProperties(device, &families, family.data());
  // the family with most abilities, where others' work on the device does not surprise it
  for (uint32_t i = 0; i < families; ++i) {
    if (!(family[i].queueFlags & VK_QUEUE_COMPUTE_BIT) || family[i].queueCount == 0 ||
        (imported && i != imported->queue_family))
      continue;
    if (p.queue_family == UINT32_MAX || (family[i].queueFlags & VK_QUEUE_GRAPHICS_BIT)) p.queue_family = i;
    if (family[i].queueFlags & VK_QUEUE_GRAPHICS_BIT) break;
  }

  VkPhysicalDeviceMemoryProperties memory{};
  vk.vkGetPhysicalDeviceMemoryProperties(device, &memory);
  uint64_t heap = 0, mappable = 0;
  for (uint32_t i = 0; i < memory.memoryHeapCount; ++i)
    if (memory.memoryHeaps[i].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT)
      heap = std::max<uint64_t>(heap, memory.memoryHeaps[i].size);
  for (uint32_t i = 0; i < memory.memoryTypeCount; ++i)
    if (memory.memoryTypes[i].propertyFlags & VK_MEMORY_PROPERTY_HOST_COHERENT_BIT) p.coherent_types |= 1u << i;
  constexpr VkMemoryPropertyFlags mapped = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT | VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT;
  bool cached = false;
  for (uint32_t i = 0; i < memory.memoryTypeCount; ++i)
    if ((memory.memoryTypes[i].propertyFlags & mapped) == mapped) {
      mappable = std::max<uint64_t>(mappable, memory.memoryHeaps[memory.memoryTypes[i].heapIndex].size);
      cached |= (memory.memoryTypes[i].propertyFlags & VK_MEMORY_PROPERTY_HOST_CACHED_BIT) != 0;
    }
  const bool shares_memory =
      props.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU || props.deviceType == VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU;
  p.host_writes_arrays = mappable > 0 && mappable >= heap / 2;  // not the 256 MiB window of a GPU without resizable BAR
  p.unified = p.host_writes_arrays && cached && shares_memory;

  DeviceInfo& info = p.info;
  info.index = index;
  info.name = props.deviceName;
  info.kind = kind_name(props.deviceType);
  info.api_version = version_name(props.apiVersion);
  info.lacks = missing(has, props.apiVersion, p.queue_family != UINT32_MAX);
  info.memory_bytes = static_cast<int64_t>(heap);
  if (modern) {
    info.driver = std::string(p12.driverName) + " " + p12.driverInfo;
    const uint64_t most = std::min({p13.maxBufferSize, p11.maxMemoryAllocationSize, heap, uint64_t{1} << 62});
    info.max_array_bytes = static_cast<int64_t>(most);
  }

  p.driver.vendor = props.vendorID;
  p.driver.device = props.deviceID;
  p.driver.version = props.driverVersion;
  p.driver.api = props.apiVersion;
  p.driver.name = info.name + "\n" + info.driver;
  std::memcpy(p.driver.cache_uuid, props.pipelineCacheUUID, VK_UUID_SIZE);
  if (modern) std::memcpy(p.driver.driver_uuid, p11.driverUUID, VK_UUID_SIZE);
  if (p.queue_family != UINT32_MAX) p.timestamp_bits = family[p.queue_family].timestampValidBits;
  p.timestamp_period = limits.timestampPeriod;

  Target& t = info.target;
  t.name = info.name;
  t.kind = props.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU ? Target::Kind::cpu : Target::Kind::gpu;
  auto clamp32 = [](uint64_t v) { return static_cast<int32_t>(std::min<uint64_t>(v, INT32_MAX)); };
  t.max_workgroup_size = clamp32(std::min(limits.maxComputeWorkGroupInvocations, limits.maxComputeWorkGroupSize[0]));
  for (int i = 0; i < 3; ++i) p.max_groups[i] = limits.maxComputeWorkGroupCount[i];
  t.max_workgroup_count = clamp32(*std::min_element(p.max_groups, p.max_groups + 3));
  t.shared_bytes = limits.maxComputeSharedMemorySize;
  t.push_constant_bytes = clamp32(limits.maxPushConstantsSize);
  t.max_buffer_bytes = info.max_array_bytes;
  if (modern && (p11.subgroupSupportedStages & VK_SHADER_STAGE_COMPUTE_BIT)) {
    t.subgroup_vote = p11.subgroupSupportedOperations & VK_SUBGROUP_FEATURE_VOTE_BIT;
    t.subgroup_arithmetic = p11.subgroupSupportedOperations & VK_SUBGROUP_FEATURE_ARITHMETIC_BIT;
    t.subgroup_ballot = p11.subgroupSupportedOperations & VK_SUBGROUP_FEATURE_BALLOT_BIT;
    t.subgroup_shuffle = p11.subgroupSupportedOperations & VK_SUBGROUP_FEATURE_SHUFFLE_BIT;
  }
  if (modern) {
    t.min_subgroup_size = clamp32(p13.minSubgroupSize);
    t.max_subgroup_size = clamp32(p13.maxSubgroupSize);
    t.subgroup_size = clamp32(p11.subgroupSize);
    t.can_require_subgroup_size = has.v13.subgroupSizeControl && has.v13.computeFullSubgroups &&
                                  (p13.requiredSubgroupSizeStages & VK_SHADER_STAGE_COMPUTE_BIT);
    // A pipeline that insists on its subgroup size may not have more subgroups than this: Vulkan's limit on invocations
    // does not know it.
    if (t.can_require_subgroup_size)
      t.max_workgroup_size =
          std::min(t.max_workgroup_size, clamp32(uint64_t{p11.subgroupSize} * p13.maxComputeWorkgroupSubgroups));
  }
  t.skips_branches = t.kind == Target::Kind::gpu;
  if (modern && p12.driverID == VK_DRIVER_ID_MESA_LLVMPIPE) {
    t.forgets_zeros = true;
    const std::string_view driver = p12.driverInfo;  // "Mesa 22.3.6 (LLVM 15.0.6)"
    const int major = driver.substr(0, 5) == "Mesa " ? std::atoi(p12.driverInfo + 5) : 0;
    if (major < 25) {
      t.skips_branches = true;
      t.max_loop_iterations = 65535;
      t.dot_results = 256;
    }
  }
  if (t.kind == Target::Kind::cpu) t.compute_units = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  else if (sm.shaderSMCount) t.compute_units = clamp32(sm.shaderSMCount);
  else if (amd.shaderEngineCount)
    t.compute_units =
        clamp32(uint64_t{amd.shaderEngineCount} * amd.shaderArraysPerEngineCount * amd.computeUnitsPerShaderArray);
  else
    t.compute_units =
        props.deviceType == VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU ? 32 : 8;  // a guess: Vulkan does not say

  t.int8 = has.v12.shaderInt8;
  t.int16 = has.core.features.shaderInt16;
  t.int64 = has.core.features.shaderInt64;
  t.int64_atomics = has.v12.shaderBufferInt64Atomics;
  t.float16 = has.v12.shaderFloat16;
  t.float64 = has.core.features.shaderFloat64;
  t.storage8 = has.v12.storageBuffer8BitAccess;
  t.storage16 = has.v11.storageBuffer16BitAccess;
  t.vulkan_memory_model_device_scope = has.v12.vulkanMemoryModelDeviceScope;
  if (modern) {
    // Where a property may be set for all widths only together, a module that sets one width alone would break the
    // rule.
    const bool rte =
        p12.roundingModeIndependence == VK_SHADER_FLOAT_CONTROLS_INDEPENDENCE_ALL ||
        (p12.shaderRoundingModeRTEFloat16 && p12.shaderRoundingModeRTEFloat32 && p12.shaderRoundingModeRTEFloat64);
    t.rte16 = rte && p12.shaderRoundingModeRTEFloat16;
    t.rte32 = rte && p12.shaderRoundingModeRTEFloat32;
    t.rte64 = rte && p12.shaderRoundingModeRTEFloat64;
    t.preserve16 = p12.shaderSignedZeroInfNanPreserveFloat16;
    t.preserve32 = p12.shaderSignedZeroInfNanPreserveFloat32;
    t.preserve64 = p12.shaderSignedZeroInfNanPreserveFloat64;
  }

  p.memory_budget = has_extension(VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
  if (p.memory_budget) p.extensions.push_back(VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
  if (modern && imports && p.unified) {  // elsewhere each access would cross the bus
    p.host_import_alignment = import.minImportedHostPointerAlignment;
    p.extensions.push_back(VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME);
  }
  if (has_extension(VK_KHR_EXTERNAL_MEMORY_FD_EXTENSION_NAME))
    p.extensions.push_back(VK_KHR_EXTERNAL_MEMORY_FD_EXTENSION_NAME);
  if (has_extension("VK_KHR_portability_subset")) p.extensions.push_back("VK_KHR_portability_subset");
  return p;
}

}  // namespace tessera::vulkan
