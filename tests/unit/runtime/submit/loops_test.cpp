// Drivers that leave all loops of an invocation after so many iterations (Target::max_loop_iterations): a call that
// they cut short is an error, never a wrong answer, whatever the loops look like; and what stays below the limit is
// right.
#include <algorithm>

#include "codegen/make_bundle.h"
#include "engine/front.h"
#include "engine/interpreter/interpreter.h"
#include "engine/ir/text.h"
#include "runtime/bundle.h"
#include "runtime/call/call.h"
#include "runtime/call/graph.h"
#include "runtime/launch/bound.h"
#include "runtime/record.h"
#include "runtime/record_graph.h"
#include "runtime/submit/context.h"
#include "runtime/submit/slices.h"
#include "tests/unit/runtime/support.h"
#include "tests/unit/runtime/vulkan_host.h"

namespace loops_test {
using namespace tessera;
using namespace tessera::test;

namespace {

// Programs of one i32 each, packed into one subgroup: o[i] = body(x[i], y[i], i). A semicolon ends a line.
ir::Kernel each(std::string ops) {
  std::replace(ops.begin(), ops.end(), ';', '\n');
  return ir::parse(R"(tir 1
kernel @each
grid (8)
in i32[8] block (1) map (%i) { yield %i }
in i32[8] block (1) map (%i) { yield %i }
out i32[8] block (1) map (%i) { yield %i }
body (%x, %y, %o) {
  %0 = constant 0 : i32[]
  %1 = constant 1 : i32[]
  %2 = constant 2 : i32[]
  %i = program_id axis 0
  %n = load %x[0]
  %m = load %y[0]
)" + ops + "  store %o[0], %r\n}\n",
                   "each.tir");
}

const std::string kWhile = R"(
  %a, %r = while (%c = %n, %s = %0) { %go = gt %c, %0; yield %go } do (%d, %t) {
    %e = sub %d, %1
    %u = add %t, %2
    yield %e, %u
  }
)";
const std::string kNested = R"(
  %a, %r = while (%c = %n, %s = %0) { %go = gt %c, %0; yield %go } do (%d, %t) {
    %b, %p = while (%f = %m, %q = %t) { %on = gt %f, %0; yield %on } do (%g, %v) {
      %h = sub %g, %1
      %w = add %v, %1
      yield %h, %w
    }
    %e = sub %d, %1
    yield %e, %p
  }
)";
// The inner loop is another program's turn in every round, so the subgroup runs it every time.
const std::string kTurns = R"(
  %8 = constant 8 : i32[]
  %a, %r = while (%c = %n, %s = %0) { %go = gt %c, %0; yield %go } do (%d, %t) {
    %turn = rem %d, %8
    %mine = eq %turn, %i
    %k = if %mine { yield %m } else { yield %0 }
    %b, %p = while (%f = %k, %q = %t) { %on = gt %f, %0; yield %on } do (%g, %v) {
      %h = sub %g, %1
      %w = add %v, %1
      yield %h, %w
    }
    %e = sub %d, %1
    yield %e, %p
  }
)";
// Loops on both sides of an if that divides the programs, in a loop.
const std::string kSides = R"(
  %odd = rem %i, %2
  %left = eq %odd, %0
  %a, %r = while (%c = %n, %s = %0) { %go = gt %c, %0; yield %go } do (%d, %t) {
    %p = if %left {
      %b1, %p1 = while (%f = %m, %q = %t) { %on = gt %f, %0; yield %on } do (%g, %v) {
        %h = sub %g, %1
        %w = add %v, %1
        yield %h, %w
      }
      yield %p1
    } else {
      %b2, %p2 = while (%f2 = %m, %q2 = %t) { %on2 = gt %f2, %0; yield %on2 } do (%g2, %v2) {
        %h2 = sub %g2, %1
        %w2 = sub %v2, %1
        yield %h2, %w2
      }
      yield %p2
    }
    %e = sub %d, %1
    yield %e, %p
  }
)";
// Nobody ever enters the inner loops, but the driver counts them.
const std::string kUntaken = R"(
  %never = lt %m, %0
  %a, %r = while (%c = %n, %s = %0) { %go = gt %c, %0; yield %go } do (%d, %t) {
    %p = if %never {
      %q = for %j = %0 to %d step %1 carry (%v = %t) { %w = mul %v, %d; yield %w }
      yield %q
    } else {
      %w1 = add %t, %1
      yield %w1
    }
    %e = sub %d, %1
    yield %e, %p
  }
)";
const std::string kFor = R"(
  %r = for %j = %0 to %n step %1 carry (%s = %m) { %q = mul %s, %j; %t = add %q, %1; yield %t }
)";
const std::string kForNested = R"(
  %r = for %j = %0 to %n step %1 carry (%s = %m) {
    %p = for %k = %0 to %m step %1 carry (%v = %s) { %q = mul %v, %k; %t = add %q, %j; yield %t }
    yield %p
  }
)";
// The condition itself has a loop.
const std::string kInCondition = R"(
  %a, %r = while (%c = %n, %s = %0) {
    %z = for %j = %0 to %m step %1 carry (%q = %c) { %q1 = sub %q, %0; yield %q1 }
    %go = gt %z, %0
    yield %go
  } do (%d, %t) {
    %e = sub %d, %1
    %u = add %t, %2
    yield %e, %u
  }
)";
enum class Result { right, error, wrong };

