// Streams of recorded kernels and calls on the Device in any order of submission: what is called between a recording
// and its submission runs before it, and whatever place on the queue the host gives a stream, conflicting accesses are
// ordered.
#include <unistd.h>

#include <algorithm>

#include "engine/front.h"
#include "runtime/call/call.h"
#include "runtime/device/faults.h"
#include "runtime/record.h"
#include "runtime/submit/context.h"
#include "tests/unit/runtime/support.h"
#include "tests/unit/runtime/vulkan_host.h"

namespace record_order_test {
using namespace tessera;
using namespace tessera::test;

namespace {

constexpr int64_t kN = 200;

PreparedKernel prepared(const Device& d, Program p, int frames = 2, int calls = 1) {
  return PreparedKernel(d, std::move(p), {.frames_in_flight = frames, .calls_per_frame = calls, .dims = {{"n", kN}}});
}

DeviceOptions logged(bool stage = false) {
  DeviceOptions o;
  o.log_commands = true;
  o.always_stage = stage;
  return o;
}

std::vector<float> each(float v) { return std::vector<float>(kN, v); }
Array constant(float v) { return Array({kN}, each(v)); }

/// The log is sound wherever the host submits each of its streams.
void check_everywhere(CommandLog log, uint64_t streams) {
  for (uint64_t s = 1; s <= streams; ++s) log = submitted_later(log, s, 0);  // each in one piece
  for (const std::string& r : find_unordered(log)) FAIL_CHECK(r);
  for (uint64_t s = 1; s <= streams; ++s)
    for (size_t later = 0; later < 8; ++later) {
      CAPTURE(s);
      CAPTURE(later);
      for (const std::string& r : find_unordered(submitted_later(log, s, later))) FAIL_CHECK(r);
    }
}

}  // namespace

TEST_CASE("what is called between a recording and its submission runs before it") {
  for (const bool stage : {false, true}) {
    CAPTURE(stage);
    auto host = std::make_unique<VulkanHost>();
    {
      const Device d = Device::import(host->imported(), logged(stage));
      PreparedKernel kernel = prepared(d, scale(), 2, 2);
      DeviceArray x(d, constant(1)), y(d, constant(50)), z(d, {kN}, f32);
      CommandStream stream(d);
      const VkCommandBuffer c = host->commands();
      for (uint64_t frame = 0; frame < 3; ++frame) {
        host->begin(c);
        stream.begin(c, frame);
        stream.record(kernel, {x, y});  // y = 2 x + 1
        const DeviceArray during = launch(d, scale(), {y})[0];
        stream.record(kernel, {y, z});
        stream.end();
        const DeviceArray before = launch(d, scale(), {y})[0];
        CHECK(floats(y) == each(frame == 0 ? 50 : 2 * static_cast<float>(frame) + 1));
        const auto f = static_cast<float>(frame + 1);
        x.write(constant(f));               // before it, and what it reads
        launch_into(d, scale(), {x}, {z});  // before it, and overwritten by it
        CHECK(floats(z) == each(2 * f + 1));
        host->submit(c);
        CHECK(floats(z) == each(4 * f + 3));
        CHECK(floats(y) == each(2 * f + 1));
        CHECK(floats(launch(d, scale(), {y})[0]) == each(4 * f + 3));
        CHECK(floats(before) == floats(during));
        if (frame == 1) {
          y.write(constant(f));  // in the queue's order
          CHECK(floats(y) == each(f));
          launch_into(d, scale(), {x}, {y});
        }
      }
      d.submit_nothing();
      check_everywhere(d.command_log(), 3);
    }
    check_silent(std::move(host));
  }
}

TEST_CASE("streams recorded at the same time run in the order in which they are submitted") {
  for (const bool swapped : {false, true}) {
    CAPTURE(swapped);
    auto host = std::make_unique<VulkanHost>();
    {
      const Device d = Device::import(host->imported(), logged());
      PreparedKernel one = prepared(d, scale(), 1, 2), two = prepared(d, scale(), 1, 2);
      const DeviceArray x(d, constant(1)), y(d, constant(3)), z(d, constant(5));
      CommandStream a(d), b(d);
      const VkCommandBuffer ca = host->commands(), cb = host->commands();
      host->begin(ca);
      host->begin(cb);
      a.begin(ca, 0);
      b.begin(cb, 0);
      a.record(one, {x, y});  // y = 2 x + 1
      b.record(two, {z, x});  // x = 2 z + 1
      b.record(two, {y, z});  // z = 2 y + 1
      a.record(one, {y, z});  // z = 2 y + 1
      a.end();
      b.end();
      host->submit(swapped ? cb : ca);
      host->submit(swapped ? ca : cb);
      CHECK(floats(x) == each(swapped ? 11 : 15));
      CHECK(floats(y) == each(swapped ? 23 : 3));
      CHECK(floats(z) == each(swapped ? 47 : 7));
      d.submit_nothing();
      check_everywhere(d.command_log(), 2);
    }
    check_silent(std::move(host));
  }
}

TEST_CASE("random calls beside recordings stay ordered, wherever these are submitted") {
  for (uint64_t seed = 0; seed < 6; ++seed) {
    CAPTURE(seed);
    auto host = std::make_unique<VulkanHost>();
    {
      const Device d = Device::import(host->imported(), logged(seed % 2 == 1));
      uint64_t state = seed * 2654435761u + 1;
      auto random = [&](size_t n) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        return static_cast<size_t>(state >> 33) % n;
      };
      constexpr size_t kStreams = 3, kArrays = 4;
      Program aliased = add(), stores = scale();
      aliased.args[2].alias = 0;
      stores.args[0].written = true;
      struct Step {
        size_t kind, i, j;
      };
      struct Recorded {
        VkCommandBuffer c;
        CommandStream stream;
        PreparedKernel scales, adds, copies;
        std::vector<Step> steps;
        bool open;
      };
      std::vector<DeviceArray> arrays;
      std::vector<float> expect;
      for (size_t i = 0; i < kArrays; ++i) {
        arrays.emplace_back(d, constant(static_cast<float>(i)));
        expect.push_back(static_cast<float>(i));
      }
      std::vector<Recorded> streams;
      for (size_t s = 0; s < kStreams; ++s) {
        streams.push_back({host->commands(),
                           CommandStream(d),
                           prepared(d, scale(), 1, 99),
                           prepared(d, aliased, 1, 99),
                           prepared(d, stores, 1, 99),
                           {},
                           true});
        host->begin(streams[s].c);
        streams[s].stream.begin(streams[s].c, 0);
      }
      const auto run = [&](const Step& s) {
        expect[s.j] = s.kind == 1 ? expect[s.i] + expect[s.j] : 2 * expect[s.i] + 1;
      };
      for (int step = 0; step < 40; ++step) {
        const size_t i = random(kArrays), j = (i + 1 + random(kArrays - 1)) % kArrays;
        const size_t which = random(5);
        if (which < kStreams && streams[which].open) {
          Recorded& r = streams[which];
          const Step s{random(3), i, j};
          if (s.kind == 0) r.stream.record(r.scales, {arrays[i], arrays[j]});
          if (s.kind == 1) r.stream.record(r.adds, {arrays[j], arrays[i], arrays[j]});
          if (s.kind == 2) r.stream.record(r.copies, {arrays[i], arrays[j]});
          r.steps.push_back(s);
          if (step > 12 && random(3) == 0) {
            r.stream.end();
            host->submit(r.c);
            r.open = false;
            for (const Step& t : r.steps) run(t);
          }
          continue;
        }
        switch (random(4)) {
          case 0:
            launch_into(d, scale(), {arrays[i]}, {arrays[j]});
            run({0, i, j});
            break;
          case 1:
            arrays[j].write(arrays[i]);
            expect[j] = expect[i];
            break;
          case 2:
            arrays[j].write(constant(static_cast<float>(step)));
            expect[j] = static_cast<float>(step);
            break;
          case 3: CHECK(floats(arrays[i]) == each(expect[i])); break;
        }
        if (std::any_of(expect.begin(), expect.end(), [](float e) { return e > 1e3f; }))
          for (size_t k = 0; k < kArrays; ++k) {
            arrays[k].write(constant(1));
            expect[k] = 1;
          }
      }
      for (size_t i = 0; i < kArrays; ++i) CHECK(floats(arrays[i]) == each(expect[i]));
      for (Recorded& r : streams) {
        if (!r.open) continue;
        r.stream.end();
        host->submit(r.c);
        for (const Step& t : r.steps) run(t);
      }
      for (size_t i = 0; i < kArrays; ++i) CHECK(floats(arrays[i]) == each(expect[i]));
      d.submit_nothing();
      check_everywhere(d.command_log(), kStreams);
    }
    check_silent(std::move(host));
  }
}

