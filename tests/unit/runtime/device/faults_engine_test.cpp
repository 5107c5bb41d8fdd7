// faults_test.cpp for what engines do: a frame of the host's with our kernels, its buffers, images and semaphores;
// memory out of its own pool; a graph that decides on the device; memory that is shared. Every call of them to Vulkan
// fails in every way.
#include <unistd.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "engine/front.h"
#include "runtime/call/call.h"
#include "runtime/call/graph.h"
#include "runtime/call/jit.h"
#include "runtime/device/faults.h"
#include "runtime/record.h"
#include "tests/unit/runtime/fault_results.h"
#include "tests/unit/runtime/support.h"
#include "tests/unit/runtime/vulkan_host.h"

namespace faults_engine_test {
using namespace tessera;
using namespace tessera::test;
using vulkan::Faults;

namespace {

constexpr int64_t kHeight = 8, kWidth = 25, kN = kHeight * kWidth;
constexpr ImageLayouts kGeneral{VK_IMAGE_LAYOUT_GENERAL, VK_IMAGE_LAYOUT_GENERAL},
    kFresh{VK_IMAGE_LAYOUT_UNDEFINED, VK_IMAGE_LAYOUT_GENERAL};

/// The host, whose own calls never fail, with what it lends.
struct Engine {
  std::unique_ptr<VulkanHost> host = std::make_unique<VulkanHost>(VulkanHostOptions{
      .all_features = false, .without = {}, .extensions = {VK_KHR_EXTERNAL_MEMORY_FD_EXTENSION_NAME}});
  VulkanHost::Buffer in = host->buffer(4 * kN), out = host->buffer(4 * kN + 256);
  VulkanHost::Image from = image(VK_IMAGE_USAGE_STORAGE_BIT), to = image(0),
                    solid = host->image(VK_FORMAT_R32_SFLOAT, {3, 2, 2}, 1, 1,
                                        VK_IMAGE_USAGE_SAMPLED_BIT | VK_IMAGE_USAGE_STORAGE_BIT);
  VkCommandBuffer commands = host->commands();
  VkSemaphore semaphore = host->timeline();
  uint64_t frame = 0;

