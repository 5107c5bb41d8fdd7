// bench_call [--repeats N] [WAY]: what a call costs that does next to nothing, from its start until its result is
// there, on the best Vulkan device: by Vulkan alone with commands recorded once, by launch() on device arrays, by
// call_on_host() on the host's (what JAX calls), and by the interpreter. Beside the time: that of the calling thread on
// its CPU, and the process' context switches. The ways, or those whose names contain WAY, take turns of 200 calls, N
// (41) of them. No test runs it.
#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "engine/interpreter/interpreter.h"
#include "engine/ir/text.h"
#include "runtime/call/call.h"
#include "runtime/call/host_call.h"
#include "runtime/launch.h"
#include "runtime/launch/bound.h"
#include "runtime/submit/context.h"
#include "runtime/submit/pipeline.h"

namespace tessera::bench {
namespace {

constexpr int kCalls = 200;
constexpr const char* kKernel =
    "tir 1\nkernel @add\ngrid ()\nin f32[8] whole\nin f32[8] whole\nout f32[8] whole\nbody (%x, %y, %o) {\n  %a = load "
    "%x[0:8]\n  %b = load %y[0:8]\n  %c = add %a, %b\n  store %o[0:8], %c\n  yield\n}\n";

/// One command buffer, submitted again and again.
class ByHand {
 public:
  /// `record` fills it.
  ByHand(vulkan::Context& c, const std::function<void(VkCommandBuffer)>& record) : c_(c), vk_(c.vk()) {
    vk_.vkGetDeviceQueue(c.handle(), c.probe().queue_family, 0, &queue_);
    VkSemaphoreTypeCreateInfo type{VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO, nullptr, VK_SEMAPHORE_TYPE_TIMELINE,
                                   0};
    const VkSemaphoreCreateInfo semaphore{VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, &type, 0};
    vk_.vkCreateSemaphore(c_.handle(), &semaphore, nullptr, &done_);
    const std::lock_guard lock(c.mutex());
    commands_ = c.recorder().begin_replayable();
    record(commands_);
    c.recorder().end_replayable(commands_);
  }
  ~ByHand() {
    vk_.vkDestroySemaphore(c_.handle(), done_, nullptr);
    const std::lock_guard lock(c_.mutex());
    c_.recorder().retire(commands_);
  }
  ByHand(const ByHand&) = delete;
  ByHand& operator=(const ByHand&) = delete;
  void run(bool polls) {
    ++value_;
    const VkCommandBufferSubmitInfo commands{VK_STRUCTURE_TYPE_COMMAND_BUFFER_SUBMIT_INFO, nullptr, commands_, 0};
    const VkSemaphoreSubmitInfo signal{VK_STRUCTURE_TYPE_SEMAPHORE_SUBMIT_INFO, nullptr, done_, value_,
                                       VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT,    0};
    const VkSubmitInfo2 info{VK_STRUCTURE_TYPE_SUBMIT_INFO_2, nullptr, 0, 0, nullptr, 1, &commands, 1, &signal};
    vk_.vkQueueSubmit2(queue_, 1, &info, VK_NULL_HANDLE);
    uint64_t reached = 0;
    while (polls && vk_.vkGetSemaphoreCounterValue(c_.handle(), done_, &reached) == VK_SUCCESS && reached < value_)
      std::this_thread::yield();
    const VkSemaphoreWaitInfo wait{VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO, nullptr, 0, 1, &done_, &value_};
    vk_.vkWaitSemaphores(c_.handle(), &wait, UINT64_MAX);
  }

