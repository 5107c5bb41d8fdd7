// A Vulkan program in C, as far as the tests need one: its own instance, device and queue, a buffer that it maps and a
// command buffer.
#pragma once
#include <tessera/tessera_vulkan.h>
#include <vulkan/vulkan.h>

#include "test.h"

typedef struct Host {
  VkInstance instance;
  VkPhysicalDevice physical;
  VkDevice device;
  VkQueue queue;
  VkPhysicalDeviceVulkan13Features v13;
  VkPhysicalDeviceVulkan12Features v12;
  VkPhysicalDeviceVulkan11Features v11;
  VkPhysicalDeviceFeatures2 features;
  VkBuffer buffer;
  VkDeviceMemory memory;
  float* mapped;
  VkCommandPool pool;
  VkCommandBuffer commands;
  VkPipelineCache cache;
  int locked, unlocked, given, taken_back;
} Host;

/// The structures chained, all zero.
VkPhysicalDeviceFeatures2* chain(VkPhysicalDeviceFeatures2* f, VkPhysicalDeviceVulkan11Features* v11,
                                 VkPhysicalDeviceVulkan12Features* v12, VkPhysicalDeviceVulkan13Features* v13);
/// A type of memory among `bits` that is all of `wanted`.
uint32_t memory_type(const Host* h, uint32_t bits, VkMemoryPropertyFlags wanted);
void make_host(Host* h);
void end_host(Host* h);
/// The device as Tessera takes it.
tessera_imported_device imported_host(const Host* h);
/// So many floats of the buffer, from this byte on, as an array.
tessera_array* host_floats(const Host* h, tessera_device* d, VkDeviceSize offset, int64_t n);
/// Ends the recording, with a barrier from what the scopes say to the host's reads.
void end_for_host(const Host* h, const tessera_scopes* scopes);
/// What has been recorded.
void submit_and_wait(const Host* h);
