// A bare Vulkan harness for tests of emitted modules: one device, one compute queue, host-visible buffers passed by
// address in push constants, everything waited for at once. It shares no code with runtime/, so the two can be tested
// against each other. Validation layers are on where installed; their complaints are in messages().
#pragma once
#include <vulkan/vulkan.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "codegen/program/target.h"

namespace tessera::test {

struct Dispatch {
  std::vector<std::vector<std::byte>*> buffers = {};  ///< arguments in order: uploaded before, downloaded after
  int64_t scratch_bytes = 0;                          ///< of the whole dispatch; 0: the kernel has no scratch address
  std::vector<std::byte> extents = {};                ///< appended to the addresses: i64 extents, then i32 ones
  uint32_t workgroups[3] = {1, 1, 1};
  uint32_t subgroup_size = 0;  ///< required, with full subgroups
  bool indirect_table = false;
};

class VulkanRunner {
 public:
  /// The first device, or null with a reason in `why`.
  static std::unique_ptr<VulkanRunner> open(std::string& why);
  ~VulkanRunner();
  VulkanRunner(const VulkanRunner&) = delete;
  VulkanRunner& operator=(const VulkanRunner&) = delete;

  /// Runs the module's "main". Throws DeviceError.
  void run(const std::vector<uint32_t>& spirv, const Dispatch& d);
  const std::vector<std::string>& messages() const { return messages_; }
  /// What codegen may use on this device.
  const Target& target() const { return target_; }

 private:
  struct Buffer {
    VkBuffer buffer = VK_NULL_HANDLE;
    VkDeviceMemory memory = VK_NULL_HANDLE;
    VkDeviceAddress address = 0;
    void* mapped = nullptr;
  };
  VulkanRunner() = default;
  bool init(std::string& why);
  void fill_target();
  Buffer make_buffer(size_t bytes);
  void free_buffer(const Buffer& b);
  static VKAPI_ATTR VkBool32 VKAPI_CALL report(VkDebugUtilsMessageSeverityFlagBitsEXT, VkDebugUtilsMessageTypeFlagsEXT,
                                               const VkDebugUtilsMessengerCallbackDataEXT* data, void* self);

  VkInstance instance_ = VK_NULL_HANDLE;
  VkDebugUtilsMessengerEXT messenger_ = VK_NULL_HANDLE;
  VkPhysicalDevice physical_ = VK_NULL_HANDLE;
  VkDevice device_ = VK_NULL_HANDLE;
  VkQueue queue_ = VK_NULL_HANDLE;
  uint32_t family_ = 0;
  VkCommandPool pool_ = VK_NULL_HANDLE;
  std::vector<std::string> messages_;
  Target target_;
};

}  // namespace tessera::test
