// Numbers by value and other sizes, from one recorded call to the next: what is computed, what is created (nothing),
// and what is said of the rest.
#include <memory>

#include "engine/front.h"
#include "engine/ir/text.h"
#include "runtime/call/call.h"
#include "runtime/call/jit.h"
#include "runtime/device/faults.h"
#include "runtime/record.h"
#include "runtime/record_graph.h"
#include "tests/unit/runtime/support.h"
#include "tests/unit/runtime/vulkan_host.h"

namespace record_numbers_test {
using namespace tessera;
using namespace tessera::test;

namespace {
/// The first line of an error.
template <class E, class F>
std::string said(F f) {
  const std::string text = error_of<E>(f);
  return text.substr(0, text.find('\n'));
}
std::vector<float> blended(int64_t n, float gain, int bias) {
  std::vector<float> v;
  for (int64_t i = 0; i < n; ++i) v.push_back(static_cast<float>(i) * gain + static_cast<float>(bias + n));
  return v;
}
PreparedKernel prepared(const Device& d, int64_t n, int calls = 1) {
  return blend(d).prepare({.frames_in_flight = 2, .calls_per_frame = calls, .dims = {{"n", n}}});
}
}  // namespace

TEST_CASE("launches take numbers by value, and another number compiles nothing") {
  Device& d = device();
  const CompiledKernel kernel = blend(d);
  const DeviceArray x(d, ramp(100));
  const PipelineCounts before = pipeline_counts(d);
  for (const int i : {1, -3, 7})
    CHECK(floats(kernel({x, 0.5f * static_cast<float>(i), i})[0]) == blended(100, 0.5f * static_cast<float>(i), i));
  CHECK(pipeline_counts(d).made <= before.made + 1);
  CHECK(said<SpecError>([&] { kernel({x, x, 1}); }) ==
        "blend: in_specs[1]: an array is given, but the kernel takes a number by value");
  CHECK(said<SpecError>([&] { kernel({1, 1.0f, 1}); }) == "blend: argument 0: a number is given, and no array");
  CHECK(said<SpecError>([&] { kernel({x, 1.0f, 2.5}); }) ==
        "blend: in_specs[2]: the number is 2.5 but the argument is i32");
  check_clean(d);
}

TEST_CASE("a call of many numbers takes them from a table") {
  Device& d = device();
  const auto sum = pallas_call(
      [](Ref a, Ref b, Ref c, Ref e, Ref f, Ref g, Ref h, Ref i, Ref j, Ref k, Ref l, Ref m, Ref n, Ref p, Ref q, Ref r,
         Ref s, Ref o) {
        Value total = a[all];
        for (Ref* x : {&b, &c, &e, &f, &g, &h, &i, &j, &k, &l, &m, &n, &p, &q, &r, &s}) total = total * 2 + (*x)[all];
        o[all] = total;
      },
      {.out_shape = ShapeDtype{{}, i32}, .in_specs = std::vector<BlockSpec>(17, by_value(i32)), .name = "sum"});
  std::vector<DeviceArray> numbers;
  int64_t want = 0;
  for (int i = 0; i < 17; ++i) numbers.emplace_back(i), want = want * 2 + i;
  CHECK(launch(d, sum, numbers)[0].download().data<int32_t>()[0] == want);
  check_clean(d);
}

TEST_CASE("recorded calls take other numbers and sizes, and nothing is created") {
  vulkan::Faults faults;
  auto host = std::make_unique<VulkanHost>();
  {
    const Device d = Device::import(host->imported());
    PreparedKernel kernel = prepared(d, 200, 2);
    CommandStream stream(d);
    const VkCommandBuffer c = host->commands();
    d.wait();
    std::vector<DeviceArray> in, out;
    const std::vector<int64_t> sizes{200, 64, 65, 0, 1, 199, 200};
    for (const int64_t n : sizes) in.emplace_back(d, ramp(n)), out.emplace_back(d, Shape{n}, f32);
    const DeviceArray second(d, {200}, f32);
    for (size_t frame = 0; frame < sizes.size(); ++frame) {
      const int64_t n = sizes[frame];
      host->begin(c);
      faults.count();
      stream.begin(c, frame);
      kernel.resize({{"n", n}});
      CHECK(kernel.shape(0) == Shape{n});
      stream.record(kernel, {in[frame], 0.25f, static_cast<int>(frame), out[frame]});
      kernel.resize({{"n", 200}});  // twice in a frame
      stream.record(kernel, {in[0], 2, -5, second});
      stream.end();
      for (const vulkan::Faults::Call& call : faults.calls()) CHECK(std::string_view(call.name).starts_with("vkCmd"));
      host->run(c);
      CHECK(floats(out[frame]) == blended(n, 0.25f, static_cast<int>(frame)));
      CHECK(floats(second) == blended(200, 2, -5));
    }
  }
  CHECK(faults.alive().empty());
  check_silent(std::move(host));
}

TEST_CASE("what is wrong with a resize is said, and nothing changes") {
  auto host = std::make_unique<VulkanHost>();
  {
    const Device d = Device::import(host->imported());
    PreparedKernel kernel = prepared(d, 200);
    CommandStream stream(d);
    const DeviceArray x(d, ramp(200)), y(d, {200}, f32), small(d, ramp(70)), less(d, {70}, f32);
    using E = SpecError;
    CHECK(said<E>([&] { kernel.resize({{"n", 201}}); }) ==
          "blend: resize: the size n is 201 but the kernel has been prepared for at most 200");
    CHECK(said<E>([&] { kernel.resize({{"n", 7}, {"m", 1}}); }) ==
          "blend: resize: the size m is none that PrepareOptions::dims gives");
    CHECK(said<E>([&] { kernel.resize({{"n", -1}}); }) == "blend: resize: the size n is -1, which is negative");
    const CompiledKernel reads = load(d, ir::parse(R"(tir 1
kernel @reads
in f32[16] whole
out f32[] whole
sizes (q)
body (%x, %o) {
  %q = size index 0
  %most = constant 3 : i32[]
  %at = min %q, %most
  %a = load %x[%at]
  store %o[], %a
}
)",
                                                   "reads.tir"));
    CHECK(said<E>([&] { reads.prepare({.dims = {{"q", -16}}}); }) ==
          "reads: PrepareOptions::dims gives the size q = -16, which is negative");
    CHECK(kernel.shape(0) == Shape{200});
    const VkCommandBuffer c = host->commands();
    host->begin(c);
    stream.begin(c, 1);
    CHECK(said<E>([&] { stream.record(kernel, {x, 1.5f, 2.5f, y}); }) ==
          "blend: in_specs[2]: the number is 2.5 but the argument is i32");
    CHECK(said<E>([&] { stream.record(kernel, {x, x, 2, y}); }) ==
          "blend: in_specs[1]: an array is given, but the kernel takes a number by value");
    CHECK(said<E>([&] { stream.record(kernel, {1, 1, 2, y}); }) ==
          "blend: in_specs[0]: a number is given, but the kernel takes an array");
    kernel.resize({{"n", 70}});
    CHECK(said<E>([&] { stream.record(kernel, {x, 1, 2, y}); }) ==
          "blend: in_specs[0]: the kernel has been prepared for f32(70,) but the array is f32(200,)");
    stream.record(kernel, {small, 1, 2, less});
    stream.end();
    host->run(c);
    CHECK(floats(less) == blended(70, 1, 2));
    host->begin(c);  // the arrays that were good for other sizes are looked at again
    stream.begin(c, 3);
    kernel.resize({{"n", 200}});
    CHECK(said<E>([&] { stream.record(kernel, {small, 1, 2, less}); }) ==
          "blend: in_specs[0]: the kernel has been prepared for f32(200,) but the array is f32(70,)");
    stream.record(kernel, {x, 1, 2, y});
    stream.end();
    host->run(c);
    CHECK(floats(y) == blended(200, 1, 2));
  }
  check_silent(std::move(host));
}

