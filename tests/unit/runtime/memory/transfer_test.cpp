// Staged transfers and calls overlap: what the host copies, it copies while the device is busy with earlier work.
#include <algorithm>
#include <chrono>
#include <future>
#include <thread>

#include "runtime/submit/context.h"
#include "tests/unit/runtime/support.h"

namespace transfer_test {
using namespace tessera;
using namespace tessera::test;

namespace {

/// A queue that does nothing of what it is given from now on until it is told to go on.
class Blocked {
 public:
  explicit Blocked(const Device& d) : context_(d.context()) {
    const vulkan::DeviceTable& vk = context_->vk();
    VkSemaphoreTypeCreateInfo type{VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO, nullptr, VK_SEMAPHORE_TYPE_TIMELINE,
                                   0};
    const VkSemaphoreCreateInfo info{VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, &type, 0};
    REQUIRE(vk.vkCreateSemaphore(context_->handle(), &info, nullptr, &gate_) == VK_SUCCESS);
    VkQueue queue;
    vk.vkGetDeviceQueue(context_->handle(), context_->probe().queue_family, 0, &queue);
    VkSemaphoreSubmitInfo wait{VK_STRUCTURE_TYPE_SEMAPHORE_SUBMIT_INFO, nullptr, gate_, 1,
                               VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT,    0};
    VkSubmitInfo2 submit{};
    submit.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO_2;
    submit.waitSemaphoreInfoCount = 1;
    submit.pWaitSemaphoreInfos = &wait;
    std::lock_guard lock(context_->mutex());
    REQUIRE(vk.vkQueueSubmit2(queue, 1, &submit, VK_NULL_HANDLE) == VK_SUCCESS);
  }
  void go_on() {
    const auto signal = reinterpret_cast<PFN_vkSignalSemaphore>(
        context_->instance().vk().vkGetDeviceProcAddr(context_->handle(), "vkSignalSemaphore"));
    const VkSemaphoreSignalInfo info{VK_STRUCTURE_TYPE_SEMAPHORE_SIGNAL_INFO, nullptr, gate_, 1};
    REQUIRE(signal(context_->handle(), &info) == VK_SUCCESS);
  }
  // after a wait for what was submitted later
  ~Blocked() { context_->vk().vkDestroySemaphore(context_->handle(), gate_, nullptr); }

 private:
  std::shared_ptr<vulkan::Context> context_;
  VkSemaphore gate_ = VK_NULL_HANDLE;
};

}  // namespace

TEST_CASE("staged uploads are handed over while the device is busy, up to the ring's 32 MiB") {
  DeviceOptions options;
  options.validation = kValidation, options.log_commands = options.always_stage = true;
  const Device d(options);
  const DeviceArray x(d, ramp(1000));
  const Array host = ramp(7 << 20);  // 28 MiB: all four pieces
  Blocked queue(d);
  const DeviceArray first = launch(d, scale(), {x}).at(0);
  auto upload = std::async(std::launch::async, [&] { return DeviceArray(d, host); });
  const bool waited = upload.wait_for(std::chrono::seconds(60)) != std::future_status::ready;
  {
    std::lock_guard lock(d.context()->mutex());
    // neither the call nor any of the copies
    CHECK(d.context()->recorder().completed() < d.context()->recorder().submitted() - 4);
  }
  queue.go_on();
  CHECK_FALSE(waited);
  const DeviceArray second = launch(d, scale(), {upload.get()}).at(0);  // in the queue's order: it sees the copies
  CHECK(floats(second).at(5'000'000) == 10'000'001);
  CHECK(floats(first) == scaled_ramp(1000));
  d.wait();
  check_clean(d);
}

TEST_CASE(
    "a staged upload beyond the ring goes on as pieces come free, and a download queues its pieces before it waits") {
  DeviceOptions options;
  options.validation = kValidation, options.log_commands = options.always_stage = true;
  const Device d(options);
  const Array host = ramp(13 << 20);  // 52 MiB: seven pieces
  const DeviceArray x(d, host);
  d.wait();
  Blocked queue(d);
  const auto submitted = [&] {
    std::lock_guard lock(d.context()->mutex());
    return d.context()->recorder().submitted();
  };
  const uint64_t before = submitted();
  auto upload = std::async(std::launch::async, [&] { return DeviceArray(d, host); });
  auto download = std::async(std::launch::async, [&] { return x.download(); });
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (submitted() < before + 8 && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  CHECK(submitted() == before + 8);  // four pieces each
  CHECK(upload.wait_for(std::chrono::milliseconds(20)) != std::future_status::ready);
  CHECK(download.wait_for(std::chrono::milliseconds(20)) != std::future_status::ready);
  queue.go_on();
  const Array there = upload.get().download(), back = download.get();
  CHECK(std::equal(host.bytes(), host.bytes() + host.nbytes(), there.bytes()));
  CHECK(std::equal(host.bytes(), host.bytes() + host.nbytes(), back.bytes()));
  d.wait();
  check_clean(d);
}

}  // namespace transfer_test
