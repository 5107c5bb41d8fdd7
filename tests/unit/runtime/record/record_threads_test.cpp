// Threads that record kernels into command buffers of their own, beside threads that call on the Device; under the
// thread sanitizer too.
#include <thread>

#include "runtime/record.h"
#include "tests/unit/runtime/support.h"
#include "tests/unit/runtime/vulkan_host.h"

namespace record_threads_test {
using namespace tessera;
using namespace tessera::test;

namespace {
constexpr int64_t kN = 200;

PreparedKernel prepared(const Device& d, Program p, int frames, int calls = 1) {
  return PreparedKernel(d, std::move(p), {.frames_in_flight = frames, .calls_per_frame = calls, .dims = {{"n", kN}}});
}

}  // namespace

TEST_CASE("several threads record at once, beside calls on the Device") {
  auto host = std::make_unique<VulkanHost>();
  {
    std::mutex queue;
    ImportedDevice i = host->imported();
    i.lock_queue = [&] { queue.lock(); };
    i.unlock_queue = [&] { queue.unlock(); };
    const Device d = Device::import(i, logged());
    std::vector<VkCommandBuffer> commands;
    std::vector<DeviceArray> results;
    for (int t = 0; t < 4; ++t) {
      commands.push_back(host->commands());
      results.emplace_back(d, Shape{kN}, f32);
    }
    std::vector<std::thread> threads;
    for (size_t t = 0; t < 4; ++t)
      threads.emplace_back([&, t] {
        PreparedKernel kernel = prepared(d, scale(), 1, 2), arenas = prepared(d, scratch(), 1);
        const DeviceArray x(d, ramp(kN, static_cast<float>(t))), y(d, {kN}, f32), z(d, {kN}, f32);
        CommandStream stream(d);
        for (uint64_t frame = 0; frame < 8; ++frame) {
          host->begin(commands[t]);
          stream.begin(commands[t], frame);
          stream.record(kernel, {x, y});
          stream.record(arenas, {y, z});
          stream.record(kernel, {z, results[t]});
          stream.end();
          const std::lock_guard lock(queue);
          host->run(commands[t]);
        }
      });
    for (int k = 0; k < 8; ++k) {
      CHECK(floats(launch(d, scale(), {DeviceArray(d, ramp(kN))})[0]) == scaled_ramp(kN));
      // before or after what has been recorded into it
      for (const DeviceArray& r : results) floats(launch(d, scale(), {r})[0]);
    }
    for (std::thread& t : threads) t.join();
    for (size_t t = 0; t < 4; ++t) {
      std::vector<float> want;
      for (int k = 0; k < kN; ++k) want.push_back(12 * static_cast<float>(k + static_cast<int>(t)) + 7);
      CHECK(floats(results[t]) == want);
    }
  }
  check_silent(std::move(host));
}

}  // namespace record_threads_test
