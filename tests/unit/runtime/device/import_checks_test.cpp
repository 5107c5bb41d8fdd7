// Hosts that are not as they say: a loader that lacks functions, queues that do not compute or write no time,
// extensions that are not enabled, buffers without memory, semaphores that are to fall, callbacks that throw. All of it
// is said or borne.
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "engine/front.h"
#include "runtime/call/call.h"
#include "runtime/call/graph.h"
#include "runtime/call/jit.h"
#include "runtime/record.h"
#include "tests/unit/runtime/support.h"
#include "tests/unit/runtime/vulkan_host.h"

namespace import_checks_test {
using namespace tessera;
using namespace tessera::test;

namespace {

/// A vkGetInstanceProcAddr that leads to the loader's functions but for some. One at a time.
struct Doctored {
  static inline PFN_vkGetInstanceProcAddr lookup = nullptr;
  static inline PFN_vkGetDeviceProcAddr device_lookup = nullptr;
  static inline PFN_vkGetPhysicalDeviceQueueFamilyProperties families = nullptr;
  static inline std::string missing;
  static inline bool computes = true, writes_time = true, has_addresses = true;

  explicit Doctored(ImportedDevice& d) {
    lookup = d.get_instance_proc_addr;
    d.get_instance_proc_addr = &of_instance;
    missing.clear();
    computes = writes_time = has_addresses = true;
  }
  Doctored(const Doctored&) = delete;
  Doctored& operator=(const Doctored&) = delete;

