// debug_print and check on a device: the interpreter's lines by callback, in order over calls; failed checks as errors
// of whoever waits; a full buffer.
#include <functional>
#include <span>
#include <thread>
#include <utility>

#include "engine/front.h"
#include "engine/ir/text.h"
#include "runtime/call/call.h"
#include "runtime/call/graph.h"
#include "runtime/call/host_call.h"
#include "runtime/submit/context.h"
#include "tests/unit/runtime/support.h"

namespace print_test {
using namespace tessera;
using namespace tessera::test;

namespace {
using Lines = std::vector<std::string>;
Lines lines;  // of the device below
int check_line = 0;
Device printing(int64_t bytes = 1 << 20) {
  DeviceOptions options;
  options.validation = kValidation;
  options.log_commands = true;
  options.print = [](const std::string& line) { lines.push_back(line); };
  options.print_bytes = bytes;
  lines.clear();
  return Device(options);
}
PallasCall call(float limit) {
  return pallas_call(
      [=](Ref x, Ref o) {
        debug_print("{i}: {}, the largest {:.2f}", x[all], max(x[all]), named("i", program_id(0)));
        check_line = __LINE__ + 1;
        tessera::check(Value(x[all]) < limit, "{} is not below {}", x[all], limit);
        o[all] = x[all] * 2;
      },
      {.out_shape = {{{20}, f32}},
       .grid = {4},
       .in_specs = {{{5}, [](Value i) { return i; }}},
       .out_specs = {{{5}, [](Value i) { return i; }}},
       .name = "halves"});
}
Array quarters() {
  std::vector<float> v(20);
  for (size_t i = 0; i < 20; ++i) v[i] = static_cast<float>(i) / 4;
  return {{20}, std::move(v)};
}
}  // namespace

TEST_CASE("print: a device prints what the interpreter prints") {
  Lines wanted;
  interpret(call(100), {.print = [&](const std::string& s) { wanted.push_back(s); }}, quarters());
  CHECK(wanted.front() == "0: [0.   0.25 0.5  0.75 1.  ], the largest 1.00");
  for (const bool general : {false, true}) {
    const Device d = printing();
    CompileOptions options;
    options.general = general;
    const CompiledKernel k = load(d, call(100).trace({{{20}, f32}}), options);
    k.run({quarters()});
    CHECK(lines == wanted);
    k.run({quarters()});  // its report lies where the first one's did
    CHECK(lines.size() == 2 * wanted.size());
    check_clean(d);
  }
}

TEST_CASE("print: lines come when somebody waits, call after call") {
  Lines twice;
  {
    const Device d = printing();
    const CompiledKernel k = load(d, call(100).trace({{{20}, f32}}));
    const DeviceArray x(d, quarters());
    const DeviceArray y = k({x})[0];
    k({y});
    d.wait();
    CHECK(lines.size() == 8);
    CHECK(lines[7] == "3: [7.5 8.  8.5 9.  9.5], the largest 9.50");
    check_clean(d);
    k({x});  // nobody waits for this one
  }
  CHECK(lines.size() == 12);
}

TEST_CASE("print: a failed check is an error where results are waited for, with line and program") {
  const Device d = printing();
  const CompiledKernel k = load(d, call(3).trace({{{20}, f32}}));
  std::string wanted;
  try {
    interpret(call(3), {.print = [](const std::string&) {}}, quarters());
  } catch (const KernelError& e) {
    wanted = e.what();
  }
  CHECK(wanted.starts_with("halves: check failed in program (2): [2.5  2.75 3.   3.25 3.5 ] is not below 3.0\n  at "));
  const DeviceArray x(d, quarters());
  const DeviceArray bad = k({x})[0], worse = k({bad})[0];
  CHECK(error_of<KernelError>([&] { bad.download(); }) == wanted);
  CHECK(error_of<KernelError>([&] { bad.download(); }) == wanted);
  CHECK(error_of<KernelError>([&] { worse.download(); }) == wanted);
  CHECK(error_of<KernelError>([&] { d.wait(); }) != "");  // the second call's own
  d.wait();
  CHECK(x.download().element_bits(4) == quarters().element_bits(4));
  check_clean(d);
}

TEST_CASE("print: a full buffer says how much it lost") {
  const Device d = printing(4 * 11);  // a record of 11 words: four of its own, five elements, and two scalars
  load(d, call(100).trace({{{20}, f32}})).run({quarters()});
  REQUIRE(lines.size() == 2);
  CHECK(lines[1] ==
        "halves: 3 more lines (132 bytes) found no room in the 44 bytes that a call's messages have: print from fewer "
        "programs (in C++ DeviceOptions::print_bytes gives more room)");
  lines.clear();
  const Device none = printing(0);
  CHECK(error_of<KernelError>([&] { load(none, call(3).trace({{{20}, f32}})).run({quarters()}); }) ==
        "halves: a check failed, but what it says found no room in the 0 bytes that a call's messages have\n  at " +
            std::string(__FILE__) + ":" + std::to_string(check_line) +
            "\n  note: print from fewer programs; in C++ DeviceOptions::print_bytes gives more room");
  CHECK(error_of<SpecError>([] { printing(-1); }) == "DeviceOptions::print_bytes is -1, not between 0 and 1073741824");
}

TEST_CASE("print: a graph's kernels print and check before its results are there, also where these are its arguments") {
  const Device d = printing();
  const auto told = pallas_call(
      [](Ref a, Ref o) {
        debug_print("{}", a[all]);
        tessera::check(Value(a[all]) < 3.0f, "too much");
        o[all] = a[all] * 2;
      },
      {.out_shape = {{{}, f32}}, .name = "told"});
  const auto f = jit(
      [&](Tensor x) {
        told(x);
        return x;
      },
      {.name = "same"});
  const Graph& g = f.trace({{{}, f32}});
  const CompiledGraph graph = load(d, g);
  const auto number = [](float v) { return Array({}, std::vector<float>{v}); };
  CHECK(graph.run({number(2)})[0].data<float>()[0] == 2);
  CHECK(lines == Lines{"2.0"});
  const std::string wanted = error_of<KernelError>([&] { interpret(g, {number(4)}); });
  CHECK(wanted.starts_with("told: check failed"));
  CHECK(error_of<KernelError>([&] { graph.run({number(4)}); }) == wanted);
  Array x = number(4), y = number(0);
  const HostArray in{f32, {}, x.bytes()}, out{f32, {}, y.bytes()};
  CHECK(error_of<KernelError>([&] { call_on_host(graph, std::span(&in, 1), std::span(&out, 1)); }) == wanted);
  d.wait();
  CHECK(lines.size() == 3);
}

TEST_CASE("print: a callback that calls the graph whose call prints gets an error, and other threads get their turns") {
  std::function<void()> then;
  DeviceOptions options;
  options.print = [&](const std::string&) {
    if (then) std::exchange(then, nullptr)();
  };
  const Device d(options);
  const auto told = pallas_call(
      [](Ref a, Ref o) {
        debug_print("{}", a[all]);
        o[all] = a[all] * 2;
      },
      {.out_shape = {{{}, f32}}, .name = "told"});
  const auto f = jit(
      [&](Tensor x) {
        return while_loop(x, [](Value v) { return v < 1e6f; }, [&](Value v) { return Value(told(v)); });  // to the end
      },
      {.name = "doubling"});
  const CompiledGraph graph = load(d, f.trace({{{}, f32}}), {.timestamps = true});
  const DeviceArray one(d, Array({}, std::vector<float>{1}));
  std::string said;
  then = [&] { said = error_of<SpecError>([&] { graph({one}); }); };
  CHECK(floats(graph({one})[0])[0] == 1048576);
  CHECK(said.starts_with("doubling: is called by what its own call prints, which has not ended\n  at "));

  // Two threads, of which one prints what calls the graph of the other.
  const CompiledKernel kernel = load(d, told.trace({{{}, f32}}));
  for (int i = 0; i < 20; ++i) {
    then = [&] { said = error_of<SpecError>([&] { graph({one}); }); };  // in one thread or in the other
    kernel({one});
    std::thread other([&] { d.wait(); });
    CHECK(floats(graph({one})[0])[0] == 1048576);
    other.join();
    CHECK((said.empty() || said.starts_with("doubling: is called by")));
  }
  then = [&] { said = error_of<SpecError>([&] { graph({one}); }); };
  kernel({one});
  if (d.context()->probe().timestamp_bits != 0) CHECK(!graph.trace().empty());
  CHECK(said.empty());
  d.wait();
}

}  // namespace print_test