TEST_CASE("of what is recorded and called, each barrier is needed for some order of submission") {
  auto host = std::make_unique<VulkanHost>();
  {
    const Device d = Device::import(host->imported(), logged());
    PreparedKernel kernel = prepared(d, scale(), 1, 2);
    const DeviceArray x(d, constant(1)), y(d, constant(3)), z(d, constant(5));
    const VkCommandBuffer c = host->commands();
    CommandStream stream(d);
    host->begin(c);
    stream.begin(c, 0);
    stream.record(kernel, {x, y});
    stream.record(kernel, {y, z});
    stream.end();
    launch_into(d, scale(), {z}, {y});
    host->submit(c);
    launch_into(d, scale(), {z}, {y});
    d.submit_nothing();
    const CommandLog log = d.command_log();
    const auto sound = [](const CommandLog& l) {
      for (size_t later = 0; later < 4; ++later)
        if (!find_unordered(submitted_later(l, 1, later)).empty()) return false;
      return true;
    };
    CHECK(sound(log));
    size_t barriers = 0;
    for (size_t i = 0; i < log.size(); ++i) {
      if (!log[i].barrier() || (log[i].barrier()->to & mask(Stage::host))) continue;
      ++barriers;
      CommandLog without = log;
      without.erase(without.begin() + static_cast<std::ptrdiff_t>(i));
      CHECK_FALSE(sound(without));
    }
    CHECK(barriers == 4);  // one begins the stream, one lies between its calls, and each launch has its own
    d.wait();
    host->wait();
  }
  check_silent(std::move(host));
}

