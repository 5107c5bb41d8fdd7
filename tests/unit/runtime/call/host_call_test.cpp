#include "runtime/call/host_call.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <thread>

#include "engine/ir/text.h"
#include "runtime/device/faults.h"
#include "tests/unit/runtime/support.h"

namespace host_call_test {
using namespace tessera;
using namespace tessera::test;

namespace {

// o = x + y; p = x - y, aliased to y. 19 elements: the last block hangs over.
constexpr const char* kBoth = R"(tir 1
kernel @both
grid (3)
in f32[19] block (8) map (%i) { yield %i }
in f32[19] block (8) map (%i) { yield %i }
out f32[19] block (8) map (%i) { yield %i }
out f32[19] alias 1 block (8) map (%i) { yield %i }
body (%x, %y, %o, %p) {
  %a = load %x[0:8]
  %b = load %y[0:8]
  %c = add %a, %b
  %d = sub %a, %b
  store %o[0:8], %c
  store %p[0:8], %d
  yield
}
)";
constexpr const char* kBytes = R"(tir 1
kernel @negate
grid (2)
in u8[13] block (8) map (%i) { yield %i }
out u8[13] block (8) map (%i) { yield %i }
body (%x, %o) {
  %a = load %x[0:8]
  %b = not %a
  store %o[0:8], %b
  yield
}
)";

/// Memory with a known byte before and behind every array, at `offset` bytes from a page's begin.
struct Page {
  static constexpr size_t kSize = 2 * 4096;
  std::unique_ptr<std::byte, void (*)(void*)> memory{
      static_cast<std::byte*>(::operator new(kSize, std::align_val_t{4096})),
      [](void* p) { ::operator delete(p, std::align_val_t{4096}); }};
  Page() { std::memset(memory.get(), 0x5a, kSize); }
  template <class T> T* at(size_t offset) { return reinterpret_cast<T*>(memory.get() + offset); }
  /// Nothing has changed but [first, first + size) of each.
  bool untouched_but(std::vector<std::pair<size_t, size_t>> places) {
    for (size_t i = 0; i < kSize; ++i) {
      bool inside = false;
      for (auto [first, size] : places) inside |= i >= first && i < first + size;
      if (!inside && memory.get()[i] != std::byte{0x5a}) return false;
    }
    return true;
  }
};

}  // namespace

TEST_CASE("host memory is used in place, and nothing beside the arrays is written") {
  const CompiledKernel both = load(device(), ir::parse(kBoth, "both.tir"));
  const uint64_t copied = uses_host_memory(device()) ? 0 : uint64_t{4} * 19 * 4;
  Page page;
  // Four arrays in one page and over a page's edge, at 64 bytes as XLA has them.
  const size_t x = 64, y = 192, o = 4096 - 64, p = 4096 + 128, bytes = 19 * 4;
  for (int i = 0; i < 19; ++i) page.at<float>(x)[i] = static_cast<float>(i), page.at<float>(y)[i] = 100;
  const HostArray arguments[] = {{f32, {19}, page.at<void>(x)}, {f32, {19}, page.at<void>(y)}};
  const HostArray results[] = {{f32, {19}, page.at<void>(o)}, {f32, {19}, page.at<void>(p)}};
  for (int turn = 0; turn < 2; ++turn) {
    CHECK(call_on_host(both, arguments, results) == copied);
    for (int i = 0; i < 19; ++i) {
      CHECK(page.at<float>(o)[i] == static_cast<float>(i + 100));
      CHECK(page.at<float>(p)[i] == static_cast<float>(i - 100));
      CHECK(page.at<float>(y)[i] == 100);  // aliased, but the result lies elsewhere
    }
    CHECK(page.untouched_but({{x, bytes}, {y, bytes}, {o, bytes}, {p, bytes}}));
  }
  // The same array given and taken: updated there.
  const HostArray in_place[] = {{f32, {19}, page.at<void>(o)}, {f32, {19}, page.at<void>(y)}};
  CHECK(call_on_host(both, arguments, in_place) == copied);
  for (int i = 0; i < 19; ++i) CHECK(page.at<float>(y)[i] == static_cast<float>(i - 100));
  check_clean(device());
}

