// Instance: a VkInstance of our own, its function table, and the validation messages it has caused. One per Device, so
// that nothing is global. Internal to runtime/. Read next: probe.h.
#pragma once
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "runtime/device/vulkan.h"
#include "runtime/log.h"

namespace tessera::vulkan {

/// The validation layers: not loaded; their messages kept; kept and logged as they come (log.h).
enum class Validation : uint8_t { off, collect, print };

class Instance {
 public:
  /// Throws DeviceError where there is no loader, no driver or (with `validation`) no validation layer. `library`: see
  /// open_library. `names`: debug_utils is wanted for them, where there is such a thing. `host`: for host memory,
  /// copied.
  Instance(const std::string& library, Validation validation, bool names = false, LogCallback log = {},
           const VkAllocationCallbacks* host = nullptr);
  /// A host's, which keeps it: nothing is made or destroyed.
  Instance(PFN_vkGetInstanceProcAddr lookup, VkInstance instance, bool debug_utils,
           const VkAllocationCallbacks* host = nullptr);
  ~Instance();
  Instance(const Instance&) = delete;
  Instance& operator=(const Instance&) = delete;

  const Library& library() const { return *library_; }
  const InstanceTable& vk() const { return vk_; }
  VkInstance handle() const { return handle_; }
  const VkAllocationCallbacks* host() const { return host_ ? &*host_ : nullptr; }
  bool debug_utils() const { return debug_utils_; }  // is enabled
  /// Every physical device, in the driver's order. Throws DeviceError if there is none.
  std::vector<VkPhysicalDevice> physical_devices() const;
  std::vector<std::string> messages() const;

 private:
  static VKAPI_ATTR VkBool32 VKAPI_CALL collect(VkDebugUtilsMessageSeverityFlagBitsEXT severity,
                                                VkDebugUtilsMessageTypeFlagsEXT,
                                                const VkDebugUtilsMessengerCallbackDataEXT* data, void* self);
  std::shared_ptr<const Library> library_;
  VkInstance handle_ = VK_NULL_HANDLE;
  VkDebugUtilsMessengerEXT messenger_ = VK_NULL_HANDLE;
  InstanceTable vk_;
  bool print_ = false, owned_ = true, debug_utils_ = false;
  LogCallback log_;
  std::optional<VkAllocationCallbacks> host_;
  mutable std::mutex mutex_;
  std::vector<std::string> messages_;
};

}  // namespace tessera::vulkan
