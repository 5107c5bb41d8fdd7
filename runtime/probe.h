// Facts about a VkPhysicalDevice: the DeviceInfo and Target that the rest of Tessera sees, and the features to enable.
// Internal to runtime/. Read next: context.h.
#pragma once
#include <memory>

#include "runtime/device.h"
#include "runtime/instance.h"
#include "runtime/pipeline_file.h"

namespace tessera::vulkan {

/// Everything the device has of what Tessera uses, chained for VkDeviceCreateInfo. Not movable: the structs point at each other.
struct Features {
  Features();
  Features(const Features&) = delete;
  Features& operator=(const Features&) = delete;
  VkPhysicalDeviceFeatures2 core;
  VkPhysicalDeviceVulkan11Features v11;
  VkPhysicalDeviceVulkan12Features v12;
  VkPhysicalDeviceVulkan13Features v13;
};

struct Probe {
  DeviceInfo info;
  std::unique_ptr<Features> enable;
  std::vector<const char*> extensions;
  uint32_t queue_family = UINT32_MAX;
  bool unified = false;             // arrays live in memory that the host maps and reads at full speed
  bool host_writes_arrays = false;  // or at least maps and writes all of (resizable BAR)
  bool memory_budget = false;
  uint32_t coherent_types = 0;      // bits of the memory types that host and device see alike without a flush
  uint64_t host_import_alignment = 0;  // of memory that the host has allocated and the device can use in place; 0: it cannot
  uint32_t max_groups[3] = {};
  DriverId driver;
  uint32_t timestamp_bits = 0;      // of the queue's timestamps; 0: it has none
  float timestamp_period = 0;       // nanoseconds per step
};

Probe probe(const Instance& instance, VkPhysicalDevice device, int index);

}  // namespace tessera::vulkan