  VulkanHost::Image image(VkImageUsageFlags more) {
    return host->image(VK_FORMAT_R32_SFLOAT, {kWidth, kHeight},
                       VK_IMAGE_USAGE_SAMPLED_BIT | VK_IMAGE_USAGE_TRANSFER_DST_BIT | more);
  }
  /// Without names for its objects, so that most calls are others.
  ImportedDevice plain() const {
    ImportedDevice d = host->imported();
    d.instance_extensions.clear();
    return d;
  }
  /// A pool without care: an allocation for every piece.
  MemoryPool pool() {
    const auto types = std::make_shared<VkPhysicalDeviceMemoryProperties>();
    host->vkGetPhysicalDeviceMemoryProperties(host->physical, types.get());
    return {[this, types](const MemoryRequest& r, MemoryPiece& p) {
              uint32_t t = 0;
              while (!(r.memory_type_bits >> t & 1)) ++t;
              const VkMemoryAllocateFlagsInfo flags{VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO, nullptr,
                                                    VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT, 0};
              const VkMemoryAllocateInfo info{VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, &flags, r.size, t};
              p = {VK_NULL_HANDLE, 0, r.size, t, nullptr, nullptr};
              if (const VkResult v = host->vkAllocateMemory(host->device, &info, nullptr, &p.memory); v < 0) return v;
              if (types->memoryTypes[t].propertyFlags & VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT)
                host->vkMapMemory(host->device, p.memory, 0, VK_WHOLE_SIZE, 0, &p.mapped);
              ++pieces;
              return VK_SUCCESS;
            },
            [this](const MemoryPiece& p) {
              host->vkFreeMemory(host->device, p.memory, nullptr);
              --pieces;
            }};
  }
  int64_t pieces = 0;
};

struct Run {
  Engine* engine;
  std::optional<Device> device = {};
};

Program shaped(Program p, const Shape& shape) {
  for (ProgramArg& a : p.args) a.shape.assign(shape.begin(), shape.end());
  p.extents[0] = num_elements(shape);
  p.num_units = (num_elements(shape) + 63) / 64;
  return p;
}

/// Three images, a kernel between two of them, others on the host's buffers and with arenas and tables; calls of the
/// Device's own before and after.
void frame(Run& r) {
  Engine& e = *r.engine;
  if (!r.device) r.device = Device::import(e.plain());
  const Device& d = *r.device;
  const DeviceArray x = import_buffer(d, e.host->range(e.in), {kN}, f32),
                    y = import_buffer(d, e.host->range(e.out, 256), {kN}, f32), z(d, {kN}, f32);
  DeviceArray(x).write(ramp(kN));
  const DeviceImage a(d, {e.from.handle, e.from.format, e.from.extent, e.from.usage}),
      b(d, {e.to.handle, e.to.format, e.to.extent, e.to.usage});
  write_image(a, DeviceArray(d, Array({kHeight, kWidth}, scaled_ramp(kN))), kFresh);
  PreparedKernel blend(d, shaped(scale(), {kHeight, kWidth}), {.images = {{0, a}, {1, b}}}),
      arenas(d, scratch(), {.dims = {{"n", kN}}}), tables(d, table(), {.dims = {{"n", kN}}});
  CommandStream stream(d);
  VulkanHost& h = *e.host;
  CHECK(h.vkResetCommandBuffer(e.commands, 0) == VK_SUCCESS);
  h.begin(e.commands);
  stream.begin(e.commands, ++e.frame);
  stream.record(blend, {{a, kGeneral}, {b, kFresh}});
  stream.record(arenas, {x, z});     // 3 x
  stream.record(tables, {x, z, y});  // 4 x
  stream.end();
  h.run(e.commands);
  signal(d, e.semaphore, e.frame);
  wait_for(d, e.semaphore, e.frame);
  const std::vector<float> got = floats(launch(d, scale(), {y})[0]);
  for (size_t i = 0; i < got.size(); ++i) CHECK(got[i] == 8 * static_cast<float>(i) + 1);
  ImportedImage of_slices{e.solid.handle, e.solid.format, e.solid.extent, e.solid.usage};
  of_slices.type = VK_IMAGE_TYPE_3D, of_slices.depth = 2;
  const DeviceImage slices(d, of_slices);
  write_image(slices, DeviceArray(d, Array({2, 2, 3}, scaled_ramp(12))), kFresh);
  const Array solid = read_image(slices, f32, kGeneral).download();
  for (int64_t i = 0; i < solid.size(); ++i) CHECK(solid.at(i) == 2 * static_cast<double>(i) + 1);
  const Array picture = read_image(b, f32, kGeneral).download();
  for (int64_t i = 0; i < picture.size(); ++i) CHECK(picture.at(i) == 4 * static_cast<double>(i) + 3);
  d.wait();
}

/// The same calls of the Device's own on memory of the engine's.
void pooled(Run& r) {
  if (!r.device) {
    ImportedDevice i = r.engine->plain();
    i.memory = r.engine->pool();
    r.device = Device::import(i);
  }
  const Device& d = *r.device;
  const DeviceArray x(d, ramp(300));
  const DeviceArray y = launch(d, scratch(), {launch(d, table(), {x, x})[0]})[0];
  const std::vector<float> got = floats(y);
  for (size_t i = 0; i < got.size(); ++i) CHECK(got[i] == 6 * static_cast<float>(i));
  d.wait();
}

/// A while that the device ends, and a branch that it takes.
void decided(Run& r) {
  static const auto f = jit([](Tensor x, Tensor n) {
    const Value y = std::get<1>(while_loop(
        std::tuple{Value(n), Value(x)}, [](Value left, Value) { return left > 0; },
        [](Value left, Value v) { return std::tuple{Value(left - 1), Value(v * 2)}; }));
    return cond(n > 2, [&] { return Value(y + 1); }, [&] { return Value(y - 1); });
  });
  if (!r.device) r.device.emplace();
  const Device& d = *r.device;
  GraphOptions o;
  o.timestamps = true;
  o.fuse = false;
  const CompiledGraph g = load(d, f.trace({{{4}, f32}, {{}, i32}}), o);
  for (const int n : {3, 1}) {
    const DeviceArray y = g({DeviceArray(d, ramp(4)), DeviceArray(d, Array({}, std::vector<int32_t>{n}))})[0];
    const std::vector<float> got = floats(y);
    for (size_t i = 0; i < got.size(); ++i)
      CHECK(got[i] == static_cast<float>(n == 3 ? 8 * i + 1 : 2 * i) - static_cast<float>(n == 1));
  }
  const size_t timed = g.trace().size();
  CHECK((timed >= 3 || timed == 0));  // none where no query pool can be had
  d.wait();
}

/// Memory that goes to a second array by its descriptor; here every object has a name.
void shared(Run& r) {
  if (!r.device) r.device = Device::import(r.engine->host->imported());
  const Device& d = *r.device;
  const DeviceArray x = shareable_array(d, {100}, f32);
  DeviceArray(x).write(ramp(100));
  d.wait();
  const SharedMemory memory = share(x);
  const DeviceArray y = [&] {
    try {
      return import_memory(d, memory, {100}, f32);
    } catch (const Error&) {
      CHECK(::close(memory.fd) == 0);  // it is still ours
      throw;
    }
  }();
  const std::vector<float> got = floats(launch(d, scale(), {y})[0]);
  CHECK(got == scaled_ramp(100));
}

/// Of this file.
std::string without_line(const std::string& s) { return s.substr(0, s.find("\n  at ")); }

struct Sweep {
  std::string device_name = device().info().name;
  Engine engine;
  Faults faults;
  Messages messages;
  std::set<std::string> no_matter;
  size_t runs = 0;

