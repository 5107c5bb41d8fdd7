#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "engine/base/npy.h"
#include "engine/front.h"
#include "runtime/call/call.h"
#include "runtime/call/host_call.h"
#include "runtime/call/jit.h"
#include "runtime/call/make_graph_program.h"
#include "runtime/device/faults.h"
#include "runtime/loaded_graph.h"
#include "runtime/record.h"
#include "tests/unit/runtime/bundled_graph.h"
#include "tests/unit/runtime/support.h"

namespace graph_test {
using namespace tessera;
using namespace tessera::test;

namespace {

const char* kAdd = R"(tir 1
kernel @add
grid (2)
in f32[8] block (4) map (%i) { yield %i }
in f32[8] block (4) map (%i) { yield %i }
out f32[8] block (4) map (%i) { yield %i }
body (%x, %y, %o) {
  %a = load %x[0:4]
  %b = load %y[0:4]
  %c = add %a, %b
  store %o[0:4], %c
  yield
}
)";
const char* kGraph = R"(tessera graph 1
in %0 f32[8]
in %1 f32[8]
const %2 f32[8] "tens.npy"

%3 = call "add.tir"(%0, %1) : f32[8]
%4 = call "add.tir"(%3, %2) : f32[8]
%5 = call "add.tir"(%4, %3) : f32[8]
out %5
out %0
out %2
)";

struct Folder {
  std::string path = (temporary_path("graph")).string();
  explicit Folder(const std::string& graph) {
    std::filesystem::create_directories(path);
    std::ofstream(path + "/graph.txt") << graph;
    std::ofstream(path + "/add.tir") << kAdd;
    write_npy(path + "/tens.npy", Array({8}, std::vector<float>(8, 10)));
  }
  ~Folder() { std::filesystem::remove_all(path); }
};
void check_answers(const std::vector<Array>& out) {
  REQUIRE(out.size() == 3);
  for (int i = 0; i < 8; ++i) {
    CHECK(out[0].at(i) == 4 * i + 2 * 1 + 10);  // ((x + y) + 10) + (x + y), x = i, y = i + 1
    CHECK(out[1].at(i) == i);
    CHECK(out[2].at(i) == 10);
  }
}
std::string replaced(std::string text, const std::string& from, const std::string& to) {
  return text.replace(text.find(from), from.size(), to);
}

}  // namespace

TEST_CASE("a graph of kernels on a device and on the interpreter") {
  const Folder folder(kGraph);
  const Graph graph = read_graph(folder.path);
  CHECK(graph.kernels.size() == 1);  // three calls of one kernel
  check_answers(interpret(graph, {ramp(8), ramp(8, 1)}));
  const CompiledGraph there = load(device(), graph);
  for (int turn = 0; turn < 2; ++turn) check_answers(there.run({ramp(8), ramp(8, 1)}));
  check_clean(device());
  CHECK(error_of<SpecError>([&] { there.run({ramp(8)}); }) == "the graph takes 2 arguments but 1 is given");
  CHECK(error_of<SpecError>([&] { interpret(graph, {ramp(8), ramp(7)}); }) ==
        "the graph: argument 1 is f32[7] but f32[8] is expected");
}

TEST_CASE("a graph works on the host's arrays in place") {
  const Folder folder(kGraph);
  const CompiledGraph there = load(device(), read_graph(folder.path));
  const Array x = ramp(8), y = ramp(8, 1);
  std::vector<Array> out(3, Array({8}, DType::f32));
  const auto host = [](const Array& a) { return HostArray{a.dtype(), a.shape(), const_cast<std::byte*>(a.bytes())}; };
  const HostArray arguments[] = {host(x), host(y)};
  std::vector<HostArray> results;
  for (Array& a : out) results.push_back({a.dtype(), a.shape(), a.bytes()});
  for (int turn = 0; turn < 2; ++turn) {
    // only the one that no call makes, an input; or all five
    CHECK(call_on_host(there, arguments, results) == (uses_host_memory(device()) ? 32 : 160));
    check_answers(out);
    for (Array& a : out) std::memset(a.bytes(), 0, 32);
  }
  check_clean(device());
  CHECK(error_of<SpecError>([&] { call_on_host(there, {arguments, 1}, results); }) ==
        "the graph takes 2 arguments but 1 is given");
  CHECK(error_of<SpecError>([&] { call_on_host(there, arguments, {results.data(), 2}); }) ==
        "the graph gives 3 outputs but 2 are expected");
  results[1].shape = {4, 2};
  CHECK(error_of<SpecError>([&] { call_on_host(there, arguments, results); }) ==
        "the graph: output 1 is f32[8] but f32[4, 2] is expected");
}