Result run(const ir::Kernel& k, const std::vector<Array>& inputs, const Array& want, bool general = false) {
  CompileOptions options;
  options.general = general;
  try {
    const Array got = load(device(), k, options).run(inputs).at(0);
    for (int64_t i = 0; i < want.size(); ++i)
      if (got.element_bits(i) != want.element_bits(i)) return Result::wrong;
    return Result::right;
  } catch (const DeviceError&) {
    return Result::error;
  }
}
std::vector<int32_t> same(int32_t n) { return std::vector<int32_t>(8, n); }

bool limited() { return device().target().max_loop_iterations > 0; }

/// Right up to n = `good`, and beyond that right or an error; `bad` is an error where the driver has the limit (in the
/// general form, a program has a workgroup of its own, and what its neighbours do does not count). `alone`: one
/// program's n only, the others' are 0.
void sweep(const char* name, const ir::Kernel& k, int32_t m, int32_t good, int32_t bad, bool alone = false) {
  const int32_t step = std::max(1, (bad - good) / 4);
  for (int32_t n : {0, 1, 100, good, good + step, good + 2 * step, good + 3 * step, bad}) {
    std::vector<int32_t> x = same(alone ? 0 : n);
    x[5] = n;
    const std::vector<Array> inputs{Array({8}, x), Array({8}, same(m))};
    const Array want = interpret(k, inputs).at(0);
    for (bool general : {false, true}) {
      CAPTURE(std::string(name));
      CAPTURE(general);
      CAPTURE(n);
      const Result r = run(k, inputs, want, general);
      CHECK(r != Result::wrong);
      if (n <= good || !limited()) CHECK(r == Result::right);
      if (n == bad && !general && limited()) CHECK(r == Result::error);
    }
  }
}

}  // namespace

// With the limit of 65535, and iterations counted as the driver does: each test of a condition is one.
TEST_CASE("loops that data makes too long are an error, and below the limit they are right") {
  sweep("while", each(kWhile), 0, 65532, 65536);
  sweep("one while", each(kWhile), 0, 65532, 65536, true);
  sweep("nested", each(kNested), 9, 65532 / 11, 65536 / 11 + 2);
  sweep("turns", each(kTurns), 20, 65530 / 22, 65536 / 22 + 2);
  sweep("sides", each(kSides), 9, 65530 / 21, 65536 / 21 + 2);
  sweep("untaken", each(kUntaken), 1, 65530 / 3 - 1, 65540 / 3 + 2);
  sweep("for", each(kFor), 3, 65500 * 8, 65535 * 16 + 20, true);
  sweep("for nested", each(kForNested), 5, 65530 / 9, 70000);
  sweep("in the condition", each(kInCondition), 4, 65530 / 8, 70000);
}

