// Many threads on one Device, and several Devices: what runtime/README.md calls thread-safe, all at once. Under the
// thread sanitizer (preset tsan) too.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/platform.h"
#include "engine/call/jit.h"
#include "engine/front/control.h"
#include "engine/front/ops.h"
#include "engine/front/rearrange.h"
#include "engine/graph/graph.h"
#include "engine/ir/text.h"
#include "runtime/call/call.h"
#include "runtime/call/graph.h"
#include "runtime/call/load_queue.h"
#include "runtime/call/prewarm.h"
#include "runtime/launch.h"
#include "runtime/loaded_graph.h"
#include "tests/unit/runtime/bundled_graph.h"
#include "tests/unit/runtime/support.h"

namespace threads_test {
using namespace tessera;
using namespace tessera::test;

namespace {

constexpr int kThreads = 6, kRounds = 12;

/// f(thread) on each of them; doctest's checks are not for other threads, so it returns whether all went well.
void on_threads(const std::function<bool(int)>& f) {
  std::atomic<int> good{0};
  std::vector<std::string> errors(kThreads);
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t)
      threads.emplace_back([&, t] {
        try {
          good += f(t);
        } catch (const std::exception& e) {
          errors[static_cast<size_t>(t)] = e.what();
        }
      });
  }
  for (const std::string& e : errors) CHECK(e == "");
  CHECK(good == kThreads);
}

ir::Kernel plus(int what) {
  return ir::parse("tir 1\nkernel @plus" + std::to_string(what) +
                   "\ngrid (cdiv(n, 32))\nin f32[n] block (32) map (%i) { yield %i }\nout f32[n] block (32) map (%i) { "
                   "yield %i }\n" +
                   "body (%x, %o) {\n  %a = load %x[0:32]\n  %b = constant " + std::to_string(what) +
                   ".0 : f32[]\n  %c = broadcast %b dims [] : f32[32]\n  %d = add %a, %c\n  store %o[0:32], %d\n}\n");
}

}  // namespace

TEST_CASE("threads: launches, uploads and downloads on one device") {
  const Device& d = device();
  const DeviceArray shared(d, ramp(500));
  on_threads([&](int t) {
    bool good = true;
    for (int i = 0; i < kRounds; ++i) {
      const int64_t n = 100 * (t + 1) + i;
      DeviceArray mine(d, ramp(n, static_cast<float>(t)));
      const DeviceArray sum = launch(d, add(), {mine, mine})[0];
      const DeviceArray of_shared = launch(d, scale(), {shared})[0];
      launch(d, table(), {sum, sum});
      launch(d, scratch(), {sum});
      if (i % 4 == 0) d.wait();
      good &= floats(of_shared) == scaled_ramp(500);
      good &= floats(sum)[static_cast<size_t>(n - 1)] == 2 * (static_cast<float>(n - 1) + static_cast<float>(t));
      mine.write(ramp(n));
      good &= floats(mine)[1] == 1;
      good &= d.allocated_bytes() > 0 && !d.lost() && d.info().name == device().info().name;
    }
    return good;
  });
  check_clean(d);
}

TEST_CASE("threads: staged transfers on one device") {
  DeviceOptions o;
  o.validation = kValidation, o.log_commands = o.always_stage = true;
  const Device d(o);
  on_threads([&](int t) {
    bool good = true;
    for (int i = 0; i < kRounds / 2; ++i) {
      const DeviceArray x(d, ramp(3000 + t, static_cast<float>(t)));
      good &= floats(launch(d, scale(), {x})[0]).back() == 2 * (2999 + 2 * static_cast<float>(t)) + 1;
    }
    return good;
  });
  check_clean(d);
}

TEST_CASE("threads: loading the same kernels and others, in the foreground and behind it") {
  DeviceOptions o;
  o.validation = kValidation;
  const Device d(o);
  LoadQueue queue(3);
  on_threads([&](int t) {
    bool good = true;
    for (int i = 0; i < 4; ++i) {
      const int what = (t + i) % 5;
      const auto behind = queue.load(d, plus(what + 1));
      const CompiledKernel k = load(d, plus(what));
      prepare(d, k.program());
      good &= k.run({ramp(50)})[0].at(49) == 49 + what;
      good &= behind.get().run({ramp(50)})[0].at(49) == 50 + what;
    }
    return good;
  });
  CHECK(pipeline_counts(d).made == 6);  // whoever came first
  check_clean(d);
}

