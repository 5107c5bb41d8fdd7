// From a bundle's file to the end of its kernel's first call, on a warm cache, against the same by hand: SPIR-V from a
// file, a VkPipelineCache from another one, a pipeline, a command buffer, a submission. Both on one VkDevice, which
// Tessera imports anew each time, so that nothing is left of the time before; arrays are there already.
#include <unistd.h>
#include <vulkan/vulkan.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "codegen/make_bundle.h"
#include "codegen/program/bundle.h"
#include "engine/ir/text.h"
#include "runtime/bundle.h"
#include "runtime/interop.h"
#include "runtime/launch.h"

namespace fs = std::filesystem;
using namespace tessera;

namespace {

constexpr int64_t kN = 4096;

void check(VkResult r, const char* call) {
  if (r == VK_SUCCESS) return;
  std::cerr << "bench_bundle: " << call << ": VkResult " << r << "\n";
  std::exit(1);
}
std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
void write(const fs::path& path, const void* bytes, size_t size) {
  std::ofstream(path, std::ios::binary).write(static_cast<const char*>(bytes), static_cast<std::streamsize>(size));
}

struct Host {
  VkInstance instance = VK_NULL_HANDLE;
  VkPhysicalDevice physical = VK_NULL_HANDLE;
  VkDevice device = VK_NULL_HANDLE;
  VkQueue queue = VK_NULL_HANDLE;
  VkCommandPool pool = VK_NULL_HANDLE;
  VkPhysicalDeviceVulkan13Features v13{};
  VkPhysicalDeviceVulkan12Features v12{};
  VkPhysicalDeviceVulkan11Features v11{};
  VkPhysicalDeviceFeatures2 features{};

