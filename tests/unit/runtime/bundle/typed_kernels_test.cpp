// Kernels through the header that tessera bundle has written for them, compiled while the tests are built.
#if __has_include(<runtime_kernels.hpp>)  // not where the command line cannot run: cross-compiled without an emulator
#include <runtime_kernels.hpp>

#include "tests/unit/runtime/support.h"
#include "tests/unit/runtime/vulkan_host.h"

namespace typed_kernels_test {
using namespace tessera;
using namespace tessera::test;

namespace {
DeviceArray integers(std::vector<int32_t> v) {
  const auto n = static_cast<int64_t>(v.size());
  return DeviceArray(device(), Array({n}, std::move(v)));
}
std::vector<int32_t> values(const DeviceArray& a) {
  const Array host = a.download();
  const std::span<const int32_t> v = host.data<int32_t>();
  return {v.begin(), v.end()};
}
}  // namespace

TEST_CASE("a generated header: an output that begins as a donated input is in_place, beside arrays of the caller's") {
  const runtime_kernels::in_place in_place_kernel(runtime_kernels::bundle(), device());
  const runtime_kernels::saxpy saxpy(runtime_kernels::bundle(), device());
  const DeviceArray x = integers({1, 2, 3}), y = integers({0, 0, 0});
  CHECK(values(*in_place_kernel({.x = x}).o) == std::vector<int32_t>{2, 4, 6});
  const runtime_kernels::in_place::Outputs copied = in_place_kernel({.x = x}, {.o = y});
  CHECK(values(y) == std::vector<int32_t>{2, 4, 6});
  CHECK(values(*copied.o) == std::vector<int32_t>{2, 4, 6});
  CHECK(values(x) == std::vector<int32_t>{1, 2, 3});
  CHECK(error_of<SpecError>([&] { in_place_kernel({.x = donate(x)}, {.o = y}); }) ==
        "in_place: out_specs[0]: an array is given for it, but it takes the memory of argument 0, which is donated\n  "
        "at tests/c/in_place.tir:2\n"
        "  note: give no array for it, or do not donate the argument");
  const runtime_kernels::in_place::Outputs made = in_place_kernel({.x = donate(x)}, {.o = in_place});
  CHECK(values(*made.o) == std::vector<int32_t>{2, 4, 6});
  CHECK(error_of<SpecError>([&] { x.download(); }) == "download: the device array i32[3] has been donated to in_place");
  CHECK(error_of<SpecError>([&] { in_place_kernel({.x = y}, {.o = in_place}); }) ==
        "in_place: out_specs[0]: no array is given for it, and it takes the memory of no donated argument\n  at "
        "tests/c/in_place.tir:2");
  CHECK(error_of<SpecError>([&] { in_place_kernel({.x = in_place}); }) ==
        "in_place: argument 0: this DeviceArray holds no array: it was never given one, or has been moved from");
  const DeviceArray a(device(), Array({1}, std::vector<float>{3})), v(device(), ramp(4)), z(device(), {4}, f32);
  CHECK(floats(*saxpy({.a = a, .x = v, .y = v}, {.z = z}).z) == std::vector<float>{0, 4, 8, 12});
  check_clean(device());
}

TEST_CASE("a generated header: a graph runs by itself, with arrays and numbers") {
  const runtime_kernels::twice::Loaded twice(runtime_kernels::bundle(), device());
  const DeviceArray x(device(), ramp(300)), by(device(), Array({}, std::vector<float>{3})), y(device(), {300}, f32),
      z(device(), {300}, f32);
  const runtime_kernels::twice::Outputs made = twice({.in0 = x, .in1 = by});
  CHECK(floats(*made.out0)[299] == 9.0f * 299);
  CHECK(floats(*made.out1)[299] == 3.0f * 299);
  twice({.in0 = x, .in1 = 4.0f}, {.out0 = y, .out1 = z});
  CHECK(floats(y)[299] == 16.0f * 299);
  CHECK(floats(z)[299] == 4.0f * 299);
  check_clean(device());
}

TEST_CASE("a generated header: a graph is recorded with arrays and numbers") {
  auto host = std::make_unique<VulkanHost>();
  {
    const Device d = Device::import(host->imported());
    runtime_kernels::twice twice(runtime_kernels::bundle(), d, {.calls_per_frame = 2});
    CommandStream stream(d);
    const VkCommandBuffer c = host->commands();
    const DeviceArray x(d, ramp(300)), by(d, Array({}, std::vector<float>{3})), y(d, {300}, f32), z(d, {300}, f32),
        v(d, {300}, f32), w(d, {300}, f32);
    host->begin(c);
    stream.begin(c, 0);
    const Scopes s = twice.record(stream, {.in0 = x, .in1 = by}, {.out0 = y, .out1 = z});
    twice.record(stream, {.in0 = x, .in1 = 4.0f}, {.out0 = v, .out1 = w});
    CHECK((s.wait_stages & VK_PIPELINE_STAGE_2_COMPUTE_SHADER_BIT) != 0);
    stream.end();
    host->run(c);
    CHECK(floats(y)[299] == 9.0f * 299);
    CHECK(floats(z)[299] == 3.0f * 299);
    CHECK(floats(v)[299] == 16.0f * 299);
    CHECK(floats(w)[299] == 4.0f * 299);
  }
  check_silent(std::move(host));
}

TEST_CASE("a generated header: a graph of every size runs by itself, and is recorded") {
  auto host = std::make_unique<VulkanHost>();
  {
    const Device d = Device::import(host->imported());
    const runtime_kernels::grown::Loaded loaded(runtime_kernels::bundle(), d, {.n = 50});
    runtime_kernels::grown grown(runtime_kernels::bundle(), d, {.n = 50}, {.frames_in_flight = 1});
    CommandStream stream(d);
    const VkCommandBuffer c = host->commands();
    uint64_t frame = 0;
    for (const int64_t n : {50, 7, 33}) {
      const DeviceArray x(d, ramp(n)), y(d, {n}, f32), z(d, {n}, f32);
      CHECK(floats(*loaded({.in0 = x, .in1 = 3.0f}).out0)[static_cast<size_t>(n - 1)] ==
            9.0f * static_cast<float>(n - 1));
      grown.resize({.n = n});
      host->begin(c);
      stream.begin(c, frame++);
      grown.record(stream, {.in0 = x, .in1 = 4.0f}, {.out0 = y, .out1 = z});
      stream.end();
      host->run(c);
      CHECK(floats(y)[static_cast<size_t>(n - 1)] == 16.0f * static_cast<float>(n - 1));
      CHECK(floats(z)[static_cast<size_t>(n - 1)] == 4.0f * static_cast<float>(n - 1));
    }
  }
  check_silent(std::move(host));
}

}  // namespace typed_kernels_test
#endif
