// Properties of a VkPhysicalDevice: the DeviceInfo and Target that the rest of Tessera sees, and the features to
// enable. Internal to runtime/. Read next: open_device.h.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/device.h"
#include "runtime/device/extensions.h"
#include "runtime/device/features.h"
#include "runtime/device/instance.h"

namespace tessera::vulkan {

/// Of a driver, for the keys of files and the check of their data.
struct DriverId {
  uint32_t vendor = 0, device = 0, version = 0, api = 0;
  std::string name;  // device and driver
  uint8_t cache_uuid[VK_UUID_SIZE] = {}, driver_uuid[VK_UUID_SIZE] = {};
};

struct Probe {
  DeviceInfo info;
  std::unique_ptr<Features> enable;  // of an imported device: what its host has enabled
  std::unique_ptr<Extensions> of_code;
  std::vector<const char*> extensions;
  uint32_t queue_family = UINT32_MAX;
  bool unified = false;             // arrays live in memory that the host maps and reads at full speed
  bool host_writes_arrays = false;  // or at least maps and writes all of (resizable BAR)
  bool memory_budget = false;
  uint32_t coherent_types = 0;  // bits of the memory types that host and device see alike without a flush
  // of memory that the host has allocated and the device can use in place; 0: it cannot
  uint64_t host_import_alignment = 0;
  uint32_t max_groups[3] = {};
  DriverId driver;
  uint32_t timestamp_bits = 0;  // of the queue's timestamps; 0: it has none
  float timestamp_period = 0;   // nanoseconds per step
};

/// `imported`: a device that its host has made; then all follows from what is enabled on it.
Probe probe(const Instance& instance, VkPhysicalDevice device, int index, const ImportedDevice* imported = nullptr);

}  // namespace tessera::vulkan