TEST_CASE("barriers and shuffles in a loop, in several subgroups") {
  const ir::Kernel k = ir::parse(R"(tir 1
kernel @together
in i32[1] whole
in f32[64, 40] whole
out f32[64, 40] whole
body (%n, %x, %o) {
  %0 = constant 0 : i32[]
  %1 = constant 1 : i32[]
  %a = load %n[0]
  %b = load %x[0:64, 0:40]
  %c, %r = while (%i = %a, %s = %b) {
    %go = gt %i, %0
    yield %go
  } do (%j, %t) {
    %m = reduce_max %t axes [0]
    %w = broadcast %m dims [1] : f32[64, 40]
    %u = sub %w, %t
    %k = sub %j, %1
    yield %k, %u
  }
  store %o[0:64, 0:40], %r
}
)",
                                 "together.tir");
  std::vector<float> x;
  for (int i = 0; i < 64 * 40; ++i) x.push_back(static_cast<float>(i * 7 % 31));
  const Array data({64, 40}, x);
  for (int32_t n : {0, 1, 2, 999, 20000, 40000, 70000}) {
    CAPTURE(n);
    const int32_t same = n % 2 ? 1 : n ? 2 : 0;  // after two rounds it repeats every other one
    const Array want = interpret(k, {Array({1}, std::vector<int32_t>{same}), data}).at(0);
    bool right = true, error = false;
    try {
      const Array got = load(device(), k).run({Array({1}, std::vector<int32_t>{n}), data}).at(0);
      for (int64_t i = 0; i < want.size(); ++i) right = right && got.element_bits(i) == want.element_bits(i);
    } catch (const DeviceError&) {
      error = true;
    }
    CHECK(right);
    if (n < 1000 || !limited()) CHECK_FALSE(error);
    if (n == 70000) CHECK(error == limited());
  }
  check_clean(device());
}

namespace {

// acc += x[i] over a grid axis that the sums make sequential; two steps in one iteration.
const char* const kRunningSum = R"(tir 1
kernel @running_sum
grid (n)
in i32[n] block (1) map (%i) { yield %i }
out i32[8] block (8) map (%i) {
  %z = constant 0 : i32[]
  yield %z
}
scratch ref<vmem, i32[8]>
body (%x, %o, %acc) {
  %0 = constant 0 : i32[]
  %i = program_id axis 0
  %first = eq %i, %0
  if %first {
    %seven = constant 7 : i32[8]
    %place = iota axis 0 : i32[8]
    %z = sub %seven, %place
    store %acc[0:8], %z
  }
  %v = load %x[0]
  %a = load %acc[0:8]
  %b = broadcast %v dims [] : i32[8]
  %s = add %a, %b
  store %acc[0:8], %s
  store %o[0:8], %s
}
)";
const std::string kNote =
    "\n  note: use a driver without that limit (lavapipe from Mesa 25 on), smaller blocks, more of them in parallel, "
    "or the interpreter";
Array ones(int64_t n) { return Array({n}, std::vector<int32_t>(static_cast<size_t>(n), 1)); }

std::string cut_text(const std::string& kernel, const std::string& at) {
  return kernel + ": the loops of an invocation ran more than 65535 iterations, after which " + device().info().name +
         " leaves them all: the results are wrong\n  at " + at + kNote;
}

}  // namespace

TEST_CASE("loops that sizes make too long run in several dispatches") {
  DeviceOptions options;
  options.validation = kValidation, options.log_commands = true;
  Device d(options);
  const CompiledKernel sum = load(d, ir::parse(kRunningSum, "sum.tir"));
  for (int32_t n : {1, 1000, 130000, 1000000}) {
    CAPTURE(n);
    CHECK(sum.run({ones(n)}).at(0).element_bits(7) == static_cast<uint64_t>(n));
  }
  if (limited()) CHECK(sum.program().steps_extent >= 0);  // elsewhere the variant for such a device may run as well
  // With a copy of an argument before, and others' calls between.
  const DeviceArray many(d, ones(700000));
  std::vector<DeviceArray> got;
  for (int i = 0; i < 3; ++i) got.push_back(sum({many}).at(0));
  for (const DeviceArray& a : got) CHECK(a.download().element_bits(0) == 700007);
  for (const std::string& r : find_unordered(d.command_log())) FAIL_CHECK(r);
  size_t dispatches = 0, submissions = 0;
  for (const LogEntry& e : d.command_log()) {
    dispatches += e.is<LogEntry::Command>() && e.what == "dispatch running_sum";
    submissions += e.is<LogEntry::Submit>() && e.what == "running_sum";
  }
  CHECK(submissions >= 7);  // the calls
  if (limited()) CHECK(dispatches > 2 * submissions);
  check_clean(d);
}

