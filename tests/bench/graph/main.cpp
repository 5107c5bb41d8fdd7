// Graphs against Vulkan by hand: bench_graph [--repeats N] [KERNELS]. A chain of that many (1000) small kernels, each
// of which needs what the one before has made, and as many that need nothing of one another: the replay of the graph,
// and the same code, arrays, dispatches and barriers recorded once into a command buffer by hand. Then the memory that
// a graph takes of the device, and the planner's figure. Times are of a submission until it is done, medians of N (61)
// in turns. No test runs it.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>

#include "engine/front.h"
#include "engine/graph/plan.h"
#include "runtime/call/graph.h"
#include "runtime/call/jit.h"
#include "runtime/launch/bound.h"
#include "runtime/submit/context.h"
#include "runtime/submit/pipeline.h"

namespace {
namespace ts = tessera;
using ts::Ref, ts::Tensor, ts::all;

struct Times {
  double first, second;       // medians, us
  double least, ratio, most;  // of second / first, one after the other: the quarter, the median, the three quarters
};
/// In turns: what else the machine does meets both.
Times in_turns(int repeats, const std::function<void()>& first, const std::function<void()>& second) {
  std::vector<double> times[2], ratios;
  const auto us = [](const std::function<void()>& f) {
    const auto start = std::chrono::steady_clock::now();
    f();
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
  };
  for (int i = -3; i < repeats; ++i) {
    const double a = us(first), b = us(second);
    if (i < 0) continue;
    times[0].push_back(a), times[1].push_back(b), ratios.push_back(b / a);
  }
  for (std::vector<double>* v : {&times[0], &times[1], &ratios}) std::sort(v->begin(), v->end());
  const size_t n = ratios.size();
  return {times[0][n / 2], times[1][n / 2], ratios[n / 4], ratios[n / 2], ratios[n * 3 / 4]};
}

/// One command buffer, recorded once, submitted with a fence.
class ByHand {
 public:
  ByHand(ts::vulkan::Context& c, VkQueue queue, uint32_t family) : c_(c), vk_(c.vk()), queue_(queue) {
    const VkCommandPoolCreateInfo pool{VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO, nullptr, 0, family};
    vk_.vkCreateCommandPool(c_.handle(), &pool, nullptr, &pool_);
    const VkCommandBufferAllocateInfo one{VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO, nullptr, pool_,
                                          VK_COMMAND_BUFFER_LEVEL_PRIMARY, 1};
    vk_.vkAllocateCommandBuffers(c_.handle(), &one, &commands_);
    VkSemaphoreTypeCreateInfo type{VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO, nullptr, VK_SEMAPHORE_TYPE_TIMELINE,
                                   0};
    const VkSemaphoreCreateInfo semaphore{VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, &type, 0};
    vk_.vkCreateSemaphore(c_.handle(), &semaphore, nullptr, &done_);
    const VkCommandBufferBeginInfo begin{VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO, nullptr,
                                         VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT, nullptr};
    vk_.vkBeginCommandBuffer(commands_, &begin);
  }
  ~ByHand() {
    vk_.vkDestroySemaphore(c_.handle(), done_, nullptr);
    vk_.vkDestroyCommandPool(c_.handle(), pool_, nullptr);
  }
  ByHand(const ByHand&) = delete;
  ByHand& operator=(const ByHand&) = delete;
  void dispatch(const ts::vulkan::Pipeline& p, const std::vector<std::byte>& push,
                const std::array<uint32_t, 3>& groups) {
    vk_.vkCmdBindPipeline(commands_, VK_PIPELINE_BIND_POINT_COMPUTE, p.handle());
    vk_.vkCmdPushConstants(commands_, p.layout(), VK_SHADER_STAGE_COMPUTE_BIT, 0, static_cast<uint32_t>(push.size()),
                           push.data());
    vk_.vkCmdDispatch(commands_, groups[0], groups[1], groups[2]);
  }
  void barrier() {
    const VkMemoryBarrier2 memory{
        VK_STRUCTURE_TYPE_MEMORY_BARRIER_2,     nullptr,
        VK_PIPELINE_STAGE_2_COMPUTE_SHADER_BIT, VK_ACCESS_2_SHADER_WRITE_BIT,
        VK_PIPELINE_STAGE_2_COMPUTE_SHADER_BIT, VK_ACCESS_2_SHADER_READ_BIT | VK_ACCESS_2_SHADER_WRITE_BIT};
    VkDependencyInfo info{};
    info.sType = VK_STRUCTURE_TYPE_DEPENDENCY_INFO;
    info.memoryBarrierCount = 1;
    info.pMemoryBarriers = &memory;
    vk_.vkCmdPipelineBarrier2(commands_, &info);
  }
  void end() { vk_.vkEndCommandBuffer(commands_); }
  void run() {
    ++value_;
    const VkCommandBufferSubmitInfo commands{VK_STRUCTURE_TYPE_COMMAND_BUFFER_SUBMIT_INFO, nullptr, commands_, 0};
    const VkSemaphoreSubmitInfo signal{VK_STRUCTURE_TYPE_SEMAPHORE_SUBMIT_INFO, nullptr, done_, value_,
                                       VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT,    0};
    const VkSubmitInfo2 info{VK_STRUCTURE_TYPE_SUBMIT_INFO_2, nullptr, 0, 0, nullptr, 1, &commands, 1, &signal};
    vk_.vkQueueSubmit2(queue_, 1, &info, VK_NULL_HANDLE);
    const VkSemaphoreWaitInfo wait{VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO, nullptr, 0, 1, &done_, &value_};
    vk_.vkWaitSemaphores(c_.handle(), &wait, UINT64_MAX);
  }

