// Kernels in a host's command buffers: between its own commands, over frames, beside calls of our own; what is said
// about bad arguments.
#include "runtime/record.h"

#include "engine/base/bind.h"
#include "engine/ir/text.h"
#include "runtime/call/call.h"
#include "runtime/device/faults.h"
#include "tests/unit/runtime/support.h"
#include "tests/unit/runtime/vulkan_host.h"

namespace record_test {
using namespace tessera;
using namespace tessera::test;

namespace {
constexpr int64_t kN = 200;

const char* kWritesAnInput = R"(tir 1
kernel @writes
in f32[8] whole
in f32[8] whole
out f32[8] whole
body (%x, %y, %o) {
  %a = load %x[0:8]
  %b = add %a, %a
  store %x[0:8], %b
  %c = load %y[0:8]
  store %o[0:8], %c
}
)";

PreparedKernel prepared(const Device& d, Program p, int frames = 2, int calls = 1, int64_t n = kN) {
  return PreparedKernel(d, std::move(p), {.frames_in_flight = frames, .calls_per_frame = calls, .dims = {{"n", n}}});
}

/// The log is sound, and misses each barrier that lies between recorded commands.
void check_order(const Device& d, size_t at_least = 0) {
  const CommandLog log = d.command_log();
  for (const std::string& r : find_unordered(log)) FAIL_CHECK(r);
  size_t barriers = 0;
  for (const LogEntry& e : log) barriers += e.is<LogEntry::Barrier>();
  CHECK(barriers >= at_least);
}

void fill(const VulkanHost::Buffer& b, float start = 0) {
  for (VkDeviceSize i = 0; i < b.size / 4; ++i) b.mapped[i] = start + static_cast<float>(i);
}

}  // namespace

TEST_CASE("a host's command buffer holds our kernels between its own commands") {
  for (const bool all_features : {false, true}) {
    CAPTURE(all_features);
    auto host = std::make_unique<VulkanHost>(VulkanHostOptions{.all_features = all_features, .without = {}});
    {
      const Device d = Device::import(host->imported(), logged());
      CHECK(d.target().int64 == all_features);
      CHECK(d.target().storage16 == all_features);
      const VulkanHost::Buffer from = host->buffer(1024), to = host->buffer(4096), seen = host->buffer(1024);
      const DeviceArray x = import_buffer(d, host->range(from), {kN}, f32),
                        y = import_buffer(d, host->range(to, 256), {kN}, f32);
      const DeviceArray between(d, {kN}, f32);
      PreparedKernel kernel = prepared(d, scale(), 2, 2);
      CommandStream stream(d);
      const VkCommandBuffer c = host->commands();
      fill(seen);
      for (uint64_t frame = 0; frame < 3; ++frame) {
        host->begin(c);
        const VkBufferCopy copy{0, 0, 800};
        host->vkCmdCopyBuffer(c, seen.handle, from.handle, 1, &copy);
        const Scopes before = kernel.scopes();
        CHECK(before.wait_stages == VK_PIPELINE_STAGE_2_COMPUTE_SHADER_BIT);
        CHECK(before.wait_accesses == (VK_ACCESS_2_SHADER_READ_BIT | VK_ACCESS_2_SHADER_WRITE_BIT));
        host->barrier(c, VK_PIPELINE_STAGE_2_ALL_TRANSFER_BIT, VK_ACCESS_2_TRANSFER_WRITE_BIT, before.wait_stages,
                      before.wait_accesses);
        stream.begin(c, frame);
        stream.record(kernel, {x, between});
        stream.record(kernel, {between, y});
        const Scopes after = stream.end();
        CHECK(after.signal_stages == VK_PIPELINE_STAGE_2_COMPUTE_SHADER_BIT);
        CHECK(after.signal_accesses == VK_ACCESS_2_SHADER_WRITE_BIT);
        host->barrier(c, after.signal_stages, after.signal_accesses,
                      VK_PIPELINE_STAGE_2_ALL_TRANSFER_BIT | VK_PIPELINE_STAGE_2_HOST_BIT,
                      VK_ACCESS_2_TRANSFER_READ_BIT | VK_ACCESS_2_HOST_READ_BIT);
        const VkBufferCopy back{256, 0, 800};
        host->vkCmdCopyBuffer(c, to.handle, seen.handle, 1, &back);
        host->run(c);
      }
      std::vector<float> want;
      for (int i = 0; i < kN; ++i) want.push_back(64 * static_cast<float>(i) + 63);
      CHECK(std::vector<float>(seen.mapped, seen.mapped + kN) == want);
      CHECK(std::vector<float>(to.mapped + 64, to.mapped + 64 + kN) == want);
      CHECK(floats(y) == want);  // by a copy: an imported buffer is not mapped for us
      d.submit_nothing();
      check_order(d, 3);
    }
    check_silent(std::move(host));
  }
}

