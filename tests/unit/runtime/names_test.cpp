// Names and labels by VK_EXT_debug_utils, seen through a messenger: what the validation layers say of a mistake names the kernel, its line and its arrays.
#include "runtime/names.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <mutex>
#include <string>
#include <vector>

#include "engine/ir/text.h"
#include "runtime/call/call.h"
#include "runtime/context.h"
#include "runtime/pipeline.h"
#include "tests/unit/runtime/support.h"

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
    info.messageSeverity = VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT | VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT;
    info.messageType = VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT;
    info.pfnUserCallback = [](VkDebugUtilsMessageSeverityFlagBitsEXT, VkDebugUtilsMessageTypeFlagsEXT, const VkDebugUtilsMessengerCallbackDataEXT* data, void* self) -> VkBool32 {
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

bool has(const std::vector<std::string>& list, const std::string& text) { return std::find(list.begin(), list.end(), text) != list.end(); }

Device validated(bool debug_info = false) {
  DeviceOptions o;
  o.validation = true;
  o.debug_info = debug_info;
  return Device(o);
}

}  // namespace

TEST_CASE("names: a mistake in a dispatch is told with the kernel's name and line") {
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
    CHECK_THROWS_AS(recorder.submit(p.name, [&] {
      // Push constants for a stage that the kernel does not have; nothing of this is ever submitted.
      const uint32_t zero = 0;
      d.context()->vk().vkCmdPushConstants(recorder.commands(), pipeline.layout(), VK_SHADER_STAGE_VERTEX_BIT, 0, sizeof zero, &zero);
      throw Never{};
    }, {}, p.loc), Never);
  }
  const std::lock_guard lock(messenger.mutex);
  REQUIRE(!messenger.messages.empty());
  const Messenger::Message& m = messenger.messages[0];
  CHECK(has(m.labels, "scale at samples/scale.cpp:12"));
  bool named = has(m.names, "scale at samples/scale.cpp:12");  // the pipeline's layout, in the list of objects or in the text
  named |= m.text.find("scale at samples/scale.cpp:12") != std::string::npos;
  CHECK_MESSAGE(named, m.text);
  const std::vector<std::string> kept = d.validation_messages();
  REQUIRE(!kept.empty());
  CHECK_MESSAGE(kept[0].find("\n  in scale at samples/scale.cpp:12") != std::string::npos, kept[0]);
}

TEST_CASE("names: arrays are named by shape, kernel and place") {
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
    CHECK_THROWS_AS(recorder.submit("a mistake", [&] {
      d.context()->vk().vkCmdCopyBuffer(recorder.commands(), buffer->handle(), buffer->handle(), 1, &region);
      throw Never{};
    }), Never);
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

TEST_CASE("names: of lines") {
  CHECK(with_line("softmax", {"a.cpp", 3}) == "softmax at a.cpp:3");
  CHECK(with_line("softmax", {}) == "softmax");
}
