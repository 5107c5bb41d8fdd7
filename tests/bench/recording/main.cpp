// bench_recording [--repeats N]: host time of recording a kernel into a command buffer: by CommandStream, and by hand
// with vkCmdBindPipeline, vkCmdPushConstants and vkCmdDispatch, in turns in one run; beside each other, and each after
// the one before, which takes a barrier. Nothing is submitted. It judges nothing.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "engine/ir/text.h"
#include "runtime/call/call.h"
#include "runtime/launch/bound.h"
#include "runtime/record.h"
#include "runtime/submit/context.h"
#include "runtime/submit/pipeline.h"

namespace tessera::bench {
namespace {

constexpr int kCalls = 1000;
constexpr int kArrays = 64;
constexpr const char* kKernel =
    "tir 1\nkernel @add\ngrid (4)\nin f32[1024] block (256) map (%i) { yield %i }\nin f32[1024] block (256) map (%i) { "
    "yield %i }\nout f32[1024] block (256) map (%i) { yield %i }\n"
    "body (%x, %y, %o) {\n  %a = load %x[0:256]\n  %b = load %y[0:256]\n  %c = add %a, %b\n  store %o[0:256], %c\n  "
    "yield\n}\n";

/// Of the sorted ones that at a part of them: 0.5 is the median.
double part_of(std::vector<double> v, double part) {
  std::sort(v.begin(), v.end());
  return v[static_cast<size_t>(part * static_cast<double>(v.size()))];
}

/// Microseconds per call of `record(i)` for every call, in a command buffer that is recorded anew.
template <class F> double time(vulkan::Context& context, F record) {
  VkCommandBuffer commands;
  {
    const std::lock_guard lock(context.mutex());
    commands = context.recorder().begin_replayable();
  }
  const auto start = std::chrono::steady_clock::now();
  record(commands);
  const double us =
      std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count() / kCalls;
  const std::lock_guard lock(context.mutex());
  context.recorder().end_replayable(commands);
  context.recorder().retire(commands);
  return us;
}

void run(int repeats) {
  const Device device;
  vulkan::Context& context = *device.context();
  const CompiledKernel kernel = load(device, ir::parse(kKernel, "recording"));
  PreparedKernel prepared = kernel.prepare({.frames_in_flight = 2, .calls_per_frame = kCalls});
  std::vector<DeviceArray> arrays;
  for (int i = 0; i < kArrays + 2; ++i) arrays.emplace_back(device, Shape{1024}, f32);
  const DeviceArray& x = arrays[kArrays];
  const auto output = [&](int call) -> const DeviceArray& { return arrays[static_cast<size_t>(call % kArrays)]; };
  const vulkan::Pipeline& pipeline = context.pipeline(kernel.program());
  const vulkan::Bound bound = vulkan::bind(kernel.program(), {}, device);
  const vulkan::DeviceTable& vk = context.vk();

  std::vector<uint64_t> at;  // who records by hand has the addresses ready
  for (const DeviceArray& a : arrays) at.push_back(a.memory()->address());
  CommandStream stream(device);
  uint64_t frame = 0;
  for (const bool chain : {false, true}) {
    std::vector<double> ours, by_hand;
    for (int r = 0; r < repeats; ++r) {
      ours.push_back(time(context, [&](VkCommandBuffer c) {
        stream.begin(c, frame++);
        for (int i = 0; i < kCalls; ++i) {
          if (chain) stream.record(prepared, {x, output(i), output(i + 1)});
          else stream.record(prepared, {x, x, output(i)});
        }
        stream.end();
      }));
      by_hand.push_back(time(context, [&](VkCommandBuffer c) {
        for (int i = 0; i < kCalls; ++i) {
          if (chain || i % kArrays == 0) vulkan::memory_barrier(vk, c, mask(Stage::compute), mask(Stage::compute));
          const auto n = static_cast<size_t>(i);
          const std::array<uint64_t, 3> addresses{at[kArrays], at[chain ? n % kArrays : kArrays],
                                                  at[(chain ? n + 1 : n) % kArrays]};
          vk.vkCmdBindPipeline(c, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline.handle());
          vk.vkCmdPushConstants(c, pipeline.layout(), VK_SHADER_STAGE_COMPUTE_BIT, 0, sizeof addresses,
                                addresses.data());
          vk.vkCmdDispatch(c, bound.groups[0], bound.groups[1], bound.groups[2]);
        }
      }));
    }
    std::vector<double> ratios;
    for (size_t i = 0; i < ours.size(); ++i) ratios.push_back(ours[i] / by_hand[i]);
    std::printf(
        "%-32s %7.3f us a kernel, by hand %7.3f us (medians of %d in turns), ratio %.2f, half of the turns %.2f to "
        "%.2f\n",
        chain ? "recording, each after another" : "recording, side by side", part_of(ours, 0.5), part_of(by_hand, 0.5),
        repeats, part_of(ratios, 0.5), part_of(ratios, 0.25), part_of(ratios, 0.75));
  }
  std::printf("goals: at most 5 us a kernel, and a ratio of at most 1.5\n");
}

}  // namespace
}  // namespace tessera::bench

int main(int argc, char** argv) {
  int repeats = 25;
  for (int i = 1; i + 1 < argc; ++i)
    if (std::string(argv[i]) == "--repeats") repeats = std::max(1, std::atoi(argv[i + 1]));
  try {
    tessera::bench::run(repeats);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