TEST_CASE("what is recorded follows calls on the Device, and they follow it") {
  auto host = std::make_unique<VulkanHost>();
  {
    const Device d = Device::import(host->imported(), logged());
    const DeviceArray x(d, ramp(kN)), y(d, {kN}, f32);
    const DeviceArray two = launch(d, scale(), {x})[0];
    PreparedKernel kernel = prepared(d, scale());
    const VkCommandBuffer c = host->commands();
    host->begin(c);
    kernel.record(c, 0, {two, y});
    host->submit(c);
    const DeviceArray z = launch(d, scale(), {y})[0];
    CHECK(floats(z) == scaled_ramp(kN, 3));
    CHECK(floats(y) == scaled_ramp(kN, 2));
    check_order(d, 2);
  }
  check_silent(std::move(host));
}

TEST_CASE("argument tables, arenas and copies of arguments are per call of a frame") {
  auto host = std::make_unique<VulkanHost>();
  {
    const Device d = Device::import(host->imported(), logged());
    Program doubled = table();  // o = a + b
    Program stores = scale();   // whose code is said to store to its input too
    stores.name = "stores";
    stores.args[0].written = true;
    Program aliased = add();
    aliased.name = "aliased";
    aliased.args[2].alias = 0;
    PreparedKernel tables = prepared(d, doubled, 1, 2), arenas = prepared(d, scratch(), 1, 2),
                   copies = prepared(d, stores, 1, 1), aliases = prepared(d, aliased, 1, 2);
    CHECK(copies.scopes().wait_stages ==
          (VK_PIPELINE_STAGE_2_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_2_ALL_TRANSFER_BIT));
    const DeviceArray x(d, ramp(kN)), a(d, {kN}, f32), b(d, {kN}, f32), e(d, {kN}, f32), f(d, {kN}, f32),
        g(d, {kN}, f32);
    CommandStream stream(d);
    const VkCommandBuffer c = host->commands();
    for (uint64_t frame = 5; frame < 8; ++frame) {
      host->begin(c);
      stream.begin(c, frame);
      stream.record(tables, {x, x, a});   // 2x
      stream.record(tables, {a, x, b});   // 3x
      stream.record(arenas, {a, e});      // 6x
      stream.record(arenas, {b, f});      // 9x
      stream.record(copies, {f, g});      // 18x + 1
      stream.record(aliases, {g, b, e});  // a copy of g, then all of it overwritten: 21x + 1
      stream.record(aliases, {a, e, a});  // in place: 23x + 1
      const Scopes s = stream.end();
      CHECK(s.wait_stages == (VK_PIPELINE_STAGE_2_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_2_ALL_TRANSFER_BIT));
      host->run(c);
      std::vector<float> want;
      for (int i = 0; i < kN; ++i) want.push_back(static_cast<float>(23 * i + 1));
      CHECK(floats(a) == want);
    }
    CHECK(floats(f)[3] == 27);
    d.submit_nothing();
    check_order(d, 6);
  }
  check_silent(std::move(host));
}

