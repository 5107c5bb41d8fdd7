// Every call that a run makes to Vulkan, failing in every way that Vulkan allows: what is said, what is left behind,
// what still works.
#include "runtime/device/faults.h"

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <set>

#include "engine/ir/text.h"
#include "runtime/call/call.h"
#include "runtime/loaded_graph.h"
#include "tests/unit/runtime/fault_results.h"
#include "tests/unit/runtime/support.h"

namespace faults_test {
using namespace tessera;
using namespace tessera::test;
using vulkan::Faults;

namespace {

/// A run's handles, which outlive what goes wrong in it.
struct Run {
  std::optional<Device> device;
  std::vector<DeviceArray> arrays;
  std::unique_ptr<float, void (*)(void*)> page{static_cast<float*>(::operator new(8192, std::align_val_t{4096})),
                                               [](void* p) { ::operator delete(p, std::align_val_t{4096}); }};

  ~Run() {
    for (const DeviceArray& a : arrays) a.wait_unused();
  }
  const DeviceArray& keep(DeviceArray a) { return arrays.emplace_back(std::move(a)); }
};

void upload_launch_download(Run& r, const DeviceOptions& o) {
  r.arrays.reserve(16);
  if (!r.device) r.device.emplace(o);
  const Device& d = *r.device;
  const DeviceArray& x = r.keep(DeviceArray(d, ramp(300)));
  const DeviceArray& y = r.keep(launch(d, scale(), {x})[0]);
  const DeviceArray& z = r.keep(launch(d, table(), {x, y})[0]);
  const DeviceArray& w = r.keep(launch(d, scratch(), {z.copy()})[0]);
  std::vector<float> want;
  for (int i = 0; i < 300; ++i) want.push_back(static_cast<float>(9 * i + 3));
  const std::vector<float> got = floats(w);
  CHECK(got == want);
  d.wait();
}
void plain(Run& r) { upload_launch_download(r, {}); }
void staged(Run& r) {
  DeviceOptions o;
  o.always_stage = true;
  upload_launch_download(r, o);
}
void imported(Run& r) {
  r.arrays.reserve(16);
  if (!r.device) r.device.emplace();
  const Device& d = *r.device;
  float* memory = r.page.get();
  for (int i = 0; i < 100; ++i) memory[i] = static_cast<float>(i);
  auto in = DeviceArray::import_host(d, memory, {100}, f32);
  const DeviceArray& x = r.keep(in ? *in : DeviceArray(d, {100}, f32, memory));
  const std::vector<float> got = floats(r.keep(launch(d, scale(), {x})[0]));
  CHECK(got == scaled_ramp(100));
}

/// A call in slices, which are measured.
void sliced(Run& r) {
  r.arrays.reserve(16);
  DeviceOptions o;
  o.watchdog_seconds = 1e-12;
  if (!r.device) r.device.emplace(o);
  Program p = scale();
  p.cost_estimate.flops = int64_t{1} << 24;
  const std::vector<float> got = floats(r.keep(launch(*r.device, p, {r.keep(DeviceArray(*r.device, ramp(200)))})[0]));
  CHECK(got == scaled_ramp(200));
  r.device->wait();
}
/// A graph of a bundle.
void graph(Run& r) {
  static const GraphCode code = [] {
    using Memory = GraphProgram::Memory;
    GraphProgram g;
    g.name = "solver";
    g.inputs = g.outputs = {{f32, {300}}};
    g.own = {{{f32, {300}}, {}}};
    g.kernels = {{0, {{"n", 300}}, 2}};
    g.calls = {{0, {{Memory::input, 0}, {Memory::own, 0}}}, {0, {{Memory::own, 0}, {Memory::output, 0}}}};
    return GraphCode{std::make_shared<const GraphProgram>(g), {std::make_shared<const Program>(scale())}};
  }();
  r.arrays.reserve(16);
  if (!r.device) r.device.emplace();
  const DeviceArray& x = r.keep(DeviceArray(*r.device, ramp(300)));
  const std::vector<float> got = floats(r.keep(LoadedGraph(*r.device, code)({x})[0]));
  CHECK(got == scaled_ramp(300, 2));
}
/// Calls that report, on memory that has to be flushed.
void flushed(Run& r) {
  static const Program prints = [] {
    return load(device(), ir::parse("tir 1\nkernel @says\ngrid (2)\nin f32[8] block (4) map (%i) { yield %i }\nout "
                                    "f32[8] block (4) map (%i) { yield %i }\n"
                                    "text \"program {}\"\nbody (%x, %o) {\n  %i = program_id axis 0\n  debug_print %i "
                                    "text 0\n  %a = load %x[0:4]\n  store %o[0:4], %a\n  yield\n}\n",
                                    "says.tir"))
        .program();
  }();
  DeviceOptions o;
  o.print = [](std::string_view) {};
  r.arrays.reserve(16);
  if (!r.device) r.device.emplace(o);
  const DeviceArray& y = r.keep(launch(*r.device, prints, {r.keep(DeviceArray(*r.device, ramp(8)))})[0]);
  const DeviceArray& z = r.keep(launch(*r.device, scale(), {y})[0]);
  const std::vector<float> got = floats(z);
  CHECK(got == scaled_ramp(8));
  r.device->wait();
}
/// With pipelines kept on disk, where there are none yet.
void cached(Run& r) {
  const std::filesystem::path folder = temporary_path("faults");
  std::filesystem::remove_all(folder);
  set_environment("TESSERA_CACHE", folder.string().c_str());
  try {
    upload_launch_download(r, {});
  } catch (const DeviceError&) {
    set_environment("TESSERA_CACHE", nullptr);
    throw;
  }
  set_environment("TESSERA_CACHE", nullptr);
  std::filesystem::remove_all(folder);
}

const char* const kNoDriver =
    "there is no Vulkan driver on this machine: install the one for its GPU, or Mesa's for the CPU (Debian and Ubuntu: "
    "apt-get install "
    "mesa-vulkan-drivers), or set TESSERA_DEVICE=interpreter to run kernels on the host";

/// All that is said, by the function that failed.
const std::set<std::pair<std::string, std::string>> kSaid = {
    {"vkAllocateCommandBuffers", "vkAllocateCommandBuffers on DEVICE: RESULT"},
    {"vkBeginCommandBuffer", "vkBeginCommandBuffer on DEVICE: RESULT"},
    {"vkBindBufferMemory", "f32[200]: 800 bytes asked on DEVICE: RESULT"},
    {"vkBindBufferMemory", "f32[100]: 400 bytes asked on DEVICE: RESULT"},
    {"vkBindBufferMemory", "f32[300]: 1200 bytes asked on DEVICE: RESULT"},
    {"vkBindBufferMemory", "scratch: the scratch arena of 3 workgroups: 768 bytes asked on DEVICE: RESULT"},
    {"vkBindBufferMemory", "staging memory for f32[300]: 1200 bytes asked on DEVICE: RESULT"},
    {"vkBindBufferMemory", "table: the argument table: 28 bytes asked on DEVICE: RESULT"},
    {"vkCreateBuffer", "f32[200]: 800 bytes asked on DEVICE: RESULT"},
    {"vkCreateBuffer", "f32[100]: 400 bytes asked on DEVICE: RESULT"},
    {"vkCreateBuffer", "f32[300]: 1200 bytes asked on DEVICE: RESULT"},
    {"vkCreateBuffer", "scratch: the scratch arena of 3 workgroups: 768 bytes asked on DEVICE: RESULT"},
    {"vkCreateBuffer", "staging memory for f32[300]: 1200 bytes asked on DEVICE: RESULT"},
    {"vkCreateBuffer", "table: the argument table: 28 bytes asked on DEVICE: RESULT"},
    {"vkCreateCommandPool", "vkCreateCommandPool on DEVICE: RESULT"},
    {"vkCreateComputePipelines", "scale: vkCreateComputePipelines on DEVICE: RESULT"},
    {"vkCreateComputePipelines", "scratch: vkCreateComputePipelines on DEVICE: RESULT"},
    {"vkCreateComputePipelines", "table: vkCreateComputePipelines on DEVICE: RESULT"},
    {"vkCreateDevice", "vkCreateDevice on DEVICE: RESULT"},
    {"vkCreateInstance", kNoDriver},
    {"vkCreateInstance", "vkCreateInstance on the Vulkan loader: RESULT"},
    {"vkCreatePipelineLayout", "scale: vkCreatePipelineLayout on DEVICE: RESULT"},
    {"vkCreatePipelineLayout", "scratch: vkCreatePipelineLayout on DEVICE: RESULT"},
    {"vkCreatePipelineLayout", "table: vkCreatePipelineLayout on DEVICE: RESULT"},
    {"vkCreateSemaphore", "vkCreateSemaphore on DEVICE: RESULT"},
    {"vkCreateShaderModule", "scale: vkCreateShaderModule on DEVICE: RESULT"},
    {"vkCreateShaderModule", "scratch: vkCreateShaderModule on DEVICE: RESULT"},
    {"vkCreateShaderModule", "table: vkCreateShaderModule on DEVICE: RESULT"},
    {"vkEndCommandBuffer", "vkEndCommandBuffer on DEVICE: RESULT"},
    {"vkEnumerateDeviceExtensionProperties", "vkEnumerateDeviceExtensionProperties on a device: RESULT"},
    {"vkEnumerateInstanceExtensionProperties", "vkEnumerateInstanceExtensionProperties on the Vulkan loader: RESULT"},
    {"vkEnumerateInstanceVersion", "vkEnumerateInstanceVersion on the Vulkan loader: RESULT"},
    {"vkEnumeratePhysicalDevices", kNoDriver},
    {"vkEnumeratePhysicalDevices", "vkEnumeratePhysicalDevices on the Vulkan loader: RESULT"},
    {"vkFlushMappedMemoryRanges", "f32[8]: vkFlushMappedMemoryRanges on DEVICE: RESULT"},
    {"vkFlushMappedMemoryRanges", "says: the report: vkFlushMappedMemoryRanges on DEVICE: RESULT"},
    {"vkFlushMappedMemoryRanges", "staging memory for f32[300]: vkFlushMappedMemoryRanges on DEVICE: RESULT"},
    {"vkFlushMappedMemoryRanges", "table: the argument table: vkFlushMappedMemoryRanges on DEVICE: RESULT"},
    {"vkInvalidateMappedMemoryRanges", "f32[8]: vkInvalidateMappedMemoryRanges on DEVICE: RESULT"},
    {"vkInvalidateMappedMemoryRanges", "says: the report: vkInvalidateMappedMemoryRanges on DEVICE: RESULT"},
    {"vkInvalidateMappedMemoryRanges", "staging memory for f32[300]: vkInvalidateMappedMemoryRanges on DEVICE: RESULT"},
    {"vkGetSemaphoreCounterValue", "vkGetSemaphoreCounterValue on DEVICE: RESULT"},
    {"vkQueueSubmit2", "vkQueueSubmit2 of scale on DEVICE: RESULT"},
    {"vkQueueSubmit2", "vkQueueSubmit2 of solver on DEVICE: RESULT"},
    {"vkQueueSubmit2", "vkQueueSubmit2 of scratch on DEVICE: RESULT"},
    {"vkQueueSubmit2", "vkQueueSubmit2 of table on DEVICE: RESULT"},
    {"vkQueueSubmit2", "vkQueueSubmit2 of the copy of f32[300] on DEVICE: RESULT"},
    {"vkQueueSubmit2", "vkQueueSubmit2 of the download of f32[300] on DEVICE: RESULT"},
    {"vkQueueSubmit2", "vkQueueSubmit2 of the upload of f32[300] on DEVICE: RESULT"},
    {"vkWaitSemaphores", "vkWaitSemaphores on DEVICE: RESULT"},
};
/// The same, where it depends on how far the device has come.
const std::set<std::pair<std::string, std::string>> kMayBeSaid = {
    {"vkGetSemaphoreCounterValue",
     "the device DEVICE was lost in an earlier call: vkGetSemaphoreCounterValue on DEVICE: RESULT"},
    {"vkResetCommandBuffer", "vkResetCommandBuffer on DEVICE: RESULT"},
};
/// Functions some failure of which changes nothing: another memory type does, the host's memory is copied, a list is
/// asked for again, a wait goes on.
const std::set<std::string> kNoMatter = {"vkAllocateMemory",
                                         "vkBindBufferMemory",
                                         "vkCreateBuffer",
                                         "vkCreatePipelineCache",
                                         "vkCreateQueryPool",
                                         "vkDeviceWaitIdle",
                                         "vkEnumerateDeviceExtensionProperties",
                                         "vkEnumerateInstanceExtensionProperties",
                                         "vkEnumeratePhysicalDevices",
                                         "vkGetMemoryHostPointerPropertiesEXT",
                                         "vkGetPipelineCacheData",
                                         "vkGetQueryPoolResults",
                                         "vkGetSemaphoreCounterValue",
                                         "vkMapMemory",
                                         "vkWaitSemaphores"};

struct Sweep {
  std::string device_name = device().info().name;  // made before: not through the Faults
  Faults faults;
  Messages messages;
  std::set<std::string> recovered;  // functions some failure of which changes nothing
  std::string only;                 // functions whose names have it
  size_t runs = 0;