  Host() {
    const VkApplicationInfo app{
        VK_STRUCTURE_TYPE_APPLICATION_INFO, nullptr, "bench_bundle", 0, nullptr, 0, VK_API_VERSION_1_3};
    const VkInstanceCreateInfo info{VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO, nullptr, 0, &app, 0, nullptr, 0, nullptr};
    check(vkCreateInstance(&info, nullptr, &instance), "vkCreateInstance");
    uint32_t one = 1;
    if (vkEnumeratePhysicalDevices(instance, &one, &physical) < 0 || one == 0)
      check(VK_ERROR_INITIALIZATION_FAILED, "vkEnumeratePhysicalDevices");
    VkPhysicalDeviceVulkan13Features h13{};
    VkPhysicalDeviceVulkan12Features h12{};
    VkPhysicalDeviceVulkan11Features h11{};
    VkPhysicalDeviceFeatures2 has{};
    vkGetPhysicalDeviceFeatures2(physical, chain(has, h11, h12, h13));
    enable_device_features(&has, chain(features, v11, v12, v13));
    const float priority = 1;
    const VkDeviceQueueCreateInfo queues{VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO, nullptr, 0, 0, 1, &priority};
    VkDeviceCreateInfo create{};
    create.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO;
    create.pNext = &features;
    create.queueCreateInfoCount = 1;
    create.pQueueCreateInfos = &queues;
    check(vkCreateDevice(physical, &create, nullptr, &device), "vkCreateDevice");
    vkGetDeviceQueue(device, 0, 0, &queue);
    const VkCommandPoolCreateInfo pools{VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO, nullptr, 0, 0};
    check(vkCreateCommandPool(device, &pools, nullptr, &pool), "vkCreateCommandPool");
  }
  static VkPhysicalDeviceFeatures2* chain(VkPhysicalDeviceFeatures2& f, VkPhysicalDeviceVulkan11Features& v11,
                                          VkPhysicalDeviceVulkan12Features& v12,
                                          VkPhysicalDeviceVulkan13Features& v13) {
    f.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, f.pNext = &v11;
    v11.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES, v11.pNext = &v12;
    v12.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES, v12.pNext = &v13;
    v13.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES;
    return &f;
  }
  Device imported() const {
    ImportedDevice d;
    d.get_instance_proc_addr = vkGetInstanceProcAddr;
    d.instance = instance, d.api_version = VK_API_VERSION_1_3, d.physical_device = physical, d.device = device,
    d.queue = queue, d.features = &features;
    return Device::import(d);
  }
  // Memory that the host maps, by its address.
  VkDeviceAddress memory(VkDeviceSize bytes) const {
    const VkBufferCreateInfo info{VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                                  nullptr,
                                  0,
                                  bytes,
                                  VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT,
                                  VK_SHARING_MODE_EXCLUSIVE,
                                  0,
                                  nullptr};
    VkBuffer buffer = VK_NULL_HANDLE;
    check(vkCreateBuffer(device, &info, nullptr, &buffer), "vkCreateBuffer");
    VkMemoryRequirements needs;
    vkGetBufferMemoryRequirements(device, buffer, &needs);
    uint32_t type = 0;
    while (!(needs.memoryTypeBits >> type & 1)) ++type;
    const VkMemoryAllocateFlagsInfo flags{VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO, nullptr,
                                          VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT, 0};
    const VkMemoryAllocateInfo allocate{VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, &flags, needs.size, type};
    VkDeviceMemory memory = VK_NULL_HANDLE;
    check(vkAllocateMemory(device, &allocate, nullptr, &memory), "vkAllocateMemory");
    check(vkBindBufferMemory(device, buffer, memory, 0), "vkBindBufferMemory");
    const VkBufferDeviceAddressInfo address{VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO, nullptr, buffer};
    return vkGetBufferDeviceAddress(device, &address);
  }
};

// One kernel of one array in and one out, by hand. `cache`: the file of a VkPipelineCache, which is written if `keep`.
void by_hand(const Host& h, const Program& layout, const fs::path& code, const fs::path& cache,
             const std::vector<std::byte>& push, uint32_t groups, bool keep) {
  const std::string words = read(code), kept = read(cache);
  VkPipelineCache pipelines = VK_NULL_HANDLE;
  const VkPipelineCacheCreateInfo cache_info{VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO, nullptr, 0, kept.size(),
                                             kept.data()};
  check(vkCreatePipelineCache(h.device, &cache_info, nullptr, &pipelines), "vkCreatePipelineCache");
  VkShaderModule module = VK_NULL_HANDLE;
  const VkShaderModuleCreateInfo module_info{VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO, nullptr, 0, words.size(),
                                             reinterpret_cast<const uint32_t*>(words.data())};
  check(vkCreateShaderModule(h.device, &module_info, nullptr, &module), "vkCreateShaderModule");
  const VkPushConstantRange range{VK_SHADER_STAGE_COMPUTE_BIT, 0, static_cast<uint32_t>(push.size())};
  const VkPipelineLayoutCreateInfo layout_info{
      VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO, nullptr, 0, 0, nullptr, 1, &range};
  VkPipelineLayout pipeline_layout = VK_NULL_HANDLE;
  check(vkCreatePipelineLayout(h.device, &layout_info, nullptr, &pipeline_layout), "vkCreatePipelineLayout");
  VkPipelineShaderStageRequiredSubgroupSizeCreateInfo size{
      VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO, nullptr,
      static_cast<uint32_t>(layout.required_subgroup_size)};
  VkComputePipelineCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO;
  info.layout = pipeline_layout;
  info.stage.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO;
  info.stage.stage = VK_SHADER_STAGE_COMPUTE_BIT;
  info.stage.module = module;
  info.stage.pName = "main";
  if (size.requiredSubgroupSize)
    info.stage.pNext = &size, info.stage.flags = VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT;
  VkPipeline pipeline = VK_NULL_HANDLE;
  check(vkCreateComputePipelines(h.device, pipelines, 1, &info, nullptr, &pipeline), "vkCreateComputePipelines");
  VkCommandBuffer commands = VK_NULL_HANDLE;
  const VkCommandBufferAllocateInfo allocate{VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO, nullptr, h.pool,
                                             VK_COMMAND_BUFFER_LEVEL_PRIMARY, 1};
  check(vkAllocateCommandBuffers(h.device, &allocate, &commands), "vkAllocateCommandBuffers");
  const VkCommandBufferBeginInfo begin{VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO, nullptr, 0, nullptr};
  check(vkBeginCommandBuffer(commands, &begin), "vkBeginCommandBuffer");
  vkCmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline);
  vkCmdPushConstants(commands, pipeline_layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, range.size, push.data());
  vkCmdDispatch(commands, groups, 1, 1);
  check(vkEndCommandBuffer(commands), "vkEndCommandBuffer");
  VkSubmitInfo submit{};
  submit.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO;
  submit.commandBufferCount = 1;
  submit.pCommandBuffers = &commands;
  check(vkQueueSubmit(h.queue, 1, &submit, VK_NULL_HANDLE), "vkQueueSubmit");
  check(vkQueueWaitIdle(h.queue), "vkQueueWaitIdle");
  if (keep) {
    size_t n = 0;
    vkGetPipelineCacheData(h.device, pipelines, &n, nullptr);
    std::vector<std::byte> data(n);
    vkGetPipelineCacheData(h.device, pipelines, &n, data.data());
    write(cache, data.data(), n);
  }
  vkFreeCommandBuffers(h.device, h.pool, 1, &commands);
  vkDestroyPipeline(h.device, pipeline, nullptr);
  vkDestroyPipelineLayout(h.device, pipeline_layout, nullptr);
  vkDestroyShaderModule(h.device, module, nullptr);
  vkDestroyPipelineCache(h.device, pipelines, nullptr);
}