TEST_CASE("after it has been prepared, recording creates and allocates nothing and waits for nothing") {
  vulkan::Faults faults;
  auto host = std::make_unique<VulkanHost>();
  {
    const Device d = Device::import(host->imported());
    PreparedKernel kernel = prepared(d, scratch()), tables = prepared(d, table());
    const DeviceArray x(d, ramp(kN)), y(d, {kN}, f32), z(d, {kN}, f32);
    CommandStream stream(d);
    const VkCommandBuffer c = host->commands();
    d.wait();
    for (uint64_t frame = 0; frame < 4; ++frame) {
      host->begin(c);
      faults.count();
      stream.begin(c, frame);
      stream.record(kernel, {x, y});
      stream.record(tables, {x, y, z});
      stream.end();
      std::vector<std::string> calls;
      // the host has debug_utils: each dispatch lies in a range of its kernel's name
      for (const vulkan::Faults::Call& call : faults.calls())
        if (const std::string_view name = call.name; name.find("DebugUtilsLabel") == std::string_view::npos)
          calls.emplace_back(name);
      std::vector<std::string> want{"vkCmdPipelineBarrier2", "vkCmdBindPipeline",     "vkCmdPushConstants",
                                    "vkCmdDispatch",         "vkCmdPipelineBarrier2", "vkCmdBindPipeline",
                                    "vkCmdPushConstants",    "vkCmdDispatch"};
      CHECK(calls == want);
      host->run(c);
    }
    CHECK(floats(z)[7] == 28);
  }
  CHECK(faults.alive().empty());
  check_silent(std::move(host));
}

TEST_CASE("kernels that report tell it when their frame has been replaced") {
  auto host = std::make_unique<VulkanHost>();
  std::vector<std::string> lines;
  {
    DeviceOptions o;
    o.print = [&](std::string_view line) { lines.emplace_back(line); };
    const Device d = Device::import(host->imported(), o);
    const CompiledKernel says =
        load(d, ir::parse("tir 1\nkernel @says\ngrid (2)\nin f32[8] block (4) map (%i) { yield %i }\nout f32[8] block "
                          "(4) map (%i) { yield %i }\n"
                          "text \"program {}\"\nbody (%x, %o) {\n  %i = program_id axis 0\n  debug_print %i text 0\n  "
                          "%a = load %x[0:4]\n  store %o[0:4], %a\n  yield\n}\n",
                          "says.tir"));
    {
      PreparedKernel kernel = says.prepare({.frames_in_flight = 1});
      const DeviceArray x(d, ramp(8)), y(d, {8}, f32);
      const VkCommandBuffer c = host->commands();
      for (uint64_t frame = 0; frame < 2; ++frame) {
        host->begin(c);
        kernel.record(c, frame, {x, y});
        host->run(c);
        d.wait();
        CHECK(lines.size() == 2 * frame);
      }
      CHECK(floats(y)[5] == 5);
    }
    d.wait();
    CHECK(lines == std::vector<std::string>{"program 0", "program 1", "program 0", "program 1"});
  }
  check_silent(std::move(host));
}

TEST_CASE("arrays stay while their frame may run") {
  auto host = std::make_unique<VulkanHost>();
  {
    const Device d = Device::import(host->imported());
    PreparedKernel kernel = prepared(d, scale(), 2);
    const VkCommandBuffer c = host->commands();
    host->begin(c);
    const DeviceArray y(d, {kN}, f32);
    {
      const DeviceArray x(d, ramp(kN));
      kernel.record(c, 0, {x, y});
    }
    const DeviceArray other(d, ramp(kN, 1000));  // would have taken its memory
    host->run(c);
    CHECK(floats(y) == scaled_ramp(kN));
  }
  check_silent(std::move(host));
}

