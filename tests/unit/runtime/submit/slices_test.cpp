// Long calls in slices: every workgroup runs once, in the order of the queue, and the answers are the interpreter's.
#include "runtime/submit/slices.h"

#include <algorithm>
#include <bit>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <utility>

#include "engine/interpreter/interpreter.h"
#include "engine/ir/text.h"
#include "runtime/call/call.h"
#include "runtime/call/graph.h"
#include "runtime/device/faults.h"
#include "runtime/submit/context.h"
#include "tests/unit/runtime/support.h"

namespace slices_test {
using namespace tessera;
using namespace tessera::test;
using vulkan::GroupSlice;

namespace {

/// Submissions of a call in the log.
size_t submissions(const Device& d, const std::string& what) {
  size_t n = 0;
  for (const LogEntry& e : d.command_log()) n += e.is<LogEntry::Submit>() && e.what == what;
  return n;
}

/// A device that cuts all it can: no call is short enough.
Device impatient() {
  DeviceOptions o;
  o.validation = kValidation, o.log_commands = true;
  o.watchdog_seconds = 1e-12;
  o.print = [](std::string_view) {};
  return Device(o);
}

Program costly(Program p, const Extent& flops) {
  p.cost_estimate.flops = flops;
  p.loc = {"k.tir", 7};
  return p;
}

/// A small number as an element.
uint64_t bits(DType t, int v) {
  if (t == f32) return std::bit_cast<uint32_t>(static_cast<float>(v));
  if (t == DType::f16) return to_f16_bits(static_cast<float>(v));
  if (t == DType::bf16) return to_bf16_bits(static_cast<float>(v));
  return static_cast<uint64_t>(v);
}

/// A graph of one call.
Graph graph_of(const ir::Kernel& k, const std::vector<Array>& inputs, const DimValues& dims) {
  Graph g;
  Graph::Step call{.what = Graph::Step::Call{}};
  for (size_t i = 0; i < k.blocks.size(); ++i) {
    const bool input = i < static_cast<size_t>(k.num_inputs);
    g.values.push_back({k.blocks[i].dtype, input ? inputs[i].shape() : bind_shape(k, static_cast<int>(i), dims)});
    (input ? call.arguments : call.results).push_back(i);
  }
  g.body = {call.arguments, call.results, {call}};
  g.kernels = {k};
  return g;
}

ir::Kernel read(const std::string& name) {
  std::ifstream in("tests/tir/" + name + ".tir");
  return ir::parse(std::string((std::istreambuf_iterator<char>(in)), {}), intern_file("tests/tir/" + name + ".tir"));
}

}  // namespace

TEST_CASE("slices: every workgroup once, in order, whole rows where there are several" * without_device) {
  std::mt19937 random(1);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  for (int round = 0; round < 400; ++round) {
    const std::array<uint32_t, 3> limits{static_cast<uint32_t>(1 + below(40)), static_cast<uint32_t>(1 + below(40)), 1};
    const int64_t count = 1 + below(int64_t{limits[0]} * limits[1]), per = 1 + below(60);
    CAPTURE(count);
    CAPTURE(per);
    CAPTURE(limits[0]);
    CAPTURE(limits[1]);
    int64_t next = 0;
    for (const GroupSlice& s : vulkan::slice_workgroups(count, per, limits)) {
      CHECK(s.first == next);
      CHECK(s.groups[0] <= limits[0]);
      CHECK(s.base[1] + s.groups[1] <= limits[1]);
      CHECK(s.groups[2] == 1);
      // The numbers that the code computes, from its own dispatch's extents.
      for (uint32_t y = s.base[1]; y < s.base[1] + s.groups[1]; ++y)
        for (uint32_t x = s.base[0]; x < s.base[0] + s.groups[0]; ++x) CHECK(int64_t{y} * s.groups[0] + x == next++);
      CHECK(s.first + s.count == next);
    }
    CHECK(next >= count);
    if (count <= limits[0]) CHECK(next == count);
    else CHECK(next < count + limits[0]);
  }
}

TEST_CASE("slices: dispatches of which data decides how many there are" * without_device) {
  constexpr size_t kAll = vulkan::kOpenDispatches;
  const GroupSlice whole{{0, 0, 0}, {7, 1, 1}, 0, 7};
  for (const bool several : {false, true}) {
    const std::vector<GroupSlice> groups =
        several ? vulkan::slice_workgroups(7, 3, {8, 8, 8}) : std::vector<GroupSlice>{};
    std::vector<GroupSlice> open = vulkan::slice_open(groups, whole, 99);
    REQUIRE(open.size() == kAll * (several ? 3 : 1));
    for (size_t i = 0; i < open.size(); ++i) {
      CHECK((open[i].first_step & Program::kGoesOn ? 1 : 0) == (i % kAll != 0));
      CHECK((open[i].first_step & Program::kTells ? 1 : 0) == open[i].tells);
      CHECK(open[i].end_step == 99);
      CHECK(open[i].count == (several ? groups[i / kAll].count : 7));
      if (i % kAll == 0) CHECK(open[i].tells);  // most calls are done then
      if (!open[i].tells) continue;
      CHECK(open[i].ends);
      CHECK(vulkan::after_telling(open, i, false) == (i / kAll + 1) * kAll);
      const size_t next = vulkan::after_telling(open, i, true);
      if ((i + 1) % kAll != 0) CHECK(next == i + 1);
      else CHECK((next < i && open[next - 1].tells));
    }
    // In a recording the last one alone tells: what an earlier one has left a later one runs.
    vulkan::tell_at_the_end(open);
    for (size_t i = 0; i < open.size(); ++i) {
      CHECK(open[i].tells == ((i + 1) % kAll == 0));
      CHECK((open[i].first_step & Program::kTells ? 1 : 0) == open[i].tells);
      CHECK((open[i].first_step & Program::kGoesOn ? 1 : 0) == (i % kAll != 0));
    }
  }
}

TEST_CASE("slices: every unit of work once, from the dispatch's own numbers" * without_device) {
  std::mt19937 random(2);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  int whole = 0;
  for (int round = 0; round < 400; ++round) {
    const std::array<uint32_t, 3> limits{static_cast<uint32_t>(1 + below(20)), static_cast<uint32_t>(1 + below(60)), 1};
    const int64_t count = 1 + below(300), per = 1 + below(60), most = 1 + below(30);
    CAPTURE(count);
    CAPTURE(per);
    CAPTURE(most);
    const auto slices = vulkan::slice_units(count, per, most, limits);
    whole += slices.empty();
    std::vector<int> runs(static_cast<size_t>(slices.empty() ? 0 : count));
    for (const GroupSlice& s : slices) {
      CHECK(s.groups[0] <= limits[0]);
      CHECK(s.groups[0] <= most);
      CHECK(s.base[1] < limits[1]);
      for (int64_t x = 0; x < s.groups[0]; ++x) {
        const int64_t index = int64_t{s.base[1]} * s.groups[0] + x;
        CHECK(index - s.first < s.groups[0]);  // its slot in the arena
        for (int64_t u = index; u < s.first + s.count; u += s.groups[0]) ++runs[static_cast<size_t>(u)];
      }
    }
    for (int n : runs) CHECK(n == 1);
  }
  CHECK(whole < 300);
}

TEST_CASE("slices: as many as the estimate asks for") {
  DeviceOptions o;
  o.validation = kValidation, o.log_commands = true;
  const Device d(o);
  const Program p = costly(scale(), 1000);
  const auto& context = d.context();
  const DeviceArray x(d, ramp(64 * 1000));
  launch(d, p, {x});
  CHECK(submissions(d, "scale") == 1);
  {
    std::lock_guard lock(context->mutex());
    context->pace().learn(1000, 4.9, p.spirv.data());  // seconds: ten times the budget, less a little
    CHECK(context->pace().seconds(2000, p.spirv.data()) == doctest::Approx(9.8));
  }
  CHECK(floats(launch(d, p, {x})[0]) == scaled_ramp(64 * 1000));
  CHECK(submissions(d, "scale") == 11);
  CHECK(pipeline_counts(d).made == 1);  // whole or cut
  CHECK(vulkan::work_of(costly(scale(), dim("n") * 2), {{"n", 21}}) == 42);
  CHECK(vulkan::work_of(costly(scale(), dim("m")), {{"n", 21}}) == 0);  // who knows
  // What cannot be cut stays whole: workgroups that loop over units without saying so, and a single one.
  Program whole = costly(scratch(), 1000);
  const Program units = whole, one = costly(add(), 1000);
  whole.units_extent = -1;
  {
    std::lock_guard lock(context->mutex());
    for (const Program* slow : {&std::as_const(whole), &units, &one})
      context->pace().learn(1000, 900, slow->spirv.data());
  }
  launch(d, whole, {x});
  CHECK(submissions(d, "scratch") == 1);
  // Those that do are cut between units, with one arena for all slices.
  const std::vector<float> got = floats(launch(d, units, {x})[0]);
  for (size_t i = 0; i < got.size(); ++i) CHECK(got[i] == 3 * static_cast<float>(i));
  CHECK(submissions(d, "scratch") == 1 + 1000);
  launch(d, one, {DeviceArray(d, ramp(64)), DeviceArray(d, ramp(64))});
  CHECK(submissions(d, "add") == 1);
  check_clean(d);

  o.watchdog_seconds = 0;  // never
  const Device patient(o);
  launch(patient, costly(scale(), int64_t{1} << 60), {DeviceArray(patient, ramp(6400))});
  CHECK(submissions(patient, "scale") == 1);
  o.watchdog_seconds = -1;
  CHECK(error_of<SpecError>([&] { Device bad(o); }) ==
        "DeviceOptions::watchdog_seconds is -1.000000, which is not 0 or more");
}

TEST_CASE("slices: long calls are measured") {
  if (device().context()->probe().timestamp_bits == 0) return;
  const Device d;
  Program p = costly(busy(), dim("n") * 2000);
  const DeviceArray x(d, ramp(100000));
  const auto seconds = [&] {
    std::lock_guard lock(d.context()->mutex());
    return d.context()->pace().seconds(2e8, p.spirv.data());
  };
  const double guess = seconds();
  launch(d, p, {x})[0].download();
  if (d.info().target.kind == Target::Kind::cpu) CHECK(seconds() == guess);  // most of it was the driver's compiler
  launch(d, p, {x})[0].download();
  std::lock_guard lock(d.context()->mutex());
  const double own = d.context()->pace().seconds(2e8, p.spirv.data()), any = d.context()->pace().seconds(2e8, nullptr);
  // A thousand operations, each on the result of the one before it: GPUs take a cycle or more for each.
  const double least = d.info().target.kind == Target::Kind::cpu ? 1e-5 : 1e-7;
  CHECK(own > least);
  CHECK(own < 60);
  CHECK(any > least);
  CHECK(any < 60);
}

TEST_CASE("slices: a call that was measured while the machine had no time for it is soon whole again") {
  DeviceOptions o;
  o.log_commands = true;
  const Device d(o);
  if (d.context()->probe().timestamp_bits == 0) return;
  const Program p = costly(scale(), 1000);
  const DeviceArray x(d, ramp(64 * 1000)), y(d, {64 * 1000}, f32);
  {
    std::lock_guard lock(d.context()->mutex());
    d.context()->pace().learn(1000, 900, p.spirv.data());
  }
  // Nothing but the wait looks at what has been measured: the call has no report and leaves no memory behind.
  size_t slices = 0, first = 0;
  for (int turn = 0; turn < 20 && slices != 1; ++turn) {
    const size_t before = submissions(d, "scale");
    launch_into(d, p, {x}, {y});
    d.wait();
    slices = submissions(d, "scale") - before;
    if (turn == 0) first = slices;
  }
  CHECK(first == 1000);
  CHECK(slices == 1);
  CHECK(floats(y) == scaled_ramp(64 * 1000));
}

TEST_CASE("slices: a kernel that is far slower than its estimate says little of others") {
  const Device d;
  std::lock_guard lock(d.context()->mutex());
  vulkan::Pace& pace = d.context()->pace();
  const Program slow = scale();
  const double guess = pace.seconds(1e9, nullptr);
  for (int i = 0; i < 40; ++i) pace.learn(1000, 900, slow.spirv.data());
  CHECK(pace.seconds(1000, slow.spirv.data()) == doctest::Approx(900));
  CHECK(pace.seconds(1e9, nullptr) == doctest::Approx(32 * guess));
  for (int i = 0; i < 40; ++i) pace.learn(1e9, guess / 10, slow.spirv.data());  // up again
  CHECK(pace.seconds(1e9, nullptr) == doctest::Approx(guess / 10).epsilon(0.01));
  CHECK(pace.seconds(1e9, slow.spirv.data()) == doctest::Approx(guess / 10).epsilon(0.01));
}

TEST_CASE("slices: kernels agree with the interpreter, however they are cut") {
  const Device d = impatient();
  size_t cut = 0, cut_in_graphs = 0;
  for (const std::string name : {"matmul", "softmax", "add", "reductions", "atomics_histogram", "scans", "gather_rows",
                                 "alias_in_place", "print_in_loops", "scratch_outer_axis", "prefetch_gather", "misc",
                                 "element_stencil", "attention_units", "scatter_ordered"}) {
    CAPTURE(name);
    const ir::Kernel k = read(name);
    DimValues dims;
    std::vector<std::string> names;
    for (size_t i = 0; i < static_cast<size_t>(k.num_inputs); ++i)
      for (const Extent& e : k.blocks[i].array_shape) e.collect_names(names);
    for (const ir::GridAxis& a : k.grid) a.size.collect_names(names);
    for (const std::string& n : names) dims[n] = 37;
    std::vector<Array> inputs;
    for (size_t i = 0; i < static_cast<size_t>(k.num_inputs); ++i) {
      Shape shape;
      for (const Extent& e : k.blocks[i].array_shape) shape.push_back(e.eval(dims));
      Array a(shape, k.blocks[i].dtype);
      for (int64_t j = 0; j < a.size(); ++j) a.set_element_bits(j, bits(k.blocks[i].dtype, static_cast<int>(j % 3)));
      inputs.push_back(std::move(a));
    }
    const std::vector<Array> want = interpret(k, inputs, {.dims = dims, .print = [](const std::string&) {}}),
                             got = load(d, k).run(inputs, dims);
    REQUIRE(want.size() == got.size());
    for (size_t i = 0; i < want.size(); ++i)
      for (int64_t j = 0; j < want[i].size(); ++j) CHECK(got[i].at(j) == doctest::Approx(want[i].at(j)).epsilon(1e-4));
    cut += submissions(d, k.name) > 1;

    // The same as a graph, twice: what one replay leaves behind is no matter to the next.
    if (std::any_of(k.grid.begin(), k.grid.end(), [](const ir::GridAxis& a) { return !a.size.is_static(); })) continue;
    const CompiledGraph graph = load(d, graph_of(k, inputs, dims), {.fuse = false});
    const size_t before = d.command_log().size();
    for (int turn = 0; turn < 2; ++turn) {
      const std::vector<Array> replayed = graph.run(inputs);
      for (size_t i = 0; i < want.size(); ++i)
        for (int64_t j = 0; j < want[i].size(); ++j)
          CHECK(replayed[i].at(j) == doctest::Approx(want[i].at(j)).epsilon(1e-4));
    }
    int64_t dispatches = 0;
    const CommandLog log = d.command_log();
    for (size_t i = before; i < log.size(); ++i)
      dispatches += log[i].is<LogEntry::Command>() && log[i].what == "dispatch " + k.name;
    cut_in_graphs += dispatches > 2;
  }
  CHECK(cut >= 5);
  CHECK(cut_in_graphs == cut);
  check_clean(d);
}

TEST_CASE("slices: workgroups that loop over units through their arenas") {
  const Device d = impatient();
  const ir::Kernel k = ir::parse(
      "tir 1\nkernel @squares\ngrid (n, 9)\nin f32[n, 9, 4, 4096] block (1, 1, 4, 4096) map (%i, %j) {\n  %0 = "
      "constant 0 : i32[]\n  yield %i, %j, %0, %0\n}\n"
      "out f32[n, 9, 4, 4096] block (1, 1, 4, 4096) map (%i, %j) {\n  %0 = constant 0 : i32[]\n  yield %i, %j, %0, "
      "%0\n}\nbody (%x, %o) {\n"
      "  %a = load %x[0, 0, 0:4, 0:4096]\n  %b = mul %a, %a\n  store %o[0, 0, 0:4, 0:4096], %b\n  yield\n}\n",
      "squares.tir");
  CompileOptions general;
  general.general = true;
  const CompiledKernel compiled = load(d, k, general);
  REQUIRE(compiled.program().max_workgroups > 0);
  // A driver that runs what no invocation takes is given addresses that depend on the number of units as well.
  const bool sliced = d.target().skips_branches;
  REQUIRE((compiled.program().units_extent >= 0) == sliced);
  Array x({3, 9, 4, 4096}, f32);
  for (int64_t i = 0; i < x.size(); ++i) x.data<float>()[static_cast<size_t>(i)] = static_cast<float>(i % 1001);
  const Array got = compiled.run({x})[0];
  bool same = true;
  for (int64_t i = 0; i < x.size(); ++i) same = same && got.at(i) == x.at(i) * x.at(i);
  CHECK(same);
  CHECK(submissions(d, "squares") == (sliced ? 27 : 1));
  check_clean(d);
}

TEST_CASE("slices: errors name them, and what has begun is no argument any more") {
  vulkan::Faults faults;
  const Device d = impatient();
  const Program p = costly(scale(), 1 << 20);
  const DeviceArray x(d, ramp(640));
  d.wait();
  // The third slice is not taken.
  faults.fail("vkQueueSubmit2", 2, VK_ERROR_OUT_OF_DEVICE_MEMORY);
  CHECK(error_of<DeviceError>([&] { launch(d, p, {x}); }) ==
        "vkQueueSubmit2 of scale on " + d.info().name + ": VK_ERROR_OUT_OF_DEVICE_MEMORY");
  CHECK(x.valid());
  CHECK(floats(launch(d, p, {x})[0]) == scaled_ramp(640));
  Program in_place = p;
  in_place.args[1].alias = 0;
  faults.fail("vkQueueSubmit2", 2, VK_ERROR_OUT_OF_DEVICE_MEMORY);
  const DeviceArray y = x.copy();
  CHECK(error_of<DeviceError>([&] { launch(d, in_place, {donate(y)}); }) ==
        "vkQueueSubmit2 of scale on " + d.info().name + ": VK_ERROR_OUT_OF_DEVICE_MEMORY");
  CHECK(!y.valid());
  d.wait();

  faults.fail("vkQueueSubmit2", 3, VK_ERROR_DEVICE_LOST);
  const std::string said = error_of<DeviceError>([&] { launch(d, p, {x}); });
  const std::string first = "vkQueueSubmit2 of scale on " + d.info().name + ": VK_ERROR_DEVICE_LOST; ";
  CHECK(said.starts_with(first));  // how far it had come is chance
  CHECK((said.find("scale, workgroups 0 to 0 of 10 (slice 1 of 10)") != std::string::npos ||
         said.find("scale, workgroups 1 to 1 of 10 (slice 2 of 10)") != std::string::npos ||
         said.find("scale, workgroups 2 to 2 of 10 (slice 3 of 10)") != std::string::npos));
  CHECK(said.ends_with("\n  note: Device::recover() makes it usable again, without the contents of its arrays"));
  CHECK(d.lost());
}

}  // namespace slices_test
