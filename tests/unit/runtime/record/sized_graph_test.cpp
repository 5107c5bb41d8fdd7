// Graphs with run-time sizes: recorded, and by themselves; of the compiler, and of bundles.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/front.h"
#include "engine/graph/sizes.h"
#include "engine/graph/write.h"
#include "runtime/call/call.h"
#include "runtime/call/graph.h"
#include "runtime/device/faults.h"
#include "runtime/interop.h"
#include "runtime/loaded_graph.h"
#include "runtime/record_graph.h"
#include "tests/support/process.h"
#include "tests/unit/runtime/bundled_graph.h"
#include "tests/unit/runtime/support.h"
#include "tests/unit/runtime/vulkan_host.h"

namespace sized_graph_test {
using namespace tessera;
using namespace tessera::test;

namespace {
const Extent n = dim("n"), m = dim("m");
const BlockSpec row = {{16}, [](Value i) { return i; }};
const auto next = pallas_call([](Ref x, Ref o) { o[all] = x[all] + 1; }, {.out_shape = {{{n}, f32}},
                                                                          .grid = {cdiv(n, 16)},
                                                                          .in_specs = row,
                                                                          .out_specs = row,
                                                                          .input_output_aliases = {{0, 0}},
                                                                          .name = "next",
                                                                          .in_shape = {{{n}, f32}}});
const auto mean =
    pallas_call([](Ref x, Ref y, Ref o) { o[all] = (x[all] + y[all]) / 2; }, {.out_shape = {{{n}, f32}},
                                                                              .grid = {cdiv(n, 16)},
                                                                              .in_specs = {row, row},
                                                                              .out_specs = row,
                                                                              .name = "mean",
                                                                              .in_shape = {{{n}, f32}, {{n}, f32}}});
/// Each element twice.
const auto twice =
    pallas_call([](Ref x, Ref o) { o[all] = reshape(broadcast_to(reshape(x[all], {8, 1}), {8, 2}), {16}); },
                {.out_shape = {{{n * 2}, f32}},
                 .grid = {cdiv(n, 8)},
                 .in_specs = {{{8}, [](Value i) { return i; }}},
                 .out_specs = row,
                 .name = "twice",
                 .in_shape = {{{n}, f32}}});
/// What is greatest in each row.
const auto widest = pallas_call([](Ref x, Ref o) { o[all] = max(x[all], {.axis = 1}); },
                                {.out_shape = {{{n}, f32}},
                                 .grid = {cdiv(n, 4)},
                                 .in_specs = {{{4, 8}, [](Value i) { return Indices{i, 0}; }}},
                                 .out_specs = {{{4}, [](Value i) { return i; }}},
                                 .name = "widest",
                                 .in_shape = {{{n, 8}, f32}}});

/// A loop and branches on arrays of n, rows of n, and 2n in the end; element-wise ops between the kernels.
auto solver() {
  return jit(
      [](Tensor x, Tensor rows, Tensor turns) {
        const Value most = widest(rows);
        const Value v = fori_loop(0, 3, Value(mean(x, most)), [&](Value, Value y) { return Value(next(mean(y, x))); });
        const Value w = switch_(
            turns, [&] { return v; }, [&] { return Value(v * 0.5f + most * cast(turns, f32)); },
            [&] {
              return fori_loop(0, minimum(turns, 4), v, [&](Value, Value y) { return Value(next((y + x) * 0.5f)); });
            });
        return std::tuple{w, Value(twice(w)), x, turns + 1};
      },
      {.name = "solver"});
}
std::vector<ShapeDtype> solver_types() { return {{{n}, f32}, {{n, 8}, f32}, {{}, i32}}; }
std::vector<Array> solver_inputs(int64_t size, int turns) {
  Array x({size}, f32), rows({size, 8}, f32);
  for (int64_t i = 0; i < x.size(); ++i) x.data<float>()[static_cast<size_t>(i)] = static_cast<float>(i % 50);
  for (int64_t i = 0; i < rows.size(); ++i) rows.data<float>()[static_cast<size_t>(i)] = static_cast<float>(i * 7 % 64);
  return {x, rows, Array({}, std::vector<int32_t>{turns})};
}
std::vector<DeviceArray> there(const Device& d, const std::vector<Array>& arrays) {
  std::vector<DeviceArray> made;
  for (const Array& a : arrays) made.emplace_back(d, a);
  return made;
}
}  // namespace

TEST_CASE("a graph with run-time sizes is traced once, written, and read") {
  const auto f = solver();
  const Graph& g = f.trace(solver_types());
  CHECK(&f.trace(solver_types()) == &g);
  CHECK(size_names(g) == std::vector<std::string>{"n"});
  for (const int64_t size : {1, 15, 97, 100}) {
    const std::vector<Array> in = solver_inputs(size, 2), out = interpret(g, in);
    const std::vector<Array> fixed = interpret(f.trace(types_of(in)), in);
    REQUIRE(out.size() == fixed.size());
    for (size_t i = 0; i < out.size(); ++i) CHECK(equal(out[i], fixed[i]));
    CHECK(out[1].shape() == Shape{2 * size});
  }
  const TemporaryFolder made("sized_graph");
  const std::string folder = (made.path / "solver").string();
  write_graph(g, folder);
  const Graph again = read_graph(folder);
  CHECK(graph_text(again).find("in %0 f32[n]\nin %1 f32[n, 8]\nin %2 i32[]\n") != std::string::npos);
  for (size_t i = 0; i < g.body.outputs.size(); ++i)
    CHECK(again.values[again.body.outputs[i]] == g.values[g.body.outputs[i]]);
  const std::vector<Array> in = solver_inputs(33, 1), a = interpret(g, in), b = interpret(again, in);
  for (size_t i = 0; i < a.size(); ++i) CHECK(equal(a[i], b[i]));
}

TEST_CASE("recorded graphs change their run-time sizes between calls") {
  auto host = std::make_unique<VulkanHost>();
  {
    const Device d = Device::import(host->imported(), logged());
    const Graph g = solver().trace(solver_types());
    const Bundle bundle = bundled(d, g);
    PreparedGraph graph(d, g, {.frames_in_flight = 2, .dims = {{"n", 100}}});
    PreparedGraph of_bundle(d, bundle.graph(d, g.name), {.frames_in_flight = 2, .dims = {{"n", 100}}});
    const LoadedGraph loaded(d, bundle.graph(d, g.name), {.dims = {{"n", 100}}});
    CHECK(of_bundle.memory_bytes() == graph.memory_bytes());
    CommandStream stream(d);
    const VkCommandBuffer c = host->commands();
    uint64_t frame = 0;
    for (const int64_t size : {100, 1, 33, 0, 64, 99, 100})
      for (const int turns : {0, 1, 3}) {
        CAPTURE(size);
        CAPTURE(turns);
        const std::vector<Array> in = solver_inputs(size, turns), wanted = interpret(g, in);
        const std::vector<DeviceArray> inputs = there(d, in);
        std::vector<DeviceArray> out, again;
        for (const Array& a : wanted) {
          out.emplace_back(d, a.shape(), a.dtype());
          again.emplace_back(d, a.shape(), a.dtype());
        }
        graph.resize({{"n", size}});
        of_bundle.resize({{"n", size}});
        CHECK(graph.sizes() == DimValues{{"n", size}});
        host->begin(c);
        stream.begin(c, frame++);
        graph.record(stream, inputs, out);
        of_bundle.record(stream, inputs, again);
        stream.end();
        host->run(c);
        const std::vector<DeviceArray> by_itself = loaded(inputs);
        for (size_t i = 0; i < wanted.size(); ++i) {
          CHECK(equal(out[i].download(), wanted[i]));
          CHECK(equal(again[i].download(), wanted[i]));
          CHECK(equal(by_itself[i].download(), wanted[i]));
        }
      }
    check_sound(d);
  }
  check_silent(std::move(host));
}

TEST_CASE("another size creates and allocates nothing on the device") {
  vulkan::Faults faults;
  auto host = std::make_unique<VulkanHost>();
  {
    const Device d = Device::import(host->imported());
    PreparedGraph graph(d, solver().trace(solver_types()), {.frames_in_flight = 2, .dims = {{"n", 64}}});
    d.wait();
    faults.count();
    for (const int64_t size : {1, 64, 0, 17}) graph.resize({{"n", size}});
    CHECK(faults.calls().empty());
  }
  CHECK(faults.alive().empty());
  check_silent(std::move(host));
}

TEST_CASE("sizes of graphs that do not fit are said, and change nothing") {
  auto host = std::make_unique<VulkanHost>();
  {
    const Device d = Device::import(host->imported());
    const auto f = solver();
    const Graph& g = f.trace(solver_types());
    const Bundle bundle = bundled(d, g);
    const std::string at = "\n  at " + to_string(f.loc());
    const auto prepare = [&](const DimValues& dims) {
      return error_of<SpecError>([&] { PreparedGraph(d, g, {.dims = dims}); });
    };
    CHECK(prepare({}) ==
          "solver: no value for the size n" + at +
              "\n  note: PrepareGraphOptions::dims gives the largest value of each size that is to come");
    CHECK(prepare({{"n", 8}, {"m", 1}}) ==
          "solver: PrepareGraphOptions::dims gives a size m, which the graph does not have" + at);
    CHECK(prepare({{"n", -1}}) ==
          "solver: f32[n] has the size -1 for n = -1" + at + "\n  note: sizes must not be negative");
    CHECK(error_of<SpecError>([&] { load(d, g); }) ==
          "solver: has the run-time size n, and a CompiledGraph is of one size" + at +
              "\n  note: at_sizes() gives the graph of one size; a PreparedGraph and a LoadedGraph have them all");

    PreparedGraph graph(d, bundle.graph(d, "solver"), {.frames_in_flight = 2, .dims = {{"n", 32}}});
    graph.resize({{"n", 20}});
    const auto resize = [&](std::initializer_list<NamedSize> sizes) {
      return error_of<SpecError>([&] { graph.resize(sizes); });
    };
    CHECK(resize({{"n", 33}}) == "solver: resize: the size n is 33 but the graph has been prepared for at most 32" +
                                     at + "\n  note: prepare it for the largest size that is to come");
    CHECK(resize({{"n", -3}}) == "solver: resize: the size n is -3, which is negative" + at);
    CHECK(resize({{"n", 5}, {"k", 3}}) ==
          "solver: resize: the size k is none that PrepareGraphOptions::dims gives" + at);
    CHECK(graph.sizes() == DimValues{{"n", 20}});

    // Still of 20.
    const std::vector<Array> in = solver_inputs(20, 1), wanted = interpret(g, in);
    const std::vector<DeviceArray> inputs = there(d, in);
    std::vector<DeviceArray> out;
    for (const Array& a : wanted) out.emplace_back(d, a.shape(), a.dtype());
    CommandStream stream(d);
    const VkCommandBuffer c = host->commands();
    host->begin(c);
    stream.begin(c, 0);
    const std::vector<DeviceArray> others = there(d, solver_inputs(32, 1));
    CHECK(error_of<SpecError>([&] { graph.record(stream, others, out); }) ==
          "solver: argument 0 is f32[32] but f32[n] is expected for n = 20" + at);
    std::vector<DeviceArray> short_out = out;
    short_out[1] = DeviceArray(d, {39}, f32);
    CHECK(error_of<SpecError>([&] { graph.record(stream, inputs, short_out); }) ==
          "solver: output 1 is f32[n * 2] for n = 20 but its array is f32[39]" + at);
    graph.record(stream, inputs, out);
    stream.end();
    host->run(c);
    for (size_t i = 0; i < wanted.size(); ++i) CHECK(equal(out[i].download(), wanted[i]));

    const LoadedGraph loaded(d, bundle.graph(d, "solver"), {.dims = {{"n", 31}}});
    CHECK(error_of<SpecError>([&] { loaded(others); }) ==
          "solver: the size n is 32 but the graph has been loaded for at most 31" + at +
              "\n  note: load it for the largest size that is to come");
    CHECK(error_of<SpecError>([&] { loaded({inputs[0], DeviceArray(d, {19, 8}, f32), inputs[2]}); }) ==
          "solver: argument 1 is f32[19, 8] but f32[n, 8] is expected for n = 20" + at);
    CHECK(error_of<SpecError>([&] { loaded({inputs[1], inputs[1], inputs[2]}); }) ==
          "solver: argument 0 is f32[20, 8] but f32[n] is expected for n = 20" + at);
    CHECK(error_of<SpecError>([&] { loaded({inputs[0], inputs[1]}); }) ==
          "solver takes 3 arguments but 2 are given" + at);
    CHECK(error_of<SpecError>([&] { LoadedGraph(d, bundle.graph(d, "solver")); }) ==
          "solver: no value for the size n" + at +
              "\n  note: LoadGraphOptions::dims gives the largest value of each size that is to come");
    const std::vector<DeviceArray> by_itself = loaded({inputs[0], inputs[1], 1});
    for (size_t i = 0; i < wanted.size(); ++i) CHECK(equal(by_itself[i].download(), wanted[i]));
  }
  check_silent(std::move(host));
}
}  // namespace sized_graph_test
