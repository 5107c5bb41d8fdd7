#include "runtime/call/load_queue.h"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <vector>

#include "engine/ir/text.h"
#include "runtime/launch.h"
#include "tests/unit/runtime/support.h"

namespace load_queue_test {
using namespace tessera;
using namespace tessera::test;

namespace {

ir::Kernel times(int factor) {
  return ir::parse(
      "tir 1\nkernel @times" + std::to_string(factor) +
          "\ngrid (cdiv(n, 32))\nin f32[n] block (32) map (%i) { yield %i }\nout f32[n] block (32) map (%i) { yield %i "
          "}\n" +
          "body (%x, %o) {\n  %a = load %x[0:32]\n  %b = constant " + std::to_string(factor) +
          ".0 : f32[]\n  %c = broadcast %b dims [] : f32[32]\n  %d = mul %a, %c\n  store %o[0:32], %d\n}\n",
      "times.tir");
}
// Lacks f64, which this one needs.
ir::Kernel impossible() {
  return ir::parse(
      "tir 1\nkernel @wide\nin f64[4] whole\nout f64[4] whole\nbody (%x, %o) {\n  %a = load %x[0:4]\n  store %o[0:4], "
      "%a\n}\n",
      "wide.tir");
}

/// Holds whoever compiles, until it is opened: by CompileOptions::source, which compilation calls.
struct Gate {
  std::mutex mutex;
  std::condition_variable changed;
  bool open = false;
  int arrived = 0;
  CompileOptions options() {
    CompileOptions o;
    o.debug_info = true;
    o.source = [this](const std::string&) -> std::optional<std::string> {
      std::unique_lock lock(mutex);
      ++arrived;
      changed.notify_all();
      changed.wait(lock, [&] { return open; });
      return std::nullopt;
    };
    return o;
  }
  void wait_for(int n) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return arrived >= n; });
  }
  void release() {
    const std::lock_guard lock(mutex);
    open = true;
    changed.notify_all();
  }
};

}  // namespace

TEST_CASE("load_async: kernels compiled on other threads, as load() would") {
  const Device d;
  std::vector<std::shared_future<CompiledKernel>> futures;
  for (int i = 1; i <= 6; ++i) futures.push_back(load_async(d, times(i)));
  for (int i = 1; i <= 6; ++i) {
    const Array out = futures[static_cast<size_t>(i - 1)].get().run({ramp(40)})[0];
    CHECK(out.at(39) == 39.0 * i);
    CHECK(&load(d, times(i)).program() == &futures[static_cast<size_t>(i - 1)].get().program());
  }
  CHECK(pipeline_counts(d).made == 6);
}

TEST_CASE("load_async: errors come with the future") {
  const Device d;
  Target without = d.target();
  if (!without.float64) CHECK(error_of<CompileError>([&] { load_async(d, impossible()).get(); }) != "");
  CompileOptions options;
  options.dump = [](std::string_view, const ir::Kernel&, bool) { throw SpecError("told to stop"); };
  LoadQueue queue(2);
  const auto failed = queue.load(d, times(2), options), fine = queue.load(d, times(3));
  CHECK(error_of<SpecError>([&] { failed.get(); }) == "told to stop");
  CHECK(error_of<SpecError>([&] { failed.get(); }) == "told to stop");
  CHECK(fine.get().run({ramp(4)})[0].at(3) == 9);
  CHECK(error_of<SpecError>([] { LoadQueue(-1); }) == "LoadQueue: threads is -1, which is below 0");
}

TEST_CASE("LoadQueue: what has begun is finished, what has not is cancelled") {
  const Device d;
  Gate gate;
  std::shared_future<CompiledKernel> begun, waiting;
  {
    LoadQueue queue(1);
    begun = queue.load(d, times(2), gate.options());
    gate.wait_for(1);
    waiting = queue.load(d, times(3));
    CHECK(queue.pending() == 2);
    CHECK(waiting.wait_for(std::chrono::seconds(0)) == std::future_status::timeout);
    queue.cancel();
    CHECK(error_of<CancelledError>([&] { waiting.get(); }) ==
          "times3: was not compiled: its LoadQueue has been cancelled\n  at times.tir:2");
    waiting = queue.load(d, times(4));
    gate.release();
    CHECK(waiting.get().run({ramp(2)})[0].at(1) == 4);
  }
  CHECK(begun.get().run({ramp(2)})[0].at(1) == 2);
  // The destructor cancels too, and waits for what has begun.
  Gate second;
  {
    LoadQueue queue(1);
    begun = queue.load(d, times(5), second.options());
    second.wait_for(1);
    waiting = queue.load(d, times(6));
    second.release();
  }
  CHECK(begun.wait_for(std::chrono::seconds(0)) == std::future_status::ready);
  CHECK(begun.get().run({ramp(2)})[0].at(1) == 5);
  // The thread may have come to the second one before the queue went.
  CHECK(waiting.wait_for(std::chrono::seconds(0)) == std::future_status::ready);
}

}  // namespace load_queue_test