TEST_CASE("what is recorded from an array whose call has failed fails with it") {
  auto host = std::make_unique<VulkanHost>();
  {
    const Device d = Device::import(host->imported());
    const auto checked = pallas_call(
        [](Ref x, Ref o) {
          tessera::check(Value(x[tessera::all]) < 2.0f, "{} is too much", x[tessera::all]);
          o[tessera::all] = x[tessera::all];
        },
        {.out_shape = {{{kN}, f32}}, .name = "checked"});
    const CompiledKernel k = load(d, checked.trace({{{kN}, f32}}));
    PreparedKernel kernel = prepared(d, scale(), 1, 8), adds = prepared(d, add(), 1, 8);
    const DeviceArray good(d, constant(1)), u(d, {kN}, f32), v(d, {kN}, f32), w(d, {kN}, f32), fine(d, {kN}, f32);
    // known when the device has run them
    const DeviceArray bad = k({DeviceArray(d, constant(3))})[0], right = k({good})[0];
    const VkCommandBuffer c = host->commands();
    CommandStream stream(d);
    host->begin(c);
    stream.begin(c, 0);
    stream.record(kernel, {bad, u});
    stream.record(adds, {right, bad, v});  // two of which nothing is known yet
    stream.record(kernel, {v, w});
    stream.record(kernel, {right, fine});
    stream.end();
    host->run(c);
    CHECK(floats(fine) == each(3));
    const auto text = [](const DeviceArray& a) { return error_of<KernelError>([&] { a.download(); }); };
    CHECK(text(bad).starts_with("checked: check failed"));
    CHECK(text(u) == text(bad));
    CHECK(text(v) == text(bad));
    CHECK(text(w) == text(bad));
    CHECK_NOTHROW(d.wait());
    host->begin(c);
    stream.begin(c, 1);
    stream.record(kernel, {bad, u});   // known by now
    stream.record(kernel, {good, w});  // new contents
    stream.end();
    host->run(c);
    CHECK(text(u) == text(bad));
    CHECK(floats(w) == each(3));
  }
  check_silent(std::move(host));
}

TEST_CASE("shareable memory counts, is tried again when memory is short, and its descriptors are closed once") {
  vulkan::Faults faults;
  {
    const Device d;
    if (!d.context()->vk().vkGetMemoryFdKHR) return;
    const int64_t before = d.allocated_bytes();
    {
      faults.fail("vkAllocateMemory", 0, VK_ERROR_OUT_OF_DEVICE_MEMORY);
      const DeviceArray x = shareable_array(d, {1000}, f32);
      CHECK(faults.failed());
      CHECK(d.allocated_bytes() >= before + 4000);
      // What the driver has taken it closes; what was given is closed by success alone.
      for (const char* call : {"vkCreateBuffer", "vkAllocateMemory", "vkBindBufferMemory"}) {
        CAPTURE(call);
        const SharedMemory m = share(x);
        faults.fail(call, 0, VK_ERROR_OUT_OF_DEVICE_MEMORY);
        CHECK_THROWS_AS(import_memory(d, m, {1000}, f32), DeviceError);
        CHECK(faults.failed());
        CHECK(::close(m.fd) == 0);
      }
      const SharedMemory m = share(x);
      CHECK(import_memory(d, m, {1000}, f32).valid());
      CHECK(::close(m.fd) != 0);
    }
    d.wait();
    CHECK(d.allocated_bytes() == before);
  }
  CHECK(faults.alive().empty());
}

}  // namespace record_order_test