TEST_CASE("threads: one graph, replayed by all of them, and graphs recorded meanwhile") {
  DeviceOptions o;
  o.validation = kValidation;
  const Device d(o);
  const std::string folder =
      (std::filesystem::temp_directory_path() / ("tessera_threads_" + std::to_string(platform::process_id()))).string();
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/sum.tir") << "tir 1\nkernel @sum\nin f32[8] whole\nin f32[8] whole\nout f32[8] whole\nbody "
                                        "(%x, %y, %o) {\n  %a = load %x[0:8]\n  %b = load %y[0:8]\n"
                                        "  %c = add %a, %b\n  store %o[0:8], %c\n  yield\n}\n";
  const Graph g = parse_graph(
      "tessera graph 1\nin %0 f32[8]\n%1 = call \"sum.tir\"(%0, %0) : f32[8]\n%2 = call \"sum.tir\"(%1, %0) : "
      "f32[8]\nout %2\n",
      folder);
  std::filesystem::remove_all(folder);
  const CompiledGraph shared = load(d, g);
  on_threads([&](int t) {
    bool good = true;
    for (int i = 0; i < kRounds; ++i) {
      const auto from = static_cast<float>(t + i);
      const DeviceArray x(d, ramp(8, from));
      good &= floats(shared({x})[0])[7] == 3 * (7 + from);
      if (i % 4 == 0) good &= floats(load(d, g)({x})[0])[7] == 3 * (7 + from);
      good &= floats(launch(d, scale(), {x})[0])[7] == 2 * (7 + from) + 1;
    }
    return good;
  });
  check_clean(d);
}

TEST_CASE("threads: one pallas_call, traced and launched by all of them") {
  const PallasCall twice =
      pallas_call([](Ref x, Ref y) { y[all] = x[all] + x[all]; }, {.out_shape = {{{64}, f32}}, .name = "twice"});
  on_threads([&](int t) {
    bool good = true;
    for (int i = 0; i < kRounds; ++i) {
      const DeviceArray x(device(), ramp(64, static_cast<float>(t + i)));
      good &= floats(launch(device(), twice, {launch(device(), twice, {x})[0]})[0])[63] ==
              4 * (63 + static_cast<float>(t + i));
    }
    return good;
  });
  check_clean(device());
}

TEST_CASE("threads: a device for each") {
  on_threads([&](int t) {
    bool good = true;
    for (int i = 0; i < 2; ++i) {
      DeviceOptions o;
      o.validation = t % 2 == 0;
      const Device d(o);
      good &= floats(launch(d, scale(), {DeviceArray(d, ramp(70))})[0]) == scaled_ramp(70);
      d.wait();
      good &= d.validation_messages().empty();
    }
    return good;
  });
}

namespace {
Array filled(int64_t n, int v) { return Array({n}, std::vector<float>(static_cast<size_t>(n), static_cast<float>(v))); }
bool equal_elements(const Array& a) {
  const auto e = a.data<float>();
  return std::all_of(e.begin(), e.end(), [&](float v) { return v == e[0]; });
}
}  // namespace

// Each writes its own number to all elements, of 12 MiB: whoever reads finds one of them.
TEST_CASE("threads: an array is written and read as a whole") {
  constexpr int64_t n = 3 << 20;
  for (const bool staged : {false, true}) {
    CAPTURE(staged);
    DeviceOptions o;
    o.validation = kValidation, o.log_commands = true, o.always_stage = staged;
    const Device d(o);
    const DeviceArray x(d, filled(n, 7)), y(d, filled(n, 7)), z(d, filled(n, 7));
    on_threads([&](int t) {
      bool good = true;
      DeviceArray own = x;
      for (int i = 0; i < kRounds / 2; ++i) {
        if (t % 3 == 0) own.write(filled(n, t));
        else if (t % 3 == 1) launch_into(d, scale_shaped({n}), {x}, {y});
        else good &= equal_elements(x.download()) && equal_elements(y.download());
        good &= equal_elements(launch(d, scale_shaped({n}), {x})[0].download());
        if (t % 3 == 1) DeviceArray(z).write(y);
        else good &= equal_elements(z.download());
      }
      return good;
    });
    check_clean(d);
  }
}