TEST_CASE("what is wrong with a recording is said, and nothing is recorded") {
  auto host = std::make_unique<VulkanHost>();
  {
    const Device d = Device::import(host->imported()), other = Device::import(host->imported());
    const DeviceArray x(d, ramp(kN)), y(d, {kN}, f32), small(d, {3}, f32), wrong(d, {kN}, i32), far(other, {kN}, f32);
    PreparedKernel kernel = prepared(d, scale(), 2);
    CommandStream stream(d);
    const VkCommandBuffer c = host->commands();
    host->begin(c);
    using E = SpecError;
    CHECK(error_of<E>([&] { stream.record(kernel, {x, y}); }) ==
          "scale: record() outside begin() and end() of its CommandStream");
    CHECK(error_of<E>([&] { stream.begin(VK_NULL_HANDLE, 0); }) == "CommandStream::begin: the command buffer is null");
    CHECK(error_of<E>([&] { stream.end(); }) == "CommandStream::end: there was no begin()");
    stream.begin(c, 4);
    CHECK(error_of<E>([&] { stream.begin(c, 5); }) ==
          "CommandStream::begin: the recording of frame 4 has not ended\n  note: call end() first, also for commands "
          "that are never submitted");
    CHECK(error_of<E>([&] { stream.record(kernel, {x}); }) == "scale: takes 1 input and 1 output but 1 array is given");
    for (int again = 0; again < 2; ++again)
      CHECK(error_of<E>([&] { stream.record(kernel, {small, y}); }) ==
            "scale: in_specs[0]: the kernel has been prepared for f32(200,) but the array is f32(3,)");
    CHECK(error_of<E>([&] { stream.record(kernel, {x, wrong}); }) ==
          "scale: out_specs[0]: the kernel has been prepared for f32(200,) but the array is i32(200,)");
    CHECK(error_of<E>([&] { stream.record(kernel, {far, y}); }) ==
          "scale: in_specs[0]: the array is on another Device than the call");
    CHECK(error_of<E>([&] { stream.record(kernel, {y, y}); }) ==
          "scale: out_specs[0]: the array is in_specs[0]'s too\n  note: give outputs arrays of their own, or alias "
          "them in input_output_aliases");
    CHECK(error_of<E>([&] { stream.record(kernel, {DeviceArray(), y}); }) ==
          "scale: in_specs[0]: this DeviceArray holds no array: it was never given one, or has been moved from");
    CHECK(error_of<E>([&] { stream.record(kernel, {donate(x), y}); }) ==
          "scale: argument 0 is donated, but no output is aliased to it\n  note: name one in input_output_aliases, or "
          "leave donate() out");
    PreparedKernel writes = load(d, ir::parse(kWritesAnInput, "writes.tir")).prepare({.frames_in_flight = 1});
    const DeviceArray u(d, ramp(8)), v(d, {8}, f32);
    CHECK(error_of<E>([&] { stream.record(writes, {donate(u), u, v}); }) ==
          "writes: argument 0 is donated, but argument 1 is the same array\n  at writes.tir:2\n  note: copy() one of "
          "them");
    DeviceArray gone(d, {kN}, f32);
    gone.free();
    CHECK(error_of<E>([&] { stream.record(kernel, {gone, y}); }) ==
          "scale: in_specs[0]: the device array f32[200] has been freed");
    stream.record(kernel, {x, y});
    CHECK(error_of<E>([&] { stream.record(kernel, {x, y}); }) ==
          "scale: frame 4 has 2 calls but PrepareOptions::calls_per_frame is 1");
    CommandStream elsewhere(other);
    elsewhere.begin(c, 4);
    CHECK(error_of<E>([&] { elsewhere.record(kernel, {x, y}); }) ==
          "scale: the kernel has been prepared for another Device than the CommandStream's");
    stream.end();
    stream.begin(c, 3);
    CHECK(error_of<E>([&] { stream.record(kernel, {x, y}); }) ==
          "scale: frame 3 is recorded after frame 4\n  note: number frames upwards");
    host->run(c);
    CHECK(floats(y) == scaled_ramp(kN));
    CHECK(error_of<E>([&] { prepared(d, scale(), 0); }) ==
          "scale: PrepareOptions::frames_in_flight is 0, not 1 or more");
    CHECK(error_of<E>([&] { prepared(d, scale(), 1, -1); }) ==
          "scale: PrepareOptions::calls_per_frame is -1, not 1 or more");
    CHECK(error_of<E>([&] { PreparedKernel(d, scale()); }) ==
          "scale: in_specs[0] has the run-time size n, which PrepareOptions::dims does not give");
    CHECK(error_of<E>([&] { prepared(d, scale(), 1, 1, -4); }) ==
          "scale: in_specs[0]: shape (-4,) has a negative size");
    // As many programs as of 3 x 3: what they would do is no error that shows.
    CHECK(error_of<E>([&] {
            load(d, ir::parse(R"(tir 1
kernel @square
grid (n - 4, n - 4)
out f32[n] block (squeezed) map (%i, %j) { yield %j }
body (%o) {
  %v = constant 1 : f32[]
  store %o[], %v
}
)",
                              "square.tir"))
                .prepare({.dims = {{"n", 1}}});
          }) == "square: grid axis 0 is -3\n  at square.tir:2\n  note: grid sizes must not be negative");
  }
  check_silent(std::move(host));
}

