#include "vulkan_host.h"

VkPhysicalDeviceFeatures2* chain(VkPhysicalDeviceFeatures2* f, VkPhysicalDeviceVulkan11Features* v11,
                                 VkPhysicalDeviceVulkan12Features* v12, VkPhysicalDeviceVulkan13Features* v13) {
  memset(f, 0, sizeof *f), memset(v11, 0, sizeof *v11), memset(v12, 0, sizeof *v12), memset(v13, 0, sizeof *v13);
  f->sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, f->pNext = v11;
  v11->sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES, v11->pNext = v12;
  v12->sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES, v12->pNext = v13;
  v13->sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES;
  return f;
}

uint32_t memory_type(const Host* h, uint32_t bits, VkMemoryPropertyFlags wanted) {
  VkPhysicalDeviceMemoryProperties properties;
  vkGetPhysicalDeviceMemoryProperties(h->physical, &properties);
  uint32_t type = 0;
  while (type < properties.memoryTypeCount &&
         !(bits >> type & 1 && (properties.memoryTypes[type].propertyFlags & wanted) == wanted))
    ++type;
  return type;
}

void make_host(Host* h) {
  memset(h, 0, sizeof *h);
  const VkApplicationInfo app = {
      .sType = VK_STRUCTURE_TYPE_APPLICATION_INFO, .pApplicationName = "a host in C", .apiVersion = VK_API_VERSION_1_3};
  const VkInstanceCreateInfo instance = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO, .pApplicationInfo = &app};
  CHECK(vkCreateInstance(&instance, NULL, &h->instance) == VK_SUCCESS);
  uint32_t one = 1;
  CHECK(vkEnumeratePhysicalDevices(h->instance, &one, &h->physical) >= 0 && one == 1);
  VkPhysicalDeviceVulkan13Features h13;
  VkPhysicalDeviceVulkan12Features h12;
  VkPhysicalDeviceVulkan11Features h11;
  VkPhysicalDeviceFeatures2 has;
  int32_t left_out = -1;
  vkGetPhysicalDeviceFeatures2(h->physical, chain(&has, &h11, &h12, &h13));
  CHECK_OK(tessera_enable_device_features(&has, chain(&h->features, &h->v11, &h->v12, &h->v13), &left_out));
  CHECK(left_out == 0);
  CHECK(h->v12.bufferDeviceAddress == VK_TRUE);
  const float priority = 1;
  const VkDeviceQueueCreateInfo queue = {
      .sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO, .queueCount = 1, .pQueuePriorities = &priority};
  const VkDeviceCreateInfo device_info = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                                          .pNext = &h->features,
                                          .queueCreateInfoCount = 1,
                                          .pQueueCreateInfos = &queue};
  CHECK(vkCreateDevice(h->physical, &device_info, NULL, &h->device) == VK_SUCCESS);
  vkGetDeviceQueue(h->device, 0, 0, &h->queue);

  // One buffer that the host maps: 256 bytes for a, then x, y and z.
  const VkBufferCreateInfo buffer = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                                     .size = 8192,
                                     .usage = VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT |
                                              VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
                                              VK_BUFFER_USAGE_TRANSFER_DST_BIT};
  CHECK(vkCreateBuffer(h->device, &buffer, NULL, &h->buffer) == VK_SUCCESS);
  VkMemoryRequirements needs;
  vkGetBufferMemoryRequirements(h->device, h->buffer, &needs);
  const uint32_t type =
      memory_type(h, needs.memoryTypeBits, VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT);
  const VkMemoryAllocateFlagsInfo address = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO,
                                             .flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT};
  const VkMemoryAllocateInfo allocation = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                           .pNext = &address,
                                           .allocationSize = needs.size,
                                           .memoryTypeIndex = type};
  CHECK(vkAllocateMemory(h->device, &allocation, NULL, &h->memory) == VK_SUCCESS);
  CHECK(vkBindBufferMemory(h->device, h->buffer, h->memory, 0) == VK_SUCCESS);
  void* mapped = NULL;
  CHECK(vkMapMemory(h->device, h->memory, 0, VK_WHOLE_SIZE, 0, &mapped) == VK_SUCCESS);
  h->mapped = mapped;
  const VkCommandPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO};
  CHECK(vkCreateCommandPool(h->device, &pool, NULL, &h->pool) == VK_SUCCESS);
  const VkCommandBufferAllocateInfo commands = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                                .commandPool = h->pool,
                                                .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
                                                .commandBufferCount = 1};
  CHECK(vkAllocateCommandBuffers(h->device, &commands, &h->commands) == VK_SUCCESS);
  const VkPipelineCacheCreateInfo cache = {.sType = VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO};
  CHECK(vkCreatePipelineCache(h->device, &cache, NULL, &h->cache) == VK_SUCCESS);
}

void end_host(Host* h) {
  vkDestroyPipelineCache(h->device, h->cache, NULL);
  vkDestroyCommandPool(h->device, h->pool, NULL);
  vkDestroyBuffer(h->device, h->buffer, NULL);
  vkFreeMemory(h->device, h->memory, NULL);
  vkDestroyDevice(h->device, NULL);
  vkDestroyInstance(h->instance, NULL);
}

tessera_imported_device imported_host(const Host* h) {
  const tessera_imported_device d = {.size = sizeof d,
                                     .get_instance_proc_addr = vkGetInstanceProcAddr,
                                     .instance = h->instance,
                                     .physical_device = h->physical,
                                     .device = h->device,
                                     .queue = h->queue,
                                     .api_version = VK_API_VERSION_1_3,
                                     .features = &h->features,
                                     .pipeline_cache = h->cache};
  return d;
}

tessera_array* host_floats(const Host* h, tessera_device* d, VkDeviceSize offset, int64_t n) {
  const tessera_imported_buffer b = {h->buffer, 8192, offset,
                                     VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT | VK_BUFFER_USAGE_STORAGE_BUFFER_BIT |
                                         VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT};
  tessera_array* a = NULL;
  CHECK_OK(tessera_array_import(d, &b, TESSERA_F32, 1, &n, &a));
  return a;
}

void end_for_host(const Host* h, const tessera_scopes* scopes) {
  const VkMemoryBarrier2 to_host = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER_2,
                                    .srcStageMask = scopes->signal_stages,
                                    .srcAccessMask = scopes->signal_accesses,
                                    .dstStageMask = VK_PIPELINE_STAGE_2_HOST_BIT,
                                    .dstAccessMask = VK_ACCESS_2_HOST_READ_BIT};
  const VkDependencyInfo dependency = {
      .sType = VK_STRUCTURE_TYPE_DEPENDENCY_INFO, .memoryBarrierCount = 1, .pMemoryBarriers = &to_host};
  vkCmdPipelineBarrier2(h->commands, &dependency);
  CHECK(vkEndCommandBuffer(h->commands) == VK_SUCCESS);
}

void submit_and_wait(const Host* h) {
  const VkCommandBufferSubmitInfo commands = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_SUBMIT_INFO,
                                              .commandBuffer = h->commands};
  const VkSubmitInfo2 submit = {
      .sType = VK_STRUCTURE_TYPE_SUBMIT_INFO_2, .commandBufferInfoCount = 1, .pCommandBufferInfos = &commands};
  CHECK(vkQueueSubmit2(h->queue, 1, &submit, VK_NULL_HANDLE) == VK_SUCCESS);
  CHECK(vkQueueWaitIdle(h->queue) == VK_SUCCESS);
}