  template <class F, class G> static PFN_vkVoidFunction kept(F& keep, PFN_vkVoidFunction f, G instead) {
    keep = reinterpret_cast<F>(f);
    return reinterpret_cast<PFN_vkVoidFunction>(instead);
  }
  static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL of_instance(VkInstance instance, const char* name) {
    if (missing == name) return nullptr;
    const PFN_vkVoidFunction f = lookup(instance, name);
    if (std::strcmp(name, "vkGetPhysicalDeviceQueueFamilyProperties") == 0) return kept(families, f, &queue_families);
    if (std::strcmp(name, "vkGetDeviceProcAddr") == 0) return kept(device_lookup, f, &of_device);
    return f;
  }
  static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL of_device(VkDevice device, const char* name) {
    if (missing == name) return nullptr;
    if (!has_addresses && std::strcmp(name, "vkGetBufferDeviceAddress") == 0)
      return reinterpret_cast<PFN_vkVoidFunction>(&no_address);
    return device_lookup(device, name);
  }
  static VKAPI_ATTR void VKAPI_CALL queue_families(VkPhysicalDevice device, uint32_t* count,
                                                   VkQueueFamilyProperties* to) {
    families(device, count, to);
    for (uint32_t i = 0; to && i < *count; ++i) {
      if (!computes) to[i].queueFlags &= ~VkQueueFlags{VK_QUEUE_COMPUTE_BIT};
      if (!writes_time) to[i].timestampValidBits = 0;
    }
  }
  static VKAPI_ATTR VkDeviceAddress VKAPI_CALL no_address(VkDevice, const VkBufferDeviceAddressInfo*) { return 0; }
};

PallasCall says(const std::string& name) {
  return pallas_call(
      [](Ref a, Ref b) {
        debug_print("one");
        debug_print("two");
        b[tessera::all] = a[tessera::all] * 2;
      },
      {.out_shape = {{{8}, f32}}, .name = name});
}

}  // namespace

TEST_CASE("a host's lookup that lacks a function is named, with what to give") {
  auto host = std::make_unique<VulkanHost>();
  for (const char* name :
       {"vkGetDeviceProcAddr", "vkGetPhysicalDeviceFeatures2", "vkCreateQueryPool", "vkQueueSubmit2"}) {
    ImportedDevice i = host->imported();
    const Doctored doctored(i);
    Doctored::missing = name;
    CHECK(error_of<DeviceError>([&] { Device::import(i); }) ==
          std::string("Device::import: ImportedDevice::get_instance_proc_addr leads to no ") + name +
              ", which Vulkan 1.3 promises\n  note: give the vkGetInstanceProcAddr of the loader that has made the "
              "instance, and the device that has been made of it");
  }
  {  // names are no necessity
    ImportedDevice i = host->imported();
    const Doctored doctored(i);
    Doctored::missing = "vkCmdBeginDebugUtilsLabelEXT";
    const Device d = Device::import(i);
    CHECK(floats(launch(d, scale(), {DeviceArray(d, ramp(9))})[0]) == scaled_ramp(9));
  }
  check_silent(std::move(host));
}

TEST_CASE("an extension that is named but not enabled is no crash, and one that is enabled but not named is not used") {
  auto host = std::make_unique<VulkanHost>();
  const auto said = [&](const char* extension) {
    ImportedDevice i = host->imported();
    i.device_extensions = {extension};
    return error_of<DeviceError>([&] { Device::import(i); });
  };
  const std::string note = "\n  note: name the extensions that the device has been made with, and no others",
                    named = "Device::import: ImportedDevice::device_extensions names ";
  CHECK(said(VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME) ==
        named + "VK_EXT_external_memory_host, but the device has no vkGetMemoryHostPointerPropertiesEXT" + note);
  CHECK(said(VK_KHR_EXTERNAL_MEMORY_FD_EXTENSION_NAME) ==
        named + "VK_KHR_external_memory_fd, but the device has no vkGetMemoryFdKHR" + note);
  check_silent(std::move(host));

  auto full = std::make_unique<VulkanHost>(VulkanHostOptions{
      .all_features = false,
      .without = {},
      .extensions = {VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME, VK_KHR_EXTERNAL_MEMORY_FD_EXTENSION_NAME}});
  {
    const std::unique_ptr<void, void (*)(void*)> page(::operator new(4096, std::align_val_t{4096}),
                                                      [](void* p) { ::operator delete(p, std::align_val_t{4096}); });
    ImportedDevice i = full->imported();
    CHECK(DeviceArray::import_host(Device::import(i), page.get(), {16}, f32).has_value());
    i.device_extensions.clear();
    const Device d = Device::import(i);
    CHECK_FALSE(DeviceArray::import_host(d, page.get(), {16}, f32).has_value());
    CHECK(error_of<DeviceError>([&] {
            shareable_array(d, {4}, f32);
          }).starts_with("shareable_array: f32[4]: VK_KHR_external_memory_fd is not enabled on "));
  }
  check_silent(std::move(full));
}

TEST_CASE("queues that do not compute are refused, and those that write no time do without") {
  auto host = std::make_unique<VulkanHost>();
  {
    ImportedDevice i = host->imported();
    const Doctored doctored(i);
    Doctored::computes = false;
    CHECK(error_of<SpecError>([&] { Device::import(i); }) ==
          "Device::import: the queues of family 0 cannot compute\n  note: import one of a family with "
          "VK_QUEUE_COMPUTE_BIT");
    Doctored::computes = true;
    Doctored::writes_time = false;
    DeviceOptions o;
    o.watchdog_seconds = 1e-12;
    const Device d = Device::import(i, o);
    Program p = scale();
    p.cost_estimate.flops = int64_t{1} << 30;  // worth measuring, elsewhere
    CHECK(floats(launch(d, p, {DeviceArray(d, ramp(500))})[0]) == scaled_ramp(500));
    const auto twice = pallas_call([](Ref a, Ref b) { b[tessera::all] = a[tessera::all] * 2; },
                                   {.out_shape = {{{8}, f32}}, .name = "twice"});
    const auto f = jit([&](Tensor a) { return Value(twice(twice(a))); });
    GraphOptions timed;
    timed.timestamps = true;
    const CompiledGraph g = load(d, f.trace({{{8}, f32}}), timed);
    CHECK(g.run({ramp(8)})[0].at(7) == 28);
    CHECK(error_of<DeviceError>([&] { g.trace(); }) ==
          "jit: a trace is asked for, but the queue of " + d.info().name + " writes no timestamps");
  }
  check_silent(std::move(host));
}

TEST_CASE("a buffer that has no address yet is no array") {
  auto host = std::make_unique<VulkanHost>();
  {
    ImportedDevice i = host->imported();
    const Doctored doctored(i);
    Doctored::has_addresses = false;  // what drivers say of a buffer without memory
    const Device d = Device::import(i);
    const VulkanHost::Buffer b = host->buffer(1024);
    CHECK(error_of<SpecError>([&] { import_buffer(d, host->range(b, 64), {4}, f32); }) ==
          "import_buffer: f32[4]: the VkBuffer has no address\n  note: bind it to memory before it is imported");
  }
  check_silent(std::move(host));
}

TEST_CASE("a timeline semaphore only rises") {
  auto host = std::make_unique<VulkanHost>();
  {
    const Device d = Device::import(host->imported());
    const VkSemaphore in = host->timeline(), out = host->timeline();
    const auto said = [&](uint64_t value) { return error_of<SpecError>([&] { signal(d, out, value); }); };
    const std::string begin = "signal: the semaphore is to be set to ",
                      note = " already, or will have it before\n  note: a timeline only rises: signal a greater value";
    CHECK(said(0) == begin + "0 but has the value 0" + note);
    wait_for(d, in, 1);
    signal(d, out, 5);  // has not happened yet
    CHECK(said(5) == begin + "5 but has the value 5" + note);
    CHECK(said(3) == begin + "3 but has the value 5" + note);
    signal(d, out, 6);
    const VkSemaphoreSignalInfo go{VK_STRUCTURE_TYPE_SEMAPHORE_SIGNAL_INFO, nullptr, in, 1},
        far{VK_STRUCTURE_TYPE_SEMAPHORE_SIGNAL_INFO, nullptr, out, 20};
    CHECK(host->vkSignalSemaphore(host->device, &go) == VK_SUCCESS);
    d.wait();
    CHECK(said(6) == begin + "6 but has the value 6" + note);
    CHECK(host->vkSignalSemaphore(host->device, &far) == VK_SUCCESS);
    CHECK(said(7) == begin + "7 but has the value 20" + note);
    signal(d, out, 21);
    d.wait();
  }
  check_silent(std::move(host));
}

TEST_CASE("what a host's callbacks throw comes out of the call, and the next one is as good as ever") {
  auto host = std::make_unique<VulkanHost>();
  {
    bool lock_throws = false, unlock_throws = false;
    ImportedDevice i = host->imported();
    i.lock_queue = [&] {
      if (lock_throws) throw std::runtime_error("lock");
    };
    i.unlock_queue = [&] {
      if (unlock_throws) throw std::runtime_error("unlock");
    };
    std::vector<std::string> lines;
    DeviceOptions o;
    o.log_commands = true;
    o.print = [&](std::string_view line) {
      lines.emplace_back(line);
      if (line == "one") throw std::runtime_error("print");
    };
    const Device d = Device::import(i, o);
    const DeviceArray x(d, ramp(200)), y(d, {200}, f32);
    for (bool* throws : {&lock_throws, &unlock_throws}) {
      *throws = true;
      CHECK(error_of<std::runtime_error>([&] { launch_into(d, scale(), {x}, {y}); }) ==
            (throws == &lock_throws ? "lock" : "unlock"));
      *throws = false;
      CHECK(floats(launch(d, scale(), {y})[0]).size() == 200);
      if (throws == &unlock_throws) CHECK(floats(y) == scaled_ramp(200));  // it had been submitted
      CHECK(floats(launch(d, scale(), {x})[0]) == scaled_ramp(200));
    }
    for (const std::string& r : find_unordered(d.command_log())) FAIL_CHECK(r);

    const CompiledKernel k = load(d, says("says").trace({{{8}, f32}}));
    CHECK(error_of<std::runtime_error>([&] { k.run({ramp(8)}); }) == "print");
    d.wait();
    CHECK(lines == std::vector<std::string>{"one", "two"});
    lines.clear();
    k({DeviceArray(d, ramp(8))});
    k({DeviceArray(d, ramp(8))});
    CHECK_THROWS_AS(d.wait(), std::runtime_error);
    CHECK_THROWS_AS(d.wait(), std::runtime_error);
    d.wait();
    CHECK(lines == std::vector<std::string>{"one", "two", "one", "two"});
  }
  check_silent(std::move(host));
}

TEST_CASE("lines whose callback throws are all handed on when the Device goes") {
  auto host = std::make_unique<VulkanHost>();
  std::vector<std::string> lines;
  {
    DeviceOptions o;
    o.print = [&](std::string_view line) {
      lines.emplace_back(line);
      throw std::runtime_error("print");
    };
    const Device d = Device::import(host->imported(), o);
    load(d, says("says").trace({{{8}, f32}}))({DeviceArray(d, ramp(8))});
  }
  CHECK(lines == std::vector<std::string>{"one", "two"});
  check_silent(std::move(host));
}

}  // namespace import_checks_test
