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

int32_t clamp32(uint64_t v) { return static_cast<int32_t>(std::min<uint64_t>(v, INT32_MAX)); }

bool contains(const std::vector<std::string>& names, const char* name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// What a device says of itself. A device below 1.3 (`modern` is false) does not have the structs of 1.3.
struct Properties {
  Properties(const InstanceTable& vk, VkPhysicalDevice device, const std::vector<std::string>& extensions) {
    vk.vkGetPhysicalDeviceProperties2(device, &all);
    modern = all.properties.apiVersion >= VK_API_VERSION_1_3;
    void* next = nullptr;
    const auto chain = [&](auto& asked) {
      asked.pNext = next;
      next = &asked;
    };
    if (contains(extensions, VK_NV_SHADER_SM_BUILTINS_EXTENSION_NAME)) chain(sm);
    if (contains(extensions, VK_AMD_SHADER_CORE_PROPERTIES_EXTENSION_NAME)) chain(amd);
    imports = contains(extensions, VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME);
    if (imports) chain(import);
    chain(v13);
    chain(v12);
    chain(v11);
    if (modern) chain(all);
    vk.vkGetPhysicalDeviceProperties2(device, &all);
  }
  Properties(const Properties&) = delete;  // the structs point to one another

  bool modern = false, imports = false;
  VkPhysicalDeviceProperties2 all =
      chained<VkPhysicalDeviceProperties2>(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, nullptr);
  VkPhysicalDeviceShaderSMBuiltinsPropertiesNV sm = chained<VkPhysicalDeviceShaderSMBuiltinsPropertiesNV>(
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_SM_BUILTINS_PROPERTIES_NV, nullptr);
  VkPhysicalDeviceShaderCorePropertiesAMD amd = chained<VkPhysicalDeviceShaderCorePropertiesAMD>(
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_CORE_PROPERTIES_AMD, nullptr);
  VkPhysicalDeviceExternalMemoryHostPropertiesEXT import = chained<VkPhysicalDeviceExternalMemoryHostPropertiesEXT>(
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_MEMORY_HOST_PROPERTIES_EXT, nullptr);
  VkPhysicalDeviceVulkan13Properties v13 =
      chained<VkPhysicalDeviceVulkan13Properties>(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_PROPERTIES, nullptr);
  VkPhysicalDeviceVulkan12Properties v12 =
      chained<VkPhysicalDeviceVulkan12Properties>(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_PROPERTIES, nullptr);
  VkPhysicalDeviceVulkan11Properties v11 =
      chained<VkPhysicalDeviceVulkan11Properties>(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES, nullptr);
};

/// The queue family with most abilities, where others' work on the device does not surprise it.
void choose_queue_family(Probe& p, const InstanceTable& vk, VkPhysicalDevice device, const ImportedDevice* imported) {
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
  if (p.queue_family != UINT32_MAX) p.timestamp_bits = family[p.queue_family].timestampValidBits;
}

/// How the host may reach memory; returns the bytes of the device's largest heap of its own.
uint64_t probe_memory(Probe& p, const InstanceTable& vk, VkPhysicalDevice device, VkPhysicalDeviceType type) {
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
  const bool shares_memory = type == VK_PHYSICAL_DEVICE_TYPE_CPU || type == VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU;
  p.host_writes_arrays = mappable > 0 && mappable >= heap / 2;  // not the 256 MiB window of a GPU without resizable BAR
  p.unified = p.host_writes_arrays && cached && shares_memory;
  return heap;
}

void describe_driver(Probe& p, const Properties& has) {
  const VkPhysicalDeviceProperties& props = has.all.properties;
  p.driver.vendor = props.vendorID;
  p.driver.device = props.deviceID;
  p.driver.version = props.driverVersion;
  p.driver.api = props.apiVersion;
  p.driver.name = p.info.name + "\n" + p.info.driver;
  std::memcpy(p.driver.cache_uuid, props.pipelineCacheUUID, VK_UUID_SIZE);
  if (has.modern) std::memcpy(p.driver.driver_uuid, has.v11.driverUUID, VK_UUID_SIZE);
}

void describe_workgroups(Target& t, Probe& p, const VkPhysicalDeviceLimits& limits) {
  t.max_workgroup_size = clamp32(std::min(limits.maxComputeWorkGroupInvocations, limits.maxComputeWorkGroupSize[0]));
  for (int i = 0; i < 3; ++i) p.max_groups[i] = limits.maxComputeWorkGroupCount[i];
  t.max_workgroup_count = clamp32(*std::min_element(p.max_groups, p.max_groups + 3));
  t.shared_bytes = limits.maxComputeSharedMemorySize;
  t.push_constant_bytes = clamp32(limits.maxPushConstantsSize);
}

void describe_subgroups(Target& t, const Properties& p, const Features& has) {
  if (!p.modern) return;
  if (p.v11.subgroupSupportedStages & VK_SHADER_STAGE_COMPUTE_BIT) {
    t.subgroup_vote = p.v11.subgroupSupportedOperations & VK_SUBGROUP_FEATURE_VOTE_BIT;
    t.subgroup_arithmetic = p.v11.subgroupSupportedOperations & VK_SUBGROUP_FEATURE_ARITHMETIC_BIT;
    t.subgroup_ballot = p.v11.subgroupSupportedOperations & VK_SUBGROUP_FEATURE_BALLOT_BIT;
    t.subgroup_shuffle = p.v11.subgroupSupportedOperations & VK_SUBGROUP_FEATURE_SHUFFLE_BIT;
  }
  t.min_subgroup_size = clamp32(p.v13.minSubgroupSize);
  t.max_subgroup_size = clamp32(p.v13.maxSubgroupSize);
  t.subgroup_size = clamp32(p.v11.subgroupSize);
  const bool sizes_vary = t.min_subgroup_size != t.max_subgroup_size;
  t.can_require_subgroup_size = has.v13.computeFullSubgroups &&
                                (!sizes_vary || (has.v13.subgroupSizeControl &&
                                                 (p.v13.requiredSubgroupSizeStages & VK_SHADER_STAGE_COMPUTE_BIT)));
  // Of two sizes the smaller: as many registers for an invocation, and shuffles that reach all of it in one
  // instruction.
  constexpr int32_t kPlanned = 32;
  if (t.kind == Target::Kind::gpu && t.can_require_subgroup_size && t.min_subgroup_size <= kPlanned &&
      kPlanned <= t.max_subgroup_size)
    t.subgroup_size = kPlanned;
  // A pipeline that insists on its subgroup size may not have more subgroups than this: Vulkan's limit on invocations
  // does not know it.
  if (t.can_require_subgroup_size)
    t.max_workgroup_size = std::min(
        t.max_workgroup_size, clamp32(static_cast<uint64_t>(t.subgroup_size) * p.v13.maxComputeWorkgroupSubgroups));
}

/// What Vulkan does not say: how drivers treat branches, loops and matrices.
void describe_compiler(Target& t, const Properties& p) {
  t.skips_branches = t.kind == Target::Kind::gpu;
  // Its instruction transposes them on the way. On an H200 the shader of tests/bench/gpu for 4096x4096x4096 of f16
  // takes 0.46 ms, and 0.73 where y is transposed before (580.159).
  t.transposes_matrices = t.wrong_int64_division = p.modern && p.v12.driverID == VK_DRIVER_ID_NVIDIA_PROPRIETARY;
  // Of the drivers in tests/bench/gpu Apple's alone merges no accesses to an array of words in shared memory; the code
  // of others is a little worse with vectors. And its shuffles, but those within quads, are 13 instructions.
  constexpr auto kHoneykrisp = static_cast<VkDriverId>(26), kNvk = static_cast<VkDriverId>(24);
  t.shared_vectors = t.subgroup_reductions = t.indexed_addresses = p.modern && p.v12.driverID == kHoneykrisp;
  // Its compiler keeps matrices that a loop carries from zeros in registers apart, and moves them for each product.
  t.first_chunk_apart = p.modern && p.v12.driverID == kNvk;
  if (!p.modern || p.v12.driverID != VK_DRIVER_ID_MESA_LLVMPIPE) return;
  t.forgets_zeros = true;
  const std::string_view driver = p.v12.driverInfo;  // "Mesa 22.3.6 (LLVM 15.0.6)"
  const int major = driver.substr(0, 5) == "Mesa " ? std::atoi(p.v12.driverInfo + 5) : 0;
  if (major < 25) {
    t.skips_branches = true;
    t.max_loop_iterations = 65535;
    t.dot_results = 256;
  }
}

int32_t compute_units(const Target& t, const Properties& p) {
  if (t.kind == Target::Kind::cpu) return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  if (p.sm.shaderSMCount) return clamp32(p.sm.shaderSMCount);
  if (p.amd.shaderEngineCount)
    return clamp32(uint64_t{p.amd.shaderEngineCount} * p.amd.shaderArraysPerEngineCount *
                   p.amd.computeUnitsPerShaderArray);
  // a guess: Vulkan does not say
  return p.all.properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU ? 32 : 8;
}

void describe_types(Target& t, const Properties& p, const Features& has) {
  t.int8 = has.v12.shaderInt8;
  t.int16 = has.core.features.shaderInt16;
  t.int64 = has.core.features.shaderInt64;
  t.int64_atomics = has.v12.shaderBufferInt64Atomics;
  t.float16 = has.v12.shaderFloat16;
  t.float64 = has.core.features.shaderFloat64;
  t.storage8 = has.v12.storageBuffer8BitAccess;
  t.storage16 = has.v11.storageBuffer16BitAccess;
  t.vulkan_memory_model_device_scope = has.v12.vulkanMemoryModelDeviceScope;
  if (!p.modern) return;
  t.integer_dot = has.v13.shaderIntegerDotProduct;
  t.dot4_signed = t.integer_dot && p.v13.integerDotProduct4x8BitPackedSignedAccelerated;
  t.dot4_unsigned = t.integer_dot && p.v13.integerDotProduct4x8BitPackedUnsignedAccelerated;
  t.dot4_mixed = t.integer_dot && p.v13.integerDotProduct4x8BitPackedMixedSignednessAccelerated;
  const VkPhysicalDeviceVulkan12Properties& p12 = p.v12;
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

/// The extensions that the device is made with.
void choose_extensions(Probe& p, const Properties& has, const std::vector<std::string>& extensions) {
  p.memory_budget = contains(extensions, VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
  if (p.memory_budget) p.extensions.push_back(VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
  if (has.modern && has.imports && p.unified) {  // elsewhere each access would cross the bus
    p.host_import_alignment = has.import.minImportedHostPointerAlignment;
    p.extensions.push_back(VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME);
  }
  for (const char* name : {VK_KHR_EXTERNAL_MEMORY_FD_EXTENSION_NAME, "VK_KHR_portability_subset"})
    if (contains(extensions, name)) p.extensions.push_back(name);
}

}  // namespace

Probe probe(const Instance& instance, VkPhysicalDevice device, int index, const ImportedDevice* imported) {
  const InstanceTable& vk = instance.vk();
  Probe p;
  const std::vector<std::string> extensions =
      imported ? imported->device_extensions : device_extensions(instance, device);
  const Properties properties(vk, device, extensions);
  const VkPhysicalDeviceProperties& props = properties.all.properties;

  Features has;
  if (!properties.modern) has.core.pNext = nullptr;
  if (imported) read_enabled(imported->features, imported->enabled_features, has);
  else vk.vkGetPhysicalDeviceFeatures2(device, &has.core);
  p.enable = std::make_unique<Features>();
  enable_known(has, *p.enable);
  choose_queue_family(p, vk, device, imported);
  p.timestamp_period = props.limits.timestampPeriod;
  const uint64_t heap = probe_memory(p, vk, device, props.deviceType);

  DeviceInfo& info = p.info;
  info.index = index;
  info.name = props.deviceName;
  info.kind = kind_name(props.deviceType);
  info.api_version = version_name(props.apiVersion);
  info.lacks = missing(has, props.apiVersion, p.queue_family != UINT32_MAX);
  info.memory_bytes = static_cast<int64_t>(heap);
  if (properties.modern) {
    info.driver = std::string(properties.v12.driverName) + " " + properties.v12.driverInfo;
    info.max_array_bytes = static_cast<int64_t>(
        std::min({properties.v13.maxBufferSize, properties.v11.maxMemoryAllocationSize, heap, uint64_t{1} << 62}));
  }
  describe_driver(p, properties);

  Target& t = info.target;
  t.name = info.name;
  t.kind = props.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU ? Target::Kind::cpu : Target::Kind::gpu;
  t.max_buffer_bytes = info.max_array_bytes;
  describe_workgroups(t, p, props.limits);
  describe_subgroups(t, properties, has);
  describe_compiler(t, properties);
  t.compute_units = compute_units(t, properties);
  describe_types(t, properties, has);
  p.of_code = std::make_unique<Extensions>();
  p.of_code->shared_vectors = t.shared_vectors;
  if (properties.modern)
    p.of_code->probe(instance, device, extensions, imported != nullptr, imported ? imported->features : nullptr);
  t.matrices = p.of_code->matrices;
  t.shared_vectors = p.of_code->shared_vectors;
  choose_extensions(p, properties, extensions);
  p.extensions.insert(p.extensions.end(), p.of_code->names().begin(), p.of_code->names().end());
  return p;
}

}  // namespace tessera::vulkan