TEST_CASE("a lost device is told which slices were in the submission") {
  const vulkan::GroupSlice whole{{0, 0, 0}, {8, 1, 1}, 0, 8};
  std::vector<vulkan::GroupSlice> slices = vulkan::slice_steps({}, whole, 10, 3);
  REQUIRE(slices.size() == 4);
  CHECK(vulkan::text(slices, 1, false) == "workgroups 0 to 7 of 8 (slice 2 of 4)");
  slices[1].ends = slices[2].ends = false;
  CHECK(vulkan::text(slices, 0, false) == "workgroups 0 to 7 of 8 (slice 1 of 4)");
  CHECK(vulkan::text(slices, 3, false) == "workgroups 0 to 7 of 8 (slices 2 to 4 of 4)");
}

TEST_CASE("a kernel of a bundle runs in as many dispatches as its device asks for") {
  const std::vector<BundleSource> sources{{ir::parse(kRunningSum, "sum.tir"), {"x", "o"}}};
  const Target targets[] = {minimum_target(), lavapipe_target(), gpu_target()};
  const std::string file = bundle_to_bytes(make_bundle(sources, targets).file);
  const CompiledKernel sum = Bundle(std::as_bytes(std::span(file)), "sum.tsb").kernel(device(), "running_sum");
  if (limited()) CHECK(sum.program().steps_extent >= 0);  // elsewhere the variant for such a device may run as well
  for (int32_t n : {1, 130000, 1000000}) {
    CAPTURE(n);
    CHECK(sum.run({ones(n)}).at(0).element_bits(7) == static_cast<uint64_t>(n));
  }
  check_clean(device());
}

TEST_CASE("long loops in kernels and around them, on a driver that leaves loops") {
  const std::string text = R"(tir 1
kernel @long
grid (3)
in i32[3, 64] block (squeezed, 64) map (%i) {
  %z = constant 0 : i32[]
  yield %i, %z
}
out i32[3, 64] block (squeezed, 64) map (%i) {
  %z = constant 0 : i32[]
  yield %i, %z
}
body (%x, %o) {
  %0 = constant 0 : i32[]
  %1 = constant 1 : i32[]
  %3 = constant 3 : i32[]
  %n = constant 90000 : i32[]
  %m = constant 40 : i32[]
  %a = load %x[0:64]
  %r = for %i = %0 to %n step %3 carry (%c = %a) {
    %k = rem %i, %m
    %s = for %j = %0 to %k step %1 carry (%e = %c) {
      %jb = broadcast %j dims [] : i32[64]
      %f = mul %e, %a
      %g = xor %f, %jb
      yield %g
    }
    %t = reduce_max %s axes [0]
    %tb = broadcast %t dims [] : i32[64]
    %u = sub %tb, %s
    yield %u
  }
  store %o[0:64], %r
}
)";
  const ir::Kernel k = ir::parse(text, "long.tir");
  Array x({3, 64}, DType::i32);
  for (int64_t i = 0; i < x.size(); ++i) x.set_element_bits(i, static_cast<uint64_t>(i * 7 + 3));
  const Array want = interpret(k, {x}).at(0);
  for (bool general : {false, true}) {
    CompileOptions options;
    options.general = general;
    const Array got = load(device(), k, options).run({x}).at(0);
    int64_t wrong = 0;
    for (int64_t i = 0; i < want.size(); ++i) wrong += got.element_bits(i) != want.element_bits(i);
    CHECK(wrong == 0);
  }
  check_clean(device());
}

