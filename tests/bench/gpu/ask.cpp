// bench_gpu --out FILE.json FILE.tir|FILE.spv [--subgroup N] [--plain|--statistics]: asks the current Vulkan device's
// compiler about one module: our kernel, compiled for that device, or the SPIR-V of a hand-written shader. Nothing is
// executed. The file has the driver, the time from text to SPIR-V, the time of vkCreateComputePipelines, every
// statistic and every text that the driver gives (VK_KHR_pipeline_executable_properties). tests/bench/gpu/run calls it,
// once per module and chip; analyse.py reads it. --plain: only the times, of a pipeline made as the runtime makes it;
// --statistics: no texts.
#include <vulkan/vulkan.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "codegen/compile.h"
#include "engine/base/error.h"
#include "engine/ir/text.h"
#include "runtime/device.h"

namespace tessera::bench {

enum class Detail { times, statistics, texts };  // what is asked for, each with those before it

namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;
double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}
/// Of all threads: what a compiler takes when nothing else wants the machine.
double processor_ms() { return 1e3 * static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

std::string read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw SpecError("bench_gpu: cannot read " + path);
  return {std::istreambuf_iterator<char>(in), {}};
}

void check(VkResult r, const char* call) {
  if (r < 0) throw DeviceError(std::string("bench_gpu: ") + call + ": VkResult " + std::to_string(r));
}

/// A structure of features, all of them VkBool32: those of extensions that are newer than the oldest headers we build
/// with, by the numbers of Vulkan's registry.
struct Flags {
  VkStructureType type;
  void* next = nullptr;
  VkBool32 is[16] = {};
};
struct Optional {
  const char* extension;
  int type;  // of its structure of features; 0: it has none
};
constexpr Optional kOptional[] = {
    {"VK_KHR_cooperative_matrix", 1000506000},
    {"VK_NV_cooperative_matrix2", 1000593000},
    {"VK_KHR_shader_bfloat16", 1000141000},
    {"VK_EXT_shader_float8", 1000567000},
    {"VK_KHR_workgroup_memory_explicit_layout",
     VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_WORKGROUP_MEMORY_EXPLICIT_LAYOUT_FEATURES_KHR},
    {"VK_EXT_shader_atomic_float", VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_ATOMIC_FLOAT_FEATURES_EXT},
};

/// A device with all its features but those that make accesses robust, which change the code.
class Asked {
 public:
  Asked(int index, Detail detail) : detail_(detail) {
    VkApplicationInfo app{VK_STRUCTURE_TYPE_APPLICATION_INFO, nullptr, "bench_gpu", 0, nullptr, 0, VK_API_VERSION_1_3};
    VkInstanceCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO;
    info.pApplicationInfo = &app;
    check(vkCreateInstance(&info, nullptr, &instance_), "vkCreateInstance");
    uint32_t n = 0;
    vkEnumeratePhysicalDevices(instance_, &n, nullptr);
    std::vector<VkPhysicalDevice> devices(n);
    check(vkEnumeratePhysicalDevices(instance_, &n, devices.data()), "vkEnumeratePhysicalDevices");
    physical_ = devices.at(static_cast<size_t>(index));
    create_device();
  }
  Asked(const Asked&) = delete;
  Asked& operator=(const Asked&) = delete;

  json pipeline(const std::vector<uint32_t>& code, uint32_t push_bytes, int32_t subgroup) const;

 private:
  template <class F> F function(const char* name) const {
    return reinterpret_cast<F>(vkGetDeviceProcAddr(device_, name));
  }
  bool has(const char* extension) const {
    return std::any_of(extensions_.begin(), extensions_.end(),
                       [&](const VkExtensionProperties& e) { return std::strcmp(e.extensionName, extension) == 0; });
  }
  void create_device();
  json described(VkPipeline pipeline) const;

  VkInstance instance_ = VK_NULL_HANDLE;
  VkPhysicalDevice physical_ = VK_NULL_HANDLE;
  VkDevice device_ = VK_NULL_HANDLE;
  std::vector<VkExtensionProperties> extensions_;
  Detail detail_;
  bool executables_ = false;
};

