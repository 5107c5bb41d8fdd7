#include "samples/qt/features.h"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

void (*enable_features)(const void*, void*) = nullptr;
VkInstance instance_of_qt = VK_NULL_HANDLE;

struct Features {
  VkPhysicalDeviceFeatures2 all = {};
  VkPhysicalDeviceVulkan11Features v11 = {};
  VkPhysicalDeviceVulkan12Features v12 = {};
  VkPhysicalDeviceVulkan13Features v13 = {};
  Features() { clear(); }
  Features(const Features&) = delete;
  Features& operator=(const Features&) = delete;
  void clear() {
    all = {}, v11 = {}, v12 = {}, v13 = {};
    all.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, all.pNext = &v11;
    v11.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES, v11.pNext = &v12;
    v12.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES, v12.pNext = &v13;
    v13.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES;
  }
};

struct Created {
  VkDeviceCreateInfo info = {};
  Features features;
  std::vector<std::string> extensions;
  std::vector<const char*> names;
};
Created& created() {
  static Created c;
  return c;
}

VkResult create_device(VkPhysicalDevice physical, const VkDeviceCreateInfo* info,
                       const VkAllocationCallbacks* allocator, VkDevice* device) {
  const PFN_vkGetInstanceProcAddr get = features_loader();
  const auto create = reinterpret_cast<PFN_vkCreateDevice>(get(instance_of_qt, "vkCreateDevice"));
  const auto ask =
      reinterpret_cast<PFN_vkGetPhysicalDeviceFeatures2>(get(instance_of_qt, "vkGetPhysicalDeviceFeatures2"));
  if (!create) return VK_ERROR_INITIALIZATION_FAILED;
  if (!ask || !enable_features) return create(physical, info, allocator, device);
  Created& c = created();
  Features has;
  ask(physical, &has.all);
  c.features.clear();
  if (info->pEnabledFeatures) c.features.all.features = *info->pEnabledFeatures;
  enable_features(&has.all, &c.features.all);
  c.features.v13.pNext = const_cast<void*>(info->pNext);
  c.extensions.assign(info->ppEnabledExtensionNames, info->ppEnabledExtensionNames + info->enabledExtensionCount);
  c.names.clear();
  for (const std::string& e : c.extensions) c.names.push_back(e.c_str());
  c.info = *info;
  c.info.pNext = &c.features.all;
  c.info.pEnabledFeatures = nullptr;
  c.info.ppEnabledExtensionNames = c.names.data();
  const VkResult made = create(physical, &c.info, allocator, device);
  c.info.pQueueCreateInfos = nullptr, c.info.queueCreateInfoCount = 0;  // Qt's
  c.features.v13.pNext = nullptr;
  return made;
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) PFN_vkVoidFunction vkGetInstanceProcAddr(VkInstance instance, const char* name) {
  if (instance) instance_of_qt = instance;
  if (std::strcmp(name, "vkCreateDevice") == 0) return reinterpret_cast<PFN_vkVoidFunction>(create_device);
  if (std::strcmp(name, "vkGetInstanceProcAddr") == 0)
    return reinterpret_cast<PFN_vkVoidFunction>(vkGetInstanceProcAddr);
  const PFN_vkGetInstanceProcAddr get = features_loader();
  return get ? get(instance, name) : nullptr;
}

__attribute__((visibility("default"))) void features_for_qt(void (*enable)(const void*, void*)) {
  enable_features = enable;
  Dl_info here;
  if (dladdr(reinterpret_cast<const void*>(&create_device), &here)) setenv("QT_VULKAN_LIB", here.dli_fname, 1);
}
__attribute__((visibility("default"))) const VkDeviceCreateInfo* features_created_with() { return &created().info; }
__attribute__((visibility("default"))) PFN_vkGetInstanceProcAddr features_loader() {
  static void* const library = dlopen("libvulkan.so.1", RTLD_NOW | RTLD_LOCAL);
  return library ? reinterpret_cast<PFN_vkGetInstanceProcAddr>(dlsym(library, "vkGetInstanceProcAddr")) : nullptr;
}
}
