// When recorded calls ran: of which calls and frames, in which order, and what is said where there are no times.
#include "engine/front.h"
#include "runtime/device/faults.h"
#include "runtime/record.h"
#include "runtime/record_graph.h"
#include "tests/unit/runtime/support.h"
#include "tests/unit/runtime/vulkan_host.h"

namespace record_times_test {
using namespace tessera;
using namespace tessera::test;

namespace {

constexpr int64_t kN = 200;

PreparedKernel prepared(const Device& d, Program p, int calls = 1) {
  return PreparedKernel(d, std::move(p), {.frames_in_flight = 2, .calls_per_frame = calls, .dims = {{"n", kN}}});
}

/// Each lies within a minute, and one that waits for another begins behind it.
void check_one_after_another(const std::vector<TimedCommand>& times) {
  for (size_t i = 0; i < times.size(); ++i) {
    CHECK(times[i].begin >= (i == 0 ? 0 : times[i - 1].end));
    CHECK(times[i].end >= times[i].begin);
    CHECK(times[i].end < 60e9);
  }
  if (!times.empty()) CHECK(times[0].begin == 0);
}
std::vector<std::string> names(const std::vector<TimedCommand>& times) {
  std::vector<std::string> all;
  for (const TimedCommand& t : times) all.push_back(t.name);
  return all;
}

}  // namespace

TEST_CASE("a stream tells when the calls of a frame ran, as many as it has been asked for") {
  vulkan::Faults faults;
  auto host = std::make_unique<VulkanHost>();
  {
    const Device d = Device::import(host->imported());
    PreparedKernel arenas = prepared(d, scratch(), 2), tables = prepared(d, table());
    const DeviceArray x(d, ramp(kN)), y(d, {kN}, f32), z(d, {kN}, f32);
    CommandStream stream(d, {.timed_calls = 2, .frames_in_flight = 2});
    const VkCommandBuffer c = host->commands(), other = host->commands();
    const std::string arena = scratch().name, tabled = table().name;
    // Numbers of frames that are multiples of the slots.
    for (const uint64_t frame : {3, 6, 9, 12, 15}) {
      host->begin(c);
      faults.count();
      stream.begin(c, frame);
      stream.record(arenas, {x, y});
      if (frame == 12) {  // in another command buffer of the frame
        stream.end();
        host->run(c);
        host->begin(other);
        stream.begin(other, frame);
      }
      if (frame != 9) stream.record(tables, {x, y, z});
      if (frame != 9) stream.record(arenas, {z, y});  // is not timed
      stream.end();
      std::map<std::string_view, int> calls;
      for (const vulkan::Faults::Call& call : faults.calls()) ++calls[call.name];
      const int timed = frame == 9 ? 1 : 2;
      CHECK(calls["vkCmdResetQueryPool"] == timed);
      CHECK(calls["vkCmdWriteTimestamp2"] == 2 * timed);
      host->run(frame == 12 ? other : c);
      const std::vector<TimedCommand> times = stream.trace(frame);
      CHECK(names(times) == (frame == 9 ? std::vector<std::string>{arena} : std::vector<std::string>{arena, tabled}));
      check_one_after_another(times);
      CHECK(times[0].bytes == 2 * 4 * kN);
      if (frame == 12) CHECK(names(stream.trace(6)) == names(times));  // as long as two others are in flight
    }
    CHECK(error_of<SpecError>([&] { stream.trace(6); }) ==
          "CommandStream::trace: there are no times of frame 6 but of 9, 12, 15\n"
          "  note: a frame's times are kept while StreamOptions::frames_in_flight others begin");
    CHECK(chrome_trace(stream.trace(15)).find("\"name\": \"" + tabled + "\"") != std::string::npos);
  }
  CHECK(faults.alive().empty());
  check_silent(std::move(host));
}

TEST_CASE("of a graph that is recorded each kernel is timed, and what nothing orders may run at once") {
  auto host = std::make_unique<VulkanHost>();
  {
    const Device d = Device::import(host->imported());
    const auto add = [](const char* name) {
      return pallas_call([](Ref x, Ref o) { o[all] = x[all] + 1; }, {.out_shape = {{{kN}, f32}}, .name = name});
    };
    const auto first = add("first"), second = add("second"), third = add("third");
    const auto f = jit([&](Tensor x) {
      const Value a(first(x));
      return std::tuple{Value(second(a)), Value(third(a))};
    });
    PreparedGraph graph(d, f.trace({{{kN}, f32}}), {.frames_in_flight = 2, .fuse = false});
    const DeviceArray x(d, ramp(kN)), y(d, {kN}, f32), z(d, {kN}, f32);
    CommandStream stream(d, {.timed_calls = 8});
    const VkCommandBuffer c = host->commands();
    host->begin(c);
    stream.begin(c, 1);
    graph.record(stream, {x}, {y, z});
    stream.end();
    host->run(c);
    const std::vector<TimedCommand> times = stream.trace(1);
    REQUIRE(names(times) == std::vector<std::string>{"first", "second", "third"});
    for (const size_t i : {size_t{1}, size_t{2}}) CHECK(times[i].end >= times[0].end);
  }
  check_silent(std::move(host));
}

TEST_CASE("what is wrong with a stream's times is said") {
  const Device d;
  const CommandStream none(d);
  CHECK(error_of<SpecError>([&] { none.trace(0); }) ==
        "CommandStream::trace: calls are recorded without times\n"
        "  note: make the stream with StreamOptions{.timed_calls = N}");
  CHECK(error_of<SpecError>([&] { CommandStream(d, {.timed_calls = -1}); }) ==
        "CommandStream: StreamOptions::timed_calls must be positive but is -1");
  CHECK(error_of<SpecError>([&] { CommandStream(d, {.timed_calls = 1, .frames_in_flight = 0}); }) ==
        "CommandStream: StreamOptions::frames_in_flight must be positive but is 0");
  // more than Vulkan counts
  CHECK(error_of<DeviceError>([&] { CommandStream(d, {.timed_calls = 1 << 30, .frames_in_flight = 1}); }) ==
        "CommandStream: the driver makes no pool of 4294967296 timestamps (vkCreateQueryPool)");
  const CommandStream fresh(d, {.timed_calls = 1});
  CHECK(error_of<SpecError>([&] { fresh.trace(0); }) ==
        "CommandStream::trace: there are no times of frame 0 but of none\n"
        "  note: a frame's times are kept while StreamOptions::frames_in_flight others begin");
}

}  // namespace record_times_test
