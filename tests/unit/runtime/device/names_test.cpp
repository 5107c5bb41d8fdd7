// Names and labels by VK_EXT_debug_utils, seen through a messenger: what the validation layers say of a mistake names
// the kernel, its line and its arrays.
#include "runtime/device/names.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/ir/text.h"
#include "runtime/call/call.h"
#include "runtime/device/faults.h"
#include "runtime/record.h"
#include "runtime/submit/context.h"
#include "runtime/submit/pipeline.h"
#include "tests/unit/runtime/support.h"
#include "tests/unit/runtime/vulkan_host.h"

namespace names_test {
using namespace tessera;
using namespace tessera::test;
using namespace tessera::vulkan;

namespace {

/// Another messenger on a device's instance, which keeps names and labels apart.
struct Messenger {
  struct Message {
    std::string text;
    std::vector<std::string> labels, names;
  };
  explicit Messenger(const Device& d) : instance(d.context()->instance()) {
    VkDebugUtilsMessengerCreateInfoEXT info{};
    info.sType = VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT;
    info.messageSeverity =
        VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT | VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT;
    info.messageType = VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT;
    info.pfnUserCallback = [](VkDebugUtilsMessageSeverityFlagBitsEXT, VkDebugUtilsMessageTypeFlagsEXT,
                              const VkDebugUtilsMessengerCallbackDataEXT* data, void* self) -> VkBool32 {
      Message m{data->pMessage ? data->pMessage : "", {}, {}};
      for (uint32_t i = 0; i < data->cmdBufLabelCount; ++i) m.labels.emplace_back(data->pCmdBufLabels[i].pLabelName);
      for (uint32_t i = 0; i < data->objectCount; ++i)
        if (data->pObjects[i].pObjectName) m.names.emplace_back(data->pObjects[i].pObjectName);
      auto* to = static_cast<Messenger*>(self);
      const std::lock_guard lock(to->mutex);
      to->messages.push_back(std::move(m));
      return VK_FALSE;
    };
    info.pUserData = this;
    REQUIRE(instance.vk().vkCreateDebugUtilsMessengerEXT(instance.handle(), &info, nullptr, &handle) == VK_SUCCESS);
  }
  ~Messenger() { instance.vk().vkDestroyDebugUtilsMessengerEXT(instance.handle(), handle, nullptr); }
  Messenger(const Messenger&) = delete;
  Messenger& operator=(const Messenger&) = delete;
  const Instance& instance;
  VkDebugUtilsMessengerEXT handle = VK_NULL_HANDLE;
  std::mutex mutex;
  std::vector<Message> messages;
};

bool has(const std::vector<std::string>& list, const std::string& text) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

Device validated(bool debug_info = false) {
  DeviceOptions o;
  o.validation = kValidation;
  o.debug_info = debug_info;
  return Device(o);
}

}  // namespace

TEST_CASE("names: a mistake in a dispatch is told with the kernel's name and line" * under_validation) {
  const Device d = validated();
  REQUIRE(has_names(d.context()->vk()));
  Messenger messenger(d);
  Program p = scale();
  p.loc = {"samples/scale.cpp", 12};
  const vulkan::Pipeline& pipeline = d.context()->pipeline(p);
  struct Never {};
  {
    const std::lock_guard lock(d.context()->mutex());
    Recorder& recorder = d.context()->recorder();
    CHECK_THROWS_AS(recorder.submit(
                        p.name,
                        [&] {
                          // Push constants for a stage that the kernel does not have; nothing of this is ever
                          // submitted.
                          const uint32_t zero = 0;
                          d.context()->vk().vkCmdPushConstants(recorder.commands(), pipeline.layout(),
                                                               VK_SHADER_STAGE_VERTEX_BIT, 0, sizeof zero, &zero);
                          throw Never{};
                        },
                        {}, p.loc),
                    Never);
  }
  const std::lock_guard lock(messenger.mutex);
  REQUIRE(!messenger.messages.empty());
  const Messenger::Message& m = messenger.messages[0];
  CHECK(has(m.labels, "scale at samples/scale.cpp:12"));
  // the pipeline's layout, in the list of objects or in the text
  bool named = has(m.names, "scale at samples/scale.cpp:12");
  named |= m.text.find("scale at samples/scale.cpp:12") != std::string::npos;
  CHECK_MESSAGE(named, m.text);
  const std::vector<std::string> kept = d.validation_messages();
  REQUIRE(!kept.empty());
  CHECK_MESSAGE(kept[0].find("\n  in scale at samples/scale.cpp:12") != std::string::npos, kept[0]);
}

// device_list() says why. The loader's own fault is a few instructions wide; what must not happen is the overlap.
TEST_CASE("names: Devices come and go while others name their objects") {
  Faults faults;
  DeviceOptions named;
  named.debug_info = true;
  const Device d(named);
  const DeviceArray x(d, ramp(10));
  const auto buffer = x.buffer("");
  const DeviceTable& vk = d.context()->vk();
  REQUIRE(has_names(vk));
  int64_t names = 0;
  {
    std::jthread thread([&](const std::stop_token& done) {
      for (; !done.stop_requested(); ++names) name_object(vk, d.context()->handle(), buffer->handle(), "x");
    });
    for (int i = 0; i < 20; ++i) Device{named};
  }
  CHECK(names > 0);
  CHECK(faults.overlaps() == 0);
}

TEST_CASE("names: arrays are named by shape, kernel and place" * under_validation) {
  const Device d = validated();
  Messenger messenger(d);
  const DeviceArray x(d, ramp(10));
  const DeviceArray y = launch(d, scale(), {x})[0];
  d.wait();
  // A copy of more than there is: the layers say of which buffers.
  const auto mistake = [&](const DeviceArray& a) {
    const auto buffer = a.buffer("");
    const std::lock_guard lock(d.context()->mutex());
    const VkBufferCopy region{buffer->offset(), 0, 1 << 20};
    Recorder& recorder = d.context()->recorder();
    struct Never {};
    CHECK_THROWS_AS(recorder.submit("a mistake",
                                    [&] {
                                      d.context()->vk().vkCmdCopyBuffer(recorder.commands(), buffer->handle(),
                                                                        buffer->handle(), 1, &region);
                                      throw Never{};
                                    }),
                    Never);
    const std::lock_guard messages(messenger.mutex);
    REQUIRE(!messenger.messages.empty());
    std::string said;
    for (const auto& m : messenger.messages) {
      said += m.text;
      for (const std::string& n : m.names) said += "\n" + n;
      CHECK(has(m.labels, "a mistake"));
    }
    messenger.messages.clear();
    return said;
  };
  const std::string of_x = mistake(x), of_y = mistake(y);
  CHECK_MESSAGE(of_x.find("f32[10]") != std::string::npos, of_x);
  CHECK_MESSAGE(of_y.find("f32[10], out_specs[0] of scale") != std::string::npos, of_y);
}

namespace {
/// What goes to debug_utils on its way to the driver, and where dispatches and copies to images lie in it. Installed by
/// what an imported device is looked up with.
struct Spy {
  PFN_vkGetInstanceProcAddr lookup;
  PFN_vkGetDeviceProcAddr device_lookup;
  PFN_vkSetDebugUtilsObjectNameEXT name;
  PFN_vkCmdBeginDebugUtilsLabelEXT begin;
  PFN_vkCmdEndDebugUtilsLabelEXT end;
  PFN_vkCmdDispatch dispatch;
  std::vector<std::pair<VkObjectType, std::string>> names;
  std::vector<std::string> commands;
} spy;

PFN_vkVoidFunction VKAPI_CALL spied_device(VkDevice device, const char* name) {
  const PFN_vkVoidFunction f = spy.device_lookup(device, name);
  const std::string_view n = name;
  if (n == "vkSetDebugUtilsObjectNameEXT") {
    spy.name = reinterpret_cast<PFN_vkSetDebugUtilsObjectNameEXT>(f);
    const PFN_vkSetDebugUtilsObjectNameEXT own = [](VkDevice d, const VkDebugUtilsObjectNameInfoEXT* info) {
      spy.names.emplace_back(info->objectType, info->pObjectName);
      return spy.name(d, info);
    };
    return reinterpret_cast<PFN_vkVoidFunction>(own);
  }
  if (n == "vkCmdBeginDebugUtilsLabelEXT") {
    spy.begin = reinterpret_cast<PFN_vkCmdBeginDebugUtilsLabelEXT>(f);
    const PFN_vkCmdBeginDebugUtilsLabelEXT own = [](VkCommandBuffer c, const VkDebugUtilsLabelEXT* label) {
      spy.commands.push_back(std::string(label->pLabelName) + " {");
      spy.begin(c, label);
    };
    return reinterpret_cast<PFN_vkVoidFunction>(own);
  }
  if (n == "vkCmdEndDebugUtilsLabelEXT") {
    spy.end = reinterpret_cast<PFN_vkCmdEndDebugUtilsLabelEXT>(f);
    const PFN_vkCmdEndDebugUtilsLabelEXT own = [](VkCommandBuffer c) {
      spy.commands.emplace_back("}");
      spy.end(c);
    };
    return reinterpret_cast<PFN_vkVoidFunction>(own);
  }
  if (n == "vkCmdDispatch") {
    spy.dispatch = reinterpret_cast<PFN_vkCmdDispatch>(f);
    const PFN_vkCmdDispatch own = [](VkCommandBuffer c, uint32_t x, uint32_t y, uint32_t z) {
      spy.commands.emplace_back("dispatch");
      spy.dispatch(c, x, y, z);
    };
    return reinterpret_cast<PFN_vkVoidFunction>(own);
  }
  return f;
}

PFN_vkVoidFunction VKAPI_CALL spied(VkInstance instance, const char* name) {
  if (std::string_view(name) != "vkGetDeviceProcAddr") return spy.lookup(instance, name);
  spy.device_lookup = reinterpret_cast<PFN_vkGetDeviceProcAddr>(spy.lookup(instance, name));
  return reinterpret_cast<PFN_vkVoidFunction>(&spied_device);
}
}  // namespace

TEST_CASE("names: what reads and writes images is named by the image, and lies in the ranges of its kernel") {
  auto host = std::make_unique<VulkanHost>();
  {
    ImportedDevice imported = host->imported();
    spy = {};
    spy.lookup = imported.get_instance_proc_addr;
    imported.get_instance_proc_addr = spied;
    const Device d = Device::import(imported);
    constexpr VkImageUsageFlags kUsage = VK_IMAGE_USAGE_SAMPLED_BIT | VK_IMAGE_USAGE_STORAGE_BIT;
    const VulkanHost::Image image = host->image(VK_FORMAT_R8G8B8A8_UNORM, {8, 4}, kUsage);
    const DeviceImage ours(d, {image.handle, image.format, image.extent, kUsage});
    const std::string what = "the image of 8 x 4 texels of VK_FORMAT_R8G8B8A8_UNORM";
    for (const auto& name : std::vector<std::pair<VkObjectType, std::string>>{
             {VK_OBJECT_TYPE_IMAGE_VIEW, what + ", to be read"},
             {VK_OBJECT_TYPE_IMAGE_VIEW, what + ", to be written"},
             {VK_OBJECT_TYPE_DESCRIPTOR_SET, what + ", to be read"},
             {VK_OBJECT_TYPE_DESCRIPTOR_SET, what + ", to be written"},
             {VK_OBJECT_TYPE_DESCRIPTOR_POOL, what},
             {VK_OBJECT_TYPE_DESCRIPTOR_SET_LAYOUT, "Tessera's image that is read"},
             {VK_OBJECT_TYPE_PIPELINE_LAYOUT, "Tessera's storing to images"},
             {VK_OBJECT_TYPE_PIPELINE, "Tessera's reading of floating-point images"}}) {
      CAPTURE(name.second);
      CHECK(std::find(spy.names.begin(), spy.names.end(), name) != spy.names.end());
    }
    Program p = scale();
    p.loc = {"samples/scale.cpp", 12};
    for (ProgramArg& a : p.args) a.shape = {Extent(4), Extent(8), Extent(4)};
    PreparedKernel kernel(d, p, {.dims = {{"n", 128}}, .images = {{0, ours}, {1, ours}}});
    const VkCommandBuffer c = host->commands();
    host->begin(c);
    spy.commands.clear();
    kernel.record(c, 0,
                  {{ours, {VK_IMAGE_LAYOUT_GENERAL, VK_IMAGE_LAYOUT_GENERAL}},
                   {ours, {VK_IMAGE_LAYOUT_GENERAL, VK_IMAGE_LAYOUT_GENERAL}}});
    CHECK(spy.commands == std::vector<std::string>{"scale at samples/scale.cpp:12 {", "read in_specs[0] {", "dispatch",
                                                   "}", "dispatch", "write out_specs[0] {", "dispatch", "}", "}"});
    host->vkEndCommandBuffer(c);
  }
  check_silent(std::move(host));
}

TEST_CASE("names: a device without debug_utils has neither functions nor names") {
  const Device plain;
  CHECK(!has_names(plain.context()->vk()));
  CHECK(!plain.context()->vk().vkCmdBeginDebugUtilsLabelEXT);
  CHECK(floats(launch(plain, scale(), {DeviceArray(plain, ramp(5))})[0]) == scaled_ramp(5));
  DeviceOptions o;
  o.debug_info = true;  // as for RenderDoc, without validation
  const Device named(o);
  CHECK(has_names(named.context()->vk()));
  CHECK(floats(launch(named, scale(), {DeviceArray(named, ramp(5))})[0]) == scaled_ramp(5));
}

TEST_CASE("names: of lines" * without_device) {
  CHECK(with_line("softmax", {"a.cpp", 3}) == "softmax at a.cpp:3");
  CHECK(with_line("softmax", {}) == "softmax");
}

}  // namespace names_test
