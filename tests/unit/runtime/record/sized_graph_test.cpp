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
DeviceOptions logged() {
  DeviceOptions o;
  o.log_commands = true;
  return o;
}
void check_sound(const Device& d) {
  for (const std::string& r : find_unordered(d.command_log())) FAIL_CHECK(r);
}
bool equal(const Array& a, const Array& b) {
  if (a.dtype() != b.dtype() || a.shape() != b.shape()) return false;
  for (int64_t i = 0; i < a.size(); ++i)
    if (a.at(i) != b.at(i)) return false;
  return true;
}

const Extent n = dim("n"), m = dim("m");
const BlockSpec row = {{16}, [](Value i) { return i; }};
const auto next =
    pallas_call([](Ref x, Ref o) { o[all] = x[all] + 1; }, {.out_shape = {{{n}, f32}},
                                                           .grid = {cdiv(n, 16)},
                                                           .in_specs = row,
                                                           .out_specs = row,
                                                           .input_output_aliases = {{0, 0}},
                                                           .name = "next",
                                                           .in_shape = {{{n}, f32}}});
const auto mean = pallas_call([](Ref x, Ref y, Ref o) { o[all] = (x[all] + y[all]) / 2; },
                              {.out_shape = {{{n}, f32}},
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

/// A loop and branches on arrays of n, rows of n, and 2n in the end.
auto solver() {
  return jit(
      [](Tensor x, Tensor rows, Tensor turns) {
        const Value most = widest(rows);
        const Value v = fori_loop(0, 3, Value(mean(x, most)), [&](Value, Value y) { return Value(next(mean(y, x))); });
        const Value w = switch_(
            turns, [&] { return v; }, [&] { return Value(mean(v, most)); },
            [&] {
              return fori_loop(0, minimum(turns, 4), v, [&](Value, Value y) { return Value(next(mean(y, x))); });
            });
        return std::tuple{w, Value(twice(w)), x, turns + 1};
      },
      {.name = "solver"});
}
std::vector<ShapeDtype> solver_types() { return {{{n}, f32}, {{n, 8}, f32}, {{}, i32}}; }
std::vector<Array> solver_inputs(int64_t size, int turns) {
  Array x({size}, f32), rows({size, 8}, f32);
  for (int64_t i = 0; i < x.size(); ++i) x.data<float>()[static_cast<size_t>(i)] = static_cast<float>(i % 50);
  for (int64_t i = 0; i < rows.size(); ++i)
    rows.data<float>()[static_cast<size_t>(i)] = static_cast<float>(i * 7 % 64);
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
}  // namespace sized_graph_test
