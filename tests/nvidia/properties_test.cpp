// What NVIDIA's drivers say of a GPU, through CUDA and through Vulkan, printed in full, and held against what the
// compiler takes for granted of such chips: Target::nvidia, and gpu_target(), for which code is measured without a GPU.
// Without an NVIDIA GPU every case passes and checks nothing.
#include <doctest/doctest.h>
#include <vulkan/vulkan.h>

#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "codegen/program/target.h"
#include "engine/base/error.h"
#include "runtime/cuda.h"
#include "runtime/device.h"

namespace properties_test {
using namespace tessera;

namespace {

std::string text_of(const Target& t) {
  std::string s;
  const auto number = [&](const char* name, int64_t v) {
    s += std::string("  ") + name + " " + std::to_string(v) + "\n";
  };
#define NUMBER(member) number(#member, static_cast<int64_t>(t.member))
  NUMBER(max_workgroup_size), NUMBER(max_workgroup_count), NUMBER(shared_bytes), NUMBER(push_constant_bytes);
  NUMBER(max_buffer_bytes), NUMBER(min_subgroup_size), NUMBER(max_subgroup_size), NUMBER(subgroup_size);
  NUMBER(can_require_subgroup_size), NUMBER(max_loop_iterations), NUMBER(compute_units);
  NUMBER(subgroup_vote), NUMBER(subgroup_arithmetic), NUMBER(subgroup_ballot), NUMBER(subgroup_shuffle),
      NUMBER(subgroup_reductions);
  NUMBER(int8), NUMBER(int16), NUMBER(int64), NUMBER(float16), NUMBER(float64), NUMBER(int64_atomics);
  NUMBER(storage8), NUMBER(storage16), NUMBER(shared_vectors), NUMBER(indexed_addresses),
      NUMBER(vulkan_memory_model_device_scope);
  NUMBER(integer_dot), NUMBER(dot4_signed), NUMBER(dot4_unsigned), NUMBER(dot4_mixed);
  NUMBER(first_chunk_apart);
  NUMBER(transposes_matrices), NUMBER(skips_branches), NUMBER(wrong_int64_division), NUMBER(forgets_zeros);
  NUMBER(rte16), NUMBER(rte32), NUMBER(rte64), NUMBER(preserve16), NUMBER(preserve32), NUMBER(preserve64);
#undef NUMBER
  for (const MatrixShape& m : t.matrices) s += "  matrix " + to_string(m) + "\n";
  return s;
}

/// The Vulkan devices that are NVIDIA's, through NVIDIA's driver.
std::vector<DeviceInfo> vulkan_devices() {
  std::vector<DeviceInfo> found;
  try {
    for (DeviceInfo& d : list_devices())
      if (d.driver.find("NVIDIA") != std::string::npos && d.driver.find("Mesa") == std::string::npos)
        found.push_back(std::move(d));
  } catch (const DeviceError& e) {
    MESSAGE("no Vulkan: ", std::string(e.what()));
  }
  return found;
}

struct RawMatrix {  // VkCooperativeMatrixPropertiesKHR
  VkStructureType sType = static_cast<VkStructureType>(1000506001);
  void* pNext = nullptr;
  uint32_t m = 0, n = 0, k = 0, a = 0, b = 0, c = 0, result = 0;
  VkBool32 saturating = VK_FALSE;
  uint32_t scope = 0;
};
std::string component(uint32_t type) {  // VkComponentTypeKHR
  constexpr const char* kNames[] = {"f16", "f32", "f64", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"};
  if (type < std::size(kNames)) return kNames[type];
  return type == 1000141000   ? "bf16"
         : type == 1000491002 ? "f8e4m3fn"
         : type == 1000491003 ? "f8e5m2"
                              : std::to_string(type);
}

/// All that Vulkan's device lists, also what Tessera does not use.
void print_vulkan(VkInstance instance, VkPhysicalDevice device) {
  VkPhysicalDeviceProperties p;
  vkGetPhysicalDeviceProperties(device, &p);
  const VkPhysicalDeviceLimits& l = p.limits;
  std::printf("Vulkan %u.%u.%u, %s\n", VK_API_VERSION_MAJOR(p.apiVersion), VK_API_VERSION_MINOR(p.apiVersion),
              VK_API_VERSION_PATCH(p.apiVersion), p.deviceName);
  std::printf("  workgroups %u %u %u of %u %u %u, %u invocations, shared %u, range %u, timestamps of %g ns\n",
              l.maxComputeWorkGroupCount[0], l.maxComputeWorkGroupCount[1], l.maxComputeWorkGroupCount[2],
              l.maxComputeWorkGroupSize[0], l.maxComputeWorkGroupSize[1], l.maxComputeWorkGroupSize[2],
              l.maxComputeWorkGroupInvocations, l.maxComputeSharedMemorySize, l.maxStorageBufferRange,
              static_cast<double>(l.timestampPeriod));
  VkPhysicalDeviceMemoryProperties memory;
  vkGetPhysicalDeviceMemoryProperties(device, &memory);
  for (uint32_t i = 0; i < memory.memoryHeapCount; ++i)
    std::printf("  heap %u: %llu bytes, flags %x\n", i, static_cast<unsigned long long>(memory.memoryHeaps[i].size),
                memory.memoryHeaps[i].flags);
  for (uint32_t i = 0; i < memory.memoryTypeCount; ++i)
    std::printf("  memory type %u: heap %u, flags %x\n", i, memory.memoryTypes[i].heapIndex,
                memory.memoryTypes[i].propertyFlags);
  uint32_t n = 0;
  vkGetPhysicalDeviceQueueFamilyProperties(device, &n, nullptr);
  std::vector<VkQueueFamilyProperties> families(n);
  vkGetPhysicalDeviceQueueFamilyProperties(device, &n, families.data());
  for (const VkQueueFamilyProperties& f : families)
    std::printf("  queues: %u, flags %x, timestamps of %u bits\n", f.queueCount, f.queueFlags, f.timestampValidBits);
  const auto get = reinterpret_cast<VkResult (*)(VkPhysicalDevice, uint32_t*, RawMatrix*)>(
      vkGetInstanceProcAddr(instance, "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR"));
  n = 0;
  if (get) get(device, &n, nullptr);
  std::vector<RawMatrix> matrices(n);
  if (n > 0) get(device, &n, matrices.data());
  for (const RawMatrix& m : matrices)
    std::printf("  matrix %ux%ux%u %s %s %s %s, scope %u%s\n", m.m, m.n, m.k, component(m.a).c_str(),
                component(m.b).c_str(), component(m.c).c_str(), component(m.result).c_str(), m.scope,
                m.saturating ? ", saturating" : "");
  vkEnumerateDeviceExtensionProperties(device, nullptr, &n, nullptr);
  std::vector<VkExtensionProperties> extensions(n);
  vkEnumerateDeviceExtensionProperties(device, nullptr, &n, extensions.data());
  for (const VkExtensionProperties& e : extensions) std::printf("  %s %u\n", e.extensionName, e.specVersion);
}

void print_all_of_vulkan() {
  const VkApplicationInfo app{
      VK_STRUCTURE_TYPE_APPLICATION_INFO, nullptr, "tessera tests", 0, nullptr, 0, VK_API_VERSION_1_3};
  const VkInstanceCreateInfo info{VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO, nullptr, 0, &app, 0, nullptr, 0, nullptr};
  VkInstance instance = VK_NULL_HANDLE;
  if (vkCreateInstance(&info, nullptr, &instance) != VK_SUCCESS) return;
  uint32_t n = 0;
  vkEnumeratePhysicalDevices(instance, &n, nullptr);
  std::vector<VkPhysicalDevice> devices(n);
  vkEnumeratePhysicalDevices(instance, &n, devices.data());
  for (VkPhysicalDevice d : devices) print_vulkan(instance, d);
  vkDestroyInstance(instance, nullptr);
}

}  // namespace

TEST_CASE("CUDA: each GPU has what Target::nvidia says of its chip") {
  for (const CudaDeviceInfo& d : list_cuda_devices()) {
    std::printf("cuda:%d %s, compute capability %d.%d, CUDA %d, %lld bytes, chip %s, PTX %s\n%s", d.index,
                d.name.c_str(), d.major, d.minor, d.driver_version, static_cast<long long>(d.memory_bytes),
                d.target.chip.c_str(), d.target.ptx_version.c_str(), text_of(d.target).c_str());
    INFO(d.name);
    CHECK(d.lacks.empty());
    if (!d.lacks.empty()) continue;
    const Target want = Target::nvidia(d.target.chip);
    CHECK(d.target.max_workgroup_size == want.max_workgroup_size);
    CHECK(d.target.shared_bytes == want.shared_bytes);
    CHECK(d.target.compute_units > 0);
    CHECK(d.memory_bytes > 0);
  }
}

TEST_CASE("Vulkan: each GPU has what gpu_target() says, but for its sizes") {
  const std::vector<DeviceInfo> devices = vulkan_devices();
  if (!devices.empty()) print_all_of_vulkan();
  for (const DeviceInfo& d : devices) {
    const Target &t = d.target, want = gpu_target();
    std::printf("vulkan:%d %s, %s, %s, Vulkan %s\n%s", d.index, d.name.c_str(), d.kind.c_str(), d.driver.c_str(),
                d.api_version.c_str(), text_of(t).c_str());
    INFO(d.name);
    CHECK(d.lacks.empty());
    CHECK(t.kind == want.kind);
    CHECK(t.max_workgroup_size >= want.max_workgroup_size);
    CHECK(t.shared_bytes >= want.shared_bytes);
    CHECK(t.push_constant_bytes >= want.push_constant_bytes);
    CHECK(t.subgroup_size == want.subgroup_size);
    CHECK(t.can_require_subgroup_size);
    CHECK((t.subgroup_vote && t.subgroup_arithmetic && t.subgroup_ballot && t.subgroup_shuffle));
    CHECK((t.int8 && t.int16 && t.int64 && t.float16 && t.float64 && t.int64_atomics));
    CHECK((t.storage8 && t.storage16 && t.vulkan_memory_model_device_scope && t.skips_branches));
    CHECK(t.integer_dot);
    CHECK((t.rte32 && t.rte64 && t.preserve16 && t.preserve32 && t.preserve64));
  }
}

TEST_CASE("the GPU's matrices through Vulkan are those that its chip has in PTX") {
  const std::vector<CudaDeviceInfo> cuda = list_cuda_devices();
  for (const DeviceInfo& d : vulkan_devices())
    for (const CudaDeviceInfo& c : cuda) {
      if (d.name != c.name) continue;
      CHECK(!d.target.matrices.empty());
      for (const MatrixShape& m : c.target.matrices) {
        bool there = false;
        for (const MatrixShape& v : d.target.matrices) there = there || (v.a == m.a && v.b == m.b && v.sum == m.sum);
        std::printf("matrices of %s: %s\n", to_string(m).c_str(), there ? "Vulkan too" : "only PTX");
      }
    }
}

}  // namespace properties_test
