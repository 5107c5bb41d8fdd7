// OpenDevice: a VkDevice with its function table, its queue and its properties, opened here or taken from a host
// program. Memory and submission depend on it. Internal to runtime/. Read next: memory/device_heap.h.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "engine/base/function.h"
#include "runtime/device/instance.h"
#include "runtime/device/probe.h"
#include "runtime/interop.h"

namespace tessera::vulkan {

/// The queue of all submissions, and what its host wants to happen around each; either may be empty.
struct Queue {
  VkQueue handle = VK_NULL_HANDLE;
  uint32_t family = 0;
  Function<void()> lock = {}, unlock = {};
};

class OpenDevice {
 public:
  OpenDevice(const OpenDevice&) = delete;
  OpenDevice& operator=(const OpenDevice&) = delete;

  bool imported() const { return imported_; }  // it is its host's
  VkPhysicalDevice physical() const { return physical_; }
  const Probe& probe() const { return probe_; }
  const DeviceTable& vk() const { return vk_; }
  VkDevice handle() const { return device_; }
  const std::string& name() const { return probe_.info.name; }
  const Instance& instance() const { return *instance_; }
  bool debug_info() const { return options_.debug_info; }

 protected:
  /// `imported`: a device that its host has made; else one is chosen and made. Throws DeviceError or SpecError.
  OpenDevice(const DeviceOptions& options, const ImportedDevice* imported);
  ~OpenDevice();  // nothing uses it any more

  DeviceOptions options_;
  std::unique_ptr<Instance> instance_;
  Probe probe_;
  VkPhysicalDevice physical_ = VK_NULL_HANDLE;
  VkDevice device_ = VK_NULL_HANDLE;
  Queue queue_;
  bool imported_ = false;
  DeviceTable vk_;

 private:
  void choose_device();
  void create_device();
  void take_device(const ImportedDevice& device);
};

}  // namespace tessera::vulkan
