#include "tests/support/vulkan_runner.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "engine/base/error.h"

namespace tessera::test {
namespace {

void check(VkResult r, const char* call) {
  if (r != VK_SUCCESS) throw DeviceError(std::string(call) + " failed: VkResult " + std::to_string(r));
}

/// A Vulkan struct, all zero but for its type and what it is chained to.
template <class T>
T make(VkStructureType type, void* next = nullptr) {
  T t{};
  t.sType = type;
  t.pNext = next;
  return t;
}

}  // namespace

VKAPI_ATTR VkBool32 VKAPI_CALL VulkanRunner::report(VkDebugUtilsMessageSeverityFlagBitsEXT,
                                                    VkDebugUtilsMessageTypeFlagsEXT,
                                                    const VkDebugUtilsMessengerCallbackDataEXT* data, void* self) {
  static_cast<VulkanRunner*>(self)->messages_.push_back(data->pMessage);
  return VK_FALSE;
}

namespace {
bool has_layer(const char* name) {
  uint32_t count = 0;
  vkEnumerateInstanceLayerProperties(&count, nullptr);
  std::vector<VkLayerProperties> layers(count);
  vkEnumerateInstanceLayerProperties(&count, layers.data());
  return std::any_of(layers.begin(), layers.end(),
                     [&](const VkLayerProperties& l) { return std::strcmp(l.layerName, name) == 0; });
}

void run_and_wait(VkQueue queue, VkCommandBuffer commands) {
  auto submit = make<VkSubmitInfo>(VK_STRUCTURE_TYPE_SUBMIT_INFO);
  submit.commandBufferCount = 1;
  submit.pCommandBuffers = &commands;
  check(vkQueueSubmit(queue, 1, &submit, VK_NULL_HANDLE), "vkQueueSubmit");
  check(vkQueueWaitIdle(queue), "vkQueueWaitIdle");
}
}  // namespace

std::unique_ptr<VulkanRunner> VulkanRunner::open(std::string& why) {
  std::unique_ptr<VulkanRunner> r(new VulkanRunner);
  if (!r->init(why)) return nullptr;
  return r;
}

bool VulkanRunner::init(std::string& why) {
  const VkApplicationInfo app{
      VK_STRUCTURE_TYPE_APPLICATION_INFO, nullptr, "tessera tests", 0, nullptr, 0, VK_API_VERSION_1_3};
  auto debug = make<VkDebugUtilsMessengerCreateInfoEXT>(VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT);
  debug.messageSeverity =
      VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT | VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT;
  debug.messageType = VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT;
  debug.pfnUserCallback = &VulkanRunner::report;
  debug.pUserData = this;

  const char* layer = "VK_LAYER_KHRONOS_validation";
  const bool validation = has_layer(layer);
  uint32_t count = 0;
  const char* extension = VK_EXT_DEBUG_UTILS_EXTENSION_NAME;
  auto create = make<VkInstanceCreateInfo>(VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO);
  create.pApplicationInfo = &app;
  if (validation) {
    create.pNext = &debug;
    create.enabledLayerCount = create.enabledExtensionCount = 1;
    create.ppEnabledLayerNames = &layer;
    create.ppEnabledExtensionNames = &extension;
  }
  if (const VkResult r = vkCreateInstance(&create, nullptr, &instance_); r != VK_SUCCESS) {
    why = "no Vulkan instance: VkResult " + std::to_string(r);
    return false;
  }
  if (validation) {
    const auto create_messenger = reinterpret_cast<PFN_vkCreateDebugUtilsMessengerEXT>(
        vkGetInstanceProcAddr(instance_, "vkCreateDebugUtilsMessengerEXT"));
    check(create_messenger(instance_, &debug, nullptr, &messenger_), "vkCreateDebugUtilsMessengerEXT");
  }
  vkEnumeratePhysicalDevices(instance_, &count, nullptr);
  std::vector<VkPhysicalDevice> devices(count);
  vkEnumeratePhysicalDevices(instance_, &count, devices.data());
  for (VkPhysicalDevice d : devices) {
    VkPhysicalDeviceProperties p;
    vkGetPhysicalDeviceProperties(d, &p);
    if (p.apiVersion >= VK_API_VERSION_1_3) {
      physical_ = d;
      break;
    }
  }
  if (!physical_) {
    why = "no Vulkan 1.3 device";
    return false;
  }
  fill_target();

  vkGetPhysicalDeviceQueueFamilyProperties(physical_, &count, nullptr);
  std::vector<VkQueueFamilyProperties> families(count);
  vkGetPhysicalDeviceQueueFamilyProperties(physical_, &count, families.data());
  while (family_ < count && !(families[family_].queueFlags & VK_QUEUE_COMPUTE_BIT)) ++family_;
  const float priority = 1;
  const VkDeviceQueueCreateInfo queue{VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO, nullptr, 0, family_, 1, &priority};
  auto f11 = make<VkPhysicalDeviceVulkan11Features>(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES);
  auto f12 = make<VkPhysicalDeviceVulkan12Features>(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES, &f11);
  auto f13 = make<VkPhysicalDeviceVulkan13Features>(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES, &f12);
  auto features = make<VkPhysicalDeviceFeatures2>(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, &f13);
  f11.storageBuffer16BitAccess = target_.storage16;
  f12.storageBuffer8BitAccess = target_.storage8;
  f12.shaderBufferInt64Atomics = target_.int64_atomics;
  f12.shaderFloat16 = target_.float16;
  f12.shaderInt8 = target_.int8;
  f12.bufferDeviceAddress = f12.vulkanMemoryModel = VK_TRUE;
  f12.vulkanMemoryModelDeviceScope = target_.vulkan_memory_model_device_scope;
  f13.shaderIntegerDotProduct = target_.integer_dot;
  f13.subgroupSizeControl = f13.computeFullSubgroups = target_.can_require_subgroup_size;
  features.features.shaderInt64 = target_.int64;
  features.features.shaderInt16 = target_.int16;
  features.features.shaderFloat64 = target_.float64;
  auto device = make<VkDeviceCreateInfo>(VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO, &features);
  device.queueCreateInfoCount = 1;
  device.pQueueCreateInfos = &queue;
  check(vkCreateDevice(physical_, &device, nullptr, &device_), "vkCreateDevice");
  vkGetDeviceQueue(device_, family_, 0, &queue_);
  const VkCommandPoolCreateInfo pool{VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO, nullptr,
                                     VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT, family_};
  check(vkCreateCommandPool(device_, &pool, nullptr, &pool_), "vkCreateCommandPool");
  return true;
}

void VulkanRunner::fill_target() {
  auto f11 = make<VkPhysicalDeviceVulkan11Features>(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES);
  auto f12 = make<VkPhysicalDeviceVulkan12Features>(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES, &f11);
  auto f13 = make<VkPhysicalDeviceVulkan13Features>(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES, &f12);
  auto f = make<VkPhysicalDeviceFeatures2>(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, &f13);
  vkGetPhysicalDeviceFeatures2(physical_, &f);
  auto p11 = make<VkPhysicalDeviceVulkan11Properties>(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES);
  auto p12 = make<VkPhysicalDeviceVulkan12Properties>(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_PROPERTIES, &p11);
  auto p13 = make<VkPhysicalDeviceVulkan13Properties>(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_PROPERTIES, &p12);
  auto p = make<VkPhysicalDeviceProperties2>(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, &p13);
  vkGetPhysicalDeviceProperties2(physical_, &p);
  const VkPhysicalDeviceLimits& l = p.properties.limits;
  Target& t = target_;
  t.name = p.properties.deviceName;
  t.kind = p.properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU ? Target::Kind::cpu : Target::Kind::gpu;
  t.max_workgroup_size = static_cast<int32_t>(std::min(l.maxComputeWorkGroupInvocations, l.maxComputeWorkGroupSize[0]));
  t.shared_bytes = l.maxComputeSharedMemorySize;
  t.push_constant_bytes = static_cast<int32_t>(l.maxPushConstantsSize);
  t.min_subgroup_size = static_cast<int32_t>(p13.minSubgroupSize);
  t.max_subgroup_size = static_cast<int32_t>(p13.maxSubgroupSize);
  t.subgroup_size = static_cast<int32_t>(p11.subgroupSize);
  t.can_require_subgroup_size = f13.subgroupSizeControl && f13.computeFullSubgroups &&
                                (p13.requiredSubgroupSizeStages & VK_SHADER_STAGE_COMPUTE_BIT);
  if (p12.driverID == VK_DRIVER_ID_MESA_LLVMPIPE && std::atoi(p12.driverInfo + std::strcspn(p12.driverInfo, " ")) < 25)
    t.max_loop_iterations = 65535;
  t.subgroup_vote = p11.subgroupSupportedOperations & VK_SUBGROUP_FEATURE_VOTE_BIT;
  t.subgroup_arithmetic = p11.subgroupSupportedOperations & VK_SUBGROUP_FEATURE_ARITHMETIC_BIT;
  t.subgroup_ballot = p11.subgroupSupportedOperations & VK_SUBGROUP_FEATURE_BALLOT_BIT;
  t.subgroup_shuffle = p11.subgroupSupportedOperations & VK_SUBGROUP_FEATURE_SHUFFLE_BIT;
  t.int8 = f12.shaderInt8;
  t.int16 = f.features.shaderInt16;
  t.int64 = f.features.shaderInt64;
  t.float16 = f12.shaderFloat16;
  t.float64 = f.features.shaderFloat64;
  t.int64_atomics = f12.shaderBufferInt64Atomics;
  t.storage8 = f12.storageBuffer8BitAccess;
  t.storage16 = f11.storageBuffer16BitAccess;
  t.vulkan_memory_model_device_scope = f12.vulkanMemoryModelDeviceScope;
  t.integer_dot = f13.shaderIntegerDotProduct;
  t.skips_branches = t.max_loop_iterations > 0 || t.kind == Target::Kind::gpu;
  t.rte16 = p12.shaderRoundingModeRTEFloat16;
  t.rte32 = p12.shaderRoundingModeRTEFloat32;
  t.rte64 = p12.shaderRoundingModeRTEFloat64;
  t.preserve16 = p12.shaderSignedZeroInfNanPreserveFloat16;
  t.preserve32 = p12.shaderSignedZeroInfNanPreserveFloat32;
  t.preserve64 = p12.shaderSignedZeroInfNanPreserveFloat64;
  t.forgets_zeros = p12.driverID == VK_DRIVER_ID_MESA_LLVMPIPE;
}

VulkanRunner::~VulkanRunner() {
  if (device_) {
    vkDestroyCommandPool(device_, pool_, nullptr);
    vkDestroyDevice(device_, nullptr);
  }
  if (messenger_) {
    const auto destroy = reinterpret_cast<PFN_vkDestroyDebugUtilsMessengerEXT>(
        vkGetInstanceProcAddr(instance_, "vkDestroyDebugUtilsMessengerEXT"));
    destroy(instance_, messenger_, nullptr);
  }
  if (instance_) vkDestroyInstance(instance_, nullptr);
}

VulkanRunner::Buffer VulkanRunner::make_buffer(size_t bytes) {
  Buffer b;
  auto info = make<VkBufferCreateInfo>(VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO);
  info.size = std::max<size_t>((bytes + 3) / 4 * 4, 16);
  info.usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT;
  check(vkCreateBuffer(device_, &info, nullptr, &b.buffer), "vkCreateBuffer");
  VkMemoryRequirements needs;
  vkGetBufferMemoryRequirements(device_, b.buffer, &needs);
  VkPhysicalDeviceMemoryProperties memory;
  vkGetPhysicalDeviceMemoryProperties(physical_, &memory);
  const VkMemoryPropertyFlags wanted = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
  uint32_t type = 0;
  while (!(needs.memoryTypeBits >> type & 1) || (memory.memoryTypes[type].propertyFlags & wanted) != wanted) ++type;
  const VkMemoryAllocateFlagsInfo flags{VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO, nullptr,
                                        VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT, 0};
  const VkMemoryAllocateInfo allocate{VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, &flags, needs.size, type};
  check(vkAllocateMemory(device_, &allocate, nullptr, &b.memory), "vkAllocateMemory");
  check(vkBindBufferMemory(device_, b.buffer, b.memory, 0), "vkBindBufferMemory");
  check(vkMapMemory(device_, b.memory, 0, VK_WHOLE_SIZE, 0, &b.mapped), "vkMapMemory");
  const VkBufferDeviceAddressInfo address{VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO, nullptr, b.buffer};
  b.address = vkGetBufferDeviceAddress(device_, &address);
  return b;
}

void VulkanRunner::free_buffer(const Buffer& b) {
  vkDestroyBuffer(device_, b.buffer, nullptr);
  vkFreeMemory(device_, b.memory, nullptr);
}

void VulkanRunner::run(const std::vector<uint32_t>& spirv, const Dispatch& d) {
  std::vector<Buffer> buffers;
  std::vector<std::byte> push;
  const auto append = [&](const void* data, size_t n) {
    push.insert(push.end(), static_cast<const std::byte*>(data), static_cast<const std::byte*>(data) + n);
  };
  for (std::vector<std::byte>* host : d.buffers) {
    buffers.push_back(make_buffer(host->size()));
    if (!host->empty()) std::memcpy(buffers.back().mapped, host->data(), host->size());
    append(&buffers.back().address, 8);
  }
  if (d.scratch_bytes > 0) {
    buffers.push_back(make_buffer(static_cast<size_t>(d.scratch_bytes)));
    std::memset(buffers.back().mapped, 0xff, static_cast<size_t>(d.scratch_bytes));
    append(&buffers.back().address, 8);
  }
  append(d.extents.data(), d.extents.size());
  if (d.indirect_table) {
    buffers.push_back(make_buffer(push.size()));
    std::memcpy(buffers.back().mapped, push.data(), push.size());
    push.clear();
    append(&buffers.back().address, 8);
  }

  VkShaderModule module = VK_NULL_HANDLE;
  const VkShaderModuleCreateInfo module_info{VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO, nullptr, 0, spirv.size() * 4,
                                             spirv.data()};
  check(vkCreateShaderModule(device_, &module_info, nullptr, &module), "vkCreateShaderModule");
  const VkPushConstantRange range{VK_SHADER_STAGE_COMPUTE_BIT, 0, static_cast<uint32_t>(push.size())};
  auto layout_info = make<VkPipelineLayoutCreateInfo>(VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO);
  layout_info.pushConstantRangeCount = push.empty() ? 0 : 1;
  layout_info.pPushConstantRanges = &range;
  VkPipelineLayout layout = VK_NULL_HANDLE;
  check(vkCreatePipelineLayout(device_, &layout_info, nullptr, &layout), "vkCreatePipelineLayout");
  auto size = make<VkPipelineShaderStageRequiredSubgroupSizeCreateInfo>(
      VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO);
  size.requiredSubgroupSize = d.subgroup_size;
  auto info = make<VkComputePipelineCreateInfo>(VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO);
  info.stage = {VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                nullptr,
                0,
                VK_SHADER_STAGE_COMPUTE_BIT,
                module,
                "main",
                nullptr};
  if (d.subgroup_size) {
    info.stage.pNext = &size;
    info.stage.flags = VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT;
  }
  info.layout = layout;
  VkPipeline pipeline = VK_NULL_HANDLE;
  check(vkCreateComputePipelines(device_, VK_NULL_HANDLE, 1, &info, nullptr, &pipeline), "vkCreateComputePipelines");

  VkCommandBuffer commands = VK_NULL_HANDLE;
  const VkCommandBufferAllocateInfo allocate{VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO, nullptr, pool_,
                                             VK_COMMAND_BUFFER_LEVEL_PRIMARY, 1};
  check(vkAllocateCommandBuffers(device_, &allocate, &commands), "vkAllocateCommandBuffers");
  const auto begin = make<VkCommandBufferBeginInfo>(VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO);
  check(vkBeginCommandBuffer(commands, &begin), "vkBeginCommandBuffer");
  vkCmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline);
  if (!push.empty())
    vkCmdPushConstants(commands, layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, static_cast<uint32_t>(push.size()),
                       push.data());
  vkCmdDispatch(commands, d.workgroups[0], d.workgroups[1], d.workgroups[2]);
  VkMemoryBarrier barrier{VK_STRUCTURE_TYPE_MEMORY_BARRIER, nullptr, VK_ACCESS_SHADER_WRITE_BIT,
                          VK_ACCESS_HOST_READ_BIT};
  vkCmdPipelineBarrier(commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, VK_PIPELINE_STAGE_HOST_BIT, 0, 1, &barrier, 0,
                       nullptr, 0, nullptr);
  check(vkEndCommandBuffer(commands), "vkEndCommandBuffer");
  run_and_wait(queue_, commands);
  for (size_t i = 0; i < d.buffers.size(); ++i)
    if (!d.buffers[i]->empty()) std::memcpy(d.buffers[i]->data(), buffers[i].mapped, d.buffers[i]->size());
  vkFreeCommandBuffers(device_, pool_, 1, &commands);
  vkDestroyPipeline(device_, pipeline, nullptr);
  vkDestroyPipelineLayout(device_, layout, nullptr);
  vkDestroyShaderModule(device_, module, nullptr);
  for (const Buffer& b : buffers) free_buffer(b);
}

}  // namespace tessera::test