TEST_CASE("a graph into arrays of the caller's") {
  const Folder folder(kGraph);
  const CompiledGraph there = load(device(), read_graph(folder.path));
  const DeviceArray x(device(), ramp(8)), y(device(), ramp(8, 1)), a(device(), {8}, f32), b(device(), {8}, f32), none;
  for (const std::vector<DeviceArray>& into : {std::vector{a, b, none}, std::vector{a, none, none}}) {
    const std::vector<DeviceArray> out = there.run_into({x, y}, into);
    check_answers({out[0].download(), out[1].download(), out[2].download()});
    CHECK(out[0].buffer("the test") == a.buffer("the test"));
  }
  const auto error = [&](const std::vector<DeviceArray>& into) {
    return error_of<SpecError>([&] { there.run_into({x, y}, into); });
  };
  const std::string own = "\n  note: give it an array of its own";
  CHECK(error({}) == "the graph gives 3 outputs but 0 arrays are given for them");
  CHECK(error({a, b}) == "the graph gives 3 outputs but 2 arrays are given for them");
  CHECK(error({DeviceArray(device(), {4}, f32), b, none}) == "the graph: output 0 is f32[8] but its array is f32[4]");
  CHECK(error({a, DeviceArray(device(), {8}, i32), none}) == "the graph: output 1 is f32[8] but its array is i32[8]");
  CHECK(error({DeviceArray(Device(), {8}, f32), none, none}) ==
        "the graph: output 0: the array is on another Device than the graph");
  CHECK(error({y, none, none}) == "the graph: output 0 is to go where argument 1 is" + own);
  CHECK(error({a, a, none}) == "the graph: output 0 and output 1 are one array" + own);
  CHECK(error_of<SpecError>([&] { there.run_into({donate(x), y}, {x, none, none}); }) ==
        "the graph: output 0 is to go where argument 0 is" + own);
  check_answers(there.run({ramp(8), ramp(8, 1)}));
  CHECK(x.valid());  // nothing has been taken
  check_clean(device());
}

const ShapeDtype kEight{{8}, f32};
/// o = 2 x, with a check in it or without.
auto doubling(bool checks) {
  const auto kernel = [=](Ref a, Ref o) {
    o[all] = a[all] * 2.0f;
    if (checks) check(a[0] >= 0.0f, "negative");
  };
  return pallas_call(kernel, {.out_shape = kEight, .name = checks ? "checked" : "twice"});
}
/// A graph of that alone.
CompiledGraph doubling_graph(const Device& d, bool checks) {
  return load(d, jit([=](Tensor x) { return doubling(checks)(x); }), {kEight});
}

TEST_CASE("a graph into an array that holds what has failed, or from one") {
  const CompiledGraph twice = doubling_graph(device(), false), checked = doubling_graph(device(), true);
  const DeviceArray x(device(), ramp(8)), bad(device(), ramp(8, -8)), o(device(), {8}, f32), p(device(), {8}, f32);
  checked.run_into({bad}, {o});
  CHECK(error_of<KernelError>([&] { o.download(); }).find("negative") != std::string::npos);
  twice.run_into({o}, {p});
  CHECK(error_of<KernelError>([&] { p.download(); }).find("negative") != std::string::npos);
  twice.run_into({x}, {o});
  CHECK(o.download().at(3) == 6);
  twice.run_into({o}, {p});
  CHECK(p.download().at(3) == 12);
  check_clean(device());
}

TEST_CASE("a graph after a call for whose report there was no memory") {
  vulkan::Faults faults;
  const Device d;
  for (const bool first : {true, false}) {
    CAPTURE(first);
    const CompiledGraph graph = doubling_graph(d, true);
    const CompiledKernel other = load(d, doubling(true).trace({kEight}));
    const DeviceArray x(d, ramp(8)), y(d, ramp(8, 100)), o(d, {8}, f32), p(d, ramp(8, -1));
    if (!first) {
      graph.run_into({x}, {o});
      CHECK(o.download().at(3) == 6);
    }
    const PreparedKernel keeps = other.prepare({.frames_in_flight = 4});  // the reports that the Device has at hand
    faults.fail("vkCreateBuffer", 0, VK_ERROR_UNKNOWN);
    CHECK_THROWS_AS(graph.run_into({y}, {p}), Error);
    CHECK(faults.failed());
    faults.count();
    for (int again = 0; again < 2; ++again) {
      graph.run_into({y}, {p});
      CHECK(p.download().at(3) == 206);
    }
    graph.run_into({x}, {o});
    CHECK(o.download().at(3) == 6);
  }
}

TEST_CASE("what tessera.export has written gives JAX's answers") {
  const std::string folder = "tests/data/graph/";
  const Graph graph = read_graph("tests/data/graph");
  const std::vector<Array> inputs{read_npy(folder + "in0.npy"), read_npy(folder + "in1.npy")};
  for (const std::vector<Array>& got : {interpret(graph, inputs), load(device(), graph).run(inputs)}) {
    REQUIRE(got.size() == 2);
    for (size_t i = 0; i < got.size(); ++i) {
      const Array wanted = read_npy(folder + "out" + std::to_string(i) + ".npy");
      REQUIRE(got[i].shape() == wanted.shape());
      REQUIRE(got[i].dtype() == wanted.dtype());
      const double tolerance = i == 0 ? 1.0 / 128 : 1e-5;  // bf16 has eight bits
      for (int64_t e = 0; e < wanted.size(); ++e)
        CHECK(std::abs(got[i].at(e) - wanted.at(e)) <= tolerance * std::abs(wanted.at(e)));
    }
  }
  check_clean(device());
}