TEST_CASE("units whose arenas do not fit together run some after the others") {
  const ir::Kernel k = ir::parse(R"(tir 1
kernel @wide
grid (24 parallel, 9000)
in i32[24, 8] block (squeezed, 8) map (%i, %k) {
  %z = constant 0 : i32[]
  yield %i, %z
}
out i32[24, 8] block (squeezed, 8) map (%i, %k) {
  %z = constant 0 : i32[]
  yield %i, %z
}
scratch ref<vmem, i32[512, 512]>
body (%x, %o, %s) {
  %0 = constant 0 : i32[]
  %500 = constant 500 : i32[]
  %k = program_id axis 1
  %first = eq %k, %0
  if %first {
    %z = constant 1 : i32[512, 512]
    store %s[0:512, 0:512], %z
  }
  %r = rem %k, %500
  %a = load %s[%r, 0:8]
  %v = load %x[0:8]
  %m = reduce_max %a axes [0]
  %mb = broadcast %m dims [] : i32[8]
  %b = add %a, %v
  %c = xor %b, %mb
  store %s[%r, 0:8], %c
  store %o[0:8], %c
}
)",
                                 "wide.tir");
  Array x({24, 8}, DType::i32);
  for (int64_t i = 0; i < x.size(); ++i) x.set_element_bits(i, static_cast<uint64_t>(i));
  const Array want = interpret(k, {x}).at(0);
  for (const int64_t limit : {int64_t{0}, int64_t{32} << 20}) {
    DeviceOptions options;
    options.validation = kValidation, options.log_commands = true, options.memory_limit = limit;
    Device d(options);
    const CompiledKernel wide = load(d, k);
    const Program& p = wide.program();
    if (limited()) CHECK(p.steps_extent >= 0);
    for (const bool slow : {false, true}) {
      const Array got = wide.run({x}).at(0);
      for (int64_t i = 0; i < want.size(); ++i) REQUIRE(got.element_bits(i) == want.element_bits(i));
      if (slow) break;
      {
        const std::lock_guard lock(d.context()->mutex());
        for (int i = 0; i < 40; ++i) d.context()->pace().learn(vulkan::work_of(p, {}), 900, p.spirv.data());
      }
      if (!limited()) break;
      // Units that follow one another share the watchdog's dispatches.
      const size_t slices = vulkan::bind(p, {}, d).slices.size();
      CHECK(slices > 900);
      CHECK(slices < 1100);
    }
    for (const std::string& r : find_unordered(d.command_log())) FAIL_CHECK(r);
    check_clean(d);
  }
}

TEST_CASE("long loops in graphs, decided by the device or not, and in a host's command buffers") {
  constexpr int64_t kSteps = 1200000;
  const auto count = pallas_call(
      [](Ref x, Ref o, Ref acc) {
        when(program_id(0) == 0, [&] { acc[all] = zeros({8}, i32); });
        acc[all] += x[all];
        o[all] = acc[all];
      },
      {.out_shape = {{{8}, i32}},
       .grid = {kSteps},
       .in_specs = {{{8}, [](Value) { return Indices{0}; }}},
       .out_specs = {{{8}, [](Value) { return Indices{0}; }}},
       .scratch_shapes = {VMEM({8}, i32)},
       .name = "count"});
  const auto f = jit([&](Tensor x) { return fori_loop(0, 2, x, [&](Value, Value v) { return Value(count(v)); }); },
                     {.name = "twice"});
  const Graph& g = f.trace({{{8}, i32}});
  const Array x({8}, std::vector<int32_t>{0, 1, 2, 3, 4, 5, 6, -7});
  std::vector<int32_t> want;
  for (int64_t i = 0; i < 8; ++i)
    want.push_back(static_cast<int32_t>(static_cast<uint32_t>(x.data<int32_t>()[static_cast<size_t>(i)]) *
                                        static_cast<uint32_t>(kSteps) * static_cast<uint32_t>(kSteps)));
  const auto check = [&](const Array& got) {
    for (size_t i = 0; i < 8; ++i) CHECK(got.data<int32_t>()[i] == want[i]);
  };
  auto host = std::make_unique<VulkanHost>();
  {
    DeviceOptions options;
    options.log_commands = true;
    const Device d = Device::import(host->imported(), options);
    const CompiledGraph graph = load(d, g);
    for (int i = 0; i < 2; ++i) check(graph.run({x}).at(0));
    PreparedGraph recorded(d, g, {.frames_in_flight = 2});
    PreparedKernel once = load(d, count.trace({{{8}, i32}})).prepare({.frames_in_flight = 2, .calls_per_frame = 2});
    CommandStream stream(d);
    const VkCommandBuffer c = host->commands();
    const DeviceArray there(d, x), between(d, {8}, i32), out(d, {8}, i32), other(d, {8}, i32);
    for (uint64_t frame = 0; frame < 3; ++frame) {
      host->begin(c);
      stream.begin(c, frame);
      stream.record(once, {there, between});
      stream.record(once, {between, out});
      recorded.record(stream, {there}, {other});
      stream.end();
      host->run(c);
      check(out.download());
      check(other.download());
    }
    d.submit_nothing();
    for (const std::string& r : find_unordered(d.command_log())) FAIL_CHECK(r);
  }
  check_silent(std::move(host));
}