 private:
  ts::vulkan::Context& c_;
  const ts::vulkan::DeviceTable& vk_;
  VkQueue queue_;
  VkCommandPool pool_ = VK_NULL_HANDLE;
  VkCommandBuffer commands_ = VK_NULL_HANDLE;
  VkSemaphore done_ = VK_NULL_HANDLE;
  uint64_t value_ = 0;
};

constexpr int64_t kSize = 1024;
const auto mean = ts::pallas_call([](Ref x, Ref y, Ref o) { o[all] = (x[all] + y[all]) / 2; },
                                  {.out_shape = {{{kSize}, ts::f32}}, .name = "mean"});

ts::Array ramp(int64_t n) {
  std::vector<float> v(static_cast<size_t>(n));
  for (size_t i = 0; i < v.size(); ++i) v[i] = static_cast<float>(i % 100);
  return {{n}, v};
}

void against_hand(const ts::Device& d, int repeats, int kernels, bool chain) {
  const auto f = ts::jit([=](Tensor x, Tensor y) {
    std::vector<Tensor> out;
    for (int i = 0; i < kernels; ++i) out.push_back(mean(chain && i > 0 ? out.back() : x, y));
    if (chain) out = {out.back()};
    return out;
  });
  const ts::DeviceArray x(d, ramp(kSize)), y(d, ramp(kSize));
  const ts::CompiledGraph graph = ts::load(d, f.trace({{{kSize}, ts::f32}, {{kSize}, ts::f32}}), {.fuse = false});
  std::vector<ts::DeviceArray> results = graph({x, y});

  ts::vulkan::Context& c = *d.context();
  VkQueue queue = VK_NULL_HANDLE;
  c.vk().vkGetDeviceQueue(c.handle(), c.probe().queue_family, 0, &queue);
  const ts::CompiledKernel kernel = ts::load(d, mean.trace({{{kSize}, ts::f32}, {{kSize}, ts::f32}}));
  const ts::Program& p = kernel.program();
  const ts::vulkan::Bound bound = ts::vulkan::bind(p, {}, d);
  std::vector<ts::DeviceArray> out;
  for (int i = 0; i < (chain ? 2 : kernels); ++i) out.emplace_back(d, ts::Shape{kSize}, ts::f32);
  const auto address = [](const ts::DeviceArray& a) { return a.buffer("the benchmark")->address(); };
  d.wait();
  ByHand by_hand(c, queue, c.probe().queue_family);
  for (int i = 0; i < kernels; ++i) {
    if (chain && i > 0) by_hand.barrier();
    const ts::DeviceArray& from = chain && i > 0 ? out[static_cast<size_t>(i - 1) % 2] : x;
    by_hand.dispatch(
        c.pipeline(p),
        ts::vulkan::argument_blocks(
            p, {address(from), address(y), address(out[static_cast<size_t>(chain ? i % 2 : i)])}, bound)[0],
        bound.groups);
  }
  by_hand.end();
  const Times t = in_turns(
      repeats, [&] { by_hand.run(); },
      [&] {
        graph.run_into({x, y}, results);
        d.wait();
      });
  std::printf(
      "%-12s %5d kernels: %9.0f us by hand, %9.0f us as a graph (%.2fx, half of the turns %.2fx to %.2fx), %zu "
      "barriers in %zu command buffers\n",
      chain ? "a chain" : "independent", kernels, t.first, t.second, t.ratio, t.least, t.most,
      graph.recordings().barriers, graph.recordings().made);
}

void memory(const ts::Device& d, int64_t n) {
  const auto f = ts::jit([](Tensor x) {
    Tensor v = x;
    for (int i = 0; i < 20; ++i) v = ts::roll(v, i + 1) * v + x;
    return ts::sum(v);
  });
  const ts::Array a = ramp(n);
  d.wait();
  const int64_t before = d.context()->allocated_bytes();
  const ts::DeviceArray x(d, a);
  const ts::CompiledGraph graph = ts::load(d, f.trace({{{n}, ts::f32}}));
  const ts::DeviceArray y = graph({x})[0];
  d.wait();
  const int64_t planned = graph.plan().peak_bytes(), held = d.context()->allocated_bytes() - before;
  std::printf("memory: %lld bytes planned, %lld held on the device (%.3fx)\n", static_cast<long long>(planned),
              static_cast<long long>(held), static_cast<double>(held) / static_cast<double>(planned));
}
}  // namespace

int main(int argc, char** argv) try {
  int repeats = 61, kernels = 1000;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--repeats") == 0 && i + 1 < argc) repeats = std::atoi(argv[++i]);
    else kernels = std::atoi(argv[i]);
  }
  if (kernels < 1 || repeats < 1) {
    std::fprintf(stderr, "usage: bench_graph [--repeats N] [KERNELS]\n");
    return 2;
  }
  const ts::Device d;
  std::printf("%s\n", d.info().name.c_str());
  against_hand(d, repeats, kernels, true);
  against_hand(d, repeats, kernels, false);
  std::printf("goal: at most 1.10x\n");
  memory(d, 1 << 10);
  memory(d, 1 << 20);
  memory(d, 1 << 23);
  std::printf("goal: at most 1.100x\n");
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "error: %s\n", e.what());
  return 1;
}
