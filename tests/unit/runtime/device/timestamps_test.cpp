// Devices whose queue writes timestamps of a few bits, or none: a host's vkGetInstanceProcAddr says so.
#include <doctest/doctest.h>

#include <cstring>

#include "engine/front.h"
#include "runtime/call/jit.h"
#include "runtime/record.h"
#include "tests/unit/runtime/support.h"
#include "tests/unit/runtime/vulkan_host.h"

namespace timestamps_test {
using namespace tessera;
using namespace tessera::test;

namespace {
struct {
  PFN_vkGetInstanceProcAddr lookup;
  PFN_vkGetPhysicalDeviceQueueFamilyProperties families;
  uint32_t bits;
} host_says;

VKAPI_ATTR void VKAPI_CALL families(VkPhysicalDevice device, uint32_t* n, VkQueueFamilyProperties* to) {
  host_says.families(device, n, to);
  for (uint32_t i = 0; to && i < *n; ++i) to[i].timestampValidBits = host_says.bits;
}
VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL lookup(VkInstance instance, const char* name) {
  const PFN_vkVoidFunction f = host_says.lookup(instance, name);
  if (std::strcmp(name, "vkGetPhysicalDeviceQueueFamilyProperties") != 0) return f;
  host_says.families = reinterpret_cast<PFN_vkGetPhysicalDeviceQueueFamilyProperties>(f);
  return reinterpret_cast<PFN_vkVoidFunction>(families);
}
}  // namespace

TEST_CASE("graphs: a trace on a queue without timestamps, and with short ones") {
  const auto f = jit([](Tensor x) { return sum(roll(x, 1) * x); }, {.name = "f"});
  const Array x = ramp(64);
  for (const uint32_t bits : {0u, 36u}) {
    const VulkanHost host;
    ImportedDevice mine = host.imported();
    host_says = {mine.get_instance_proc_addr, nullptr, bits};
    mine.get_instance_proc_addr = lookup;
    {
      const Device d = Device::import(mine);
      // not load(d, f, ...): f would keep it, and outlive the host
      const CompiledGraph there = load(d, f.trace({{{64}, f32}}), {.timestamps = true});
      for (int turn = 0; turn < 2; ++turn) CHECK(there.run({x})[0].at(0) == interpret(f, x).at(0));
      if (bits == 0) {
        CHECK(error_of<DeviceError>([&] { there.trace(); }) ==
              "f: a trace is asked for, but the queue of " + d.info().name + " writes no timestamps");
        CHECK(error_of<DeviceError>([&] { CommandStream(d, {.timed_calls = 1}); }) ==
              "CommandStream: times are asked for, but the queue of " + d.info().name + " writes no timestamps");
      } else {
        const std::vector<TimedCommand> times = there.trace();
        CHECK(times.size() > 1);
        for (const TimedCommand& t : times) {
          CHECK(t.begin >= 0);
          CHECK(t.end >= t.begin);
          CHECK(t.end < 60e9);
        }
      }
    }
    CHECK(host.messages().empty());
  }
}

}  // namespace timestamps_test
