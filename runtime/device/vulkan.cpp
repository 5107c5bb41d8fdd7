#include "runtime/device/vulkan.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/base/platform.h"
#include "runtime/device/faults.h"

namespace tessera::vulkan {
namespace {
template <class F> void require(F f, const char* name, bool imported = false) {
  if (f) return;
  if (imported)
    throw DeviceError(std::string("Device::import: ImportedDevice::get_instance_proc_addr leads to no ") + name +
                          ", which Vulkan 1.3 promises",
                      {},
                      "give the vkGetInstanceProcAddr of the loader that has made the instance, and the device that "
                      "has been made of it");
  throw DeviceError(std::string("the Vulkan driver has no ") + name + ", which Vulkan 1.3 promises", {},
                    "update the driver");
}
template <class F> void require_of(const char* extension, F f, const char* name, bool imported) {
  if (f) return;
  if (imported)
    throw DeviceError(std::string("Device::import: ImportedDevice::device_extensions names ") + extension +
                          ", but the device has no " + name,
                      {}, "name the extensions that the device has been made with, and no others");
  throw DeviceError(std::string("the Vulkan driver has no ") + name + ", which " + extension + " promises", {},
                    "update the driver");
}
}  // namespace

std::shared_mutex& device_list() {
  static std::shared_mutex mutex;
  return mutex;
}

Library::~Library() {
  if (handle) platform::close_library(handle);
}

std::shared_ptr<const Library> open_library(const std::string& name) {
  auto library = std::make_shared<Library>();
  const std::string file = name.empty() ? platform::kVulkanLoader : name;
  library->handle = platform::open_library(file);
  if (!library->handle)
    throw DeviceError("there is no Vulkan loader (" + file +
                      ") on this machine: install it and a driver (Debian and Ubuntu: apt-get install "
                      "libvulkan1 mesa-vulkan-drivers), or set TESSERA_DEVICE=interpreter to run kernels on the host");
  library->vkGetInstanceProcAddr =
      reinterpret_cast<PFN_vkGetInstanceProcAddr>(platform::symbol(library->handle, "vkGetInstanceProcAddr"));
  if (!library->vkGetInstanceProcAddr)
    throw DeviceError(file + " is not a Vulkan loader: it has no vkGetInstanceProcAddr");
#define X(f)                                                                           \
  library->f = reinterpret_cast<PFN_##f>(library->vkGetInstanceProcAddr(nullptr, #f)); \
  require(library->f, #f);
  TESSERA_VK_GLOBAL(X)
#undef X
  intercept(*library);
  return library;
}

InstanceTable load_instance(const Library& library, VkInstance instance, bool debug_utils, bool imported) {
  InstanceTable t;
#define X(f) t.f = reinterpret_cast<PFN_##f>(library.vkGetInstanceProcAddr(instance, #f));
  TESSERA_VK_INSTANCE(X)
  if (debug_utils) {
    TESSERA_VK_DEBUG(X)
  }
#undef X
#define X(f) require(t.f, #f, imported);
  TESSERA_VK_INSTANCE(X)
#undef X
  intercept(t);
  return t;
}

DeviceTable load_device(const InstanceTable& instance, VkDevice device, const std::vector<std::string>& extensions,
                        bool debug_utils, bool imported) {
  const std::shared_lock lock(device_list());
  DeviceTable t;
  t.host = instance.host;
#define X(f)                                                                 \
  t.f = reinterpret_cast<PFN_##f>(instance.vkGetDeviceProcAddr(device, #f)); \
  require(t.f, #f, imported);
  TESSERA_VK_DEVICE(X)
#undef X
#define X(f, extension)                                                                 \
  if (std::find(extensions.begin(), extensions.end(), extension) != extensions.end()) { \
    t.f = reinterpret_cast<PFN_##f>(instance.vkGetDeviceProcAddr(device, #f));          \
    require_of(extension, t.f, #f, imported);                                           \
  }
  TESSERA_VK_DEVICE_EXTENSIONS(X)
#undef X
  if (debug_utils) {
#define X(f) t.f = reinterpret_cast<PFN_##f>(instance.vkGetDeviceProcAddr(device, #f));
    TESSERA_VK_DEVICE_DEBUG(X)
#undef X
    // all or none
    if (!t.vkSetDebugUtilsObjectNameEXT || !t.vkCmdBeginDebugUtilsLabelEXT || !t.vkCmdEndDebugUtilsLabelEXT) {
#define X(f) t.f = nullptr;
      TESSERA_VK_DEVICE_DEBUG(X)
#undef X
    }
  }
  intercept(t, device);
  return t;
}

std::string to_string(VkResult r) {
  switch (static_cast<int64_t>(r)) {
#define X(name) \
  case name: return #name;
    X(VK_SUCCESS)
    X(VK_NOT_READY)
    X(VK_TIMEOUT)
    X(VK_INCOMPLETE)
    X(VK_ERROR_OUT_OF_HOST_MEMORY)
    X(VK_ERROR_OUT_OF_DEVICE_MEMORY)
    X(VK_ERROR_INITIALIZATION_FAILED)
    X(VK_ERROR_DEVICE_LOST)
    X(VK_ERROR_MEMORY_MAP_FAILED)
    X(VK_ERROR_LAYER_NOT_PRESENT)
    X(VK_ERROR_EXTENSION_NOT_PRESENT)
    X(VK_ERROR_FEATURE_NOT_PRESENT)
    X(VK_ERROR_INCOMPATIBLE_DRIVER)
    X(VK_ERROR_TOO_MANY_OBJECTS)
    X(VK_ERROR_FRAGMENTED_POOL)
    X(VK_ERROR_UNKNOWN)
    X(VK_ERROR_OUT_OF_POOL_MEMORY)
    X(VK_ERROR_INVALID_EXTERNAL_HANDLE)
    X(VK_ERROR_FRAGMENTATION)
    X(VK_ERROR_INVALID_OPAQUE_CAPTURE_ADDRESS)
    X(VK_ERROR_INVALID_SHADER_NV)
#undef X
    default: return "VkResult " + std::to_string(static_cast<int64_t>(r));
  }
}

void check(VkResult r, const char* call, const std::string& device) {
  if (r < 0) throw DeviceError(std::string(call) + " on " + device + ": " + to_string(r));
}

}  // namespace tessera::vulkan
