// Graphs in a host's command buffers.
#include "runtime/record_graph.h"

#include <algorithm>
#include <memory>
#include <random>

#include "engine/front.h"
#include "runtime/call/call.h"
#include "runtime/interop.h"
#include "runtime/loaded_graph.h"
#include "tests/support/mixed_jit.h"
#include "tests/support/random_jit.h"
#include "tests/unit/runtime/bundled_graph.h"
#include "tests/unit/runtime/support.h"
#include "tests/unit/runtime/vulkan_host.h"

namespace record_graph_test {
using namespace tessera;
using namespace tessera::test;

namespace {
const auto next = pallas_call([](Ref, Ref o) { o[all] = o[all] + 1; },
                              {.out_shape = {{{64}, f32}}, .input_output_aliases = {{0, 0}}, .name = "next"});
const auto mean = pallas_call([](Ref x, Ref y, Ref o) { o[all] = (x[all] + y[all]) / 2; },
                              {.out_shape = {{{64}, f32}}, .name = "mean"});
}  // namespace

TEST_CASE("a graph is recorded into a host's command buffers, frame after frame") {
  auto host = std::make_unique<VulkanHost>();
  {
    const Device d = Device::import(host->imported(), logged());
    const int line = __LINE__ + 1;
    const auto f = jit(
        [](Tensor x, Tensor y) {
          const Tensor a = mean(x, y);
          return std::tuple{fori_loop(0, 3, a, [&](Value, Value v) { return Value(next(mean(v, y))); }), a, x, a};
        },
        {.name = "solver"});
    const Graph& g = f.trace({{{64}, f32}, {{64}, f32}});
    PreparedGraph graph(d, g, {.frames_in_flight = 2});
    CommandStream stream(d);
    const VkCommandBuffer c = host->commands();
    Array x = ramp(64);
    const Array y = ramp(64, 3);
    const DeviceArray there_y(d, y);
    for (uint64_t frame = 0; frame < 4; ++frame) {
      const DeviceArray there_x(d, x);
      std::vector<DeviceArray> out;
      for (int i = 0; i < 4; ++i) out.emplace_back(d, Shape{64}, f32);
      host->begin(c);
      stream.begin(c, frame);
      const Scopes s = graph.record(stream, {there_x, there_y}, {out[0], out[1], out[2], out[3]});
      CHECK((s.wait_stages & VK_PIPELINE_STAGE_2_COMPUTE_SHADER_BIT) != 0);
      stream.end();
      host->run(c);
      const std::vector<Array> wanted = interpret(g, {x, y});
      for (size_t i = 0; i < 4; ++i) CHECK(equal(out[i].download(), wanted[i]));
      x = wanted[0];
    }
    check_sound(d);
    const DeviceArray four(d, {4}, f32);
    const std::string at = "\n  at " + to_string(f.loc());
    CHECK(f.loc().line >= static_cast<uint32_t>(line));
    CHECK(error_of<SpecError>([&] { graph.record(stream, {there_y, there_y}, {there_y}); }) ==
          "solver gives 4 outputs but 1 array is given for them" + at);
    CHECK(error_of<SpecError>([&] { graph.record(stream, {there_y, there_y}, {four, four, four, four}); }) ==
          "solver: output 0 is f32[64] but its array is f32[4]" + at);
    // Before anything is recorded.
    std::vector<DeviceArray> o;
    for (int i = 0; i < 4; ++i) o.emplace_back(d, Shape{64}, f32);
    DeviceArray freed(d, {64}, f32);
    freed.free();
    const Device other;
    const DeviceArray elsewhere(other, {64}, f32);
    const std::string own = at + "\n  note: give it an array of its own";
    host->begin(c);
    stream.begin(c, 4);
    const size_t before = d.command_log().size();
    const auto error = [&](const DeviceArray& x0, const std::vector<DeviceArray>& out) {
      return error_of<SpecError>([&] { graph.record(stream, std::vector{x0, there_y}, out); });
    };
    CHECK(error_of<SpecError>([&] { graph.record(stream, {there_y}, {o[0], o[1], o[2], o[3]}); }) ==
          "solver takes 2 arguments but 1 is given" + at);
    CHECK(error(four, o) == "solver: argument 0 is f32[4] but f32[64] is expected" + at);
    CHECK(error(elsewhere, o) == "solver: argument 0: the array is on another Device than the graph" + at);
    CHECK(error(DeviceArray(), o) ==
          "solver: argument 0: this DeviceArray holds no array: it was never given one, or has been moved from");
    CHECK(error(there_y, {o[0], o[1], o[2], elsewhere}) ==
          "solver: output 3: the array is on another Device than the graph" + at);
    CHECK(error(there_y, {o[0], o[1], o[2], DeviceArray()}) ==
          "solver: output 3: this DeviceArray holds no array: it was never given one, or has been moved from");
    CHECK(error(o[2], o) == "solver: output 2 is to go where argument 0 is" + own);
    CHECK(error(there_y, {o[0], o[1], o[2], o[1]}) == "solver: output 1 and output 3 are one array" + own);
    CHECK(error(freed, o) == "solver: argument 0: the device array f32[64] has been freed");
    CHECK(d.command_log().size() == before);
    graph.record(stream, {there_y, there_y}, {o[0], o[1], o[2], o[3]});
    stream.end();
    host->run(c);
    CHECK(equal(o[1].download(), y));
  }
  check_silent(std::move(host));
}

TEST_CASE("random graphs in a host's command buffers, or why not") {
  auto host = std::make_unique<VulkanHost>();
  {
    const Device d = Device::import(host->imported(), logged());
    const VkCommandBuffer c = host->commands();
    CommandStream stream(d);
    size_t recorded = 0;
    for (uint64_t seed = 2000; seed < 2050; ++seed) {
      CAPTURE(seed);
      const bool mixed = seed >= 2030;
      const MixedFunction m(seed);
      if (mixed && m.uses(f64) && !d.target().float64) continue;
      const Graph g = mixed ? mixed_jit(seed).trace(m.arguments()) : random_jit(seed).trace(random_jit_arguments());
      const std::vector<Array> inputs = mixed ? m.inputs() : random_jit_inputs(seed), wanted = interpret(g, inputs);
      std::vector<DeviceArray> in, out;
      for (const Array& a : inputs) in.emplace_back(d, a);
      for (const Array& a : wanted) out.emplace_back(d, a.shape(), a.dtype());
      try {
        PreparedGraph graph(d, g);
        const Bundle bundle = bundled(d, g);
        CHECK(bundle.graphs() == std::vector<std::string>{g.name});
        PreparedGraph of_bundle(d, bundle.graph(d, g.name));
        CHECK(of_bundle.memory_bytes() == graph.memory_bytes());
        std::vector<DeviceArray> again;
        for (const Array& a : wanted) again.emplace_back(d, a.shape(), a.dtype());
        host->begin(c);
        stream.begin(c, 0);
        graph.record(stream, in, out);
        of_bundle.record(stream, in, again);
        stream.end();
        host->run(c);
        ++recorded;
        const std::vector<DeviceArray> loaded = LoadedGraph(d, bundle.graph(d, g.name))(in);
        REQUIRE(loaded.size() == wanted.size());
        for (size_t i = 0; i < out.size(); ++i) {
          CHECK(equal(out[i].download(), wanted[i]));
          CHECK(equal(again[i].download(), wanted[i]));
          CHECK(equal(loaded[i].download(), wanted[i]));
        }
        for (size_t i = 0; i < in.size(); ++i) CHECK(equal(in[i].download(), inputs[i]));
      } catch (const CompileError& e) {
        const std::string text = e.what();
        CHECK(text.substr(0, text.find('\n')) ==
              g.name +
                  ": nothing bounds how often a while loop iterates, and what is recorded into a host's command "
                  "buffer "
                  "is known before");
      }
    }
    CHECK(recorded > 25);
    check_sound(d);
  }
  check_silent(std::move(host));
}

TEST_CASE("a graph in a host's command buffers decides on the device what is run") {
  auto host = std::make_unique<VulkanHost>();
  {
    const Device d = Device::import(host->imported(), logged());
    const auto f = jit([](Tensor x, Tensor n) {
      const auto turned = while_loop(
          std::tuple{0, x}, [&](Value k, Value y) { return k < minimum(n, 6) && max(y) < 90.0f; },
          [&](Value k, Value y) { return std::tuple{k + 1, Value(next(y))}; });
      const Value i = std::get<0>(turned), v = std::get<1>(turned);
      return std::tuple{
          i,
          switch_(
              n, [&] { return v; }, [&] { return Value(mean(v, x)); },
              [&] { return fori_loop(0, minimum(n, 4), v, [&](Value, Value y) { return Value(next(mean(y, x))); }); })};
    });
    const Graph& g = f.trace({{{64}, f32}, {{}, i32}});
    const Bundle bundle = bundled(d, g);
    PreparedGraph graph(d, bundle.graph(d, g.name), {.frames_in_flight = 2});
    const LoadedGraph loaded(d, bundle.graph(d, g.name));
    CommandStream stream(d);
    const VkCommandBuffer c = host->commands();
    uint64_t frame = 0;
    for (const int n : {0, 1, 2, 3, 5, 50, -7})
      for (const float from : {0.0f, 25.0f, 60.0f}) {
        Array x = ramp(64);
        for (float& v : x.data<float>()) v += from;
        const Array count({}, std::vector<int32_t>{n});
        const DeviceArray there_x(d, x), there_n(d, count), i(d, {}, i32), v(d, {64}, f32);
        host->begin(c);
        stream.begin(c, frame++);
        const Scopes s = graph.record(stream, {there_x, there_n}, {i, v});
        CHECK((s.wait_stages & VK_PIPELINE_STAGE_2_DRAW_INDIRECT_BIT) != 0);
        CHECK((s.wait_accesses & VK_ACCESS_2_INDIRECT_COMMAND_READ_BIT) != 0);
        stream.end();
        host->run(c);
        const std::vector<Array> wanted = interpret(g, {x, count});
        CHECK(equal(i.download(), wanted[0]));
        CHECK(equal(v.download(), wanted[1]));
        for (const DeviceArray& given : {there_n, DeviceArray(int32_t{n})}) {
          const std::vector<DeviceArray> out = loaded({there_x, given});
          CHECK(equal(out[0].download(), wanted[0]));
          CHECK(equal(out[1].download(), wanted[1]));
        }
      }
    check_sound(d);
    CommandLog blind = d.command_log();
    for (LogEntry& e : blind)
      if (LogEntry::Barrier* b = e.barrier()) b->to &= static_cast<StageMask>(~mask(Stage::indirect));
    CHECK(!find_unordered(blind).empty());

    const std::string known = ", and what is recorded into a host's command buffer is known before\n  at ",
                      replay = "replay it as a CompiledGraph",
                      bound =
                          "\n  note: let a count end it too: test i < 100 && ..., where i starts from a constant and "
                          "each iteration adds one, or loop to minimum(n, 100); or " +
                          replay;
    const auto line = [](int before) { return to_string({__FILE__, static_cast<uint32_t>(before)}); };
    const auto refused = [&](const auto& function) {
      return error_of<CompileError>([&] { PreparedGraph(d, function.trace({{{64}, f32}, {{}, i32}})); });
    };
    const int unbounded = __LINE__ + 2;  // of its loop
    const auto to =
        jit([](Tensor x, Tensor n) { return fori_loop(0, n, x, [](Value, Value y) { return Value(next(y)); }); });
    CHECK(refused(to) == "jit: nothing bounds how often a while loop iterates" + known + line(unbounded) + bound);
    const int large = __LINE__ + 2;  // of its loop
    const auto often = jit([](Tensor x, Tensor n) {
      return fori_loop(0, minimum(n, 5000), x, [](Value, Value y) { return Value(next(y)); });
    });
    CHECK(refused(often) == "jit: a loop of at most 5000 iterations becomes more than 1024 commands" + known +
                                line(large) + "\n  note: " + replay);
    const int counted = __LINE__ + 2;  // of its loop
    const auto long_loop =
        jit([](Tensor x, Tensor) { return fori_loop(0, 5000, x, [](Value, Value y) { return Value(next(y)); }); });
    CHECK(refused(long_loop) == "jit: a loop of 5000 iterations becomes more than 1024 commands" + known +
                                    line(counted) + "\n  note: " + replay);
  }
  check_silent(std::move(host));
}

TEST_CASE("graphs of arrays without elements are recorded, and keep the outputs that have some") {
  auto host = std::make_unique<VulkanHost>();
  {
    const Device d = Device::import(host->imported(), logged());
    const auto f = jit(
        [](Tensor x, Tensor y) {
          const auto half = pallas_call([](Ref from, Ref to) { to[all] = from[all] / 2; },
                                        {.out_shape = {{{0}, f32}}, .name = "half"});
          const Tensor m = mean(y, y);
          return std::tuple{fori_loop(0, 3, x, [&](Value, Value v) { return Value(half(v)); }), m};
        },
        {.name = "empty"});
    const Graph& g = f.trace({{{0}, f32}, {{64}, f32}});
    const DeviceArray x(d, {0}, f32), y(d, ramp(64));
    CommandStream stream(d);
    const VkCommandBuffer c = host->commands();
    const Bundle bundle = bundled(d, g);
    PreparedGraph graphs[] = {PreparedGraph(d, g), PreparedGraph(d, bundle.graph(d, "empty"))};
    for (uint64_t i = 0; i < 2; ++i) {
      const DeviceArray o(d, {0}, f32), p(d, {64}, f32);
      host->begin(c);
      stream.begin(c, i);
      graphs[i].record(stream, {x, y}, {o, p});
      stream.end();
      host->run(c);
      CHECK(equal(p.download(), ramp(64)));
    }
    CHECK(equal(LoadedGraph(d, bundle.graph(d, "empty"))({x, y})[1].download(), ramp(64)));
    CHECK(bundle.kernels("empty").size() > 0);
    const auto refused = [&](const PrepareGraphOptions& o) {
      return error_of<SpecError>([&] { PreparedGraph(d, bundle.graph(d, "empty"), o); });
    };
    CHECK(refused({.frames_in_flight = 0})
              .starts_with("empty: PrepareGraphOptions::frames_in_flight must be positive but is 0"));
    CHECK(refused({.calls_per_frame = -1})
              .starts_with("empty: PrepareGraphOptions::calls_per_frame must be positive but is -1"));
    CHECK(error_of<SpecError>([&] { PreparedGraph(d, GraphCode{}); }) ==
          "PreparedGraph: the GraphCode holds no graph\n  note: take one by Bundle::graph()");
    CHECK(error_of<SpecError>([&] { LoadedGraph(d, GraphCode{}); }) ==
          "LoadedGraph: the GraphCode holds no graph\n  note: take one by Bundle::graph()");
  }
  check_silent(std::move(host));
}

TEST_CASE("what a recorded graph decides by an array whose call has failed, or reads in a branch, fails with it") {
  auto host = std::make_unique<VulkanHost>();
  {
    const Device d = Device::import(host->imported(), logged());
    const auto checked = [&](const DType t, const Shape& shape) {
      const auto k = pallas_call(
          [](Ref x, Ref o) {
            check(max(x[all]) < 100, "too much");
            o[all] = x[all];
          },
          {.out_shape = ShapeDtype{{shape.begin(), shape.end()}, t}, .name = "checked"});
      return load(d, k.trace({{{shape.begin(), shape.end()}, t}}));
    };
    const CompiledKernel array = checked(f32, {64}), number = checked(i32, {1});
    const auto f = jit(
        [](Tensor x, Tensor y, Tensor n) {
          return switch_(reshape(n, {}), [&] { return Value(next(x)); }, [&] { return Value(next(y)); });
        },
        {.name = "choice"});
    PreparedGraph graph(d, f.trace({{{64}, f32}, {{64}, f32}, {{1}, i32}}), {.calls_per_frame = 3});
    const DeviceArray good(d, ramp(64)), bad = array({DeviceArray(d, ramp(64, 99))})[0];
    const auto index = [&](int i) { return DeviceArray(d, Array({1}, std::vector<int32_t>{i})); };
    const DeviceArray wrong = number({index(100)})[0];
    std::vector<DeviceArray> out;
    for (int i = 0; i < 3; ++i) out.emplace_back(d, Shape{64}, f32);
    CommandStream stream(d);
    const VkCommandBuffer c = host->commands();
    const auto error = [](const DeviceArray& a) { return error_of<KernelError>([&] { a.download(); }); };
    for (uint64_t frame = 0; frame < 3; ++frame) {
      CAPTURE(frame);  // 0: nothing is known yet of the calls
      host->begin(c);
      stream.begin(c, frame);
      graph.record(stream, {bad, good, index(0)}, {out[0]});   // the branch that runs stands before the other
      graph.record(stream, {good, good, wrong}, {out[1]});     // which one runs is no better
      graph.record(stream, {good, good, index(1)}, {out[2]});  // what the graph's own arrays held is no matter
      stream.end();
      host->run(c);
      CHECK(error(out[0]).starts_with("checked: check failed"));
      CHECK(error(out[1]).starts_with("checked: check failed"));
      CHECK(equal(out[2].download(), ramp(64, 1)));
      d.wait();
      std::rotate(out.begin(), out.begin() + 1, out.end());  // nor what the outputs did
    }
    check_sound(d);
  }
  check_silent(std::move(host));
}

// What a file says of a graph is not believed: changed anywhere, it is refused, or records calls on arrays that fit.
TEST_CASE("mutants of a graph's code are refused, or recorded") {
  auto host = std::make_unique<VulkanHost>();
  {
    const Device d = Device::import(host->imported(), logged());
    const auto f = jit(
        [](Tensor x, Tensor n) {
          const auto turned = while_loop(
              std::tuple{0, x}, [&](Value k, Value y) { return k < minimum(n, 3) && max(y) < 90.0f; },
              [&](Value k, Value y) { return std::tuple{k + 1, Value(next(y))}; });
          const Tensor twice = mean(x, x);
          return std::tuple{std::get<1>(turned), twice, x};
        },
        {.name = "mutant"});
    const Bundle bundle = bundled(d, f.trace({{{64}, f32}, {{}, i32}}));
    const GraphCode code = bundle.graph(d, "mutant");
    const DeviceArray x(d, ramp(64));
    CommandStream stream(d);
    const VkCommandBuffer c = host->commands();
    int recorded = 0, refused = 0;
    for (uint64_t seed = 0; seed < 500; ++seed) {
      std::mt19937_64 random(seed);
      GraphProgram g = *code.graph;
      const auto odd = [&]() -> uint32_t {
        const uint32_t numbers[] = {0, 1, 2, 3, 5, 8, 63, 64, 0x7fffffff, 0x80000000, ~0u};
        return numbers[random() % std::size(numbers)];
      };
      const auto any = [&](auto& list) -> auto& { return list[random() % list.size()]; };
      GraphProgram::Call& call = any(g.calls);
      switch (random() % 20) {
        case 0: call.kernel = odd(); break;
        case 1: any(call.arguments).index = odd(); break;
        case 2: any(call.arguments).memory = static_cast<GraphProgram::Memory>(random() % 3); break;
        case 3: call.groups = odd(); break;
        case 4: call.groups_at = odd(); break;
        case 5: any(g.kernels).program = odd(); break;
        case 6: any(g.kernels).calls = static_cast<int32_t>(odd()); break;
        case 7: any(g.own).type = {random() % 2 ? f32 : i32, {static_cast<int64_t>(random() % 100)}}; break;
        case 8: any(any(g.gates).members).first = odd(); break;
        case 9: any(any(g.gates).members).second = odd(); break;
        case 10: any(g.numbers).own = odd(); break;
        case 11: any(g.gates).numbers = odd(); break;
        case 12: g.gates[0].members.clear(), g.own[g.gates[0].numbers].contents.reset(); break;
        case 13:
          g.gates[0].members.clear();
          g.own[g.gates[0].numbers] = {{i32, {}}, Array({}, i32)};
          break;
        case 14: g.numbers.clear(); break;
        case 15: g.numbers.push_back(g.numbers[0]); break;
        case 16: any(g.own).type = {i32, {int64_t{1} << 62, 4}}; break;
        case 17: any(call.arguments).donated = true; break;
        case 18: any(g.kernels).dims.emplace_back("n", int64_t{1} << 62); break;
        default: any(g.own).contents = Array({static_cast<int64_t>(random() % 5)}, random() % 2 ? f32 : i32);
      }
      CAPTURE(seed);
      const GraphCode changed{std::make_shared<const GraphProgram>(std::move(g)), code.programs};
      std::string refusal = "none";
      try {
        LoadedGraph(d, changed)({x, 2});
      } catch (const SpecError& e) {
        refusal = e.what();
      }
      try {
        PreparedGraph graph(d, changed);
        const DeviceArray o(d, {64}, f32), p(d, {64}, f32), q(d, {64}, f32);
        host->begin(c);
        stream.begin(c, seed);
        graph.record(stream, {x, 2}, {o, p, q});
        stream.end();
        host->run(c);
        ++recorded;
        CHECK(refusal == "none");
      } catch (const SpecError& e) {
        const std::string text = e.what();
        CHECK(refusal == text);
        const bool named = text.starts_with("mutant: its code does not fit its graph: ") ||
                           text.find("(4611686018427387904, 4)") != std::string::npos;
        CHECK_MESSAGE(named, text);
        ++refused;
      }
    }
    CHECK(recorded > 20);
    CHECK(refused > 100);
    CHECK(error_of<SpecError>([&] { (void)bundle.graph(d, "none"); }) ==
          "graphs.tsb: has no graph \"none\"\n  note: its graphs are mutant");
    CHECK(error_of<SpecError>([&] { (void)checked(code, "(f32[64]) -> ()"); })
              .starts_with("mutant: the bundle's graph is (f32[64], i32[]) -> (f32[64], f32[64], f32[64]) but the "
                           "header was made for "
                           "(f32[64]) -> ()"));
  }
  check_silent(std::move(host));
}

}  // namespace record_graph_test
