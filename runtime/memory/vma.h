// Vulkan Memory Allocator as runtime/ uses it: with functions from our tables, neither linked nor looked up. Only
// vma.cpp compiles its code. Internal to runtime/.
#pragma once
#include "runtime/device/vulkan.h"

#define VMA_STATIC_VULKAN_FUNCTIONS 0
#define VMA_DYNAMIC_VULKAN_FUNCTIONS 0
#define VMA_VULKAN_VERSION 1003000
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wall"
#pragma GCC diagnostic ignored "-Wextra"
#pragma GCC diagnostic ignored "-Wshadow"
#ifdef __clang__
#pragma clang diagnostic ignored "-Weverything"
#endif
#include <vk_mem_alloc.h>
#pragma GCC diagnostic pop
