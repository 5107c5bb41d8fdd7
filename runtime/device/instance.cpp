#include "runtime/device/instance.h"

#include <algorithm>
#include <cstring>

#include "engine/base/error.h"

namespace tessera::vulkan {
namespace {
constexpr const char* kValidationLayer = "VK_LAYER_KHRONOS_validation";
constexpr const char* kPortability = "VK_KHR_portability_enumeration";

[[noreturn]] void no_driver() {
  throw DeviceError(
      "there is no Vulkan driver on this machine: install the one for its GPU, or Mesa's for the CPU (Debian and "
      "Ubuntu: "
      "apt-get install mesa-vulkan-drivers), or set TESSERA_DEVICE=interpreter to run kernels on the host");
}

bool has_layer(const Library& lib, const char* name) {
  const auto layers = enumerate<VkLayerProperties>(
      "vkEnumerateInstanceLayerProperties", "the Vulkan loader",
      [&](uint32_t* n, VkLayerProperties* to) { return lib.vkEnumerateInstanceLayerProperties(n, to); });
  return std::any_of(layers.begin(), layers.end(),
                     [&](const VkLayerProperties& l) { return std::strcmp(l.layerName, name) == 0; });
}

bool has_extension(const Library& lib, const char* layer, const char* name) {
  const auto extensions = enumerate<VkExtensionProperties>(
      "vkEnumerateInstanceExtensionProperties", "the Vulkan loader",
      [&](uint32_t* n, VkExtensionProperties* to) { return lib.vkEnumerateInstanceExtensionProperties(layer, n, to); });
  return std::any_of(extensions.begin(), extensions.end(),
                     [&](const VkExtensionProperties& e) { return std::strcmp(e.extensionName, name) == 0; });
}
}  // namespace

VKAPI_ATTR VkBool32 VKAPI_CALL Instance::collect(VkDebugUtilsMessageSeverityFlagBitsEXT severity,
                                                 VkDebugUtilsMessageTypeFlagsEXT,
                                                 const VkDebugUtilsMessengerCallbackDataEXT* data, void* self) {
  auto* instance = static_cast<Instance*>(self);
  try {  // nothing may be thrown through the loader
    std::string text = data->pMessage ? data->pMessage : "";
    // the ranges of commands that it happened in, the innermost first
    for (uint32_t i = 0; i < data->cmdBufLabelCount; ++i)
      if (const char* label = data->pCmdBufLabels[i].pLabelName) text += std::string("\n  in ") + label;
    {
      const std::lock_guard lock(instance->mutex_);
      instance->messages_.push_back(text);
    }
    if (instance->print_)
      log(severity >= VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT ? Severity::error : Severity::warning, text,
          instance->log_);
  } catch (...) {
  }
  return VK_FALSE;
}

Instance::Instance(const std::string& library, Validation validation, bool names, LogCallback log_to,
                   const VkAllocationCallbacks* host)
    : library_(open_library(library)), print_(validation == Validation::print), log_(std::move(log_to)) {
  if (host) host_ = *host;
  const Library& lib = *library_;
  uint32_t version = 0;
  check(lib.vkEnumerateInstanceVersion(&version), "vkEnumerateInstanceVersion", "the Vulkan loader");
  if (version < VK_API_VERSION_1_3)
    throw DeviceError("the Vulkan loader is of version " + std::to_string(VK_API_VERSION_MAJOR(version)) + "." +
                      std::to_string(VK_API_VERSION_MINOR(version)) +
                      " and Tessera needs 1.3: update it (Debian and Ubuntu: libvulkan1)");

  std::vector<const char*> layers, extensions;
  VkApplicationInfo app{VK_STRUCTURE_TYPE_APPLICATION_INFO, nullptr, nullptr, 0, "Tessera", 0, VK_API_VERSION_1_3};
  VkInstanceCreateInfo info{VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO, nullptr, 0, &app, 0, nullptr, 0, nullptr};
  // drivers on top of another API (MoltenVK) are listed only on request
  if (has_extension(lib, nullptr, kPortability)) {
    extensions.push_back(kPortability);
    info.flags |= VK_INSTANCE_CREATE_ENUMERATE_PORTABILITY_BIT_KHR;
  }

  VkDebugUtilsMessengerCreateInfoEXT messenger{
      VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT,
      nullptr,
      0,
      VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT | VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT,
      VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT,
      &Instance::collect,
      this};
  const VkValidationFeatureEnableEXT enabled[] = {VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT};
  VkValidationFeaturesEXT features{VK_STRUCTURE_TYPE_VALIDATION_FEATURES_EXT, &messenger, 1, enabled, 0, nullptr};
  if (validation != Validation::off) {
    if (!has_layer(lib, kValidationLayer))
      throw DeviceError(
          "the Vulkan validation layer is not installed (Debian and Ubuntu: apt-get install vulkan-validationlayers)");
    layers.push_back(kValidationLayer);
    extensions.push_back(VK_EXT_VALIDATION_FEATURES_EXTENSION_NAME);
    info.pNext = &features;
  }
  debug_utils_ =
      validation != Validation::off || (names && has_extension(lib, nullptr, VK_EXT_DEBUG_UTILS_EXTENSION_NAME));
  if (debug_utils_) extensions.push_back(VK_EXT_DEBUG_UTILS_EXTENSION_NAME);
  info.enabledLayerCount = static_cast<uint32_t>(layers.size());
  info.ppEnabledLayerNames = layers.data();
  info.enabledExtensionCount = static_cast<uint32_t>(extensions.size());
  info.ppEnabledExtensionNames = extensions.data();

  const VkResult r = [&] {
    const std::lock_guard lock(device_list());
    return lib.vkCreateInstance(&info, this->host(), &handle_);
  }();
  if (r == VK_ERROR_INCOMPATIBLE_DRIVER) no_driver();
  check(r, "vkCreateInstance", "the Vulkan loader");
  try {
    vk_ = load_instance(lib, handle_, debug_utils_);
    vk_.host = this->host();
    if (validation != Validation::off)
      check(vk_.vkCreateDebugUtilsMessengerEXT(handle_, &messenger, vk_.host, &messenger_),
            "vkCreateDebugUtilsMessengerEXT", "the Vulkan loader");
  } catch (...) {
    const std::lock_guard lock(device_list());
    if (vk_.vkDestroyInstance) vk_.vkDestroyInstance(handle_, this->host());
    throw;
  }
}

Instance::Instance(PFN_vkGetInstanceProcAddr lookup, VkInstance instance, bool debug_utils,
                   const VkAllocationCallbacks* host)
    : handle_(instance), owned_(false), debug_utils_(debug_utils) {
  if (host) host_ = *host;
  auto library = std::make_shared<Library>();
  library->vkGetInstanceProcAddr = lookup;
  library_ = library;
  vk_ = load_instance(*library_, instance, debug_utils, true);
  vk_.host = this->host();
}

Instance::~Instance() {
  if (!owned_) return;
  if (messenger_) vk_.vkDestroyDebugUtilsMessengerEXT(handle_, messenger_, vk_.host);
  const std::lock_guard lock(device_list());
  vk_.vkDestroyInstance(handle_, vk_.host);
}

std::vector<VkPhysicalDevice> Instance::physical_devices() const {
  VkResult last = VK_SUCCESS;
  const auto devices = [&] {
    try {
      return enumerate<VkPhysicalDevice>(
          "vkEnumeratePhysicalDevices", "the Vulkan loader",
          [&](uint32_t* n, VkPhysicalDevice* to) { return last = vk_.vkEnumeratePhysicalDevices(handle_, n, to); });
    } catch (const DeviceError&) {
      if (last == VK_ERROR_INITIALIZATION_FAILED) no_driver();
      throw;
    }
  }();
  if (devices.empty()) no_driver();
  return devices;
}

std::vector<std::string> Instance::messages() const {
  std::lock_guard lock(mutex_);
  return messages_;
}

}  // namespace tessera::vulkan
