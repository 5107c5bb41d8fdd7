// A Vulkan loader that hands on to the system's, but whose queue submissions fail with VK_ERROR_DEVICE_LOST from number
// LOSE_AFTER to LOSE_UNTIL (environment; counted in the process). Built as libvulkan.so.1 and found before the real one
// by LD_LIBRARY_PATH: what a program does when its device goes can be tested anywhere.
#include <dlfcn.h>
#include <vulkan/vulkan_core.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

namespace {
PFN_vkGetInstanceProcAddr next_instance = nullptr;
PFN_vkGetDeviceProcAddr next_device = nullptr;
PFN_vkQueueSubmit2 next_submit = nullptr;

VKAPI_ATTR VkResult VKAPI_CALL submit(VkQueue queue, uint32_t count, const VkSubmitInfo2* infos, VkFence fence) {
  static std::atomic<int> number{0};
  static const int from = std::atoi(std::getenv("LOSE_AFTER")), until = std::atoi(std::getenv("LOSE_UNTIL"));
  const int n = ++number;
  return n > from && n <= until ? VK_ERROR_DEVICE_LOST : next_submit(queue, count, infos, fence);
}
VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL device_function(VkDevice device, const char* name) {
  const PFN_vkVoidFunction f = next_device(device, name);
  if (std::strcmp(name, "vkQueueSubmit2") != 0) return f;
  next_submit = reinterpret_cast<PFN_vkQueueSubmit2>(f);
  return reinterpret_cast<PFN_vkVoidFunction>(submit);
}
}  // namespace

extern "C" __attribute__((visibility("default"))) PFN_vkVoidFunction vkGetInstanceProcAddr(VkInstance instance,
                                                                                           const char* name) {
  if (!next_instance) {
    void* loader = dlopen(std::getenv("REAL_VULKAN"), RTLD_NOW | RTLD_LOCAL);
    if (!loader) std::abort();
    next_instance = reinterpret_cast<PFN_vkGetInstanceProcAddr>(dlsym(loader, "vkGetInstanceProcAddr"));
  }
  const PFN_vkVoidFunction f = next_instance(instance, name);
  if (std::strcmp(name, "vkGetDeviceProcAddr") != 0) return f;
  next_device = reinterpret_cast<PFN_vkGetDeviceProcAddr>(f);
  return reinterpret_cast<PFN_vkVoidFunction>(device_function);
}
