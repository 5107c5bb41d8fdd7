// What Vulkan's functions may return when they fail, and what is said then, without what differs from run to run: for
// the tests of faults.
#pragma once
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/device/vulkan.h"

namespace tessera::test {

/// What a function may return beside VK_SUCCESS, of those that a driver here can be asked to survive (the Vulkan
/// specification's "Return Codes").
inline std::vector<VkResult> failures(const std::string& f) {
  const VkResult host = VK_ERROR_OUT_OF_HOST_MEMORY, dev = VK_ERROR_OUT_OF_DEVICE_MEMORY, lost = VK_ERROR_DEVICE_LOST,
                 unknown = VK_ERROR_UNKNOWN;
  static const std::map<std::string, std::vector<VkResult>> more = {
      {"vkCreateInstance",
       {VK_ERROR_INITIALIZATION_FAILED, VK_ERROR_LAYER_NOT_PRESENT, VK_ERROR_EXTENSION_NOT_PRESENT,
        VK_ERROR_INCOMPATIBLE_DRIVER}},
      {"vkEnumerateInstanceExtensionProperties", {VK_INCOMPLETE, VK_ERROR_LAYER_NOT_PRESENT}},
      {"vkEnumeratePhysicalDevices", {VK_INCOMPLETE, VK_ERROR_INITIALIZATION_FAILED}},
      {"vkEnumerateDeviceExtensionProperties", {VK_INCOMPLETE, VK_ERROR_LAYER_NOT_PRESENT}},
      {"vkCreateDevice",
       {VK_ERROR_INITIALIZATION_FAILED, VK_ERROR_EXTENSION_NOT_PRESENT, VK_ERROR_FEATURE_NOT_PRESENT,
        VK_ERROR_TOO_MANY_OBJECTS, lost}},
      {"vkQueueSubmit2", {lost}},
      {"vkDeviceWaitIdle", {lost}},
      {"vkGetSemaphoreCounterValue", {lost}},
      {"vkWaitSemaphores", {lost, VK_TIMEOUT}},
      {"vkCreateShaderModule", {VK_ERROR_INVALID_SHADER_NV}},
      {"vkCreateComputePipelines", {VK_ERROR_INVALID_SHADER_NV}},
      {"vkCreateBuffer", {VK_ERROR_INVALID_OPAQUE_CAPTURE_ADDRESS}},
      {"vkAllocateMemory",
       {VK_ERROR_INVALID_EXTERNAL_HANDLE, VK_ERROR_TOO_MANY_OBJECTS, VK_ERROR_INVALID_OPAQUE_CAPTURE_ADDRESS}},
      {"vkMapMemory", {VK_ERROR_MEMORY_MAP_FAILED}},
      {"vkGetMemoryHostPointerPropertiesEXT", {VK_ERROR_INVALID_EXTERNAL_HANDLE}},
      {"vkGetQueryPoolResults", {lost, VK_NOT_READY}},
      {"vkGetPipelineCacheData", {VK_INCOMPLETE}},
      {"vkCreateImageView", {VK_ERROR_INVALID_OPAQUE_CAPTURE_ADDRESS}},
      {"vkCreateDescriptorPool", {VK_ERROR_FRAGMENTATION}},
      {"vkAllocateDescriptorSets", {VK_ERROR_FRAGMENTED_POOL, VK_ERROR_OUT_OF_POOL_MEMORY}},
      {"vkGetMemoryFdKHR", {VK_ERROR_TOO_MANY_OBJECTS}},
  };
  std::vector<VkResult> all{host, dev, unknown};
  if (const auto it = more.find(f); it != more.end()) all.insert(all.end(), it->second.begin(), it->second.end());
  return all;
}

inline std::string replaced(std::string s, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = s.find(from, at)) != std::string::npos; at += to.size()) s.replace(at, from.size(), to);
  return s;
}

/// Without what differs from run to run: who holds memory, and what was running when the device was lost.
inline std::string brief(std::string s) {
  for (const char* rest : {"; of ", "; Tessera holds ", "; it was running ", "; nothing was running"})
    s = s.substr(0, s.find(rest));
  return s;
}

/// The messages of all failures of all calls, by function: the device's name and the result replaced by DEVICE and
/// RESULT.
using Messages = std::set<std::pair<std::string, std::string>>;

}  // namespace tessera::test