 private:
  vulkan::Context& c_;
  const vulkan::DeviceTable& vk_;
  VkQueue queue_ = VK_NULL_HANDLE;
  VkCommandBuffer commands_ = VK_NULL_HANDLE;
  VkSemaphore done_ = VK_NULL_HANDLE;
  uint64_t value_ = 0;
};

struct Way {
  const char* name;
  std::function<void()> call;
  std::vector<double> us{}, own_us{}, switches{};
};

double thread_us() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return 1e6 * static_cast<double>(t.tv_sec) + 1e-3 * static_cast<double>(t.tv_nsec);
}
double context_switches() {
  rusage u{};
  getrusage(RUSAGE_SELF, &u);
  return static_cast<double>(u.ru_nvcsw + u.ru_nivcsw);
}
void take_turn(Way& w) {
  const double own = thread_us(), switches = context_switches();
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kCalls; ++i) w.call();
  w.us.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count() / kCalls);
  w.own_us.push_back((thread_us() - own) / kCalls);
  w.switches.push_back((context_switches() - switches) / kCalls);
}
double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

void run(int repeats, const std::string& only) {
  const Device device;
  vulkan::Context& c = *device.context();
  const ir::Kernel source = ir::parse(kKernel, "call");
  const CompiledKernel kernel = load(device, source);
  const Program& p = kernel.program();
  const std::vector<Array> host(3, Array({8}, std::vector<float>(8, 1.f)));
  const std::vector<DeviceArray> inputs{{device, host[0]}, {device, host[1]}}, outputs{{device, host[2]}};
  alignas(64) float memory[3][16] = {};
  const std::vector<HostArray> arguments{{f32, {8}, memory[0]}, {f32, {8}, memory[1]}}, results{{f32, {8}, memory[2]}};
  launch(device, p, inputs);
  device.wait();

  const vulkan::Pipeline& pipeline = c.pipeline(p);
  const vulkan::Bound bound = vulkan::bind(p, {}, device);
  std::vector<uint64_t> addresses;
  for (const DeviceArray& a : {inputs[0], inputs[1], outputs[0]}) addresses.push_back(a.memory()->address());
  ByHand nothing(c, [](VkCommandBuffer) {}), dispatch(c, [&](VkCommandBuffer commands) {
    c.vk().vkCmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline.handle());
    c.vk().vkCmdPushConstants(commands, pipeline.layout(), VK_SHADER_STAGE_COMPUTE_BIT, 0,
                              static_cast<uint32_t>(8 * addresses.size()), addresses.data());
    c.vk().vkCmdDispatch(commands, bound.groups[0], bound.groups[1], bound.groups[2]);
  });

  std::vector<Way> ways{
      {"Vulkan: a submission of nothing", [&] { nothing.run(false); }},
      {"Vulkan: the same, polled", [&] { nothing.run(true); }},
      {"Vulkan: the dispatch, recorded once", [&] { dispatch.run(false); }},
      {"Vulkan: the same, polled", [&] { dispatch.run(true); }},
      {"launch() and wait()",
       [&] {
         launch(device, p, inputs);
         device.wait();
       }},
      {"launch_into() and wait()",
       [&] {
         launch_into(device, p, inputs, outputs);
         device.wait();
       }},
      {"call_on_host()", [&] { call_on_host(kernel, arguments, results); }},
      {"interpret()", [&] { interpret(source, {host[0], host[1]}); }},
  };
  std::erase_if(ways, [&](const Way& w) { return std::string(w.name).find(only) == std::string::npos; });
  for (int r = -2; r < repeats; ++r)
    for (Way& w : ways) {
      take_turn(w);
      if (r < 0) w.us.clear(), w.own_us.clear(), w.switches.clear();
    }
  std::printf("%s; of %d turns of %d calls, per call\n%-38s %8s %8s %22s %18s\n", device.info().name.c_str(), repeats,
              kCalls, "", "min us", "median", "own thread's CPU, us", "context switches");
  for (const Way& w : ways)
    std::printf("%-38s %8.1f %8.1f %22.1f %18.1f\n", w.name, *std::min_element(w.us.begin(), w.us.end()), median(w.us),
                median(w.own_us), median(w.switches));
}

}  // namespace
}  // namespace tessera::bench

int main(int argc, char** argv) {
  int repeats = 41;
  std::string only;
  for (int i = 1; i < argc; ++i)
    if (std::string(argv[i]) == "--repeats" && i + 1 < argc) repeats = std::max(1, std::atoi(argv[++i]));
    else only = argv[i];
  try {
    tessera::bench::run(repeats, only);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