TEST_CASE("loops in data around each other, in launches, graphs and a host's command buffers") {
  const auto nested = pallas_call(
      [](Ref n, Ref o) {
        o[all] = fori_loop(0, n[0], zeros({70}, i32), [&](Value i, Value a) {
          return fori_loop(0, n[1], a, [&](Value j, Value b) {
            return fori_loop(0, n[2], b, [&](Value k, Value c) { return c * 3 + k + i * j; });
          });
        });
      },
      {.out_shape = {{{70}, i32}}, .name = "nested"});
  const auto f = jit([&](Tensor n) { return nested(n); }, {.name = "one"});
  const ir::Kernel& k = nested.trace({{{3}, i32}});
  auto host = std::make_unique<VulkanHost>();
  {
    DeviceOptions options;
    options.log_commands = true;
    const Device d = Device::import(host->imported(), options);
    const CompiledKernel kernel = load(d, k);
    CHECK(kernel.program().open_ended == limited());
    const CompiledGraph graph = load(d, f.trace({{{3}, i32}}));
    PreparedKernel once = kernel.prepare({.frames_in_flight = 2});
    PreparedGraph recorded(d, f.trace({{{3}, i32}}), {.frames_in_flight = 2});
    CommandStream stream(d);
    const VkCommandBuffer c = host->commands();
    uint64_t frame = 0;
    for (const std::vector<int32_t>& sizes :
         std::vector<std::vector<int32_t>>{{0, 9, 9}, {3, 2, 1}, {200, 50, 30}, {1, 40000, 3}, {300, 1, 700}}) {
      const Array n({3}, sizes), want = interpret(k, {n}).at(0);
      const auto check = [&](const Array& got) {
        for (int64_t i = 0; i < 70; ++i) CHECK(got.element_bits(i) == want.element_bits(i));
      };
      for (int i = 0; i < 2; ++i) {
        check(kernel.run({n}).at(0));
        check(graph.run({n}).at(0));
      }
      const DeviceArray there(d, n), out(d, {70}, i32), other(d, {70}, i32);
      host->begin(c);
      stream.begin(c, frame++);
      stream.record(once, {there, out});
      recorded.record(stream, {there}, {other});
      stream.end();
      host->run(c);
      check(out.download());
      check(other.download());
      d.submit_nothing();
      d.wait();  // and says nothing of a frame that took many dispatches
    }
    if (limited()) {
      const DeviceArray many(d, Array({3}, std::vector<int32_t>{1 << 19, 64, 1})),
          few(d, Array({3}, std::vector<int32_t>{1, 1, 1})), out(d, {70}, i32);
      for (const DeviceArray* n : {&many, &few, &few}) {  // a frame is asked how it went when its slot is used again
        host->begin(c);
        stream.begin(c, frame++);
        stream.record(once, {*n, out});
        stream.end();
        host->run(c);
        d.submit_nothing();
      }
      CHECK(error_of<DeviceError>([&] { d.wait(); })
                .find("nested: its loops run longer than the 512 dispatches that are recorded of it, of 65535 "
                      "iterations each: the results are wrong") == 0);
    }
    d.submit_nothing();
    for (const std::string& r : find_unordered(d.command_log())) FAIL_CHECK(r);
  }
  check_silent(std::move(host));
}

TEST_CASE("programs that are declared parallel take turns at a lock where the driver leaves loops") {
  if (!limited()) return;  // elsewhere they may wait for ever for programs that share their subgroup
  const ir::Kernel k = ir::parse(R"(tir 1
kernel @locks
grid (600 parallel)
in i32[600, 4] block (squeezed, 4) map (%0) {
  %1 = constant 0 : i32[]
  yield %0, %1
}
in i32[2] whole
out i32[2] alias 1 whole
out i32[600] block (1) map (%2) { yield %2 }
body (%x, %unused, %lock, %o) {
  %0 = constant 0 : i32[]
  %1 = constant 1 : i32[]
  %got = while (%held = %1) {
    %on = ne %held, %0
    yield %on
  } do (%h) {
    %old = atomic_cas %lock[0], %1 compare %0 : i32[]
    yield %old
  }
  %v = load %x[0:4]
  %s = reduce_sum %v axes [0]
  %was = load %lock[1]
  %now = add %was, %s
  store %lock[1], %now
  store %o[0], %now
  %freed = atomic_rmw %lock[0], %0 kind swap : i32[]
}
)",
                                 "locks.tir");
  const std::vector<Array> inputs{Array({600, 4}, std::vector<int32_t>(2400, 2)),
                                  Array({2}, std::vector<int32_t>{0, 5})};
  const std::vector<Array> want = interpret(k, inputs), got = load(device(), k).run(inputs);
  CHECK(want[0].element_bits(1) == 4805);
  for (size_t o = 0; o < want.size(); ++o)
    for (int64_t i = 0; i < want[o].size(); ++i) REQUIRE(got[o].element_bits(i) == want[o].element_bits(i));
  check_clean(device());
}