double milliseconds(const std::function<void()>& f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}
std::string row(const char* name, std::vector<double> times) {
  std::sort(times.begin(), times.end());
  char line[120];
  std::snprintf(line, sizeof line, "%-10s min %7.3f ms   median %7.3f   max %7.3f\n", name, times.front(),
                times[times.size() / 2], times.back());
  return line;
}

}  // namespace

int main(int argc, char** argv) {
  const int repeats = argc > 2 && std::string(argv[1]) == "--repeats" ? std::max(1, std::atoi(argv[2])) : 15;
  const fs::path folder = fs::temp_directory_path() / ("tessera_bench_bundle_" + std::to_string(getpid()));
  fs::create_directories(folder);
  setenv("TESSERA_CACHE", (folder / "cache").c_str(), 1);

  const ir::Kernel kernel = ir::parse(
      "tir 1\nkernel @gelu\nin f32[4096] whole\nout f32[4096] whole\nbody (%x, %y) {\n  %a = load %x[0:4096]\n  %b = "
      "tanh %a\n  %c = constant 0.5 : f32[4096]\n  %d = mul %b, %c\n"
      "  %e = add %d, %c\n  %f = mul %e, %a\n  store %y[0:4096], %f\n  yield\n}\n",
      "gelu.tir");
  const BundleSource source[] = {{kernel, {"x", "y"}}};
  const Target targets[] = {minimum_target(), lavapipe_target(), gpu_target()};
  const std::string bytes = bundle_to_bytes(make_bundle(source, targets).file);
  write(folder / "k.tsb", bytes.data(), bytes.size());

  {
    const Host host;
    const Bundle whole((folder / "k.tsb").string());
    const Program program = whole.kernel(host.imported(), "gelu").program();
    write(folder / "k.spv", program.spirv.data(), 4 * program.spirv.size());
    const uint64_t addresses[] = {host.memory(4 * kN), host.memory(4 * kN)};
    std::vector<std::byte> push(static_cast<size_t>(program.push_bytes()));
    if (push.size() != sizeof addresses || program.scratch_bytes > 0) {
      std::cerr << "bench_bundle: the kernel is not as simple as it should be\n";
      return 1;
    }
    std::memcpy(push.data(), addresses, sizeof addresses);
    const auto groups = static_cast<uint32_t>(program.num_units.value().value());
    const auto hand = [&](bool keep) {
      by_hand(host, program, folder / "k.spv", folder / "hand.cache", push, groups, keep);
    };

    std::vector<double> ours, theirs;
    for (int i = -1; i < repeats; ++i) {  // the first fills the caches
      if (i < 0) hand(true);
      else theirs.push_back(milliseconds([&] { hand(false); }));
      const Device device = host.imported();
      const DeviceArray x(device, Array({kN}, std::vector<float>(kN, 1.0f))), y(device, {kN}, f32);
      device.wait();
      const double t = milliseconds([&] {
        const Bundle bundle((folder / "k.tsb").string());
        const CompiledKernel k = bundle.kernel(device, "gelu");
        launch_into(device, k.program(), {x}, {y});
        device.wait();
      });
      if (i < 0) continue;
      ours.push_back(t);
      // What was timed is what is claimed: one pipeline, of what was on disk, and a call that has computed.
      const PipelineCounts made = pipeline_counts(device);
      const double last = y.download().at(kN - 1);
      if (made.made != 0 || made.from_disk != 1 || std::abs(last - 0.8808) > 1e-3) {
        std::cerr << "bench_bundle: " << made.made << " pipelines were made and " << made.from_disk
                  << " taken from disk, where 0 and 1 were expected; the last element is " << last << "\n";
        return 1;
      }
    }
    std::cout << "a bundle of " << bytes.size() << " bytes to the end of its first call, " << repeats << " times\n"
              << row("bundle", ours) << row("by hand", theirs);
    std::vector<double> ratios;
    for (size_t i = 0; i < ours.size(); ++i) ratios.push_back(ours[i] / theirs[i]);
    std::sort(ratios.begin(), ratios.end());
    const size_t n = ratios.size();
    std::printf("ratio: median %.2f, half of the turns %.2f to %.2f (goal: at most 2)\n", ratios[n / 2], ratios[n / 4],
                ratios[n * 3 / 4]);
  }
  fs::remove_all(folder);
  return 0;
}
