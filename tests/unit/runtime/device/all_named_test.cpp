// Whatever a Device creates has a name by VK_EXT_debug_utils: every creating function of the driver is led through this
// file.
#include <doctest/doctest.h>

#include <string_view>
#include <vector>

#include "engine/ir/text.h"
#include "runtime/call/graph.h"
#include "runtime/call/jit.h"
#include "runtime/device/names.h"
#include "runtime/image/image.h"
#include "runtime/record.h"
#include "tests/unit/runtime/cache_folder.h"
#include "tests/unit/runtime/support.h"
#include "tests/unit/runtime/vulkan_host.h"

namespace all_named_test {
using namespace tessera;
using namespace tessera::test;

namespace {

/// What has been created, in order; handles come again.
struct Created {
  const char* by;
  VkObjectType type;
  uint64_t handle;
  std::string name;
};
std::vector<Created> created;
PFN_vkGetInstanceProcAddr instance_lookup;
PFN_vkGetDeviceProcAddr device_lookup;

template <class H> void add(const char* by, H handle) {
  created.push_back({by, vulkan::object_type<H>(), (uint64_t)handle, ""});
}

template <class Name, class F> struct Spy;
/// Of one object.
template <class Name, class I,
          class H> struct Spy<Name, VkResult(VKAPI_PTR*)(VkDevice, const I*, const VkAllocationCallbacks*, H*)> {
  static inline VkResult(VKAPI_PTR* next)(VkDevice, const I*, const VkAllocationCallbacks*, H*);
  static VKAPI_ATTR VkResult VKAPI_CALL call(VkDevice d, const I* info, const VkAllocationCallbacks* host, H* made) {
    const VkResult r = next(d, info, host, made);
    if (r >= 0) add(Name::text(), *made);
    return r;
  }
};
/// Of some, whose number the info has.
template <class Name, class I, class H> struct Spy<Name, VkResult(VKAPI_PTR*)(VkDevice, const I*, H*)> {
  static inline VkResult(VKAPI_PTR* next)(VkDevice, const I*, H*);
  static VKAPI_ATTR VkResult VKAPI_CALL call(VkDevice d, const I* info, H* made) {
    const VkResult r = next(d, info, made);
    const auto count = [&] {
      if constexpr (std::is_same_v<H, VkCommandBuffer>) return info->commandBufferCount;
      else return info->descriptorSetCount;
    }();
    for (uint32_t i = 0; r >= 0 && i < count; ++i) add(Name::text(), made[i]);
    return r;
  }
};
template <class Name> struct Spy<Name, PFN_vkCreateComputePipelines> {
  static inline PFN_vkCreateComputePipelines next;
  static VKAPI_ATTR VkResult VKAPI_CALL call(VkDevice d, VkPipelineCache cache, uint32_t n,
                                             const VkComputePipelineCreateInfo* infos,
                                             const VkAllocationCallbacks* host, VkPipeline* made) {
    const VkResult r = next(d, cache, n, infos, host, made);
    for (uint32_t i = 0; r >= 0 && i < n; ++i) add(Name::text(), made[i]);
    return r;
  }
};
template <class Name> struct Spy<Name, PFN_vkSetDebugUtilsObjectNameEXT> {
  static inline PFN_vkSetDebugUtilsObjectNameEXT next;
  static VKAPI_ATTR VkResult VKAPI_CALL call(VkDevice d, const VkDebugUtilsObjectNameInfoEXT* info) {
    for (auto c = created.rbegin(); c != created.rend(); ++c)
      if (c->type == info->objectType && c->handle == info->objectHandle) {
        c->name = info->pObjectName;
        break;
      }
    return next(d, info);
  }
};

// Every function of the tables that creates something (runtime/device/vulkan.h), but those of images: only the memory
// allocator has them, and it makes none.
#define SPIED(X)                  \
  X(vkCreateBuffer)               \
  X(vkAllocateMemory)             \
  X(vkCreateSemaphore)            \
  X(vkCreateCommandPool)          \
  X(vkCreatePipelineLayout)       \
  X(vkCreateShaderModule)         \
  X(vkCreateQueryPool)            \
  X(vkCreatePipelineCache)        \
  X(vkCreateImageView)            \
  X(vkCreateDescriptorSetLayout)  \
  X(vkCreateDescriptorPool)       \
  X(vkAllocateDescriptorSets)     \
  X(vkAllocateCommandBuffers)     \
  X(vkCreateComputePipelines)     \
  X(vkSetDebugUtilsObjectNameEXT) \
  X(vkCreateImage)

#define NAME(F)                              \
  struct Name_##F {                          \
    static const char* text() { return #F; } \
  };
SPIED(NAME)
#undef NAME

PFN_vkVoidFunction VKAPI_CALL spied_device(VkDevice device, const char* name) {
  const PFN_vkVoidFunction f = device_lookup(device, name);
#define SPY(F)                                                                  \
  if (std::string_view(name) == #F) {                                           \
    Spy<Name_##F, PFN_##F>::next = reinterpret_cast<PFN_##F>(f);                \
    return reinterpret_cast<PFN_vkVoidFunction>(&Spy<Name_##F, PFN_##F>::call); \
  }
  SPIED(SPY)
#undef SPY
  return f;
}
PFN_vkVoidFunction VKAPI_CALL spied(VkInstance instance, const char* name) {
  if (std::string_view(name) != "vkGetDeviceProcAddr") return instance_lookup(instance, name);
  device_lookup = reinterpret_cast<PFN_vkGetDeviceProcAddr>(instance_lookup(instance, name));
  return reinterpret_cast<PFN_vkVoidFunction>(&spied_device);
}

int64_t made_by(std::string_view function) {
  int64_t n = 0;
  for (const Created& c : created) n += c.by == function;
  return n;
}

}  // namespace

TEST_CASE("names: every object that a device creates has one") {
  const Cache cache;  // so that there are pipeline caches
  created.clear();
  auto host = std::make_unique<VulkanHost>(VulkanHostOptions{
      .all_features = true,
      .without = {},
      .extensions = {VK_KHR_EXTERNAL_MEMORY_FD_EXTENSION_NAME, VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME}});
  {
    ImportedDevice imported = host->imported();
    instance_lookup = imported.get_instance_proc_addr;
    imported.get_instance_proc_addr = spied;
    const Device d = Device::import(imported);
    // Arrays of every kind of memory, and calls.
    const DeviceArray x(d, ramp(300)), shared = shareable_array(d, {300}, f32),
                                       other = import_memory(d, share(shared), {300}, f32);
    launch_into(d, scale(), {x}, {shared});
    CHECK(floats(other) == scaled_ramp(300));
    Array large({3 << 20}, f32);
    const std::optional<DeviceArray> in_place = DeviceArray::import_host(d, large.bytes(), large.shape(), f32);
    REQUIRE(in_place.has_value() == uses_host_memory(d));
    if (in_place) CHECK(floats(launch(d, scale(), {*in_place})[0])[1] == 1);
    // A graph with the times of its kernels.
    const auto f =
        jit([](Tensor v) { return fori_loop(0, 3, Value(v), [](Value, Value w) { return w * 2.0f + 1.0f; }); },
            {.name = "thrice"});
    GraphOptions options;
    options.timestamps = true;
    const CompiledGraph g = load(d, f, {{{300}, f32}}, options);
    CHECK(g({x})[0].download().at(1) != 0);
    CHECK(!g.trace().empty());
    // Images, read and stored.
    constexpr VkImageUsageFlags kUsage = VK_IMAGE_USAGE_SAMPLED_BIT | VK_IMAGE_USAGE_STORAGE_BIT;
    const VulkanHost::Image image = host->image(VK_FORMAT_R8G8B8A8_UNORM, {8, 4}, kUsage);
    const DeviceImage ours(d, {image.handle, image.format, image.extent, kUsage});
    Program p = scale();
    for (ProgramArg& a : p.args) a.shape = {Extent(4), Extent(8), Extent(4)};
    PreparedKernel kernel(d, p, {.dims = {{"n", 128}}, .images = {{0, ours}, {1, ours}}});
    d.wait();
  }
  for (const char* function :
       {"vkCreateBuffer", "vkAllocateMemory", "vkCreateSemaphore", "vkCreateCommandPool", "vkCreatePipelineLayout",
        "vkCreateShaderModule", "vkCreateQueryPool", "vkCreatePipelineCache", "vkCreateImageView",
        "vkCreateDescriptorSetLayout", "vkCreateDescriptorPool", "vkAllocateDescriptorSets", "vkAllocateCommandBuffers",
        "vkCreateComputePipelines"})
    CHECK_MESSAGE(made_by(function) > 0, std::string(function));
  CHECK(made_by("vkCreateImage") == 0);
  for (const Created& c : created) CHECK_MESSAGE(c.name != "", std::string(c.by) << " made something without a name");
  check_silent(std::move(host));
}

}  // namespace all_named_test
