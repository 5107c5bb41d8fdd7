// A program that has Vulkan already, as small as one can be: its own instance under validation layers, a device with
// chosen features, buffers and command buffers. It shares no code with runtime/ but the types of interop.h.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/interop.h"

namespace tessera::test {

struct VulkanHostOptions {
  bool all_features = false;         // else those that Tessera needs
  std::vector<std::string> without;  // features
  std::vector<const char*> extensions = {};
  bool separate_depth_stencil = false;  // its layouts, if the device has these
};

#define TESSERA_HOST_FUNCTIONS(X)             \
  X(vkDestroyInstance)                        \
  X(vkEnumeratePhysicalDevices)               \
  X(vkGetPhysicalDeviceFeatures2)             \
  X(vkGetPhysicalDeviceMemoryProperties)      \
  X(vkCreateDevice)                           \
  X(vkDestroyDevice)                          \
  X(vkGetDeviceQueue)                         \
  X(vkCreateBuffer)                           \
  X(vkDestroyBuffer)                          \
  X(vkGetBufferMemoryRequirements)            \
  X(vkAllocateMemory)                         \
  X(vkFreeMemory)                             \
  X(vkBindBufferMemory)                       \
  X(vkMapMemory)                              \
  X(vkCreateCommandPool)                      \
  X(vkDestroyCommandPool)                     \
  X(vkAllocateCommandBuffers)                 \
  X(vkBeginCommandBuffer)                     \
  X(vkEndCommandBuffer)                       \
  X(vkResetCommandBuffer)                     \
  X(vkCmdPipelineBarrier2)                    \
  X(vkCmdFillBuffer)                          \
  X(vkCmdCopyBuffer)                          \
  X(vkQueueSubmit2)                           \
  X(vkQueueWaitIdle)                          \
  X(vkCreateFence)                            \
  X(vkDestroyFence)                           \
  X(vkWaitForFences)                          \
  X(vkResetFences)                            \
  X(vkCreateImage)                            \
  X(vkDestroyImage)                           \
  X(vkGetImageMemoryRequirements)             \
  X(vkBindImageMemory)                        \
  X(vkCmdCopyBufferToImage)                   \
  X(vkCmdCopyImageToBuffer)                   \
  X(vkCmdClearColorImage)                     \
  X(vkCreateSemaphore)                        \
  X(vkDestroySemaphore)                       \
  X(vkWaitSemaphores)                         \
  X(vkGetPhysicalDeviceFormatProperties)      \
  X(vkGetPhysicalDeviceImageFormatProperties) \
  X(vkSignalSemaphore)                        \
  X(vkGetSemaphoreCounterValue)               \
  X(vkCreateDebugUtilsMessengerEXT)           \
  X(vkDestroyDebugUtilsMessengerEXT)          \
  X(vkDeviceWaitIdle)                         \
  X(vkCmdClearDepthStencilImage)

class VulkanHost {
 public:
  struct Buffer {
    VkBuffer handle = VK_NULL_HANDLE;
    VkDeviceMemory memory = VK_NULL_HANDLE;
    VkDeviceSize size = 0;
    VkBufferUsageFlags usage = 0;
    float* mapped = nullptr;
  };
  struct Image {
    VkImage handle = VK_NULL_HANDLE;
    VkDeviceMemory memory = VK_NULL_HANDLE;
    VkFormat format = VK_FORMAT_UNDEFINED;
    VkExtent2D extent = {};
    VkImageUsageFlags usage = 0;
  };
  static constexpr VkBufferUsageFlags kUsage = VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT |
                                               VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
                                               VK_BUFFER_USAGE_TRANSFER_DST_BIT;

  explicit VulkanHost(const VulkanHostOptions& options = {});
  ~VulkanHost();  ///< destroys the device under validation: whatever is left of it is a message
  VulkanHost(const VulkanHost&) = delete;
  VulkanHost& operator=(const VulkanHost&) = delete;

  ImportedDevice imported() const;
  Buffer buffer(VkDeviceSize size, VkBufferUsageFlags usage = kUsage);  ///< mapped; destroyed with the host
  ImportedBuffer range(const Buffer& b, VkDeviceSize offset = 0) const { return {b.handle, b.size, b.usage, offset}; }
  Image image(VkFormat format, VkExtent2D extent, VkImageUsageFlags usage);
  /// Of three dimensions if its depth is above 1, else of so many layers.
  Image image(VkFormat format, VkExtent3D extent, uint32_t levels, uint32_t layers, VkImageUsageFlags usage);
  VkCommandBuffer commands();  ///< a new one, of a pool of its own
  void begin(VkCommandBuffer c);
  /// Ends and submits it; the host waits for nothing.
  void submit(VkCommandBuffer c, VkFence fence = VK_NULL_HANDLE, const VkSemaphoreSubmitInfo* wait = nullptr,
              const VkSemaphoreSubmitInfo* signal = nullptr);
  void run(VkCommandBuffer c) {
    submit(c);
    wait();
  }
  void wait();
  void barrier(VkCommandBuffer c, VkPipelineStageFlags2 from, VkAccessFlags2 from_accesses, VkPipelineStageFlags2 to,
               VkAccessFlags2 to_accesses);
  /// Of all its levels, layers and aspects.
  void image_barrier(VkCommandBuffer c, const Image& image, VkImageLayout from, VkImageLayout to);
  VkSemaphore timeline();
  std::vector<std::string> messages() const;

#define X(f) PFN_##f f = nullptr;
  TESSERA_HOST_FUNCTIONS(X)
#undef X
  VkInstance instance = VK_NULL_HANDLE;
  VkPhysicalDevice physical = VK_NULL_HANDLE;
  VkDevice device = VK_NULL_HANDLE;
  VkQueue queue = VK_NULL_HANDLE;
  VkPhysicalDeviceFeatures2 features;

 private:
  static VKAPI_ATTR VkBool32 VKAPI_CALL report(VkDebugUtilsMessageSeverityFlagBitsEXT, VkDebugUtilsMessageTypeFlagsEXT,
                                               const VkDebugUtilsMessengerCallbackDataEXT* data, void* self);
  VkDeviceMemory allocate(const VkMemoryRequirements& needs, VkMemoryPropertyFlags wanted, bool address);
  void destroy_device();

  PFN_vkGetInstanceProcAddr lookup_ = nullptr;
  VkDebugUtilsMessengerEXT messenger_ = VK_NULL_HANDLE;
  VkPhysicalDeviceVulkan11Features v11_;
  VkPhysicalDeviceVulkan12Features v12_;
  VkPhysicalDeviceVulkan13Features v13_;
  std::vector<const char*> extensions_;
  std::vector<VkCommandPool> pools_;
  std::vector<Buffer> buffers_;
  std::vector<Image> images_;
  std::vector<VkSemaphore> semaphores_;
  mutable std::mutex mutex_;
  std::vector<std::string> messages_;
};

VkImageAspectFlags aspects_of(VkFormat format);

/// Says what validation has said since the host was made; for the device's own end, destroys the host first.
void check_silent(std::unique_ptr<VulkanHost> host);

}  // namespace tessera::test