void Asked::create_device() {
  uint32_t n = 0;
  vkEnumerateDeviceExtensionProperties(physical_, nullptr, &n, nullptr);
  extensions_.resize(n);
  check(vkEnumerateDeviceExtensionProperties(physical_, nullptr, &n, extensions_.data()),
        "vkEnumerateDeviceExtensionProperties");

  VkPhysicalDeviceVulkan13Features v13{};
  v13.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES;
  VkPhysicalDeviceVulkan12Features v12{};
  v12.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES;
  v12.pNext = &v13;
  VkPhysicalDeviceVulkan11Features v11{};
  v11.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES;
  v11.pNext = &v12;
  VkPhysicalDeviceFeatures2 core{};
  core.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2;
  core.pNext = &v11;
  std::vector<const char*> names;
  std::vector<Flags> flags;
  flags.reserve(std::size(kOptional) + 1);
  const auto add = [&](const char* extension, int type) {
    if (!has(extension)) return;
    names.push_back(extension);
    if (type == 0) return;
    flags.push_back({static_cast<VkStructureType>(type), core.pNext, {}});
    core.pNext = &flags.back();
  };
  for (const Optional& o : kOptional) add(o.extension, o.type);
  executables_ = detail_ != Detail::times && has(VK_KHR_PIPELINE_EXECUTABLE_PROPERTIES_EXTENSION_NAME);
  if (executables_)
    add(VK_KHR_PIPELINE_EXECUTABLE_PROPERTIES_EXTENSION_NAME,
        VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PIPELINE_EXECUTABLE_PROPERTIES_FEATURES_KHR);
  vkGetPhysicalDeviceFeatures2(physical_, &core);
  core.features.robustBufferAccess = VK_FALSE;
  v13.robustImageAccess = VK_FALSE;
  for (Flags& f : flags)
    if (f.type == 1000506000) f.is[1] = VK_FALSE;  // cooperativeMatrixRobustBufferAccess

  vkGetPhysicalDeviceQueueFamilyProperties(physical_, &n, nullptr);
  std::vector<VkQueueFamilyProperties> families(n);
  vkGetPhysicalDeviceQueueFamilyProperties(physical_, &n, families.data());
  const float priority = 1;
  VkDeviceQueueCreateInfo queue{};
  queue.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO;
  for (uint32_t i = n; i-- > 0;)
    if (families[i].queueFlags & VK_QUEUE_COMPUTE_BIT) queue.queueFamilyIndex = i;
  queue.queueCount = 1;
  queue.pQueuePriorities = &priority;
  VkDeviceCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO;
  info.pNext = &core;
  info.queueCreateInfoCount = 1;
  info.pQueueCreateInfos = &queue;
  info.enabledExtensionCount = static_cast<uint32_t>(names.size());
  info.ppEnabledExtensionNames = names.data();
  check(vkCreateDevice(physical_, &info, nullptr, &device_), "vkCreateDevice");
}

json value_of(const VkPipelineExecutableStatisticKHR& s) {
  switch (s.format) {
    case VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_BOOL32_KHR: return s.value.b32 != 0;
    case VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_INT64_KHR: return s.value.i64;
    case VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_UINT64_KHR: return s.value.u64;
    default: return s.value.f64;
  }
}

/// Statistics and texts of the pipeline's one executable.
json Asked::described(VkPipeline pipeline) const {
  json out{{"statistics", json::object()}, {"texts", json::object()}};
  if (!executables_) return out;
  const auto executables = function<PFN_vkGetPipelineExecutablePropertiesKHR>("vkGetPipelineExecutablePropertiesKHR");
  const auto statistics = function<PFN_vkGetPipelineExecutableStatisticsKHR>("vkGetPipelineExecutableStatisticsKHR");
  const auto texts = function<PFN_vkGetPipelineExecutableInternalRepresentationsKHR>(
      "vkGetPipelineExecutableInternalRepresentationsKHR");
  VkPipelineInfoKHR of{VK_STRUCTURE_TYPE_PIPELINE_INFO_KHR, nullptr, pipeline};
  uint32_t n = 0;
  executables(device_, &of, &n, nullptr);
  if (n == 0) return out;
  VkPipelineExecutablePropertiesKHR properties{};
  properties.sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_PROPERTIES_KHR;
  n = 1;
  executables(device_, &of, &n, &properties);
  out["subgroup_size"] = properties.subgroupSize;

  VkPipelineExecutableInfoKHR first{VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INFO_KHR, nullptr, pipeline, 0};
  statistics(device_, &first, &n, nullptr);
  VkPipelineExecutableStatisticKHR no_statistic{};
  no_statistic.sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_STATISTIC_KHR;
  std::vector<VkPipelineExecutableStatisticKHR> values(n, no_statistic);
  statistics(device_, &first, &n, values.data());
  for (const VkPipelineExecutableStatisticKHR& s : values) out["statistics"][s.name] = value_of(s);

  if (detail_ != Detail::texts) return out;
  n = 0;
  texts(device_, &first, &n, nullptr);
  VkPipelineExecutableInternalRepresentationKHR no_text{};
  no_text.sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INTERNAL_REPRESENTATION_KHR;
  std::vector<VkPipelineExecutableInternalRepresentationKHR> found(n, no_text);
  texts(device_, &first, &n, found.data());
  std::vector<std::string> memory;
  for (VkPipelineExecutableInternalRepresentationKHR& t : found) {
    memory.emplace_back(t.dataSize, '\0');
    t.pData = memory.back().data();
  }
  texts(device_, &first, &n, found.data());
  for (size_t i = 0; i < found.size(); ++i)
    if (found[i].isText) out["texts"][found[i].name] = std::string(memory[i].c_str());
  return out;
}