  void all(const std::function<void(Run&)>& body) {
    faults.count();
    {
      Run r;
      body(r);
    }
    const std::vector<Faults::Call> calls = faults.calls();
    std::map<std::string, uint64_t> numbers;
    for (const Faults::Call& c : calls)
      if (c.returns_result && std::string_view(c.name).find(only) != std::string_view::npos)
        for (const uint64_t number = numbers[c.name]++; VkResult result : failures(c.name))
          one(body, c.name, number, result);
  }

  void one(const std::function<void(Run&)>& body, const std::string& name, uint64_t call, VkResult result) {
    INFO(name << ", call " << call << ": " << vulkan::to_string(result));
    ++runs;
    bool works = false;
    {
      auto r = std::make_unique<Run>();
      faults.fail(name, call, result);
      std::string said;
      try {
        body(*r);
      } catch (const DeviceError& e) {
        said = e.what();
      }
      if (!faults.failed()) r = std::make_unique<Run>();  // a call that is made when the device goes
      if (faults.failed()) {
        if (said.empty()) recovered.insert(name);
        else
          messages.emplace(name,
                           brief(replaced(replaced(said, device_name, "DEVICE"), vulkan::to_string(result), "RESULT")));
      }
      const bool lost = r->device && r->device->lost();
      CHECK(lost == (result == VK_ERROR_DEVICE_LOST && !said.empty() && r->device));
      if (lost) inert(*r);
      faults.count();
      if (r->device) {  // short of memory for once: all is as before; lost: the device comes back
        Run again;
        r->device->recover();
        again.device = r->device;
        try {
          body(again);
          works = true;
        } catch (const Error& e) {
          FAIL_CHECK(e.what());
        }
      }
    }
    for (const auto& [what, n] : faults.alive()) FAIL_CHECK(n << " of " << what << " left");
    if (works) return;
    Run fresh;
    body(fresh);
  }

