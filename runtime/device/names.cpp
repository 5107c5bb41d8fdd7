#include "runtime/device/names.h"

namespace tessera::vulkan {

std::string with_line(const std::string& what, Loc loc) { return loc ? what + " at " + to_string(loc) : what; }

// A name that finds no memory is not worth an error.
void set_name(const DeviceTable& vk, VkDevice device, VkObjectType type, uint64_t handle, const std::string& name) {
  const VkDebugUtilsObjectNameInfoEXT info{VK_STRUCTURE_TYPE_DEBUG_UTILS_OBJECT_NAME_INFO_EXT, nullptr, type, handle,
                                           name.c_str()};
  const std::shared_lock lock(device_list());
  vk.vkSetDebugUtilsObjectNameEXT(device, &info);
}

void begin_label(const DeviceTable& vk, VkCommandBuffer commands, const std::string& text) {
  if (!has_names(vk)) return;
  const VkDebugUtilsLabelEXT label{VK_STRUCTURE_TYPE_DEBUG_UTILS_LABEL_EXT, nullptr, text.c_str(), {}};
  vk.vkCmdBeginDebugUtilsLabelEXT(commands, &label);
}

}  // namespace tessera::vulkan
