#include "runtime/call/jit.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "engine/front.h"
#include "engine/graph/fuse.h"
#include "engine/graph/plan.h"
#include "engine/graph/write.h"
#include "runtime/submit/context.h"
#include "tests/support/mixed_jit.h"
#include "tests/support/random_jit.h"
#include "tests/unit/runtime/support.h"

namespace jit_test {

namespace ts = tessera;
using namespace tessera;

namespace {
using test::check_clean;
Device logged() {
  DeviceOptions options;
  options.validation = test::kValidation, options.log_commands = true;
  return Device(options);
}
bool equal(const Array& a, const Array& b) {
  if (a.dtype() != b.dtype() || a.shape() != b.shape()) return false;
  for (int64_t i = 0; i < a.size(); ++i)
    if (a.at(i) != b.at(i)) return false;
  return true;
}
Array ramp(Shape shape, float from = 0) {
  Array a(std::move(shape), f32);
  for (int64_t i = 0; i < a.size(); ++i) a.data<float>()[static_cast<size_t>(i)] = from + static_cast<float>(i % 13);
  return a;
}
/// Of no use to fusing: it reads what it stores.
const auto next = pallas_call([](Ref, Ref o) { o[all] = o[all] + 1; },
                              {.out_shape = {{{64}, f32}}, .input_output_aliases = {{0, 0}}, .name = "next"});
const auto mean = pallas_call([](Ref x, Ref y, Ref o) { o[all] = (x[all] + y[all]) / 2; },
                              {.out_shape = {{{64}, f32}}, .name = "mean"});
}  // namespace

TEST_CASE("jit on a device: arrays of the host and of the device") {
  const Device d = logged();
  const auto f = jit([](Tensor x, Tensor y) { return std::tuple{mean(x, y) * 2, sum(x)}; });
  const Array x = ramp({64}), y = ramp({64}, 3);
  const auto [a, b] = interpret(f, x, y);
  for (int turn = 0; turn < 3; ++turn) {
    const auto [c, e] = f(DeviceArray(d, x), DeviceArray(d, y));
    CHECK(equal(c.download(), a));
    CHECK(equal(e.download(), b));
  }
  const auto [g, h] = f(x, y);
  CHECK(equal(g, a));
  CHECK(equal(h, b));
  const auto one = jit([](Tensor v) { return v + 1; });
  const DeviceArray there = one(one(DeviceArray(d, x)));
  CHECK(equal(there.download(), ramp({64}, 2)));
  check_clean(d);
}

TEST_CASE("jit on a device: random functions, fused and not, as on the interpreter") {
  Device d = logged();
  for (uint64_t seed = 1000; seed < 1030; ++seed) {
    CAPTURE(seed);
    const auto f = test::random_jit(seed);
    const std::vector<Array> inputs = test::random_jit_inputs(seed);
    const Graph& g = f.trace(test::random_jit_arguments());
    const std::vector<Array> wanted = interpret(g, inputs);
    for (const bool fuse : {false, true}) {
      CAPTURE(fuse);
      const CompiledGraph there = load(d, g, {.fuse = fuse});
      const std::vector<Array> got = there.run(inputs);
      REQUIRE(got.size() == wanted.size());
      for (size_t i = 0; i < got.size(); ++i) CHECK(equal(got[i], wanted[i]));
    }
    if (seed % 10 == 9) {  // the log of all of them would take long to go through
      check_clean(d);
      d = logged();
    }
  }
}

TEST_CASE("jit on a device: random functions of many dtypes and blocks, calls in flight, donated arguments") {
  Device d = logged();
  for (uint64_t seed = 1000; seed < 1020; ++seed) {
    CAPTURE(seed);
    const test::MixedFunction m(seed);
    if (m.uses(f64) && !d.target().float64) continue;
    const std::vector<Array> inputs = m.inputs();
    const auto f = test::mixed_jit(seed);
    const Graph& g = f.trace(m.arguments());
    const std::vector<Array> wanted = interpret(g, inputs);
    const auto check = [&](const std::vector<Array>& got, const std::vector<Array>& expected) {
      REQUIRE(got.size() == expected.size());
      for (size_t i = 0; i < got.size(); ++i) CHECK(equal(got[i], expected[i]));
    };
    const auto downloaded = [](const std::vector<DeviceArray>& arrays) {
      std::vector<Array> list;
      for (const DeviceArray& a : arrays) list.push_back(a.download());
      return list;
    };
    if (seed % 2) {
      const CompiledGraph there = load(d, g, {.frames_in_flight = 2});
      std::vector<DeviceArray> in;
      for (const Array& a : inputs) in.emplace_back(d, a);
      std::vector<std::vector<DeviceArray>> out;
      for (int call = 0; call < 3; ++call) out.push_back(there(in));
      for (const auto& o : out) check(downloaded(o), wanted);
      check(downloaded(in), inputs);
    } else {
      std::vector<bool> donated(inputs.size());
      for (size_t i = 0; i < donated.size(); ++i) donated[i] = (seed / 2 + i) % 2;
      const CompiledGraph there = load(d, g, {.fuse = seed % 4 == 0, .donated = donated});
      for (int call = 0; call < 2; ++call) check(there.run(inputs), wanted);
    }
    if (d.command_log().size() > 4000) {  // that of all of them would take long to go through
      check_clean(d);
      d = logged();
    }
  }
  check_clean(d);
}

TEST_CASE("jit on a device: written to a folder and read back, it is the same function") {
  const std::string folder = (test::temporary_path("jit")).string();
  for (uint64_t seed = 0; seed < 4; ++seed) {
    const auto f = test::random_jit(seed);
    write_graph(f.trace(test::random_jit_arguments()), folder);
    const std::vector<Array> inputs = test::random_jit_inputs(seed), x = interpret(f, inputs),
                             y = load(test::device(), read_graph(folder)).run(inputs);
    std::filesystem::remove_all(folder);
    REQUIRE(x.size() == y.size());
    for (size_t i = 0; i < x.size(); ++i) CHECK(equal(x[i], y[i]));
  }
}

TEST_CASE("graphs: barriers stand between what depends on one another, and nowhere else") {
  const Device d = logged();
  const auto barriers = [&](const auto& f, size_t arguments) {
    const CompiledGraph there = load(d, f.trace(std::vector<ShapeDtype>(arguments, {{64}, f32})), {.fuse = false});
    std::vector<Array> inputs(arguments, ramp({64}));
    const std::vector<Array> got = there.run(inputs), wanted = interpret(there.graph(), inputs);
    for (size_t i = 0; i < got.size(); ++i) CHECK(equal(got[i], wanted[i]));
    CHECK(there.recordings().made == 1);
    CHECK(there.recordings().barriers == there.plan().barriers);
    return there.recordings().barriers;
  };
  for (const int n : {1, 2, 7}) {
    CAPTURE(n);
    // Independent ones.
    CHECK(barriers(jit([n](Tensor x, Tensor y) {
                     std::vector<Tensor> out;
                     for (int i = 0; i < n; ++i) out.push_back(mean(x, y));
                     return out;
                   }),
                   2) == 0);
    // A chain.
    CHECK(barriers(jit([n](Tensor x, Tensor y) {
                     Tensor v = x;
                     for (int i = 0; i < n; ++i) v = mean(v, y);
                     return v;
                   }),
                   2) == static_cast<size_t>(n - 1));
  }
  CHECK(barriers(
            jit([](Tensor x, Tensor y) { return std::tuple{Value(mean(x, y)), Value(mean(y, x)), Value(mean(x, x))}; }),
            2) == 0);
  // A diamond.
  CHECK(barriers(jit([](Tensor x, Tensor y) {
                   const Tensor top = mean(x, y), left = mean(top, x), right = mean(top, y);
                   return Value(mean(left, right));
                 }),
                 2) == 2);
  // A tree of eight leaves.
  CHECK(barriers(jit([](Tensor x, Tensor y) {
                   std::vector<Tensor> level;
                   for (int i = 0; i < 8; ++i) level.push_back(mean(x, y));
                   while (level.size() > 1) {
                     std::vector<Tensor> above;
                     for (size_t i = 0; i < level.size(); i += 2) above.push_back(mean(level[i], level[i + 1]));
                     level = above;
                   }
                   return level[0];
                 }),
                 2) == 3);
  // Chains one after another, which are run beside one another.
  for (const int n : {1, 2, 7}) {
    const auto chains = jit([n](Tensor x, Tensor y) {
      std::vector<Tensor> out;
      for (int chain = 0; chain < 3; ++chain) {
        out.push_back(chain == 1 ? y : x);
        for (int i = 0; i < n; ++i) out.back() = mean(out.back(), y);
      }
      return out;
    });
    CHECK(barriers(chains, 2) == static_cast<size_t>(n - 1));
    CHECK(plan(chains.trace({{{64}, f32}, {{64}, f32}})).barriers_as_written == static_cast<size_t>(3 * (n - 1)));
  }
  // So are loops and branches: a gate each, what it decides about, and a copy to where the result is.
  const auto loops = jit([](Tensor x, Tensor y) {
    const auto turn = [&](Value v) { return fori_loop(0, 3, v, [&](Value, Value a) { return Value(mean(a, y)); }); };
    return std::tuple{turn(x), turn(y)};
  });
  CHECK(barriers(loops, 2) == 2);
  // In place on an argument: the copy, and the call.
  CHECK(barriers(jit([](Tensor x) { return Value(next(x)); }), 1) == 1);
  check_clean(d);
}

TEST_CASE("graphs: other arguments need no other recording, copies of them included") {
  const Device d = logged();
  const auto f = jit([](Tensor x, Tensor y) {
    const Tensor a = next(x);
    return std::tuple{Value(next(y)), a, fori_loop(0, 3, a, [](Value, Value v) { return Value(next(v)); })};
  });
  const CompiledGraph there = load(d, f.trace({{{64}, f32}, {{64}, f32}}));
  const auto before = there.recordings();
  CHECK(before.made == 1);
  for (int turn = 0; turn < 5; ++turn) {
    const std::vector<Array> inputs{ramp({64}, static_cast<float>(turn)), ramp({64}, static_cast<float>(-turn))};
    const std::vector<Array> got = there.run(inputs), wanted = interpret(there.graph(), inputs);
    for (size_t i = 0; i < got.size(); ++i) CHECK(equal(got[i], wanted[i]));
  }
  CHECK(there.recordings().made == before.made);
  CHECK(there.recordings().barriers == before.barriers);
  check_clean(d);
}

TEST_CASE("graphs: a trace of a call") {
  const Device d = logged();
  const auto f = jit([](Tensor x, Tensor y) { return Value(next(mean(x, y))); });
  const CompiledGraph there = load(d, f.trace({{{64}, f32}, {{64}, f32}}), {.timestamps = true});
  for (int turn = 0; turn < 2; ++turn) there.run({ramp({64}), ramp({64})});
  const std::vector<TimedCommand> times = there.trace();
  std::string names;
  for (const TimedCommand& t : times) {
    names += t.name + " ";
    CHECK(t.end >= t.begin);
    CHECK(t.begin >= 0);
    CHECK(t.bytes > 0);
  }
  CHECK(names == "mean next ");
  const auto json = nlohmann::json::parse(chrome_trace(times));
  REQUIRE(json["traceEvents"].size() == 3);
  CHECK(json["traceEvents"][1]["ph"] == "X");
  CHECK(json["traceEvents"][1]["name"] == "mean");
  CHECK(json["traceEvents"][2]["args"]["bytes"] == 512);
  check_clean(d);
  try {
    load(d, f.trace({{{64}, f32}, {{64}, f32}})).trace();
    CHECK(false);
  } catch (const SpecError& e) {
    CHECK(std::string(e.what()) == "jit: a trace is asked for, but its commands are recorded without times\n  at " +
                                       to_string(f.loc()) + "\n  note: load it with GraphOptions{.timestamps = true}");
  }
}

TEST_CASE("graphs: a trace has what the last call ran") {
  const Device d = logged();
  const auto f = jit([](Tensor x, Tensor y) {
    const Tensor first = mean(x, y);
    return cond(sum(x) > 0.0f, [&] { return Value(next(first)); }, [&] { return Value(mean(first, y)); });
  });
  const CompiledGraph there = load(d, f, {{{64}, f32}, {{64}, f32}}, {.fuse = false, .timestamps = true});
  CHECK(there.trace().empty());  // nothing has run
  const auto names = [&](float from) {
    there.run({ramp({64}, from), ramp({64})});
    std::string list;
    for (const TimedCommand& t : there.trace()) {
      CHECK(t.begin >= 0);
      CHECK(t.end >= t.begin);
      CHECK(t.end < 60e9);
      list += (list.empty() ? "" : " ") + t.name;
    }
    return list;
  };
  const std::string positive = names(1), negative = names(-100);
  CHECK(positive == "mean reduce_sum gt convert gate mean copy next copy");  // both branches, of which one took no time
  CHECK(negative == positive);
  size_t guarded = 0;
  for (const TimedCommand& t : there.trace()) guarded += t.guarded;
  CHECK(guarded == 4);
  check_clean(d);
}

TEST_CASE("graphs: a trace has what the last call ran where the host decides") {
  const Device d = logged();
  const auto f = jit([](Tensor x, Tensor y) {
    const Value none = cast(sum(y) * 0, i32);
    return cond(
        sum(x) > 0.0f, [&] { return fori_loop(0, none, x, [](Value, Value v) { return Value(next(v)); }); },
        [&] { return Value(mean(x, y)); });
  });
  const CompiledGraph there = load(d, f, {{{64}, f32}, {{64}, f32}}, {.fuse = false, .timestamps = true});
  const auto ran = [&](float from, const std::string& name) {
    there.run({ramp({64}, from), ramp({64})});
    size_t n = 0;
    for (const TimedCommand& t : there.trace()) n += t.name == name;
    return n;
  };
  CHECK(ran(1, "next") == 16);
  CHECK(ran(-100, "next") == 0);
  CHECK(ran(-100, "mean") == 1);
  CHECK(ran(1, "mean") == 0);
  check_clean(d);  // queries that were never reset are not read
}

TEST_CASE("graphs: checks that differ in nothing but their lines are two kernels") {
  const Device d = logged();
  int first = 0, second = 0;
  const auto f = jit([&](Tensor x) {
    first = __LINE__ + 1;
    check(max(x) < 100.0f, "out of range");
    second = __LINE__ + 1;
    check(min(x) > -100.0f, "out of range");
    return x + 1;
  });
  const Graph& g = f.trace({{{64}, f32}});
  const auto error = [](const auto& call) -> std::string {
    try {
      call();
    } catch (const KernelError& e) {
      return e.what();
    }
    return "none";
  };
  for (const auto& [from, line] : {std::pair{200.0f, first}, std::pair{-200.0f, second}}) {
    const std::vector<Array> x{ramp({64}, from)};
    const std::string wanted =
        "check: check failed in program (): out of range\n  at " + std::string(__FILE__) + ":" + std::to_string(line);
    CHECK(error([&] { interpret(g, x); }) == wanted);
    CHECK(error([&] { interpret(fuse(g).graph, x); }) == wanted);
    CHECK(error([&] {
            load(d, g).run(x);
            d.wait();
          }) == wanted);
  }
  check_clean(d);
}

TEST_CASE("graphs: fused or not, the same bits, where values are rounded between steps") {
  const Device d = logged();
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> some{nan,      inf,       -inf,  -0.0f,  0.0f, 1e-8f,     -6e-5f,  65504.0f,
                                65520.0f, -70000.0f, 3e38f, 1e-39f, 0.1f, -1.0f / 3, 2049.0f, 1.00390625f};
  Array x({64}, f32);
  for (size_t i = 0; i < 64; ++i) x.data<float>()[i] = some[i % 16] * (i < 16 ? 1.0f : static_cast<float>(i) / 16);
  for (const DType t : {DType::f16, DType::bf16}) {
    CAPTURE(name(t));
    const auto f = jit([&](Tensor a) {
      const Tensor h = cast(a, t), s = cast(cast(h * 3 + 1, f32) * 0.1f, t) - 2;
      return std::tuple{s, maximum(abs(cast(a * 3, t)), 1) * -1, cast(cast(a, t) * 0, f32)};
    });
    const Graph& g = f.trace({{{64}, f32}});
    const Fused less = fuse(g);
    CHECK(less.steps > 4);
    const auto bits = [](const std::vector<Array>& list) {
      std::vector<uint64_t> b;
      for (const Array& a : list)
        for (int64_t i = 0; i < a.size(); ++i) b.push_back(a.element_bits(i));
      return b;
    };
    CHECK(bits(interpret(g, {x})) == bits(interpret(less.graph, {x})));
    // strict: relaxed code may contract what one kernel computes
    test::set_environment("TESSERA_STRICT", "1");
    CHECK(bits(load(d, g, {.fuse = false}).run({x})) == bits(load(d, g).run({x})));
    test::set_environment("TESSERA_STRICT", nullptr);
  }
  check_clean(d);
}

TEST_CASE("graphs: what takes longer than the watchdog allows is submitted in parts") {
  DeviceOptions options;
  options.validation = test::kValidation, options.log_commands = true;
  options.watchdog_seconds = 1e-9;
  const Device d(options);
  const auto f = jit([](Tensor x, Tensor y) {
    Tensor v = x;
    for (int i = 0; i < 6; ++i) v = mean(v, y);
    return v;
  });
  const CompiledGraph there = load(d, f.trace({{{64}, f32}, {{64}, f32}}), {.fuse = false});
  CHECK(there.recordings().made > 1);
  const std::vector<Array> inputs{ramp({64}), ramp({64}, 4)};
  for (int turn = 0; turn < 2; ++turn) CHECK(equal(there.run(inputs)[0], interpret(there.graph(), inputs)[0]));
  // A call that takes longer by itself is cut too.
  const BlockSpec blocks{{256}, [](Value i) { return i; }};
  const auto wide = pallas_call(
      [](Ref x, Ref o) { o[all] = x[all] * 2 + cast(program_id(0), f32); },
      {.out_shape = {{{1 << 15}, f32}}, .grid = {128}, .in_specs = {blocks}, .out_specs = {blocks}, .name = "wide"});
  const auto g = jit([&](Tensor x) { return Value(wide(wide(x) + 1)); });
  const CompiledGraph cut = load(d, g, {{{1 << 15}, f32}}, {.fuse = false, .timestamps = true});
  d.wait();
  const size_t before = d.command_log().size();
  const Array x = ramp({1 << 15});
  CHECK(equal(cut.run({x})[0], interpret(cut.graph(), {x})[0]));
  size_t submissions = 0;
  const CommandLog log = d.command_log();
  for (size_t i = before; i < log.size(); ++i) submissions += log[i].is<LogEntry::Submit>();
  CHECK(submissions > 10);
  for (const TimedCommand& t : cut.trace()) CHECK(t.name != "wide");  // no recording is replayed for them
  check_clean(d);
}

TEST_CASE("jit on a device: a donated argument's memory becomes the result's") {
  const Device d = logged();
  const auto f = jit([](Tensor x, Tensor y) { return std::tuple{Value(next(next(x))), Value(mean(y, y))}; });
  for (int turn = 0; turn < 2; ++turn) {
    const DeviceArray x(d, ramp({64})), y(d, ramp({64}, 5));
    const auto address = x.buffer("the test")->address();
    const auto [a, b] = f(donate(x), y);
    CHECK(a.buffer("the test")->address() == address);
    CHECK(equal(a.download(), std::get<0>(interpret(f, ramp({64}), ramp({64}, 5)))));
    CHECK(equal(b.download(), ramp({64}, 5)));
    CHECK(equal(y.download(), ramp({64}, 5)));
    CHECK(!x.valid());
    const auto [c, e] = f(a, y);  // not donated: a stays
    CHECK(equal(a.download(), std::get<0>(interpret(f, ramp({64}), ramp({64}, 5)))));
    CHECK(equal(c.download(), std::get<0>(interpret(f, a.download(), ramp({64}, 5)))));
  }
  const CompiledGraph there = load(d, f, {{{64}, f32}, {{64}, f32}}, {.donated = {true, false}});
  CHECK(there.recordings().barriers == 1);  // no copy
  const std::vector<Array> both = there.run({ramp({64}), ramp({64})});
  CHECK(equal(both[0], std::get<0>(interpret(f, ramp({64}), ramp({64})))));
  const auto error = [](const auto& call) {
    try {
      call();
    } catch (const SpecError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  {  // also to a graph that has not been loaded for that: what is returned is there
    const auto same = jit([](Tensor a) { return std::tuple{a, Value(mean(a, a))}; });
    const DeviceArray gone(d, ramp({64}));
    const std::vector<DeviceArray> out = load(d, same, {{{64}, f32}}, {})({donate(gone)});
    CHECK(!gone.valid());
    CHECK(equal(out[0].download(), ramp({64})));
    CHECK(equal(out[1].download(), ramp({64})));
  }
  const DeviceArray x(d, ramp({64}));
  const std::string at = "\n  at " + to_string(f.loc());
  CHECK(error([&] { there({x, x}); }) ==
        "jit: argument 0 is not donated, but the graph has been loaded to take its memory" + at +
            "\n  note: call it with donate(x)");
  CHECK(error([&] { there({donate(x), x}); }) ==
        "jit: argument 0 is donated, but argument 1 is the same array" + at + "\n  note: copy() one of them");
  CHECK(error([&] { load(d, f, {{{64}, f32}, {{64}, f32}}, {.donated = {true}}); }) ==
        "jit: GraphOptions::donated has 1 entry but the graph takes 2 arguments" + at);
  CHECK(error([&] { load(d, f, {{{64}, f32}, {{64}, f32}}, {.frames_in_flight = 0}); }) ==
        "jit: GraphOptions::frames_in_flight is 0, not 1 or more" + at);
  check_clean(d);
}

TEST_CASE("graphs: calls in flight with arenas of their own") {
  const Device d = logged();
  const auto f =
      jit([](Tensor x, Tensor y) { return std::tuple{Value(mean(mean(mean(x, y), y), x)), asarray(ramp({64}, 7))}; });
  const CompiledGraph there = load(d, f, {{{64}, f32}, {{64}, f32}}, {.fuse = false, .frames_in_flight = 3});
  CHECK(there.recordings().made == 3);
  std::vector<DeviceArray> results;
  for (int turn = 0; turn < 10; ++turn) {
    const std::vector<DeviceArray> out =
        there({DeviceArray(d, ramp({64}, static_cast<float>(turn))), DeviceArray(d, ramp({64}))});
    results.push_back(out[0]);
    CHECK(equal(out[1].download(), ramp({64}, 7)));
  }
  for (int turn = 0; turn < 10; ++turn)
    CHECK(equal(results[static_cast<size_t>(turn)].download(),
                std::get<0>(interpret(f, ramp({64}, static_cast<float>(turn)), ramp({64})))));
  CHECK(there.recordings().made == 3);
  check_clean(d);
}

TEST_CASE("graphs: what becomes of results is no business of the graph's constants") {
  const Device d = logged();
  const auto f = jit([](Tensor x) {
    const Tensor seven = asarray(ramp({64}, 7));
    return std::tuple{seven, x + seven, zeros({3}), seven};
  });
  const CompiledGraph there = load(d, f, {{{64}, f32}});
  const DeviceArray x(d, ramp({64}));
  const std::vector<Array> wanted = interpret(there.graph(), {ramp({64})});
  for (int turn = 0; turn < 3; ++turn) {
    std::vector<DeviceArray> out = there({x});
    for (size_t i = 0; i < out.size(); ++i) CHECK(equal(out[i].download(), wanted[i]));
    if (turn == 0) out[0].write(ramp({64}, 100));
    else out[0].free();
    out[2].write(ramp({3}, 100));
  }
  check_clean(d);
}

TEST_CASE("graphs: the planner's figure is what the device holds") {
  const auto held = [](const auto& f, const Array& x, GraphOptions options) {
    const Device d;
    const int64_t before = d.allocated_bytes();
    const DeviceArray there_x(d, x);
    const CompiledGraph there = load(d, f.trace({{{x.shape().begin(), x.shape().end()}, f32}}), options);
    std::vector<std::vector<DeviceArray>> out;
    out.push_back(there({there_x}));
    d.wait();
    const auto bytes = static_cast<double>(d.allocated_bytes() - before),
               planned = static_cast<double>(there.plan().peak_bytes());
    CHECK(bytes <= 1.02 * planned);
    CHECK(bytes >= 0.98 * planned);
  };
  const auto chain = jit([](Tensor x) {
    Tensor v = x;
    for (int i = 0; i < 300; ++i) v = mean(v, x);
    return v;
  });
  held(chain, ramp({64}), {.fuse = false});  // most of it is where the calls' arguments are
  const auto rolls = jit([](Tensor x) {
    Tensor v = x;
    for (int i = 1; i < 6; ++i) v = roll(v, i) * v + x;
    return std::tuple{v, asarray(ramp({512}))};
  });
  held(rolls, ramp({1 << 14}), {});
  held(rolls, ramp({1 << 14}), {.frames_in_flight = 3});
  held(jit([](Tensor x) {
         return fori_loop(0, minimum(cast(max(x), i32), 20), x, [&](Value, Value v) { return Value(mean(v, x)); });
       }),
       ramp({64}), {});
}

TEST_CASE("graphs: arguments that do not fit") {
  const Device d = logged(), other;
  const auto f = jit([](Tensor x, Tensor y) { return std::tuple{Value(mean(x, y)), y}; }, {.name = "solver"});
  const CompiledGraph there = load(d, f, {{{64}, f32}, {{64}, f32}});
  const DeviceArray x(d, ramp({64}));
  const std::string at = "\n  at " + to_string(f.loc());
  const auto error = [&](const std::vector<DeviceArray>& arguments,
                         const std::vector<DeviceArray>& into = std::vector<DeviceArray>(2)) {
    return test::error_of<SpecError>([&] { there.run_into(arguments, into); });
  };
  CHECK(error({x}) == "solver takes 2 arguments but 1 is given" + at);
  CHECK(error({x, x, x}) == "solver takes 2 arguments but 3 are given" + at);
  CHECK(error({x, DeviceArray(d, ramp({63}))}) == "solver: argument 1 is f32[63] but f32[64] is expected" + at);
  CHECK(error({DeviceArray(d, Array({64}, i32)), x}) == "solver: argument 0 is i32[64] but f32[64] is expected" + at);
  CHECK(error({x, DeviceArray(other, ramp({64}))}) ==
        "solver: argument 1: the array is on another Device than the graph" + at);
  CHECK(error({x, DeviceArray()}) ==
        "solver: argument 1: this DeviceArray holds no array: it was never given one, or has been moved from");
  DeviceArray freed(d, ramp({64}));
  freed.free();
  CHECK(error({freed, x}) == "solver: argument 0: the device array f32[64] has been freed");
  CHECK(error({x, x}, {x}) == "solver gives 2 outputs but 1 array is given for them" + at);
  CHECK(error({x, x}, {DeviceArray(d, ramp({4})), DeviceArray()}) ==
        "solver: output 0 is f32[64] but its array is f32[4]" + at);
  CHECK(error({x, x}, {x, DeviceArray()}) ==
        "solver: output 0 is to go where argument 0 is" + at + "\n  note: give it an array of its own");
  CHECK(equal(there({x, x})[0].download(), ramp({64})));  // nothing has come of all that
  check_clean(d);
}

namespace {
// They go after main, and after the layers that the test opens.
std::vector<DeviceArray> left_arrays;
std::optional<CompiledGraph> left_graph;
const auto left_jit = jit([](Tensor x) { return mean(x, x) + 1; });
}  // namespace

TEST_CASE("graphs, functions under jit and arrays may outlive their Device, and the process") {
  {
    const Device d = logged();
    left_arrays = {DeviceArray(d, ramp({64})), left_jit(DeviceArray(d, ramp({64})))};
    left_graph = load(d, left_jit, {{{64}, f32}});
  }
  left_arrays.push_back((*left_graph)({left_arrays[0]})[0]);
  for (size_t i = 1; i < 3; ++i) CHECK(equal(left_arrays[i].download(), ramp({64}, 1)));
  left_arrays.push_back((*left_graph)({left_arrays[2]})[0]);  // in flight, perhaps
}

}  // namespace jit_test