  void all(const std::function<void(Run&)>& body) {
    faults.count();
    {
      Run r{&engine};
      body(r);
    }
    std::map<std::string, uint64_t> numbers;
    for (const Faults::Call& c : faults.calls())
      if (c.returns_result)
        for (const uint64_t number = numbers[c.name]++; VkResult result : failures(c.name))
          one(body, c.name, number, result);
    CHECK(engine.pieces == 0);
  }

  void one(const std::function<void(Run&)>& body, const std::string& name, uint64_t call, VkResult result) {
    INFO(name << ", call " << call << ": " << vulkan::to_string(result));
    ++runs;
    {
      auto r = std::make_unique<Run>(Run{&engine});
      faults.fail(name, call, result);
      std::string said;
      try {
        body(*r);
      } catch (const DeviceError& e) {
        said = e.what();
      }
      // a call that is made when the device goes, or was not needed this time
      if (!faults.failed()) r = std::make_unique<Run>(Run{&engine});
      if (said.empty() && faults.failed()) no_matter.insert(name);
      if (!said.empty())
        messages.emplace(
            name,
            without_line(brief(replaced(replaced(said, device_name, "DEVICE"), vulkan::to_string(result), "RESULT"))));
      const bool lost = r->device && r->device->lost();  // what goes at the end of a run may find it without saying so
      if (lost) CHECK(result == VK_ERROR_DEVICE_LOST);
      else CHECK(!(result == VK_ERROR_DEVICE_LOST && !said.empty() && r->device));
      if (lost) {
        const std::string gone = error_of<DeviceError>([&] { r->device->wait(); });
        CHECK(gone.starts_with("the device " + device_name + " was lost in an earlier call: vk"));
        CHECK(error_of<DeviceError>([&] { body(*r); }) == gone);
        r = std::make_unique<Run>(Run{&engine});  // its host makes another; here the same one is as good
      }
      faults.count();
      try {
        body(*r);  // on the same Device, unless there is none: all is as before
      } catch (const Error& e) {
        FAIL_CHECK(e.what());
      }
    }
    for (const auto& [what, n] : faults.alive()) FAIL_CHECK(n << " of " << what << " left");
  }
};

/// All that is said; `reports`: the graph's loop has a report, where the driver has a limit on iterations.
Messages said(bool reports) {
  const std::string end = " on DEVICE: RESULT";
  Messages m;
  const auto each = [&](const char* f, const std::vector<std::string>& of) {
    for (const std::string& what : of)
      m.emplace(f, (what.empty() ? f : what.ends_with(':') ? what + " " + f : what) + end);
  };
  for (const char* f : {"vkCreateBuffer", "vkBindBufferMemory"}) {
    each(f,
         {"f32[4]: 16 bytes asked",
          "f32[100]: 400 bytes asked",
          "f32[200]: 800 bytes asked",
          "f32[8, 25]: 800 bytes asked",
          "f32[8, 25, 1]: 800 bytes asked",
          "f32[2, 2, 3]: 48 bytes asked",
          "f32[2, 2, 3, 1]: 48 bytes asked",
          "i32[]: 4 bytes asked",
          "staging memory for f32[100]: 400 bytes asked",
          "staging memory for f32[200]: 800 bytes asked",
          "scale: the image in_specs[0]: 800 bytes asked",
          "scale: the image out_specs[0]: 800 bytes asked",
          "scale: the texels of out_specs[0]: 800 bytes asked",
          "scratch: the scratch arena of 3 workgroups: 768 bytes asked",
          "table: the argument table of a frame: 28 bytes asked",
          "the arena of a graph: 192 bytes asked",
          reports ? "the argument table of a graph: 96 bytes asked" : "the argument table of a graph: 80 bytes asked",
          "f32[300]: 1200 bytes asked of ImportedDevice::memory",
          "scratch: the scratch arena of 3 workgroups: 768 bytes asked of ImportedDevice::memory",
          "table: the argument table: 28 bytes asked of ImportedDevice::memory",
          "import_memory: f32[100]:",
          "shareable_array: f32[100]:"});
    if (reports) each(f, {"while: the report: 64 bytes asked"});
  }
  for (const char* f : {"vkCreatePipelineLayout", "vkCreateShaderModule", "vkCreateComputePipelines"})
    each(f, {"scale:", "scratch:", "table:", "gt:", "if:", "while:", "DeviceImage:"});
  const std::string image = "DeviceImage: the image of 25 x 8 texels of VK_FORMAT_R32_SFLOAT:";
  for (const char* f : {"vkCreateImageView", "vkCreateDescriptorPool", "vkAllocateDescriptorSets"})
    each(f, {image, "DeviceImage: the image of 3 x 2 x 2 texels of VK_FORMAT_R32_SFLOAT:"});
  each("vkCreateDescriptorSetLayout", {"DeviceImage:"});
  each("vkAllocateMemory", {"import_memory: f32[100]:", "shareable_array: f32[100]: 400 bytes asked"});
  each("vkGetMemoryFdKHR", {"share: f32[100]:"});
  for (const char* work : {"a graph", "a signal", "scale", "scratch", "table", "the reading of an image",
                           "the writing of an image", "the upload of f32[100]", "the upload of f32[200]"})
    each("vkQueueSubmit2", {std::string("vkQueueSubmit2 of ") + work});
  for (const char* f : {"vkAllocateCommandBuffers", "vkBeginCommandBuffer", "vkEndCommandBuffer", "vkCreateCommandPool",
                        "vkCreateSemaphore", "vkCreateDevice", "vkWaitSemaphores"})
    each(f, {""});
  return m;
}
/// What depends on how far the device has come, and what faults_test.cpp has: the making of a Device that is no host's.
bool may_be_said(const std::string& f) {
  return f == "vkResetCommandBuffer" || f == "vkGetSemaphoreCounterValue" || f == "vkGetQueryPoolResults" ||
         f == "vkCreateInstance" || f.starts_with("vkEnumerate");
}
/// Functions some failure of which changes nothing.
const std::set<std::string> kNoMatter = {"vkAllocateMemory",
                                         "vkBindBufferMemory",
                                         "vkCreateBuffer",
                                         "vkCreateQueryPool",
                                         "vkDeviceWaitIdle",
                                         "vkEnumerateDeviceExtensionProperties",
                                         "vkEnumerateInstanceExtensionProperties",
                                         "vkEnumeratePhysicalDevices",
                                         "vkGetQueryPoolResults",
                                         "vkGetSemaphoreCounterValue",
                                         "vkMapMemory",
                                         "vkSetDebugUtilsObjectNameEXT",
                                         "vkWaitSemaphores"};

}  // namespace

TEST_CASE("faults: a frame of an engine's, its memory, a graph and shared memory, every call in every way") {
  auto s = std::make_unique<Sweep>();
  for (const auto& body : {frame, pooled, decided, shared}) s->all(body);
  CHECK(s->runs > 700);
  const Messages wanted = said(device().target().max_loop_iterations > 0);
  for (const auto& [f, m] : s->messages)
    if (!wanted.contains({f, m}) && !may_be_said(f)) FAIL_CHECK(f << ": " << m);
  for (const auto& [f, m] : wanted)
    if (!s->messages.contains({f, m})) FAIL_CHECK("not said: " << f << ": " << m);
  for (const std::string& f : s->no_matter) CHECK_MESSAGE(kNoMatter.contains(f), f);
  check_silent(std::move(s->engine.host));
}

}  // namespace faults_engine_test