TEST_CASE("timeline semaphores of the host's order calls on the Device") {
  auto host = std::make_unique<VulkanHost>();
  {
    const Device d = Device::import(host->imported());
    const VulkanHost::Buffer from = host->buffer(1024);
    const DeviceArray x = import_buffer(d, host->range(from), {kN}, f32);
    const VkSemaphore in = host->timeline(), out = host->timeline();
    CHECK(error_of<SpecError>([&] { wait_for(d, VK_NULL_HANDLE, 1); }) == "wait_for: the semaphore is null");
    CHECK(error_of<SpecError>([&] { signal(d, VK_NULL_HANDLE, 1); }) == "signal: the semaphore is null");
    wait_for(d, in, 5);
    const DeviceArray y = launch(d, scale(), {x})[0], z = launch(d, scale(), {y})[0];
    signal(d, out, 9);
    uint64_t reached = 77;
    CHECK(host->vkGetSemaphoreCounterValue(host->device, out, &reached) == VK_SUCCESS);
    CHECK(reached == 0);
    fill(from);  // what the call waits for
    const VkSemaphoreSignalInfo go{VK_STRUCTURE_TYPE_SEMAPHORE_SIGNAL_INFO, nullptr, in, 5};
    CHECK(host->vkSignalSemaphore(host->device, &go) == VK_SUCCESS);
    const uint64_t nine = 9;
    const VkSemaphoreWaitInfo wait{VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO, nullptr, 0, 1, &out, &nine};
    CHECK(host->vkWaitSemaphores(host->device, &wait, UINT64_MAX) == VK_SUCCESS);
    CHECK(floats(z) == scaled_ramp(kN, 2));
  }
  check_silent(std::move(host));
}

TEST_CASE("every barrier between recorded calls is needed, but the first one's of all") {
  auto host = std::make_unique<VulkanHost>();
  {
    const Device d = Device::import(host->imported(), logged());
    Program aliased = add();
    aliased.args[2].alias = 0;
    PreparedKernel scales = prepared(d, scale(), 2, 4), aliases = prepared(d, aliased, 2, 1);
    const DeviceArray x(d, ramp(kN)), y(d, {kN}, f32), z(d, {kN}, f32), w(d, {kN}, f32);
    CommandStream stream(d);
    const VkCommandBuffer c = host->commands();
    const size_t begin = d.command_log().size();
    for (uint64_t frame = 0; frame < 2; ++frame) {
      host->begin(c);
      stream.begin(c, frame);
      stream.record(scales, {x, y});
      stream.record(scales, {x, z});      // beside the first
      stream.record(scales, {y, w});      // after it
      stream.record(aliases, {w, z, y});  // a copy into what has been read, then a dispatch
      stream.end();
      host->run(c);
    }
    const CommandLog log = d.command_log();
    CHECK(find_unordered(log).empty());
    size_t barriers = 0;
    for (size_t i = begin; i < log.size(); ++i) {
      if (!log[i].barrier()) continue;
      if (++barriers == 1) continue;  // of a command buffer that finds nothing before it
      CommandLog without = log;
      without.erase(without.begin() + static_cast<std::ptrdiff_t>(i));
      CHECK_FALSE(find_unordered(without).empty());
    }
    CHECK(barriers == 8);  // 3 in each frame, and the one that it begins with
  }
  check_silent(std::move(host));
}

}  // namespace record_test
