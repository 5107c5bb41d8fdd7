#include "vulkan_host.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "engine/base/error.h"
#include "engine/base/platform.h"
#include "support.h"

namespace tessera::test {
namespace {

std::vector<std::string>* last_messages = nullptr;  // those of a host that is being destroyed

void check(VkResult r, const char* call) {
  if (r != VK_SUCCESS) throw DeviceError(std::string(call) + " of the test's host: VkResult " + std::to_string(r));
}

template <class T> T make(VkStructureType type, void* next = nullptr) {
  T t{};
  t.sType = type;
  t.pNext = next;
  return t;
}

}  // namespace

VKAPI_ATTR VkBool32 VKAPI_CALL VulkanHost::report(VkDebugUtilsMessageSeverityFlagBitsEXT,
                                                  VkDebugUtilsMessageTypeFlagsEXT,
                                                  const VkDebugUtilsMessengerCallbackDataEXT* data, void* self) {
  auto* host = static_cast<VulkanHost*>(self);
  const std::lock_guard lock(host->mutex_);
  host->messages_.push_back(data->pMessage);
  return VK_FALSE;
}

VulkanHost::VulkanHost(const VulkanHostOptions& options) : extensions_(options.extensions) {
  static void* loader = platform::open_library(platform::kVulkanLoader);
  if (!loader) throw DeviceError("the test's host finds no Vulkan loader");
  lookup_ = reinterpret_cast<PFN_vkGetInstanceProcAddr>(platform::symbol(loader, "vkGetInstanceProcAddr"));
  const auto create_instance = reinterpret_cast<PFN_vkCreateInstance>(lookup_(nullptr, "vkCreateInstance"));
  auto messenger = make<VkDebugUtilsMessengerCreateInfoEXT>(VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT);
  messenger.messageSeverity =
      VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT | VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT;
  messenger.messageType = VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT;
  messenger.pfnUserCallback = &VulkanHost::report;
  messenger.pUserData = this;
  const VkValidationFeatureEnableEXT sync = VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT;
  const VkValidationFeaturesEXT validation{VK_STRUCTURE_TYPE_VALIDATION_FEATURES_EXT, &messenger, 1, &sync, 0, nullptr};
  const VkApplicationInfo app{VK_STRUCTURE_TYPE_APPLICATION_INFO, nullptr, "a host", 0, nullptr, 0, VK_API_VERSION_1_3};
  const char* layer = "VK_LAYER_KHRONOS_validation";
  const char* instance_extensions[] = {VK_EXT_DEBUG_UTILS_EXTENSION_NAME, VK_EXT_VALIDATION_FEATURES_EXTENSION_NAME};
  VkInstanceCreateInfo info{
      VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO, &validation, 0, &app, 1, &layer, 2, instance_extensions};
  if (!kValidation) info.pNext = nullptr, info.enabledLayerCount = info.enabledExtensionCount = 0;
  check(create_instance(&info, nullptr, &instance), "vkCreateInstance");
#define X(f) f = reinterpret_cast<PFN_##f>(lookup_(instance, #f));
  TESSERA_HOST_FUNCTIONS(X)
#undef X
  if (kValidation)
    check(vkCreateDebugUtilsMessengerEXT(instance, &messenger, nullptr, &messenger_), "vkCreateDebugUtilsMessengerEXT");
  uint32_t one = 1;
  if (vkEnumeratePhysicalDevices(instance, &one, &physical) < 0 || one == 0)
    throw DeviceError("the test's host finds no device");

  auto h13 = make<VkPhysicalDeviceVulkan13Features>(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES);
  auto h12 = make<VkPhysicalDeviceVulkan12Features>(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES, &h13);
  auto h11 = make<VkPhysicalDeviceVulkan11Features>(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES, &h12);
  auto has = make<VkPhysicalDeviceFeatures2>(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, &h11);
  vkGetPhysicalDeviceFeatures2(physical, &has);
  v13_ = make<VkPhysicalDeviceVulkan13Features>(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES);
  v12_ = make<VkPhysicalDeviceVulkan12Features>(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES, &v13_);
  v11_ = make<VkPhysicalDeviceVulkan11Features>(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES, &v12_);
  features = make<VkPhysicalDeviceFeatures2>(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, &v11_);
  if (options.all_features) {
    enable_device_features(&has, &features);
  } else {
    for (const DeviceFeature& f : required_device_features()) {
      if (std::find(options.without.begin(), options.without.end(), f.name) != options.without.end()) continue;
      void* base = f.type == v12_.sType ? static_cast<void*>(&v12_) : &v13_;
      *reinterpret_cast<VkBool32*>(static_cast<char*>(base) + f.offset) = VK_TRUE;
    }
  }
  v12_.separateDepthStencilLayouts = options.separate_depth_stencil && h12.separateDepthStencilLayouts;
  const float priority = 1;
  const VkDeviceQueueCreateInfo queues{VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO, nullptr, 0, 0, 1, &priority};
  auto create = make<VkDeviceCreateInfo>(VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO, &features);
  create.queueCreateInfoCount = 1;
  create.pQueueCreateInfos = &queues;
  create.enabledExtensionCount = static_cast<uint32_t>(extensions_.size());
  create.ppEnabledExtensionNames = extensions_.data();
  check(vkCreateDevice(physical, &create, nullptr, &device), "vkCreateDevice");
  vkGetDeviceQueue(device, 0, 0, &queue);
}

void VulkanHost::destroy_device() {
  if (!device) return;
  wait();
  for (const Buffer& b : buffers_) {
    vkDestroyBuffer(device, b.handle, nullptr);
    vkFreeMemory(device, b.memory, nullptr);
  }
  for (const Image& i : images_) {
    vkDestroyImage(device, i.handle, nullptr);
    vkFreeMemory(device, i.memory, nullptr);
  }
  for (VkSemaphore s : semaphores_) vkDestroySemaphore(device, s, nullptr);
  for (VkCommandPool p : pools_) vkDestroyCommandPool(device, p, nullptr);
  vkDestroyDevice(device, nullptr);
  device = VK_NULL_HANDLE;
}

VulkanHost::~VulkanHost() {
  destroy_device();
  if (last_messages) *last_messages = messages();
  if (messenger_) vkDestroyDebugUtilsMessengerEXT(instance, messenger_, nullptr);
  vkDestroyInstance(instance, nullptr);
}

void check_silent(std::unique_ptr<VulkanHost> host) {
  std::vector<std::string> messages;
  last_messages = &messages;
  host.reset();
  last_messages = nullptr;
  for (const std::string& m : messages) FAIL_CHECK(m);
}

ImportedDevice VulkanHost::imported() const {
  ImportedDevice d;
  d.get_instance_proc_addr = lookup_;
  d.instance = instance;
  d.api_version = VK_API_VERSION_1_3;
  d.physical_device = physical;
  d.device = device;
  d.queue = queue;
  d.queue_family = 0;
  d.features = &features;
  d.device_extensions.assign(extensions_.begin(), extensions_.end());
  d.instance_extensions = {VK_EXT_DEBUG_UTILS_EXTENSION_NAME};
  return d;
}

VkDeviceMemory VulkanHost::allocate(const VkMemoryRequirements& needs, VkMemoryPropertyFlags wanted, bool address) {
  VkPhysicalDeviceMemoryProperties memory;
  vkGetPhysicalDeviceMemoryProperties(physical, &memory);
  uint32_t type = 0;
  while (type < memory.memoryTypeCount &&
         (!(needs.memoryTypeBits >> type & 1) || (memory.memoryTypes[type].propertyFlags & wanted) != wanted))
    ++type;
  if (type == memory.memoryTypeCount) throw DeviceError("the test's host: no type of memory is right");
  auto flags = make<VkMemoryAllocateFlagsInfo>(VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO);
  flags.flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT;
  const VkMemoryAllocateInfo info{VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, address ? &flags : nullptr, needs.size, type};
  VkDeviceMemory m;
  check(vkAllocateMemory(device, &info, nullptr, &m), "vkAllocateMemory");
  return m;
}

VulkanHost::Buffer VulkanHost::buffer(VkDeviceSize size, VkBufferUsageFlags usage) {
  Buffer b;
  b.size = size;
  b.usage = usage;
  auto info = make<VkBufferCreateInfo>(VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO);
  info.size = size;
  info.usage = usage;
  check(vkCreateBuffer(device, &info, nullptr, &b.handle), "vkCreateBuffer");
  VkMemoryRequirements needs;
  vkGetBufferMemoryRequirements(device, b.handle, &needs);
  b.memory = allocate(needs, VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT,
                      usage & VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT);
  check(vkBindBufferMemory(device, b.handle, b.memory, 0), "vkBindBufferMemory");
  void* mapped;
  check(vkMapMemory(device, b.memory, 0, VK_WHOLE_SIZE, 0, &mapped), "vkMapMemory");
  b.mapped = static_cast<float*>(mapped);
  return buffers_.emplace_back(b);
}

VulkanHost::Image VulkanHost::image(VkFormat format, VkExtent2D extent, VkImageUsageFlags usage) {
  return image(format, {extent.width, extent.height, 1}, 1, 1, usage);
}

VulkanHost::Image VulkanHost::image(VkFormat format, VkExtent3D extent, uint32_t levels, uint32_t layers,
                                    VkImageUsageFlags usage) {
  Image i;
  i.format = format;
  i.extent = {extent.width, extent.height};
  i.usage = usage;
  auto info = make<VkImageCreateInfo>(VK_STRUCTURE_TYPE_IMAGE_CREATE_INFO);
  info.imageType = extent.depth > 1 ? VK_IMAGE_TYPE_3D : VK_IMAGE_TYPE_2D;
  info.format = format;
  info.extent = extent;
  info.mipLevels = levels;
  info.arrayLayers = layers;
  info.samples = VK_SAMPLE_COUNT_1_BIT;
  info.tiling = VK_IMAGE_TILING_OPTIMAL;
  info.usage = usage;
  check(vkCreateImage(device, &info, nullptr, &i.handle), "vkCreateImage");
  VkMemoryRequirements needs;
  vkGetImageMemoryRequirements(device, i.handle, &needs);
  i.memory = allocate(needs, 0, false);
  check(vkBindImageMemory(device, i.handle, i.memory, 0), "vkBindImageMemory");
  return images_.emplace_back(i);
}

VkCommandBuffer VulkanHost::commands() {
  VkCommandPool pool;
  const VkCommandPoolCreateInfo make_pool{VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO, nullptr,
                                          VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT, 0};
  check(vkCreateCommandPool(device, &make_pool, nullptr, &pool), "vkCreateCommandPool");
  pools_.push_back(pool);
  VkCommandBuffer c;
  const VkCommandBufferAllocateInfo info{VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO, nullptr, pool,
                                         VK_COMMAND_BUFFER_LEVEL_PRIMARY, 1};
  check(vkAllocateCommandBuffers(device, &info, &c), "vkAllocateCommandBuffers");
  return c;
}

void VulkanHost::begin(VkCommandBuffer c) {
  const VkCommandBufferBeginInfo info{VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO, nullptr, 0, nullptr};
  check(vkBeginCommandBuffer(c, &info), "vkBeginCommandBuffer");
}

void VulkanHost::submit(VkCommandBuffer c, VkFence fence, const VkSemaphoreSubmitInfo* waits,
                        const VkSemaphoreSubmitInfo* signals) {
  check(vkEndCommandBuffer(c), "vkEndCommandBuffer");
  const VkCommandBufferSubmitInfo commands_info{VK_STRUCTURE_TYPE_COMMAND_BUFFER_SUBMIT_INFO, nullptr, c, 0};
  const VkSubmitInfo2 info{VK_STRUCTURE_TYPE_SUBMIT_INFO_2,
                           nullptr,
                           0,
                           waits ? 1u : 0u,
                           waits,
                           1,
                           &commands_info,
                           signals ? 1u : 0u,
                           signals};
  check(vkQueueSubmit2(queue, 1, &info, fence), "vkQueueSubmit2");
}

void VulkanHost::wait() { check(vkQueueWaitIdle(queue), "vkQueueWaitIdle"); }

void VulkanHost::barrier(VkCommandBuffer c, VkPipelineStageFlags2 from, VkAccessFlags2 from_accesses,
                         VkPipelineStageFlags2 to, VkAccessFlags2 to_accesses) {
  const VkMemoryBarrier2 memory{VK_STRUCTURE_TYPE_MEMORY_BARRIER_2, nullptr, from, from_accesses, to, to_accesses};
  auto info = make<VkDependencyInfo>(VK_STRUCTURE_TYPE_DEPENDENCY_INFO);
  info.memoryBarrierCount = 1;
  info.pMemoryBarriers = &memory;
  vkCmdPipelineBarrier2(c, &info);
}

void VulkanHost::image_barrier(VkCommandBuffer c, const Image& image, VkImageLayout from, VkImageLayout to) {
  auto b = make<VkImageMemoryBarrier2>(VK_STRUCTURE_TYPE_IMAGE_MEMORY_BARRIER_2);
  b.srcStageMask = b.dstStageMask = VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT;
  b.srcAccessMask = VK_ACCESS_2_MEMORY_WRITE_BIT;
  b.dstAccessMask = VK_ACCESS_2_MEMORY_READ_BIT | VK_ACCESS_2_MEMORY_WRITE_BIT;
  b.oldLayout = from;
  b.newLayout = to;
  b.srcQueueFamilyIndex = b.dstQueueFamilyIndex = VK_QUEUE_FAMILY_IGNORED;
  b.image = image.handle;
  b.subresourceRange = {aspects_of(image.format), 0, VK_REMAINING_MIP_LEVELS, 0, VK_REMAINING_ARRAY_LAYERS};
  auto info = make<VkDependencyInfo>(VK_STRUCTURE_TYPE_DEPENDENCY_INFO);
  info.imageMemoryBarrierCount = 1;
  info.pImageMemoryBarriers = &b;
  vkCmdPipelineBarrier2(c, &info);
}

VkImageAspectFlags aspects_of(VkFormat format) {
  switch (format) {
    case VK_FORMAT_D16_UNORM:
    case VK_FORMAT_X8_D24_UNORM_PACK32:
    case VK_FORMAT_D32_SFLOAT: return VK_IMAGE_ASPECT_DEPTH_BIT;
    case VK_FORMAT_D16_UNORM_S8_UINT:
    case VK_FORMAT_D24_UNORM_S8_UINT:
    case VK_FORMAT_D32_SFLOAT_S8_UINT: return VK_IMAGE_ASPECT_DEPTH_BIT | VK_IMAGE_ASPECT_STENCIL_BIT;
    default: return VK_IMAGE_ASPECT_COLOR_BIT;
  }
}

VkSemaphore VulkanHost::timeline() {
  auto type = make<VkSemaphoreTypeCreateInfo>(VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO);
  type.semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE;
  const VkSemaphoreCreateInfo info{VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, &type, 0};
  VkSemaphore s;
  check(vkCreateSemaphore(device, &info, nullptr, &s), "vkCreateSemaphore");
  return semaphores_.emplace_back(s);
}

std::vector<std::string> VulkanHost::messages() const {
  const std::lock_guard lock(mutex_);
  return messages_;
}

}  // namespace tessera::test