TEST_CASE("graphs take numbers, launched and recorded") {
  auto host = std::make_unique<VulkanHost>();
  {
    const Device d = Device::import(host->imported());
    const auto scale =
        pallas_call([](Ref a, Ref s, Ref o) { o[all] = a[all] * s[all]; },
                    {.out_shape = {{{50}, f32}}, .in_specs = {no_block_spec, by_value(f32)}, .name = "scale"});
    const auto f = jit([&](Tensor a, Tensor s, Tensor n) { return scale(scale(a, s), 3) + cast(n, f32); });
    const DeviceArray x(d, ramp(50)), y(d, {50}, f32);
    const auto want = [](float s, int n) {
      std::vector<float> v;
      for (int i = 0; i < 50; ++i) v.push_back(static_cast<float>(i) * s * 3 + static_cast<float>(n));
      return v;
    };
    CHECK(floats(launch(d, f, {x, 0.5f, 4})[0]) == want(0.5f, 4));
    const CompiledGraph graph = load(d, f, {{{50}, f32}, {{}, f32}, {{}, i32}});
    CHECK(floats(graph({x, 2, -1})[0]) == want(2, -1));
    PreparedGraph recorded(d, f.trace({{{50}, f32}, {{}, f32}, {{}, i32}}),
                           {.frames_in_flight = 2, .calls_per_frame = 2});
    CommandStream stream(d);
    const DeviceArray z(d, {50}, f32), number(d, Array({}, std::vector<float>{8}));
    for (int frame = 0; frame < 3; ++frame) {
      const VkCommandBuffer c = host->commands();
      host->begin(c);
      stream.begin(c, static_cast<uint64_t>(frame));
      recorded.record(stream, {x, 0.5f * static_cast<float>(frame), frame}, {y});
      recorded.record(stream, {x, number, 10 * frame}, {z});
      if (frame == 1) {
        CHECK(said<SpecError>([&] { recorded.record(stream, {1, 1, 1}, {y}); }) ==
              "jit: argument 0 is a number but f32[50] is expected");
        CHECK(said<SpecError>([&] { recorded.record(stream, {x, 1, 1.5}, {y}); }) ==
              "jit: argument 2: the number is 1.5 but the argument is i32");
      }
      stream.end();
      host->run(c);
      CHECK(floats(y) == want(0.5f * static_cast<float>(frame), frame));
      CHECK(floats(z) == want(8, 10 * frame));
    }
    CHECK(said<SpecError>([&] {
            graph({x, true, 1});
          }).find("argument 1: the number is true but the argument is f32") != std::string::npos);
  }
  check_silent(std::move(host));
}

}  // namespace record_numbers_test
