// Instance: a VkInstance of our own, its function table, and the validation messages it has caused. One per Device, so that nothing is
// global. Internal to runtime/. Read next: probe.h.
#pragma once
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/vulkan.h"

namespace tessera::vulkan {

/// The validation layers: not loaded; their messages kept; kept and written to stderr as they come.
enum class Validation : uint8_t { off, collect, print };

class Instance {
 public:
  /// Throws DeviceError where there is no loader, no driver or (with `validation`) no validation layer. `library`: see open_library.
  Instance(const std::string& library, Validation validation);
  /// A host's, which keeps it: nothing is made or destroyed.
  Instance(PFN_vkGetInstanceProcAddr lookup, VkInstance instance, bool debug_utils);
  ~Instance();
  Instance(const Instance&) = delete;
  Instance& operator=(const Instance&) = delete;

  const Library& library() const { return *library_; }
  const InstanceTable& vk() const { return vk_; }
  VkInstance handle() const { return handle_; }
  /// Every physical device, in the driver's order. Throws DeviceError if there is none.
  std::vector<VkPhysicalDevice> physical_devices() const;
  std::vector<std::string> messages() const;

 private:
  static VKAPI_ATTR VkBool32 VKAPI_CALL collect(VkDebugUtilsMessageSeverityFlagBitsEXT, VkDebugUtilsMessageTypeFlagsEXT,
                                                const VkDebugUtilsMessengerCallbackDataEXT* data, void* self);
  std::shared_ptr<const Library> library_;
  VkInstance handle_ = VK_NULL_HANDLE;
  VkDebugUtilsMessengerEXT messenger_ = VK_NULL_HANDLE;
  InstanceTable vk_;
  bool print_ = false, owned_ = true;
  mutable std::mutex mutex_;
  std::vector<std::string> messages_;
};

}  // namespace tessera::vulkan
