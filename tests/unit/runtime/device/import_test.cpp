// Devices and buffers that a host has made: what is taken from what is enabled, what is said where something is
// missing, who destroys what.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "runtime/call/call.h"
#include "runtime/device/faults.h"
#include "runtime/interop.h"
#include "tests/unit/runtime/cache_folder.h"
#include "tests/unit/runtime/support.h"
#include "tests/unit/runtime/vulkan_host.h"

namespace import_test {
using namespace tessera;
using namespace tessera::test;

TEST_CASE("an imported device is what is enabled on it") {
  auto host = std::make_unique<VulkanHost>();
  {
    const Device d = Device::import(host->imported());
    const Target& t = d.target();
    CHECK_FALSE(t.int64);
    CHECK_FALSE(t.int16);
    CHECK_FALSE(t.int8);
    CHECK_FALSE(t.float16);
    CHECK_FALSE(t.float64);
    CHECK_FALSE(t.storage8);
    CHECK_FALSE(t.storage16);
    CHECK_FALSE(t.int64_atomics);
    CHECK_FALSE(t.can_require_subgroup_size);
    CHECK_FALSE(t.vulkan_memory_model_device_scope);
    // VK_EXT_external_memory_host is not enabled
    CHECK_FALSE(DeviceArray::import_host(d, nullptr, {16}, f32).has_value());
    const DeviceArray x(d, ramp(300));
    CHECK(floats(launch(d, scale(), {x})[0]) == scaled_ramp(300));
    CHECK(d.validation_messages().empty());  // they go to the host
  }
  check_silent(std::move(host));

  auto full = std::make_unique<VulkanHost>(VulkanHostOptions{.all_features = true, .without = {}});
  {
    Target want = device().target();
    want.matrices.clear();  // the host enables no extension for them
    CHECK(Device::import(full->imported()).target() == want);
  }
  check_silent(std::move(full));
}

namespace {
PFN_vkGetInstanceProcAddr instance_lookup;
PFN_vkGetDeviceProcAddr device_lookup;
PFN_vkCreateComputePipelines create_pipelines;
std::vector<VkPipelineCache> caches_used;
bool made_a_cache;

VKAPI_ATTR VkResult VKAPI_CALL create_and_note(VkDevice d, VkPipelineCache cache, uint32_t n,
                                               const VkComputePipelineCreateInfo* infos,
                                               const VkAllocationCallbacks* host, VkPipeline* made) {
  caches_used.push_back(cache);
  return create_pipelines(d, cache, n, infos, host, made);
}
VKAPI_ATTR VkResult VKAPI_CALL make_no_cache(VkDevice, const VkPipelineCacheCreateInfo*, const VkAllocationCallbacks*,
                                             VkPipelineCache*) {
  made_a_cache = true;
  return VK_ERROR_OUT_OF_HOST_MEMORY;
}
PFN_vkVoidFunction VKAPI_CALL noting_device(VkDevice device, const char* name) {
  const PFN_vkVoidFunction f = device_lookup(device, name);
  if (std::string_view(name) == "vkCreatePipelineCache") return reinterpret_cast<PFN_vkVoidFunction>(&make_no_cache);
  if (std::string_view(name) != "vkCreateComputePipelines") return f;
  create_pipelines = reinterpret_cast<PFN_vkCreateComputePipelines>(f);
  return reinterpret_cast<PFN_vkVoidFunction>(&create_and_note);
}
PFN_vkVoidFunction VKAPI_CALL noting(VkInstance instance, const char* name) {
  if (std::string_view(name) != "vkGetDeviceProcAddr") return instance_lookup(instance, name);
  device_lookup = reinterpret_cast<PFN_vkGetDeviceProcAddr>(instance_lookup(instance, name));
  return reinterpret_cast<PFN_vkVoidFunction>(&noting_device);
}
}  // namespace

TEST_CASE("a host's own pipeline cache has all pipelines, and Tessera makes and destroys none") {
  const Cache folder;
  auto host = std::make_unique<VulkanHost>();
  ImportedDevice i = host->imported();
  instance_lookup = i.get_instance_proc_addr;
  const auto of_device = [&](const char* name) { return instance_lookup(host->instance, name); };
  const auto create = reinterpret_cast<PFN_vkCreatePipelineCache>(of_device("vkCreatePipelineCache"));
  const auto destroy = reinterpret_cast<PFN_vkDestroyPipelineCache>(of_device("vkDestroyPipelineCache"));
  const VkPipelineCacheCreateInfo info{VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO, nullptr, 0, 0, nullptr};
  REQUIRE(create(host->device, &info, nullptr, &i.pipeline_cache) == VK_SUCCESS);
  i.get_instance_proc_addr = noting;
  caches_used.clear();
  made_a_cache = false;
  {
    const Device d = Device::import(i);
    const DeviceArray x(d, ramp(300));
    CHECK(floats(launch(d, scale(), {x})[0]) == scaled_ramp(300));
    constexpr VkImageUsageFlags kUsage = VK_IMAGE_USAGE_SAMPLED_BIT;
    const VulkanHost::Image image = host->image(VK_FORMAT_R8G8B8A8_UNORM, {8, 4}, kUsage);
    const DeviceImage ours(d, {image.handle, image.format, image.extent, kUsage});
    d.wait();
  }
  CHECK(caches_used == std::vector<VkPipelineCache>(2, i.pipeline_cache));
  CHECK_FALSE(made_a_cache);
  destroy(host->device, i.pipeline_cache, nullptr);  // valid until here, by the validation layer
  check_silent(std::move(host));
}

TEST_CASE("features are read from the structures of a version and from their own") {
  auto host = std::make_unique<VulkanHost>();
  {
    ImportedDevice i = host->imported();
    VkPhysicalDeviceSynchronization2Features sync{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SYNCHRONIZATION_2_FEATURES, nullptr,
                                                  VK_TRUE};
    VkPhysicalDeviceTimelineSemaphoreFeatures timeline{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_TIMELINE_SEMAPHORE_FEATURES,
                                                       &sync, VK_TRUE};
    VkPhysicalDeviceVulkanMemoryModelFeatures model{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_MEMORY_MODEL_FEATURES,
                                                    &timeline, VK_TRUE, VK_FALSE, VK_FALSE};
    VkPhysicalDeviceBufferDeviceAddressFeatures address{
        VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_BUFFER_DEVICE_ADDRESS_FEATURES, &model, VK_TRUE, VK_FALSE, VK_FALSE};
    VkPhysicalDeviceFeatures core{};
    const char* extensions[] = {"VK_EXT_memory_budget"};
    VkDeviceCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO;
    info.pNext = &address;
    info.pEnabledFeatures = &core;
    info.enabledExtensionCount = 1;
    info.ppEnabledExtensionNames = extensions;
    enabled_by(info, i);
    CHECK(i.device_extensions == std::vector<std::string>{"VK_EXT_memory_budget"});
    i.device_extensions.clear();
    const Device d = Device::import(i);
    CHECK(floats(launch(d, scale(), {DeviceArray(d, ramp(10))})[0]) == scaled_ramp(10));
  }
  check_silent(std::move(host));
}

TEST_CASE("every feature that is missing is named, with where to set it") {
  for (const DeviceFeature& f : required_device_features()) {
    auto host = std::make_unique<VulkanHost>(VulkanHostOptions{.all_features = false, .without = {f.name}});
    const std::string name = device().info().name;
    CHECK(error_of<DeviceError>([&] { Device::import(host->imported()); }) ==
          std::string("Device::import: ") + f.name + " is not enabled on " + name + ": " + f.gives + "\n  note: set " +
              f.structure + "::" + f.name +
              " in the VkDeviceCreateInfo and pass that chain as ImportedDevice::features; required_device_features() "
              "lists all");
    check_silent(std::move(host));
  }
}

TEST_CASE("the tables of features name members of structures, each once" * without_device) {
  std::vector<std::string> names;
  for (const auto* table : {&required_device_features(), &optional_device_features()})
    for (const DeviceFeature& f : *table) {
      CHECK(f.gives[0] != 0);
      names.emplace_back(f.name);
    }
  std::sort(names.begin(), names.end());
  CHECK(std::adjacent_find(names.begin(), names.end()) == names.end());
  CHECK(required_device_features().size() == 4);

  VkPhysicalDeviceVulkan12Features has{}, enable{};
  has.sType = enable.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES;
  VkPhysicalDeviceFeatures2 core{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, &has, {}};
  has.bufferDeviceAddress = has.shaderInt8 = has.samplerMirrorClampToEdge = core.features.shaderInt64 = VK_TRUE;
  CHECK(enable_device_features(&core, &enable) == std::vector<std::string>{"shaderInt64"});
  CHECK(enable.bufferDeviceAddress);
  CHECK(enable.shaderInt8);
  CHECK_FALSE(enable.samplerMirrorClampToEdge);
  CHECK_FALSE(enable.vulkanMemoryModel);
}

TEST_CASE("what is wrong with an import is said") {
  auto host = std::make_unique<VulkanHost>();
  const auto said = [&](auto change) {
    ImportedDevice i = host->imported();
    change(i);
    return error_of<Error>([&] { Device::import(i); });
  };
  CHECK(said([](ImportedDevice& i) { i.get_instance_proc_addr = nullptr; }) ==
        "Device::import: ImportedDevice::get_instance_proc_addr is null");
  CHECK(said([](ImportedDevice& i) { i.instance = VK_NULL_HANDLE; }) ==
        "Device::import: ImportedDevice::instance is null");
  CHECK(said([](ImportedDevice& i) { i.physical_device = VK_NULL_HANDLE; }) ==
        "Device::import: ImportedDevice::physical_device is null");
  CHECK(said([](ImportedDevice& i) { i.device = VK_NULL_HANDLE; }) == "Device::import: ImportedDevice::device is null");
  CHECK(said([](ImportedDevice& i) { i.queue = VK_NULL_HANDLE; }) == "Device::import: ImportedDevice::queue is null");
  CHECK(said([](ImportedDevice& i) { i.queue_family = 7; }) ==
        "Device::import: queue_family is 7 but the device has 1 queue family");
  CHECK(said([](ImportedDevice& i) { i.lock_queue = [] {}; }) ==
        "Device::import: lock_queue comes without unlock_queue");
  CHECK(said([](ImportedDevice& i) { i.api_version = VK_API_VERSION_1_2; }) ==
        "Device::import: the instance has been made for Vulkan 1.2 and Tessera needs 1.3\n  note: set "
        "VkApplicationInfo::apiVersion and ImportedDevice::api_version to VK_API_VERSION_1_3 or more");
  check_silent(std::move(host));
}

TEST_CASE("buffers of a host are arrays, or it is said why not") {
  auto host = std::make_unique<VulkanHost>();
  {
    const Device d = Device::import(host->imported());
    const VulkanHost::Buffer b = host->buffer(1024), plain = host->buffer(1024, VK_BUFFER_USAGE_STORAGE_BUFFER_BIT),
                             no_copies = host->buffer(1024, VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT);
    const DeviceArray x = import_buffer(d, host->range(b, 64), {100}, f32),
                      y = import_buffer(d, host->range(b, 512), {100}, f32), none = import_buffer(d, {}, {0}, f32);
    CHECK(none.download().size() == 0);
    x.wait_unused();
    DeviceArray(x).write(ramp(100));
    launch_into(d, scale(), {x}, {y});
    CHECK(floats(y) == scaled_ramp(100));
    CHECK(std::vector<float>(b.mapped + 16, b.mapped + 26) == std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
    CHECK(d.allocated_bytes() == 0);  // nothing but staging memory was ours, and that has gone

    using E = SpecError;
    CHECK(error_of<E>([&] { import_buffer(d, {}, {4}, f32); }) ==
          "import_buffer: f32[4]: ImportedBuffer::buffer is null");
    CHECK(error_of<E>([&] { import_buffer(d, host->range(plain), {4}, f32); }) ==
          "import_buffer: f32[4]: the VkBuffer has been made without VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT\n  "
          "note: make it with that, and its memory with "
          "VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT: kernels reach arrays by their addresses");
    CHECK(error_of<E>([&] { import_buffer(d, host->range(b, 1000), {7}, f32); }) ==
          "import_buffer: f32[7]: 28 bytes from offset 1000 do not fit a VkBuffer of 1024 bytes");
    CHECK(error_of<E>([&] { import_buffer(d, host->range(b, 2000), {1}, f32); }) ==
          "import_buffer: f32[1]: 4 bytes from offset 2000 do not fit a VkBuffer of 1024 bytes");
    CHECK(error_of<E>([&] { import_buffer(d, host->range(b, 1000), {1}, f32); }) ==
          "import_buffer: f32[1]: offset 1000 leads to no multiple of 16 among the device's addresses\n  note: let the "
          "array begin at such a place of the VkBuffer");
    CHECK(error_of<E>([&] { import_buffer(d, host->range(b, 0), {3}, u8); }) ==
          "import_buffer: u8[3]: takes 3 bytes, no whole words, and without 8 and 16-bit accesses the last word would "
          "be written whole\n  note: enable storageBuffer8BitAccess and "
          "storageBuffer16BitAccess, or give the array a size of whole words");
    CHECK(error_of<E>([&] { import_buffer(d, host->range(b, 448), {4}, f32); }) ==
          "import_buffer: f32[4]: some of its bytes are f32[100] already, which has been imported from offset 64\n  "
          "note: use that array, or let it go first");
    CHECK(error_of<E>([&] { import_buffer(device(), host->range(b), {4}, f32); }) ==
          "import_buffer: f32[4]: this Device is none that the host has made\n  note: import the host's device: "
          "Device::import()");
    const DeviceArray z = import_buffer(d, host->range(no_copies), {100}, f32);
    launch_into(d, scale(), {x}, {z});
    CHECK(error_of<E>([&] { z.download(); }) ==
          "f32[100]: is to be copied from, but its VkBuffer has been made without VK_BUFFER_USAGE_TRANSFER_SRC_BIT");
    CHECK(error_of<E>([&] { DeviceArray(z).write(ramp(100)); }) ==
          "f32[100]: is to be copied to, but its VkBuffer has been made without VK_BUFFER_USAGE_TRANSFER_DST_BIT");
    d.wait();
    CHECK(no_copies.mapped[7] == 15);
  }
  check_silent(std::move(host));
}

TEST_CASE("a range that is let go and imported again waits for the calls that use it") {
  auto host = std::make_unique<VulkanHost>();
  {
    DeviceOptions options;
    options.log_commands = true;
    const Device d = Device::import(host->imported(), options);
    const VulkanHost::Buffer b = host->buffer(1024);
    const DeviceArray x(d, ramp(100));
    DeviceArray y = import_buffer(d, host->range(b), {100}, f32);
    launch_into(d, scale(), {x}, {y});
    y = DeviceArray();
    y = import_buffer(d, host->range(b), {100}, f32);
    const DeviceArray z = launch(d, scale(), {y})[0];
    CHECK(floats(z) == scaled_ramp(100, 2));
    for (const std::string& r : find_unordered(d.command_log())) FAIL_CHECK(r);
  }
  check_silent(std::move(host));
}

TEST_CASE("several Devices share a process and a host's device, and go in any order") {
  auto one = std::make_unique<VulkanHost>(),
       two = std::make_unique<VulkanHost>(VulkanHostOptions{.all_features = true, .without = {}});
  {
    auto a = std::make_unique<Device>(Device::import(one->imported())),
         b = std::make_unique<Device>(Device::import(one->imported())),
         c = std::make_unique<Device>(Device::import(two->imported())), own = std::make_unique<Device>();
    std::vector<DeviceArray> results;
    for (const Device* d : {a.get(), b.get(), c.get(), own.get()})
      results.push_back(launch(*d, scale(), {DeviceArray(*d, ramp(64))})[0]);
    a.reset();
    c.reset();
    for (const DeviceArray& r : results) CHECK(floats(r) == scaled_ramp(64));
    own.reset();
    results.erase(results.begin());
    b.reset();
  }
  check_silent(std::move(two));
  check_silent(std::move(one));
}

TEST_CASE("the host's lock is held around each submission") {
  auto host = std::make_unique<VulkanHost>();
  {
    std::mutex queue;
    std::atomic<int> locked = 0;
    ImportedDevice i = host->imported();
    i.lock_queue = [&] {
      queue.lock();
      ++locked;
    };
    i.unlock_queue = [&] { queue.unlock(); };
    const Device d = Device::import(i);
    const VkCommandBuffer c = host->commands();
    std::thread worker([&] {
      for (int k = 0; k < 20; ++k) CHECK(floats(launch(d, scale(), {DeviceArray(d, ramp(64))})[0]) == scaled_ramp(64));
    });
    for (int k = 0; k < 20; ++k) {
      host->begin(c);
      const std::lock_guard lock(queue);
      host->run(c);
    }
    worker.join();
    CHECK(locked >= 20);
  }
  check_silent(std::move(host));
}

TEST_CASE("a lost imported device is its host's to replace") {
  vulkan::Faults faults;
  auto host = std::make_unique<VulkanHost>();
  {
    Device d = Device::import(host->imported());
    const DeviceArray x(d, ramp(8));
    faults.fail("vkQueueSubmit2", 0, VK_ERROR_DEVICE_LOST);
    CHECK(error_of<DeviceError>([&] {
            launch(d, scale(), {x});
          }).ends_with("\n  note: its host makes a new device and imports that"));
    CHECK(d.lost());
    CHECK(error_of<DeviceError>([&] { d.wait(); }).ends_with("\n  note: its host makes a new device and imports that"));
    CHECK(error_of<DeviceError>([&] { d.recover(); }) ==
          "Device::recover: " + d.info().name + " has been imported: its host makes a new device and imports that");
  }
  check_silent(std::move(host));
}

TEST_CASE("memory goes from device to device by a file descriptor") {
  auto host = std::make_unique<VulkanHost>(VulkanHostOptions{
           .all_features = false, .without = {}, .extensions = {VK_KHR_EXTERNAL_MEMORY_FD_EXTENSION_NAME}}),
       without = std::make_unique<VulkanHost>();
  {
    const Device a = Device::import(host->imported()), b = Device(), c = Device::import(without->imported());
    const DeviceArray x = shareable_array(a, {300}, f32);
    DeviceArray(x).write(ramp(300));
    a.wait();
    SharedMemory memory = share(x);
    CHECK(memory.fd >= 0);
    CHECK(memory.size >= 1200);
    const DeviceArray y = import_memory(b, memory, {300}, f32);
    CHECK(floats(launch(b, scale(), {y})[0]) == scaled_ramp(300));
    launch_into(b, scale(), {DeviceArray(b, ramp(300))}, {y});
    b.wait();
    CHECK(floats(x) == scaled_ramp(300));
    memory = share(x);
    memory.offset = 400;
    CHECK(floats(import_memory(b, memory, {3}, f32)) == std::vector<float>{201, 203, 205});

    using E = SpecError;
    memory = share(x);
    const auto said = [&](auto change, Shape shape = {300}) {
      SharedMemory m = memory;
      change(m);
      return error_of<Error>([&] { import_memory(b, m, shape, f32); });
    };
    CHECK(said([](SharedMemory& m) { m.fd = -1; }) == "import_memory: f32[300]: the file descriptor is -1");
    CHECK(said([](SharedMemory& m) {
            m.offset = 16;
            m.size = 1200;
          }) == "import_memory: f32[300]: 1200 bytes from offset 16 do not fit memory of 1200 bytes");
    CHECK(said([](SharedMemory& m) { m.offset = 4; }, {2}) == "import_memory: f32[2]: offset 4 is no multiple of 16");
    CHECK(said([](SharedMemory& m) { m.memory_type = 31; }).find("import_memory: f32[300]: a buffer of ") == 0);
    CHECK(said([](SharedMemory& m) { m.fd = 987654; }) ==
          "import_memory: f32[300]: file descriptor 987654 is not open");
    CHECK(::close(memory.fd) == 0);
    CHECK(error_of<E>([&] { share(DeviceArray(a, {4}, f32)); }) ==
          "share: f32[4] is in memory of its own\n  note: make it with shareable_array()");
    CHECK(error_of<E>([&] { share(DeviceArray(a, {0}, f32)); }) ==
          "share: the array has no elements, and so no memory");
    const std::string note =
        "VK_KHR_external_memory_fd is not enabled on " + c.info().name +
        "\n  note: enable it when the device is made, and list it in ImportedDevice::device_extensions";
    CHECK(error_of<DeviceError>([&] { shareable_array(c, {4}, f32); }) == "shareable_array: f32[4]: " + note);
    CHECK(error_of<DeviceError>([&] { import_memory(c, {0, 64, 0, false, 0}, {4}, f32); }) ==
          "import_memory: f32[4]: " + note);
  }
  check_silent(std::move(without));
  check_silent(std::move(host));
}

}  // namespace import_test
