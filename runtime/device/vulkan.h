// Vulkan's functions through tables of pointers, taken from vkGetInstanceProcAddr of a library that is opened at run
// time: a program that links Tessera starts on a machine without Vulkan, and shares no table with Tessera. Internal to
// runtime/. Read next: instance.h.
#pragma once
#define VK_NO_PROTOTYPES
#include <vulkan/vulkan_core.h>

#include <cstdint>
#include <memory>
#include <shared_mutex>
#include <string>
#include <vector>

namespace tessera::vulkan {

#define TESSERA_VK_GLOBAL(X)            \
  X(vkCreateInstance)                   \
  X(vkEnumerateInstanceVersion)         \
  X(vkEnumerateInstanceLayerProperties) \
  X(vkEnumerateInstanceExtensionProperties)

#define TESSERA_VK_INSTANCE(X)                   \
  X(vkDestroyInstance)                           \
  X(vkEnumeratePhysicalDevices)                  \
  X(vkGetPhysicalDeviceProperties2)              \
  X(vkGetPhysicalDeviceFeatures2)                \
  X(vkGetPhysicalDeviceMemoryProperties)         \
  X(vkGetPhysicalDeviceQueueFamilyProperties)    \
  X(vkEnumerateDeviceExtensionProperties)        \
  X(vkGetPhysicalDeviceProperties)               \
  X(vkGetPhysicalDeviceMemoryProperties2)        \
  X(vkGetPhysicalDeviceFormatProperties2)        \
  X(vkGetPhysicalDeviceExternalBufferProperties) \
  X(vkCreateDevice)                              \
  X(vkGetDeviceProcAddr)

// debug_utils is an instance extension and may be absent: these pointers may be null.
#define TESSERA_VK_DEBUG(X)         \
  X(vkCreateDebugUtilsMessengerEXT) \
  X(vkDestroyDebugUtilsMessengerEXT)

#define TESSERA_VK_DEVICE(X)       \
  X(vkDestroyDevice)               \
  X(vkGetDeviceQueue)              \
  X(vkQueueSubmit2)                \
  X(vkDeviceWaitIdle)              \
  X(vkCreateSemaphore)             \
  X(vkDestroySemaphore)            \
  X(vkGetSemaphoreCounterValue)    \
  X(vkWaitSemaphores)              \
  X(vkCreateCommandPool)           \
  X(vkDestroyCommandPool)          \
  X(vkAllocateCommandBuffers)      \
  X(vkBeginCommandBuffer)          \
  X(vkEndCommandBuffer)            \
  X(vkResetCommandBuffer)          \
  X(vkCmdBindPipeline)             \
  X(vkCmdPushConstants)            \
  X(vkCmdDispatch)                 \
  X(vkCmdCopyBuffer)               \
  X(vkCmdPipelineBarrier2)         \
  X(vkGetBufferDeviceAddress)      \
  X(vkCreateShaderModule)          \
  X(vkDestroyShaderModule)         \
  X(vkCreatePipelineLayout)        \
  X(vkDestroyPipelineLayout)       \
  X(vkCreateComputePipelines)      \
  X(vkDestroyPipeline)             \
  X(vkCreateBuffer)                \
  X(vkDestroyBuffer)               \
  X(vkGetBufferMemoryRequirements) \
  X(vkBindBufferMemory)            \
  X(vkAllocateMemory)              \
  X(vkFreeMemory)                  \
  X(vkCmdDispatchBase)             \
  X(vkCmdDispatchIndirect)         \
  X(vkCreateQueryPool)             \
  X(vkDestroyQueryPool)            \
  X(vkGetQueryPoolResults)         \
  X(vkCmdResetQueryPool)           \
  X(vkCmdWriteTimestamp2)          \
  X(vkCreatePipelineCache)         \
  X(vkDestroyPipelineCache)        \
  X(vkGetPipelineCacheData)        \
  X(vkCmdUpdateBuffer)             \
  X(vkCreateImageView)             \
  X(vkDestroyImageView)            \
  X(vkCreateDescriptorSetLayout)   \
  X(vkDestroyDescriptorSetLayout)  \
  X(vkCreateDescriptorPool)        \
  X(vkDestroyDescriptorPool)       \
  X(vkAllocateDescriptorSets)      \
  X(vkUpdateDescriptorSets)        \
  X(vkCmdBindDescriptorSets)       \
  X(vkCmdCopyBufferToImage)        \
  TESSERA_VK_ALLOCATOR(X)

// What only the memory allocator calls: it gets this table, and looks nothing up by itself.
#define TESSERA_VK_ALLOCATOR(X)          \
  X(vkMapMemory)                         \
  X(vkUnmapMemory)                       \
  X(vkFlushMappedMemoryRanges)           \
  X(vkInvalidateMappedMemoryRanges)      \
  X(vkBindImageMemory)                   \
  X(vkGetImageMemoryRequirements)        \
  X(vkCreateImage)                       \
  X(vkDestroyImage)                      \
  X(vkGetBufferMemoryRequirements2)      \
  X(vkGetImageMemoryRequirements2)       \
  X(vkBindBufferMemory2)                 \
  X(vkBindImageMemory2)                  \
  X(vkGetDeviceBufferMemoryRequirements) \
  X(vkGetDeviceImageMemoryRequirements)

// Of extensions that may not be enabled: null then.
#define TESSERA_VK_DEVICE_EXTENSIONS(X)                                              \
  X(vkGetMemoryHostPointerPropertiesEXT, VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME) \
  X(vkGetMemoryFdKHR, VK_KHR_EXTERNAL_MEMORY_FD_EXTENSION_NAME)
// Of debug_utils, an instance extension (names.h).
#define TESSERA_VK_DEVICE_DEBUG(X) \
  X(vkSetDebugUtilsObjectNameEXT)  \
  X(vkCmdBeginDebugUtilsLabelEXT)  \
  X(vkCmdEndDebugUtilsLabelEXT)
#define TESSERA_VK_DEVICE_OPTIONAL(X)    \
  X(vkGetMemoryHostPointerPropertiesEXT) \
  X(vkGetMemoryFdKHR)                    \
  TESSERA_VK_DEVICE_DEBUG(X)

#define TESSERA_VK_FIELD(f) PFN_##f f = nullptr;
// `host`: what every function of the table that takes callbacks for host memory is given; null: the driver's own.
struct InstanceTable {
  TESSERA_VK_INSTANCE(TESSERA_VK_FIELD)
  TESSERA_VK_DEBUG(TESSERA_VK_FIELD)
  const VkAllocationCallbacks* host = nullptr;
};
struct DeviceTable {
  TESSERA_VK_DEVICE(TESSERA_VK_FIELD)
  TESSERA_VK_DEVICE_OPTIONAL(TESSERA_VK_FIELD)
  const VkAllocationCallbacks* host = nullptr;
};

/// The Vulkan loader's list of the process's devices. Debian 12's loader (1.3.239) walks it to name an object and to
/// look up a device's function, without the lock under which it changes it: a Device that goes in one thread would be
/// read, freed, by a Device that names an array in another. So these calls share this lock, and who makes or destroys
/// an instance or a device has it alone. A host's own devices are its own to keep apart; a callback of the driver in
/// vkCreateDevice or vkDestroyDevice may not wait for a thread that names something.
std::shared_mutex& device_list();

/// The opened library and the functions that need no instance.
struct Library {
  ~Library();
  void* handle = nullptr;
  PFN_vkGetInstanceProcAddr vkGetInstanceProcAddr = nullptr;
  TESSERA_VK_GLOBAL(TESSERA_VK_FIELD)
};
#undef TESSERA_VK_FIELD

/// Opens `name` (empty: the system's Vulkan loader). Throws DeviceError with one sentence saying what to install.
std::shared_ptr<const Library> open_library(const std::string& name);
/// Throw DeviceError where a function is missing. `debug_utils`, `extensions`: what is enabled; functions of others are
/// not looked up. `imported`: by a host, which is then told what to give.
InstanceTable load_instance(const Library& library, VkInstance instance, bool debug_utils, bool imported = false);
DeviceTable load_device(const InstanceTable& instance, VkDevice device, const std::vector<std::string>& extensions,
                        bool debug_utils, bool imported = false);

std::string to_string(VkResult r);  ///< "VK_ERROR_DEVICE_LOST"
/// Throws DeviceError "CALL on DEVICE: RESULT" if r is an error.
void check(VkResult r, const char* call, const std::string& device);

/// All that an enumeration of Vulkan's lists: `f(&count, items or null)` is asked again where the list has grown
/// meanwhile.
template <class T, class F> std::vector<T> enumerate(const char* call, const std::string& device, F f) {
  std::vector<T> all;
  VkResult r = VK_INCOMPLETE;
  for (int round = 0; r == VK_INCOMPLETE && round < 8; ++round) {
    uint32_t n = 0;
    check(f(&n, static_cast<T*>(nullptr)), call, device);
    all.resize(n);
    r = f(&n, all.data());
    check(r, call, device);
    all.resize(n);
  }
  return all;
}

}  // namespace tessera::vulkan
