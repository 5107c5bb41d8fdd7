// Graphs of bundles run by themselves. record/record_graph_test.cpp has what they share with recorded ones: random
// graphs, what the device decides, mutants of their code.
#include "runtime/loaded_graph.h"

#include <algorithm>
#include <filesystem>
#include <thread>

#include "engine/base/write_file.h"
#include "engine/front.h"
#include "runtime/device/faults.h"
#include "runtime/submit/context.h"
#include "tests/unit/runtime/bundled_graph.h"
#include "tests/unit/runtime/support.h"

namespace loaded_graph_test {
using namespace tessera;
using namespace tessera::test;

namespace {
const auto next = pallas_call([](Ref, Ref o) { o[all] = o[all] + 1; },
                              {.out_shape = {{{64}, f32}}, .input_output_aliases = {{0, 0}}, .name = "next"});
const auto mean = pallas_call([](Ref x, Ref y, Ref o) { o[all] = (x[all] + y[all]) / 2; },
                              {.out_shape = {{{64}, f32}}, .name = "mean"});
/// x + n, by n calls in a row.
Graph chain(int n, const std::string& name = "chain") {
  return jit([n](Tensor x) { return fori_loop(0, n, x, [](Value, Value v) { return Value(next(v)); }); },
             {.name = name})
      .trace({{{64}, f32}});
}
LoadedGraph loaded(const Device& d, const Graph& g) { return {d, bundled(d, g).graph(d, g.name)}; }
std::vector<float> from(float first) {
  const Array a = ramp(64, first);
  return {a.data<float>().begin(), a.data<float>().end()};
}
}  // namespace

TEST_CASE("a graph of a bundle runs without a compiler: arrays, numbers, memory of the caller's") {
  const auto f =
      jit([](Tensor x, Tensor by) { return std::tuple{Value(next(mean(x, x))), x * by, x}; }, {.name = "solver"});
  const LoadedGraph graph = loaded(device(), f.trace({{{64}, f32}, {{}, f32}}));
  CHECK(graph.program().name == "solver");
  CHECK(graph.memory_bytes() >= 0);
  const DeviceArray x(device(), ramp(64)), two(device(), Array({}, std::vector<float>{2}));
  for (const DeviceArray& by : {two, DeviceArray(2.0f)}) {
    const std::vector<DeviceArray> out = graph({x, by});
    REQUIRE(out.size() == 3);
    CHECK(floats(out[0]) == from(1));
    CHECK(floats(out[1])[63] == 126);
    CHECK(floats(out[2]) == from(0));
  }
  std::vector<DeviceArray> mine;
  for (int i = 0; i < 3; ++i) mine.emplace_back(device(), Shape{64}, f32);
  const std::vector<DeviceArray> given = graph.run_into({x, 3.0f}, mine);
  CHECK(floats(mine[1])[63] == 189);
  CHECK(floats(given[0]) == from(1));
  CHECK(floats(x) == from(0));  // unchanged
  const std::vector<Array> host = graph.run({ramp(64), Array({}, std::vector<float>{5})});
  CHECK(host[1].data<float>()[63] == 315);

  const std::string at = "\n  at " + to_string(f.loc());
  CHECK(error_of<SpecError>([&] { graph({x}); }) == "solver takes 2 arguments but 1 is given" + at);
  CHECK(error_of<SpecError>([&] { graph({x, x}); }) == "solver: argument 1 is f32[64] but f32[] is expected" + at);
  CHECK(error_of<SpecError>([&] { graph({x, true}); }) ==
        "solver: argument 1: the number is true but the argument is f32" + at);
  CHECK(error_of<SpecError>([&] { graph({2.0f, two}); }) ==
        "solver: argument 0 is a number but f32[64] is expected" + at);
  CHECK(error_of<SpecError>([&] { graph({donate(x), two}); }) ==
        "solver: argument 0 is donated, and a graph of a bundle takes none" + at +
            "\n  note: give it without donate()");
  CHECK(error_of<SpecError>([&] { graph.run_into({x, two}, {mine[0], mine[1]}); }) ==
        "solver gives 3 outputs but 2 arrays are given for them" + at);
  CHECK(error_of<SpecError>([&] { graph.run_into({x, two}, {mine[0], x, mine[1]}); }) ==
        "solver: output 1 is to go where argument 0 is" + at + "\n  note: give it an array of its own");
  CHECK(floats(x) == from(0));
  check_clean(device());
}

TEST_CASE("a graph of a bundle with more kernels than a submission takes, and with a watchdog that ends each") {
  CHECK(floats(loaded(device(), chain(200))({DeviceArray(device(), ramp(64))})[0]) == from(200));
  DeviceOptions o;
  o.log_commands = true;
  for (const double seconds : {1e-9, 1e-5}) {
    o.watchdog_seconds = seconds;
    const Device d(o);
    const auto f = jit(
        [](Tensor x, Tensor n) {
          const BlockSpec one{{1}, [](Value i) { return Indices{i}; }};
          const auto big = pallas_call(
              [](Ref a, Ref b) { b[all] = a[all] + 1; },
              {.out_shape = {{{64}, f32}}, .grid = {64}, .in_specs = {one}, .out_specs = {one}, .name = "big"});
          return fori_loop(0, minimum(n, 5), Value(big(x)), [&](Value, Value v) { return Value(next(big(v))); });
        },
        {.name = "long"});
    const LoadedGraph graph = loaded(d, f.trace({{{64}, f32}, {{}, i32}}));
    for (const int n : {0, 3, 9})
      CHECK(floats(graph({DeviceArray(d, ramp(64)), n})[0]) == from(static_cast<float>(1 + 2 * std::min(n, 5))));
    check_clean(d);
  }
}

TEST_CASE("reload: a file with a graph that does not fit its kernels changes nothing") {
  const std::string path = temporary_path("graphs.tsb");
  const auto write = [&](const BundleFile& file) { write_file(path, bundle_to_bytes(file)); };
  BundleFile file = bundle_file(device().target(), chain(3));
  write(file);
  Bundle bundle(path);
  file.graphs[0].program.calls[1].arguments[0].index = 100;
  write(file);
  CHECK(error_of<SpecError>([&] { bundle.reload(); }).find("chain: its code does not fit its graph: it names ") == 0);
  CHECK(floats(LoadedGraph(device(), bundle.graph(device(), "chain"))({DeviceArray(device(), ramp(64))})[0]) ==
        from(3));
  write(bundle_file(device().target(), chain(5)));
  CHECK(bundle.reload());
  CHECK(floats(LoadedGraph(device(), bundle.graph(device(), "chain"))({DeviceArray(device(), ramp(64))})[0]) ==
        from(5));
  std::filesystem::remove(path);
}

TEST_CASE("threads share a graph of a bundle, and the arrays that they give it") {
  const LoadedGraph graph = loaded(device(), chain(70));
  const DeviceArray x(device(), ramp(64));
  std::vector<std::thread> threads;
  std::vector<std::vector<float>> got(4);
  for (size_t t = 0; t < got.size(); ++t)
    threads.emplace_back([&, t] {
      DeviceArray a = x;
      for (int i = 0; i < 5; ++i) a = graph({a})[0];
      got[t] = floats(a);
    });
  for (std::thread& t : threads) t.join();
  for (const std::vector<float>& g : got) CHECK(g == from(350));
  check_clean(device());
}

TEST_CASE("what kernels of a bundle's graph print and check comes as from a launch") {
  std::vector<std::string> lines;
  DeviceOptions o;
  o.print = [&](const std::string& line) { lines.push_back(line); };
  const Device d(o);
  const auto f = jit(
      [](Tensor x) {
        const auto told = pallas_call(
            [](Ref a, Ref b) {
              debug_print("the largest is {}", max(a[all]));
              check(max(a[all]) < 100.0f, "too large");
              b[all] = a[all] * 2;
            },
            {.out_shape = {{{64}, f32}}, .name = "told"});
        return Value(next(told(x)));
      },
      {.name = "telling"});
  const LoadedGraph graph = loaded(d, f.trace({{{64}, f32}}));
  const std::vector<Array> out = graph.run({ramp(64)});
  CHECK(out[0].data<float>()[63] == 127);
  REQUIRE(lines.size() == 1);
  CHECK(lines[0].find("the largest is 63") != std::string::npos);
  const DeviceArray bad = graph({DeviceArray(d, ramp(64, 100))})[0];
  const std::string error = error_of<KernelError>([&] { bad.download(); });
  CHECK_MESSAGE(error.find("too large") != std::string::npos, error);
  CHECK(floats(graph({DeviceArray(d, ramp(64))})[0])[0] == 1);  // the next call is good
  CHECK(lines.size() == 3);
}

TEST_CASE("what a kernel checks in a branch is true of the result, whatever the other branches are") {
  const Device d;
  const auto f = jit(
      [](Tensor x, Tensor i) {
        const auto checked = pallas_call(
            [](Ref a, Ref b) {
              check(max(a[all]) < 100.0f, "too large");
              b[all] = a[all] + 2;
            },
            {.out_shape = {{{64}, f32}}, .name = "checked"});
        const auto index = pallas_call(
            [](Ref a, Ref b) {
              check(max(a[all]) < 200.0f, "far too large");
              b[{}] = 1;
            },
            {.out_shape = {{{}, i32}}, .name = "index"});
        return std::tuple{
            switch_(
                i, [&] { return Value(checked(x)); }, [&] { return Value(mean(x, x)); }),
            switch_(Value(index(x)), [&] { return Value(mean(x + x, x)); }, [&] { return Value(mean(x, x)); })};
      },
      {.name = "choice"});
  const LoadedGraph graph = loaded(d, f.trace({{{64}, f32}, {{}, i32}}));
  const DeviceArray good(d, ramp(64)), bad(d, ramp(64, 100)), worse(d, ramp(64, 200));
  const auto error = [](const DeviceArray& a) { return error_of<KernelError>([&] { a.download(); }); };
  const std::vector<DeviceArray> first = graph({bad, 0});
  CHECK(error(first[0]).find("checked: check failed in program (): too large") == 0);
  CHECK(error_of<KernelError>([&] { d.wait(); }).empty());    // it has been told
  CHECK(floats(graph({bad, 1})[0]) == from(100));             // the branch does not run
  const std::vector<DeviceArray> second = graph({worse, 1});  // the value that decides is wrong
  CHECK(error(second[1]).find("index: check failed in program (): far too large") == 0);
  graph.run_into({good, 0}, second);  // what was wrong is forgotten
  CHECK(floats(second[0]) == from(2));
  CHECK(floats(second[1]) == from(0));
  d.wait();
  check_clean(d);
}

TEST_CASE("where a call of a bundle's graph throws, what was wrong in the outputs' memory stays wrong") {
  vulkan::Faults faults;
  const Device d;
  const auto f = jit(
      [](Tensor x) {
        const auto checked = pallas_call(
            [](Ref a, Ref b) {
              check(max(a[all]) < 100.0f, "too large");
              b[all] = a[all];
            },
            {.out_shape = {{{64}, f32}}, .name = "checked"});
        return Value(next(checked(x)));
      },
      {.name = "strict"});
  const LoadedGraph graph = loaded(d, f.trace({{{64}, f32}}));
  const DeviceArray good(d, ramp(64));
  const std::vector<DeviceArray> out = graph({DeviceArray(d, ramp(64, 100))});
  d.submit_nothing();
  faults.fail("vkQueueSubmit2", 0, VK_ERROR_OUT_OF_DEVICE_MEMORY);
  CHECK_THROWS_AS(graph.run_into({good}, out), DeviceError);
  CHECK(faults.failed());
  CHECK(error_of<KernelError>([&] { out[0].download(); }).find("too large") != std::string::npos);
  graph.run_into({good}, out);
  CHECK(floats(out[0]) == from(1));
}

TEST_CASE("whether a kernel of a bundle's graph runs is decided on the device, however short the watchdog's time is") {
  DeviceOptions options;
  options.watchdog_seconds = 1e-12;
  const Device d(options);
  const auto n = dim("n");
  const auto sums = pallas_call(
      [](Ref x, Ref, Ref o) {  // row by row, in steps
        check(max(x[all]) < 5, "a large one");
        o[all] = o[all] + x[all];
      },
      {.out_shape = {{{64}, f32}},
       .grid = {n},
       .in_specs = {{{squeezed, 64}, [](Value i) { return Indices{i, 0}; }}, {{64}, [](Value) { return Indices{0}; }}},
       .out_specs = {{{64}, [](Value) { return Indices{0}; }}},
       .input_output_aliases = {{1, 0}},
       .name = "sums",
       .in_shape = {{{n, 64}, f32}, {{64}, f32}}});
  const auto f = jit(
      [&](Tensor x, Tensor y, Tensor i) { return switch_(i, [&] { return y; }, [&] { return Value(sums(x, y)); }); },
      {.name = "choice"});
  const Graph& g = f.trace({{{100, 64}, f32}, {{64}, f32}, {{}, i32}});
  const auto rows = [&](float v) {
    Array a({100, 64}, f32);
    for (float& x : a.data<float>()) x = v;
    return DeviceArray(d, a);
  };
  const DeviceArray y(d, ramp(64));
  const auto check_all = [&](const LoadedGraph& graph) {
    CHECK(floats(graph({rows(1), y, 1})[0]) == from(100));
    CHECK(floats(graph({rows(9), y, 0})[0]) == from(0));
    CHECK(error_of<KernelError>([&] { graph({rows(9), y, 1})[0].download(); }).find("a large one") !=
          std::string::npos);
  };
  check_all(loaded(d, g));
}

}  // namespace loaded_graph_test
