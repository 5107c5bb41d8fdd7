// Names for Vulkan's objects and labels around ranges of commands, by VK_EXT_debug_utils, for RenderDoc and the
// validation layers. If the extension is not enabled, its functions are null, and the only cost is a test for that:
// check has_names() before building a string. Internal to runtime/. Read next: submit/recorder.h.
#pragma once
#include <string>

#include "engine/base/error.h"
#include "runtime/device/vulkan.h"

namespace tessera::vulkan {

inline bool has_names(const DeviceTable& vk) { return vk.vkSetDebugUtilsObjectNameEXT != nullptr; }

/// "softmax at samples/softmax.cpp:12"
std::string with_line(const std::string& what, Loc loc);

void set_name(const DeviceTable& vk, VkDevice device, VkObjectType type, uint64_t handle, const std::string& name);
template <class Handle> constexpr VkObjectType object_type() {
#define TESSERA_VK_TYPE(H, T)                                         \
  if constexpr (std::is_same_v<Handle, H>) return VK_OBJECT_TYPE_##T; \
  else
  TESSERA_VK_TYPE(VkDevice, DEVICE)
  TESSERA_VK_TYPE(VkQueue, QUEUE)
  TESSERA_VK_TYPE(VkSemaphore, SEMAPHORE)
  TESSERA_VK_TYPE(VkCommandBuffer, COMMAND_BUFFER)
  TESSERA_VK_TYPE(VkDeviceMemory, DEVICE_MEMORY)
  TESSERA_VK_TYPE(VkBuffer, BUFFER)
  TESSERA_VK_TYPE(VkImage, IMAGE)
  TESSERA_VK_TYPE(VkQueryPool, QUERY_POOL)
  TESSERA_VK_TYPE(VkImageView, IMAGE_VIEW)
  TESSERA_VK_TYPE(VkShaderModule, SHADER_MODULE)
  TESSERA_VK_TYPE(VkPipelineCache, PIPELINE_CACHE)
  TESSERA_VK_TYPE(VkPipelineLayout, PIPELINE_LAYOUT)
  TESSERA_VK_TYPE(VkPipeline, PIPELINE)
  TESSERA_VK_TYPE(VkCommandPool, COMMAND_POOL)
  TESSERA_VK_TYPE(VkDescriptorSetLayout, DESCRIPTOR_SET_LAYOUT)
  TESSERA_VK_TYPE(VkDescriptorPool, DESCRIPTOR_POOL)
  TESSERA_VK_TYPE(VkDescriptorSet, DESCRIPTOR_SET)
  return VK_OBJECT_TYPE_UNKNOWN;
#undef TESSERA_VK_TYPE
}
/// Where there are names; `handle` may be null.
template <class Handle> void name_object(const DeviceTable& vk, VkDevice device, Handle handle,
                                         const std::string& name) {
  static_assert(object_type<Handle>() != VK_OBJECT_TYPE_UNKNOWN);
  if (has_names(vk) && handle) set_name(vk, device, object_type<Handle>(), (uint64_t)handle, name);
}

void begin_label(const DeviceTable& vk, VkCommandBuffer commands, const std::string& text);
inline void end_label(const DeviceTable& vk, VkCommandBuffer commands) {
  if (has_names(vk)) vk.vkCmdEndDebugUtilsLabelEXT(commands);
}

}  // namespace tessera::vulkan