TEST_CASE("a cut loop is an error for whoever waits for what came of it, and for nobody else") {
  if (!limited()) return;
  Device d = device();
  const CompiledKernel each_one = load(d, each(kWhile)), sum = load(d, each("  %r = add %n, %m\n"));
  const DeviceArray few(d, Array({8}, same(5))), many(d, Array({8}, same(70000)));
  const std::string text = cut_text("each", "each.tir:15");

  const DeviceArray good = each_one({few, few}).at(0), bad = each_one({many, few}).at(0),
                    after = each_one({few, few}).at(0);
  CHECK(error_of<DeviceError>([&] { bad.download(); }) == text);
  CHECK(error_of<DeviceError>([&] { bad.download(); }) == text);  // it stays wrong
  CHECK(good.download().element_bits(0) == 10);
  CHECK(after.download().element_bits(0) == 10);
  CHECK_NOTHROW(d.wait());  // all has been said

  // Device::wait says it once, too, and the arrays go on saying it.
  const DeviceArray worse = each_one({many, few}).at(0), worst = each_one({many, few}).at(0);
  CHECK(error_of<DeviceError>([&] { d.wait(); }) == text);
  CHECK(error_of<DeviceError>([&] { worst.download(); }) == text);
  CHECK_NOTHROW(d.wait());
  CHECK(error_of<DeviceError>([&] { worse.download(); }) == text);

  // What is computed or copied from wrong numbers is wrong, whether the calls are still in flight or not.
  DeviceArray next = each_one({many, few}).at(0);
  const DeviceArray copied = next.copy();
  for (int i = 0; i < 3; ++i) next = sum({few, next}).at(0);
  CHECK(error_of<DeviceError>([&] { next.download(); }) == text);
  CHECK(error_of<DeviceError>([&] { copied.download(); }) == text);
  const DeviceArray late = sum({few, bad}).at(0);
  CHECK(error_of<DeviceError>([&] { late.download(); }) == text);

  // New contents are right again.
  DeviceArray reused = bad;
  reused.write(Array({8}, same(9)));
  CHECK(reused.download().element_bits(3) == 9);
  CHECK_NOTHROW(d.wait());
  check_clean(d);
}

TEST_CASE("reports are found where transfers are staged, and forgotten with their device") {
  for (bool stage : {false, true}) {
    DeviceOptions options;
    options.validation = kValidation, options.log_commands = true;
    options.always_stage = stage;
    Device d(options);
    const CompiledKernel each_one = load(d, each(kWhile)), sum = load(d, each("  %r = add %n, %m\n"));
    const DeviceArray many(d, Array({8}, same(70000)));
    const DeviceArray bad = each_one({many, many}).at(0), worse = sum({many, bad}).at(0);
    CHECK((error_of<DeviceError>([&] { worse.download(); }) != "") == limited());
    check_clean(d);
    CHECK(each_one({many, many}).size() == 1);  // nobody waits for this one
    for (const std::string& r : find_unordered(d.command_log())) FAIL_CHECK(r);
  }
}

TEST_CASE("workgroups that would loop over too many units become more") {
  Program p = scratch();  // three workgroups at most; units of 64 elements
  p.max_loop_iterations = 250;
  p.loops = {{{"scratch.comp", 1}, 100, Extent(100)}};
  const DeviceArray a(device(), ramp(1000));
  std::vector<float> want;
  for (int i = 0; i < 1000; ++i) want.push_back(3.0f * static_cast<float>(i));
  CHECK(floats(launch(device(), p, {a}).at(0)) == want);
  p.loops = {{{"scratch.comp", 1}, 300, Extent(300)}};
  CHECK(error_of<CompileError>([&] { launch(device(), p, {a}); }) ==
        "scratch: one invocation runs at least 300 loop iterations for n = 1000, but " + device().info().name +
            " leaves all loops after 250\n  at scratch.comp:1" + kNote);
  check_clean(device());
}

}  // namespace loops_test