  void inert(const Run& r) {
    const Device& d = *r.device;
    const std::string gone = error_of<DeviceError>([&] { d.wait(); });
    CHECK(gone.starts_with("the device " + device_name + " was lost in an earlier call: vk"));
    const auto says = [&](auto f) { CHECK(error_of<DeviceError>(f) == gone); };
    says([&] { DeviceArray(d, {4}, f32); });
    says([&] { d.submit_nothing(); });
    says([&] { prepare(d, busy()); });
    says([&] { launch(d, subgroup(), {}, {{"n", 4}}); });
    says([&] { DeviceArray::import_host(d, r.page.get(), {4}, f32); });
    for (const DeviceArray& a : r.arrays) {
      says([&] { a.download(); });
      says([&] { DeviceArray(a).write(ramp(a.shape()[0])); });
      says([&] { a.copy(); });
      says([&] { launch(d, scale(), {a}); });
      a.wait_unused();
      CHECK(a.valid());
    }
  }
};

}  // namespace

TEST_CASE("faults: every call fails in every way") {
  Sweep s;
  s.all(plain);
  s.all(staged);
  s.all(imported);
  s.all(sliced);
  s.all(graph);
  s.faults.hide_coherent_memory(true);
  s.only = "MappedMemoryRanges";
  s.all(staged);
  s.all(flushed);
  s.faults.hide_coherent_memory(false);
  s.only = "PipelineCache";
  s.all(cached);
  CHECK(s.runs > 700);
  for (const auto& [f, m] : s.messages)
    if (!kSaid.contains({f, m}) && !kMayBeSaid.contains({f, m})) FAIL_CHECK(f << ": " << m);
  for (const auto& [f, m] : kSaid)
    if (!s.messages.contains({f, m})) FAIL_CHECK("not said: " << f << ": " << m);
  CHECK(s.recovered == kNoMatter);
}

TEST_CASE("a lost device: the error says what was running, and what was done") {
  Faults faults;
  Device d;
  Program p = scale();
  p.loc = {"k.tir", 7};
  const DeviceArray x(d, ramp(300));
  const DeviceArray y = launch(d, p, {x})[0];
  d.wait();
  p.name = "again";
  faults.fail("vkWaitSemaphores", 0, VK_ERROR_DEVICE_LOST);
  const DeviceArray z = launch(d, p, {y})[0];
  const std::string
      n = d.info().name,
      what = "vkWaitSemaphores on " + n +
             ": VK_ERROR_DEVICE_LOST; it was running again, workgroups 0 to 4 of 5; it had finished scale, workgroups "
             "0 to 4 of 5",
      end = "\n  at k.tir:7\n  note: Device::recover() makes it usable again, without the contents of its arrays";
  CHECK(error_of<DeviceError>([&] { z.download(); }) == what + end);
  CHECK(d.lost());
  CHECK(error_of<DeviceError>([&] { y.download(); }) ==
        "the device " + n + " was lost in an earlier call: " + what + end);

  // The handle that is told to, and no other.
  const Device old = d;
  faults.count();
  d.recover();
  CHECK(!d.lost());
  CHECK(old.lost());
  CHECK(!(d == old));
  CHECK(floats(launch(d, p, {DeviceArray(d, ramp(300))})[0]) == scaled_ramp(300));
  const Device same = d;
  d.recover();  // nothing was wrong
  CHECK(d == same);
}

TEST_CASE("out of memory: what was asked, what is there, who has it") {
  DeviceOptions o;
  o.memory_limit = 1 << 20;
  const Device d(o);
  std::vector<DeviceArray> held;
  for (int64_t i = 1; i <= 9; ++i) held.emplace_back(d, Shape{i * 1000}, f32);
  held.emplace_back(d, Shape{9000}, f32);
  const std::string budget = error_of<DeviceError>([&] { DeviceArray(d, {300000}, f32); });
  const std::string want =
      "f32[300000]: 1200000 bytes asked on " + d.info().name + ": VK_ERROR_OUT_OF_DEVICE_MEMORY; of 1048576 bytes ";
  CHECK(budget.substr(0, want.size()) == want);
  const size_t table = budget.find(" are available, and Tessera holds ");
  REQUIRE(table != std::string::npos);
  CHECK(budget.substr(budget.find(':', table)) ==
        ":\n  72000 f32[9000] (2 of them)\n  32000 f32[8000]\n  28000 f32[7000]\n  24000 f32[6000]\n  20000 "
        "f32[5000]\n  16000 f32[4000]\n  12000 f32[3000]\n  8000 f32[2000]\n  4000 in 1 other");
}

}  // namespace faults_test