TEST_CASE("host memory is copied where the device cannot use it in place") {
  DeviceOptions options;
  options.always_stage = true, options.validation = kValidation, options.log_commands = true;
  const Device staged(options);
  for (const Device& d : {staged, device()}) {
    const CompiledKernel both = load(d, ir::parse(kBoth, "both.tir"));
    Page page;
    const size_t off = d == staged ? 0 : 4;  // badly aligned for a device that shares the host's memory
    const size_t x = 64 + off, y = 192 + off, o = 4096 - 64 + off, p = 4096 + 128 + off, bytes = 19 * 4;
    for (int i = 0; i < 19; ++i) page.at<float>(x)[i] = static_cast<float>(i), page.at<float>(y)[i] = 100;
    const HostArray arguments[] = {{f32, {19}, page.at<void>(x)}, {f32, {19}, page.at<void>(y)}};
    const HostArray results[] = {{f32, {19}, page.at<void>(o)}, {f32, {19}, page.at<void>(p)}};
    CHECK(call_on_host(both, arguments, results) == 4 * bytes);
    for (int i = 0; i < 19; ++i) {
      CHECK(page.at<float>(o)[i] == static_cast<float>(i + 100));
      CHECK(page.at<float>(p)[i] == static_cast<float>(i - 100));
      CHECK(page.at<float>(y)[i] == 100);
    }
    CHECK(page.untouched_but({{x, bytes}, {y, bytes}, {o, bytes}, {p, bytes}}));
    check_clean(d);
  }
}

TEST_CASE("host memory of sizes that are no whole words, and of none") {
  const CompiledKernel negate = load(device(), ir::parse(kBytes, "negate.tir"));
  Page page;
  for (int i = 0; i < 13; ++i) page.at<uint8_t>(128)[i] = static_cast<uint8_t>(i);
  const HostArray x[] = {{u8, {13}, page.at<void>(128)}}, o[] = {{u8, {13}, page.at<void>(256)}};
  call_on_host(negate, x, o);
  for (int i = 0; i < 13; ++i) CHECK(page.at<uint8_t>(256)[i] == 255 - i);
  CHECK(page.untouched_but({{128, 13}, {256, 13}}));
  check_clean(device());
}

TEST_CASE("the device is done with the host's memory, also where a call fails half way") {
  vulkan::Faults faults;
  DeviceOptions options;
  options.watchdog_seconds = 1e-12;  // several slices
  const Device d(options);
  if (!uses_host_memory(d)) return;
  const CompiledKernel twice = load(d, ir::parse(R"(tir 1
kernel @twice
grid (4 parallel)
in f32[1024] block (256) map (%i) { yield %i }
out f32[1024] alias 0 block (256) map (%i) { yield %i }
body (%x, %o) {
  %a = load %x[0:256]
  %b = add %a, %a
  store %o[0:256], %b
  yield
}
)",
                                                 "twice.tir"));
  Page page;
  for (int i = 0; i < 1024; ++i) page.at<float>(64)[i] = 1;
  const HostArray x[] = {{f32, {1024}, page.at<void>(64)}};
  CHECK(call_on_host(twice, x, x) == 0);
  // The first slice waits for the host, the second one is not taken.
  Gate gate(d);
  faults.fail("vkQueueSubmit2", 1, VK_ERROR_OUT_OF_DEVICE_MEMORY);
  std::atomic<bool> opened = false;
  std::thread opens([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    opened = true;
    gate.open();
  });
  CHECK(error_of<DeviceError>([&] { call_on_host(twice, x, x); }) ==
        "vkQueueSubmit2 of twice on " + d.info().name + ": VK_ERROR_OUT_OF_DEVICE_MEMORY");
  CHECK(opened);  // not before: the first slice would still write there
  opens.join();
}

TEST_CASE("a result that is not the kernel's is an error wherever it lies") {
  const CompiledKernel both = load(device(), ir::parse(kBoth, "both.tir"));
  for (const size_t off : {0, 4}) {  // in place, or copied
    Page page;
    const HostArray arguments[] = {{f32, {19}, page.at<void>(64 + off)}, {f32, {19}, page.at<void>(192 + off)}};
    for (const size_t p : {192 + off, 640 + off}) {  // in place of its argument, or not
      const HostArray results[] = {{f32, {19}, page.at<void>(512 + off)}, {f32, {7}, page.at<void>(p)}};
      CHECK(error_of<SpecError>([&] { call_on_host(both, arguments, results); }) ==
            "both: out_specs[1]: the result is f32(19,) but its array is f32(7,)\n  at both.tir:2");
    }
    CHECK(page.untouched_but({}));
  }
  check_clean(device());
}

TEST_CASE("arrays that are not the kernel's") {
  const CompiledKernel negate = load(device(), ir::parse(kBytes, "negate.tir"));
  Page page;
  const HostArray x[] = {{u8, {13}, page.at<void>(128)}}, o[] = {{u8, {12}, page.at<void>(256)}};
  CHECK(error_of<SpecError>([&] { call_on_host(negate, x, o); }) ==
        "negate: out_specs[0]: the result is u8(13,) but its array is u8(12,)\n  at negate.tir:2");
  CHECK(error_of<SpecError>([&] { call_on_host(negate, x, {}); }) ==
        "negate: gives 1 output but 0 are expected\n  at negate.tir:2");
  CHECK(error_of<SpecError>([&] { call_on_host(negate, o, o); }).starts_with("negate: "));
  CHECK(page.untouched_but({}));
}

}  // namespace host_call_test