TEST_CASE("a loop of one iteration: its row is the whole array, and each result has its own shape") {
  const std::string loop = "tessera graph 1\nin %0 f32[1, 8]\nin %1 f32[8]\n";
  const std::string body = " {\n  carry %5 f32[8] = %1\n  slice %6 f32[8] = %0\n";
  for (const std::string& text :
       {loop + "%2, %3 = repeat 1 : f32[8], f32[1, 8]" + body +
            "  %7 = call \"add.tir\"(%6, %5) : f32[8]\n  out %7\n  out %7\n}\nout %2\nout %3\n",
        loop + "%2 = repeat 1 : f32[8]" + body + "  out %6\n}\nout %2\nout %0\n",
        loop + "%2 = repeat 1 : f32[8]" + body + "  %7 = call \"more.tir\"(%6, %5) : f32[8]\n  out %7\n}\nout %2\n"}) {
    const Folder folder(text);
    std::ofstream(folder.path + "/more.tir") << replaced(kAdd, "out f32[8]", "out f32[8] alias 0");
    const Graph graph = read_graph(folder.path);
    const std::vector<Array> inputs{Array({1, 8}, std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7}),
                                    Array({8}, std::vector<float>(8, 3))};
    const std::vector<Array> wanted = interpret(graph, inputs);
    for (const bool donated : {false, true}) {
      const std::vector<Array> got = load(device(), graph, {.donated = {donated, donated}}).run(inputs);
      REQUIRE(got.size() == wanted.size());
      for (size_t i = 0; i < got.size(); ++i) {
        REQUIRE(got[i].shape() == wanted[i].shape());
        for (int64_t e = 0; e < got[i].size(); ++e) CHECK(got[i].at(e) == wanted[i].at(e));
      }
    }
    std::vector<DeviceArray> in;
    for (const Array& a : inputs) in.emplace_back(device(), a);
    std::vector<DeviceArray> out;
    const std::string refused = error_of<CompileError>([&] {
      const Bundle bundle = bundled(device(), graph);
      out = LoadedGraph(device(), bundle.graph(device(), graph.name))(in);
    });
    CHECK_MESSAGE(refused.empty(), text << refused);
    for (size_t i = 0; i < out.size(); ++i) {
      const Array got = out[i].download();
      REQUIRE(got.shape() == wanted[i].shape());
      for (int64_t e = 0; e < got.size(); ++e) CHECK(got.at(e) == wanted[i].at(e));
    }
  }
  check_clean(device());
}

TEST_CASE("what is wrong with the text of a graph is said with its line" * without_device) {
  const Folder folder(kGraph);
  const std::string at = folder.path + "/graph.txt:";
  auto error = [&](const std::string& from, const std::string& to) {
    return error_of<TraceError>([&] { parse_graph(replaced(kGraph, from, to), folder.path); });
  };
  CHECK(error("tessera graph 1", "tir 1") == at + "1: this is no graph: its first line should be \"tessera graph 1\"");
  CHECK(error("graph 1", "graph 2") == at + "1: the graph is of version 2, and this Tessera reads version 1");
  CHECK(error("in %1 f32[8]", "in %0 f32[8]") == at + "3: %0 is defined a second time");
  CHECK(error("in %1 f32[8]", "in %1 f33[8]") == at + "3: \"f33\" is no dtype");
  CHECK(error("const %2 f32[8]", "const %2 f32[7]") ==
        at + "4: " + folder.path + "/tens.npy holds f32[8] but f32[7] is expected");
  CHECK(error("(%3, %2)", "(%4, %2)") == at + "7: %4 is not defined above");
  CHECK(error("(%3, %2)", "(%3)") == at + "7: add takes 2 inputs but 1 is given");
  CHECK(error("%4 = call \"add.tir\"(%3, %2) : f32[8]", "%4 = call \"add.tir\"(%3, %2) : f32[9]") ==
        at + "7: add: result 0 is f32[8] but the call says f32[9]");
  CHECK(error("%4 = call \"add.tir\"(%3, %2) : f32[8]", "%4, %6 = call \"add.tir\"(%3, %2) : f32[8]") ==
        at + "7: add has 1 output but the call has 2 results and 1 type");
  CHECK(error("\"tens.npy\"", "\"../tens.npy\"") ==
        at + "4: \"../tens.npy\" is not the name of a file in the graph's folder");
  CHECK(error("out %0", "out %0 %1") == at + "10: unexpected \"%1\"");
  CHECK(error("out %0", "give %0") == at + "10: expected in, const, out, or a call, repeat or switch");
  const std::string text = kGraph;
  for (size_t n = 0; n < text.size(); ++n) {
    try {
      parse_graph(text.substr(0, n), folder.path);
    } catch (const Error&) {  // and nothing else
    }
  }
}

}  // namespace graph_test
