// Graphs and the watchdog: what would take longer than it allows is cut, what together would is submitted apart, and a
// lost device is told by the names of calls.
#include <filesystem>
#include <fstream>

#include "engine/graph/plan.h"
#include "runtime/call/graph.h"
#include "runtime/device/faults.h"
#include "runtime/launch/bound.h"
#include "runtime/submit/context.h"
#include "tests/unit/runtime/support.h"

namespace graph_slices_test {
using namespace tessera;
using namespace tessera::test;

namespace {

struct Folder {
  std::string path = test::temporary_path("graph_slices").string();
  Folder() {
    std::filesystem::create_directories(path);
    const std::string
        block = " block (256) map (%i) { yield %i }\n",
        body = "body (%x, %o) {\n  %a = load %x[0:256]\n  %b = add %a, %a\n  store %o[0:256], %b\n  yield\n}\n";
    std::ofstream(path + "/twice.tir") << "tir 1\nkernel @twice\ngrid (8 parallel)\nin f32[2048]" + block +
                                              "out f32[2048]" + block + body;
    std::ofstream(path + "/some.tir") << "tir 1\nkernel @some\ngrid (n parallel)\nin f32[2048]" + block +
                                             "out f32[2048] alias 0" + block + body;
    std::ofstream(path + "/kept.tir") << "tir 1\nkernel @kept\ngrid (n parallel)\nin f32[2048]" + block +
                                             "out f32[2048] alias 0" + block +
                                             "scratch ref<vmem, f32[700, 256]>\nbody (%x, %o, %s) {\n  %a = load "
                                             "%x[0:256]\n  %b = broadcast %a dims [1] : f32[700, 256]\n  store "
                                             "%s[0:700, 0:256], %b\n  %i = program_id axis 0\n  %c = load %s[%i, "
                                             "0:256]\n  %d = add %a, %c\n  store %o[0:256], %d\n  yield\n}\n";
    std::ofstream(path + "/below.tir") << "tir 1\nkernel @below\nin f32[2048] whole\nout bool[] whole\nbody (%x, %o) "
                                          "{\n  %a = load %x[2047]\n  %b = constant 1000.0 : f32[]\n  %c = lt %a, %b\n"
                                          "  store %o[], %c\n  yield\n}\n";
  }
  ~Folder() { std::filesystem::remove_all(path); }
  Graph graph(const std::string& text) const { return parse_graph("tessera graph 1\n" + text, path); }
};

Device allowed(double seconds) {
  DeviceOptions o;
  o.validation = kValidation, o.log_commands = true;
  o.watchdog_seconds = seconds;
  return Device(o);
}
/// Of a kind since the log had so many entries.
template <class Event>
size_t logged(const Device& d, const std::string& what, size_t since = 0) {
  size_t n = 0;
  const CommandLog log = d.command_log();
  for (size_t i = since; i < log.size(); ++i) n += log[i].is<Event>() && log[i].what == what;
  return n;
}
void check_same(const std::vector<Array>& got, const std::vector<Array>& wanted) {
  REQUIRE(got.size() == wanted.size());
  for (size_t i = 0; i < got.size(); ++i)
    for (int64_t e = 0; e < wanted[i].size(); ++e) CHECK(got[i].at(e) == wanted[i].at(e));
}
Array scalar_of(int32_t v) { return Array({}, std::vector<int32_t>{v}); }

}  // namespace

TEST_CASE("graphs: what is cut is left to the host to decide") {
  const Folder folder;
  const Device d = allowed(1e-12);
  const Graph branch = folder.graph(
      "in %0 f32[2048]\nin %1 i32[]\n%2 = switch %1 : f32[2048] {\n  out %0\n} {\n  %3 = call \"twice.tir\"(%0) : "
      "f32[2048]\n  out %3\n}\nout %2\n");
  const CompiledGraph one = load(d, branch, {.fuse = false});
  REQUIRE(one.plan().nodes.size() == 1);
  CHECK(one.plan().nodes[0].why == "twice is estimated to take longer than the watchdog allows, so it is cut");
  for (const int i : {0, 1, 0}) {
    const size_t before = d.command_log().size();
    const std::vector<Array> inputs{ramp(2048), scalar_of(i)};
    check_same(one.run(inputs), interpret(branch, inputs));
    CHECK(logged<LogEntry::Command>(d, "dispatch twice", before) == (i == 1 ? 8 : 0));
  }
  const Graph loop = folder.graph(
      "in %0 f32[2048]\n%1 = repeat at_most 20 : f32[2048] {\n  carry %2 f32[2048] = %0\n  %3 = call \"below.tir\"(%2) "
      ": bool[]\n  while %3\n"
      "  %4 = call \"twice.tir\"(%2) : f32[2048]\n  out %4\n}\nout %1\n");
  const CompiledGraph many = load(d, loop, {.fuse = false});
  check_same(many.run({ramp(2048, 1)}), interpret(loop, {ramp(2048, 1)}));
  check_clean(d);
  // With time enough the device decides.
  const Device patient = allowed(0.5);
  const CompiledGraph gated = load(patient, loop, {.fuse = false});
  CHECK(gated.plan().recorded(gated.plan().nodes[0]));
  check_same(gated.run({ramp(2048, 1)}), interpret(loop, {ramp(2048, 1)}));
  check_clean(patient);
}

TEST_CASE("graphs: a call whose grid's size is a value is cut like any other") {
  const Folder folder;
  const Device d = allowed(1e-12);
  const Graph g = folder.graph(
      "in %0 f32[2048]\nin %1 i32[]\n%2 = call \"twice.tir\"(%0) : f32[2048]\n%3 = call \"some.tir\"(%2) with n = %1 : "
      "f32[2048]\n%4 = call \"twice.tir\"(%3) : f32[2048]\nout %4\n");
  const CompiledGraph there = load(d, g, {.fuse = false});
  for (const int n : {5, 0, 1, 8}) {
    const size_t before = d.command_log().size();
    const std::vector<Array> inputs{ramp(2048), scalar_of(n)};
    check_same(there.run(inputs), interpret(g, inputs));
    const size_t dispatches = logged<LogEntry::Command>(d, "dispatch some", before);
    CHECK((n == 0 ? dispatches == 0 : dispatches >= static_cast<size_t>(n)));
  }
  check_clean(d);
}

TEST_CASE("graphs: the scratch of a call whose grid's size is a value stays to its last slice") {
  const Folder folder;
  const Device d = allowed(1e-12);
  const Graph g =
      folder.graph("in %0 f32[2048]\nin %1 i32[]\n%2 = call \"kept.tir\"(%0) with n = %1 : f32[2048]\nout %2\n");
  const CompiledGraph there = load(d, g, {.fuse = false});
  REQUIRE(load(d, there.graph().kernels[0]).program().scratch_bytes > 0);
  for (const int n : {5, 0, 1, 8}) {
    const size_t before = d.command_log().size();
    const std::vector<Array> inputs{ramp(2048), scalar_of(n)};
    check_same(there.run(inputs), interpret(g, inputs));
    // From its first dispatch to the last one no memory goes.
    const CommandLog log = d.command_log();
    std::vector<size_t> dispatches;
    for (size_t i = before; i < log.size(); ++i)
      if (log[i].is<LogEntry::Command>() && log[i].what == "dispatch kept") dispatches.push_back(i);
    CHECK(dispatches.empty() == (n == 0));
    size_t gone = 0;
    for (size_t i = n == 0 ? 0 : dispatches.front(); n != 0 && i < dispatches.back(); ++i)
      gone += log[i].is<LogEntry::Release>();
    CHECK(gone == 0);
  }
  check_clean(d);
}

TEST_CASE("graphs: a donated argument is gone when a later slice is not taken") {
  const Folder folder;
  vulkan::Faults faults;
  const Device d = allowed(1e-12);
  const Graph g = folder.graph(
      "in %0 f32[2048]\n%1 = call \"twice.tir\"(%0) : f32[2048]\n%2 = call \"twice.tir\"(%1) : f32[2048]\nout "
      "%2\n");
  const CompiledGraph there = load(d, g, {.fuse = false, .donated = {true}});
  for (const int taken : {0, 10}) {
    const DeviceArray x(d, ramp(2048));
    d.wait();
    faults.fail("vkQueueSubmit2", static_cast<uint64_t>(taken), VK_ERROR_OUT_OF_DEVICE_MEMORY);
    CHECK(error_of<DeviceError>([&] { there({donate(x)}); }) ==
          "vkQueueSubmit2 of a graph on " + d.info().name + ": VK_ERROR_OUT_OF_DEVICE_MEMORY");
    CHECK(x.valid() == (taken == 0));
    if (taken == 0) CHECK(floats(x)[5] == 5);
    d.wait();
  }
  check_same({there({donate(DeviceArray(d, ramp(2048)))})[0].download()}, interpret(g, {ramp(2048)}));
  check_clean(d);
}

TEST_CASE(
    "graphs: calls that together would take too long are submitted apart, also where the host iterations a loop") {
  const Folder folder;
  const Graph g = folder.graph(
      "in %0 f32[2048]\n%1 = repeat 1100 : f32[2048] {\n  carry %2 f32[2048] = %0\n  %3 = call \"twice.tir\"(%2) : "
      "f32[2048]\n  out %3\n}\n%4 = call \"twice.tir\"(%1) : f32[2048]\nout %4\n");
  const Device first = allowed(0);
  const CompiledKernel twice = load(first, g.kernels[0]);
  const double seconds = vulkan::seconds_of(*first.context(), twice.program(), {});
  REQUIRE(seconds > 0);
  for (const int together : {10, 100}) {
    const Device d = allowed(seconds * (together + 0.5));
    const CompiledGraph there = load(d, g, {.fuse = false});
    const size_t before = d.command_log().size();
    const Array zeros({2048}, std::vector<float>(2048));
    check_same(there.run({zeros}), {zeros});
    const size_t submissions = logged<LogEntry::Submit>(d, "a graph", before),
                 iterations = 1100 / static_cast<size_t>(together);
    CHECK(submissions >= iterations);
    CHECK(submissions <=
          iterations + 2);  // with the first iteration comes the argument's copy, and after the last one a call
    check_clean(d);
  }
}

TEST_CASE("graphs: a lost device is told by the calls that were running") {
  const Folder folder;
  const Graph g = folder.graph(
      "in %0 f32[2048]\n%1 = call \"twice.tir\"(%0) : f32[2048]\n%2 = call \"twice.tir\"(%1) : f32[2048]\n%3 = call "
      "\"below.tir\"(%2) : bool[]\nout %3\n");
  const auto lost = [&](double seconds, const char* function, int at) {
    vulkan::Faults faults;
    DeviceOptions o;
    o.watchdog_seconds = seconds;
    const Device d(o);
    const CompiledGraph there = load(d, g, {.fuse = false});
    const DeviceArray x(d, ramp(2048));
    there({x});
    d.wait();
    faults.fail(function, at, VK_ERROR_DEVICE_LOST);
    std::string said = error_of<DeviceError>([&] { there({x})[0].download(); });
    for (const std::string& hidden : {d.info().name, folder.path + "/"})
      for (size_t i; (i = said.find(hidden)) != std::string::npos;) said.erase(i, hidden.size());
    return said;
  };
  const std::string note = "\n  note: Device::recover() makes it usable again, without the contents of its arrays",
                    loc = "\n  at twice.tir:2";
  const std::string calls = "a graph, 3 calls, twice at twice.tir:2 to below at below.tir:2";
  const std::string whole = lost(0.5, "vkWaitSemaphores", 0),
                    begin = "vkWaitSemaphores on : VK_ERROR_DEVICE_LOST; it was running ";
  // A GPU's memory is read by a copy on the device, which is running last.
  const bool copies = whole.find("the download of bool[]") != std::string::npos;
  CHECK(copies == (device().info().kind != "CPU"));
  if (copies) CHECK(whole == begin + "the download of bool[]; it had finished " + calls + note);
  else CHECK(whole == begin + calls + "; it had finished " + calls + loc + note);
  // Cut: the third slice of the first call is not taken; how far it had come is chance.
  const std::string cut = lost(1e-12, "vkQueueSubmit2", 2);
  CHECK(cut.starts_with("vkQueueSubmit2 of a graph on : VK_ERROR_DEVICE_LOST; "));
  CHECK((cut.find("a graph, twice at twice.tir:2, workgroups 0 to 0 of 8 (slice 1 of 8)") != std::string::npos ||
         cut.find("a graph, twice at twice.tir:2, workgroups 1 to 1 of 8 (slice 2 of 8)") != std::string::npos));
  CHECK(cut.ends_with(note));
}

}  // namespace graph_slices_test