json Asked::pipeline(const std::vector<uint32_t>& code, uint32_t push_bytes, int32_t subgroup) const {
  VkPushConstantRange range{VK_SHADER_STAGE_COMPUTE_BIT, 0, push_bytes};
  VkPipelineLayoutCreateInfo layout_info{};
  layout_info.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO;
  layout_info.pushConstantRangeCount = push_bytes ? 1 : 0;
  layout_info.pPushConstantRanges = &range;
  VkPipelineLayout layout = VK_NULL_HANDLE;
  check(vkCreatePipelineLayout(device_, &layout_info, nullptr, &layout), "vkCreatePipelineLayout");
  VkShaderModuleCreateInfo module_info{};
  module_info.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO;
  module_info.codeSize = code.size() * sizeof(uint32_t);
  module_info.pCode = code.data();
  VkShaderModule module = VK_NULL_HANDLE;
  check(vkCreateShaderModule(device_, &module_info, nullptr, &module), "vkCreateShaderModule");

  VkPipelineShaderStageRequiredSubgroupSizeCreateInfo size{};
  size.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO;
  size.requiredSubgroupSize = static_cast<uint32_t>(subgroup);
  VkComputePipelineCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO;
  info.layout = layout;
  info.stage.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO;
  info.stage.stage = VK_SHADER_STAGE_COMPUTE_BIT;
  info.stage.module = module;
  info.stage.pName = "main";
  if (subgroup) {
    info.stage.pNext = &size;
    info.stage.flags = VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT;
  }
  info.flags = VK_PIPELINE_CREATE_DISPATCH_BASE_BIT;  // as runtime/submit/pipeline.cpp
  if (executables_)
    info.flags |=
        VK_PIPELINE_CREATE_CAPTURE_STATISTICS_BIT_KHR | VK_PIPELINE_CREATE_CAPTURE_INTERNAL_REPRESENTATIONS_BIT_KHR;
  VkPipeline pipeline = VK_NULL_HANDLE;
  const auto start = Clock::now();
  const double processor_start = processor_ms();
  check(vkCreateComputePipelines(device_, VK_NULL_HANDLE, 1, &info, nullptr, &pipeline), "vkCreateComputePipelines");
  const double ms = ms_since(start), processor = processor_ms() - processor_start;
  json out = described(pipeline);
  out["pipeline_ms"] = ms;
  out["pipeline_processor_ms"] = processor;
  return out;
}

/// The size, where the device can be made to use it; else 0: whatever it likes.
int32_t offered(int32_t n, const Target& t) {
  return t.can_require_subgroup_size && t.min_subgroup_size <= n && n <= t.max_subgroup_size ? n : 0;
}

json ask(const std::string& path, int32_t subgroup, Detail detail) {
  const DeviceInfo info = find_device();
  const Target& target = info.target;
  json out{{"device", info.name}, {"driver", info.driver}};
  std::vector<uint32_t> code;
  uint32_t push_bytes = static_cast<uint32_t>(target.push_constant_bytes);
  if (path.size() > 4 && path.substr(path.size() - 4) == ".tir") {
    const std::string text = read(path);
    Program program;
    double best = 1e9;
    for (int i = 0; i < (detail == Detail::texts ? 3 : 1); ++i) {
      const auto start = Clock::now();
      program = compile(ir::parse(text, path), target);
      best = std::min(best, ms_since(start));
    }
    out["compile_ms"] = best;
    out["workgroup_size"] = program.workgroup_size;
    out["shared_bytes"] = program.shared_bytes;
    out["scratch_bytes"] = program.scratch_bytes;
    out["groups"] = program.max_workgroups ? json(program.max_workgroups) : json(nullptr);
    code = program.spirv;
    push_bytes = program.indirect_table ? 8 : static_cast<uint32_t>(program.push_bytes());
    subgroup = program.required_subgroup_size;
  } else {
    const std::string bytes = read(path);
    code.resize(bytes.size() / sizeof(uint32_t));
    std::memcpy(code.data(), bytes.data(), code.size() * sizeof(uint32_t));
    subgroup = offered(subgroup, target);
  }
  out["spirv_words"] = code.size();
  out["required_subgroup_size"] = subgroup;
  out.update(Asked(info.index, detail).pipeline(code, push_bytes, subgroup));
  return out;
}

}  // namespace
}  // namespace tessera::bench

int main(int argc, char** argv) {
  std::string path, out;
  int subgroup = 0;
  using tessera::bench::Detail;
  Detail detail = Detail::texts;
  for (int i = 1; i < argc; ++i) {
    const std::string a = argv[i];
    if (a == "--out" && i + 1 < argc) out = argv[++i];
    else if (a == "--subgroup" && i + 1 < argc) subgroup = std::atoi(argv[++i]);
    else if (a == "--plain") detail = Detail::times;
    else if (a == "--statistics") detail = Detail::statistics;
    else path = a;
  }
  if (path.empty() || out.empty()) {
    std::fprintf(stderr, "usage: bench_gpu --out FILE.json [--subgroup N] [--plain|--statistics] FILE.tir|FILE.spv\n");
    return 2;
  }
  nlohmann::json answer;
  int status = 0;
  try {
    answer = tessera::bench::ask(path, subgroup, detail);
  } catch (const tessera::CompileError& e) {  // it is right to refuse what the device cannot do
    answer["refused"] = e.what();
  } catch (const std::exception& e) {
    answer["error"] = e.what();
    status = 1;
  }
  std::ofstream(out) << answer.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
  return status;
}