// What takes several submissions sees the same argument in all of them: the first one waits at a gate, while somebody
// writes to the argument.
TEST_CASE("threads: nobody comes between the submissions of a call") {
  constexpr int64_t n = 4096;
  DeviceOptions o;
  o.validation = kValidation, o.log_commands = true, o.watchdog_seconds = 1e-12;
  const Device d(o);
  const ir::Kernel twice = ir::parse(
      "tir 1\nkernel @twice\ngrid (n parallel)\nin f32[4096] block (512) map (%i) { yield %i }\nout f32[4096] block "
      "(512) map (%i) { yield %i }\nbody (%x, %o) {\n  %a = load %x[0:512]\n  %b = add %a, %a\n  store %o[0:512], "
      "%b\n  yield\n}\n");
  // Two calls, each of a grid whose size the host waits for.
  Graph g;
  g.values = {{f32, {n}}, {i32, {}}, {f32, {n}}, {f32, {n}}};
  const auto call = [](size_t result) {
    return Graph::Step{
        .what = Graph::Step::Call{.kernel = 0, .sizes = {{"n", 1}}}, .arguments = {0}, .results = {result}};
  };
  g.body = {{0, 1}, {2, 3}, {call(2), call(3)}};
  g.kernels = {twice};
  const CompiledGraph graph = load(d, g, {.fuse = false});
  // Its loops run as long as data says: where the driver leaves loops, in dispatches that the host waits for.
  const PallasCall looks_late = pallas_call(
      [](Ref x, Ref steps, Ref y) {
        const Value ends = fori_loop(0, steps[0], zeros({70}, i32), [&](Value i, Value a) {
          return fori_loop(0, steps[1], a, [&](Value j, Value b) {
            return fori_loop(0, steps[1], b, [&](Value k, Value c) { return c * 3 + k + i * j; });
          });
        });
        const Value end = max(ends) & 2047;
        y[all] = concatenate({x[ds(0, 70)], x[ds(end + 70, 70)]}, 0);
      },
      {.out_shape = {{{140}, f32}}, .name = "looks_late"});
  const CompiledKernel late = load(d, looks_late.trace({{{n}, f32}, {{2}, i32}}));
  CHECK(late.program().open_ended == (d.target().max_loop_iterations > 0));
  const DeviceArray x(d, filled(n, 7)), steps(d, Array({2}, std::vector<int32_t>{40, 150})),
      eight(d, Array({}, std::vector<int32_t>{8}));
  const auto at_the_gate = [&](const std::function<std::vector<DeviceArray>()>& f) {
    Gate gate(d);
    std::vector<DeviceArray> made;
    std::thread calls([&] { made = f(); });
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    std::atomic<bool> written = false;
    std::thread writes([&] {
      DeviceArray(x).write(filled(n, 8));
      written = true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    CHECK(!written);
    gate.open();
    calls.join();
    writes.join();
    for (const DeviceArray& a : made) CHECK(equal_elements(a.download()));
    CHECK(x.download().at(9) == 8);
    DeviceArray(x).write(filled(n, 7));
    return made;
  };
  const std::vector<DeviceArray> both = at_the_gate([&] { return graph({x, eight}); });
  for (const DeviceArray& a : both) CHECK(a.download().at(n - 1) == 14);
  if (late.program().open_ended) CHECK(at_the_gate([&] { return late({x, steps}); })[0].download().at(139) == 7);
  check_clean(d);
}

// The call that takes the array waits at a gate for a value that decides, while somebody begins to use the array.
TEST_CASE("threads: an array that a call is given is gone for who waits for that call") {
  DeviceOptions o;
  o.validation = kValidation, o.log_commands = true;
  const Device d(o);
  const auto next = pallas_call([](Ref, Ref y) { y[all] = y[all] + 1; },
                                {.out_shape = {{{64}, f32}}, .input_output_aliases = {{0, 0}}, .name = "next"});
  const auto loop = [&](Tensor x) {
    return while_loop(x, [](Value v) { return max(v) < 100.0f; }, [&](Value v) { return Value(next(v)); });
  };
  const auto twice = [](Tensor x) { return x + x; };
  const CompiledGraph takes = load(d, jit(loop, {.name = "takes"}).trace({{{64}, f32}}), {.donated = {true}});
  const CompiledGraph graph = load(d, jit(twice).trace({{{64}, f32}}));
  const LoadedGraph loaded(d, bundled(d, jit(twice, {.name = "twice"}).trace({{{64}, f32}})).graph(d, "twice"));
  const CompiledKernel kernel = load(d, next.trace({{{64}, f32}}));
  const std::vector<std::function<void(DeviceArray)>> uses{
      [&](const DeviceArray& x) { graph({x}); },
      [&](const DeviceArray& x) { loaded({x}); },
      [&](const DeviceArray& x) { takes({donate(x)}); },
      [&](const DeviceArray& x) { kernel({x}); },
      [&](const DeviceArray& x) { kernel({donate(x)}); },
      [&](const DeviceArray& x) { x.download(); },
      [&](const DeviceArray& x) { x.copy(); },
      [&](DeviceArray x) { x.write(ramp(64)); },
  };
  for (size_t i = 0; i < uses.size(); ++i) {
    CAPTURE(i);
    const DeviceArray x(d, ramp(64));
    std::vector<DeviceArray> made;
    std::string text;
    Gate gate(d);
    std::thread gives([&] { made = takes({donate(x)}); });
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
    std::thread comes_late([&] { text = error_of<SpecError>([&] { uses[i](x); }); });
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
    gate.open();
    gives.join();
    comes_late.join();
    CHECK(text.find("the device array f32[64] has been donated to takes") != std::string::npos);
    CHECK(floats(made[0])[63] == 100);
  }
  check_clean(d);
}

}  // namespace threads_test
