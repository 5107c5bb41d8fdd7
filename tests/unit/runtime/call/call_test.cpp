#include "runtime/call/call.h"

#include "engine/front.h"
#include "engine/ir/text.h"
#include "tests/unit/runtime/support.h"

namespace call_test {
using namespace tessera;
using namespace tessera::test;

namespace {

// o = x + x, for any length; blocks of 128.
constexpr const char* kTwice = R"(tir 1
kernel @twice
grid (cdiv(n, 128))
in f32[n] block (128) map (%0) {
  yield %0
}
out f32[n] block (128) map (%1) {
  yield %1
}
body (%2: ref<vmem, f32[128]>, %3: ref<vmem, f32[128]>) {
  %4 = load %2[0:128] : f32[128]
  %5 = add %4, %4 : f32[128]
  store %3[0:128], %5
}
)";

std::vector<float> doubled(int64_t n) {
  std::vector<float> v;
  for (int64_t i = 0; i < n; ++i) v.push_back(2.0f * static_cast<float>(i));
  return v;
}
std::vector<float> floats(const Array& a) {
  const auto s = a.data<float>();
  return {s.begin(), s.end()};
}

}  // namespace

TEST_CASE("one compiled kernel serves every size, on host and device arrays") {
  const ir::Kernel k = ir::parse(kTwice, "twice.tir");
  const CompiledKernel twice = load(device(), k);
  for (int64_t n : {1, 127, 128, 129, 5000, 0}) {
    CAPTURE(n);
    const std::vector<Array> host = twice.run({ramp(n)});
    CHECK(floats(host.at(0)) == doubled(n));
    const std::vector<DeviceArray> there = twice({DeviceArray(device(), ramp(n))});
    CHECK(floats(there.at(0).download()) == doubled(n));
  }
  check_clean(device());
}

TEST_CASE("a kernel is compiled once per device and once per form") {
  const ir::Kernel k = ir::parse(kTwice, "twice.tir");
  const Device d;
  CompileOptions general;
  general.general = true;
  const CompiledKernel a = load(d, k), b = load(d, ir::parse(kTwice, "twice.tir")), c = load(d, k, general),
                       other = load(Device(), k);
  CHECK(&a.program() == &b.program());
  CHECK(&a.program() != &c.program());
  CHECK(&a.program() != &other.program());
  CHECK(floats(c.run({ramp(300)}).at(0)) == doubled(300));
  CHECK(floats(other.run({ramp(300)}).at(0)) == doubled(300));
}

TEST_CASE("a kernel that has been compiled is looked at for lints all the same") {
  const ir::Kernel k = ir::parse(
      "tir 1\nkernel @part\nin f32[8] whole\nout f32[8] whole\nbody (%x, %o) {\n  %a = load %x[0:1]\n"
      "  store %o[0:1], %a\n}\n",
      "part.tir");
  const Device d;
  CompileOptions lint;
  lint.lint = Lint::error;
  const std::string error = error_of<KernelError>([&] { load(d, k, lint); });
  CHECK(error.find("part") != std::string::npos);
  load(d, k);
  CHECK(error_of<KernelError>([&] { load(d, k, lint); }) == error);
}

TEST_CASE("calls on the default device, by kernel and by pallas_call") {
  CHECK(floats(run_on_default_device(ir::parse(kTwice, "twice.tir"), {ramp(77)}).at(0)) == doubled(77));
  const PallasCall twice =
      pallas_call([](Ref x, Ref o) { o[all] = x[all] + x[all]; }, {.out_shape = {{{40}, f32}}, .name = "twice"});
  CHECK(floats(Array(twice(ramp(40)))) == doubled(40));
}

TEST_CASE("a pallas_call on device arrays waits for nothing and chains") {
  const PallasCall twice =
      pallas_call([](Ref x, Ref o) { o[all] = x[all] + x[all]; }, {.out_shape = {{{40}, f32}}, .name = "twice"});
  DeviceArray x(device(), ramp(40));
  for (int i = 0; i < 3; ++i) x = launch(device(), twice, {x}).at(0);
  CHECK(floats(x.download())[39] == 8 * 39);
  check_clean(device());
}

TEST_CASE("index maps load from scalar-prefetch operands") {
  const PallasCall gather =
      pallas_call([](Ref rows, Ref x, Ref o) { o[all] = x[all] + rows[program_id(0)]; },
                  {.out_shape = {{{4, 9}, i32}},
                   .grid_spec = PrefetchScalarGridSpec{
                       .num_scalar_prefetch = 1,
                       .grid = {4},
                       .in_specs = {{{squeezed, 9}, [](Value i, Ref rows) { return Indices{rows[i], 0}; }}},
                       .out_specs = {{{squeezed, 9}, [](Value i) { return Indices{i, 0}; }}}}});
  Array x({3, 9}, i32);
  for (int64_t i = 0; i < x.size(); ++i) x.set_element_bits(i, static_cast<uint64_t>(i));
  const std::vector<DeviceArray> arguments{{device(), Array({4}, std::vector<int32_t>{2, 0, 100, 1})}, {device(), x}};
  const Array o = launch(device(), gather, arguments).at(0).download();
  const std::vector<int32_t> first{20, 0, 118, 10};
  for (int64_t i = 0; i < o.size(); ++i) CHECK(o.at(i) == first[static_cast<size_t>(i / 9)] + i % 9);
  check_clean(device());
}

TEST_CASE("what a device lacks is an error that names it") {
  // No device of ours lacks these, so the target is made poorer.
  Target poor = device().target();
  poor.float64 = false;
  const ir::Kernel k = ir::parse(R"(tir 1
kernel @wide
grid ()
in f64[4] whole
out f64[4] whole
body (%0: ref<any, f64[4]>, %1: ref<any, f64[4]>) {
  %2 = constant 2.5 : f64[4]
  %3 = load %0[0:4] : f64[4]
  %4 = mul %3, %2 : f64[4]
  store %1[0:4], %4
}
)",
                                 "wide.tir");
  CHECK(error_of<CompileError>([&] { compile(k, poor); }) ==
        "wide: load: dtype f64 needs shaderFloat64, which " + poor.name + " does not have\n  at wide.tir:8");
}

TEST_CASE("a kernel that stores to an input works on a copy") {
  const PallasCall count = pallas_call(
      [](Ref x, Ref o) {
        o[program_id(0)] = x[0];
        x[0] += 1;
      },
      {.out_shape = {{{4}, i32}}, .grid = 4, .name = "count"});
  const Array x({1}, std::vector<int32_t>{7});
  const Array o = count(x), again = interpret(count, x);
  for (int64_t i = 0; i < 4; ++i) CHECK((o.at(i) == static_cast<double>(7 + i) && again.at(i) == o.at(i)));
  CHECK(x.at(0) == 7);
  const DeviceArray on_device(device(), x);
  for (int round = 0; round < 2; ++round) CHECK(launch(device(), count, {on_device}).at(0).download().at(3) == 10);
  CHECK(on_device.download().at(0) == 7);
  check_clean(device());
}

namespace {
/// Rows 1 and 2 of four get 100 more; `empty`: nothing runs.
PallasCall bump(bool empty = false) {
  const BlockSpec row{{1, 3}, [](Value i) { return Indices{i + 1, 0}; }};
  return pallas_call([](Ref x, Ref o) { o[all] = x[all] + 100; }, {.out_shape = {{{4, 3}, i32}},
                                                                   .grid = empty ? 0 : 2,
                                                                   .in_specs = row,
                                                                   .out_specs = row,
                                                                   .input_output_aliases = {{0, 0}},
                                                                   .name = "bump"});
}
const Array rows_of_three({4, 3}, std::vector<int32_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
std::vector<int32_t> ints(const Array& a) { return {a.data<int32_t>().begin(), a.data<int32_t>().end()}; }
const std::vector<int32_t> bumped{0, 1, 2, 103, 104, 105, 106, 107, 108, 9, 10, 11};
}  // namespace

TEST_CASE("an output that is aliased to an input starts with its contents, and the input stays as it was") {
  CHECK(ints(bump()(rows_of_three)) == bumped);
  CHECK(ints(bump(true)(rows_of_three)) == ints(rows_of_three));
  const DeviceArray x(device(), rows_of_three);
  const DeviceArray o = launch(device(), bump(), {x}).at(0), twice = launch(device(), bump(), {o}).at(0);
  CHECK(ints(o.download()) == bumped);
  CHECK(twice.download().at(3) == 203);
  CHECK(ints(x.download()) == ints(rows_of_three));
  CHECK(ints(launch(device(), bump(true), {x}).at(0).download()) == ints(rows_of_three));
  check_clean(device());
}

TEST_CASE("a donated array's memory becomes the output's, and the array may not be used again") {
  const DeviceArray x(device(), rows_of_three), also = x;
  const auto memory = x.buffer("test");
  const DeviceArray o = launch(device(), bump(), {donate(x)}).at(0);
  CHECK(o.buffer("test") == memory);
  CHECK(ints(o.download()) == bumped);
  CHECK(!x.valid());
  const std::string gone = "the device array i32[4, 3] has been donated to bump";
  CHECK(error_of<SpecError>([&] { also.download(); }) == "download: " + gone);
  CHECK(error_of<SpecError>([&] { launch(device(), bump(), {x}); }) == "bump: argument 0: " + gone);
  // nothing runs, and the memory changes hands
  const DeviceArray none = launch(device(), bump(true), {donate(o)}).at(0);
  CHECK(none.buffer("test") == memory);
  CHECK(ints(none.download()) == bumped);
  CHECK(!o.valid());

  const int line = __LINE__ + 1;
  const PallasCall add = pallas_call([](Ref a, Ref b, Ref s) { s[all] = a[all] + b[all]; },
                                     {.out_shape = {{{4, 3}, i32}}, .input_output_aliases = {{1, 0}}, .name = "add"});
  const DeviceArray a(device(), rows_of_three), b(device(), rows_of_three);
  const std::string at = "\n  at " + std::string(__FILE__) + ":" + std::to_string(line);
  CHECK(error_of<SpecError>([&] { launch(device(), add, {donate(a), b}); }) ==
        "add: argument 0 is donated, but no output is aliased to it" + at +
            "\n  note: name one in input_output_aliases, or leave donate() out");
  CHECK(error_of<SpecError>([&] { launch(device(), add, {a, donate(a)}); }) ==
        "add: argument 1 is donated, but argument 0 is the same array" + at + "\n  note: copy() one of them");
  const CompiledKernel k = load(device(), add.trace({ShapeDtype{{4, 3}, i32}, ShapeDtype{{4, 3}, i32}}));
  CHECK(error_of<SpecError>([&] {
          launch_into(device(), k.program(), {a, donate(b)}, {DeviceArray(device(), rows_of_three)});
        }) == "add: out_specs[0]: an array is given for it, but it takes the memory of argument 1, which is donated" +
                  at + "\n  note: give no array for it, or do not donate the argument");
  CHECK(error_of<SpecError>([&] { launch_into(device(), k.program(), {a, b}, {a}); }) ==
        "add: out_specs[0]: the array is in_specs[0]'s too" + at +
            "\n  note: give outputs arrays of their own, or donate the argument that one is aliased to");
  CHECK(a.valid());
  CHECK(ints(launch(device(), add, {a, donate(b)}).at(0).download())[11] == 22);
  check_clean(device());
}

TEST_CASE("a grid's dynamic sizes arrive with the call, and nothing is compiled again") {
  const PallasCall rows = pallas_call([](Ref x, Ref o) { o[all] = x[all] + program_id(0); },
                                      {.out_shape = {{{6, 2}, i32}},
                                       .grid = {dynamic_grid_dim, 2},
                                       .in_specs = {{{1, 1}, [](Value i, Value j) { return Indices{i, j}; }}},
                                       .out_specs = {{{1, 1}, [](Value i, Value j) { return Indices{i, j}; }}},
                                       .input_output_aliases = {{0, 0}},
                                       .name = "rows"});
  const DeviceArray x(device(), Array({6, 2}, i32));
  for (const int64_t n : {3, 6, 0, 1}) {
    CAPTURE(n);
    const Array o = launch(device(), rows, GridSizes{n}, {x}).at(0).download(),
                host = rows(GridSizes{n}, Array({6, 2}, i32));
    for (int64_t i = 0; i < 12; ++i)
      CHECK((o.at(i) == static_cast<double>(i / 2 < n ? i / 2 : 0) && host.at(i) == o.at(i)));
  }
  const ir::Kernel& k = rows.trace({{{6, 2}, i32}});
  CHECK(&load(device(), k).program() == &load(device(), k).program());
  check_clean(device());
}

TEST_CASE("vmap brings what is written to the batch, on device arrays by a copy there") {
  const PallasCall grow = pallas_call(
      [](Ref x, Ref y, Ref z, Ref o) {
        o[all] = x[all] + 10 * y[all] + z[all];
        z[all] += 1;
      },
      {.out_shape = {{{2, 3}, i32}},
       .grid = 2,
       .in_specs = {no_block_spec, no_block_spec, no_block_spec},
       .out_specs = no_block_spec,
       .input_output_aliases = {{0, 0}},
       .name = "grow"});
  const auto values = [](Shape s) {
    std::vector<int32_t> v;
    for (int64_t i = 0; i < num_elements(s); ++i) v.push_back(static_cast<int32_t>(i * i % 23));
    return Array(std::move(s), v);
  };
  const auto check = [&](const BatchAxes& in, const BatchAxes& out, const std::vector<Array>& arguments) {
    const PallasCall batched = vmap(grow, in, out);
    std::vector<DeviceArray> there;
    for (const Array& a : arguments) there.emplace_back(device(), a);
    const Array wanted = interpret(batched, arguments), got = launch(device(), batched, there).at(0).download(),
                host = batched(arguments);
    CHECK(got.shape() == wanted.shape());
    CHECK(ints(got) == ints(wanted));
    CHECK(ints(host) == ints(wanted));
    for (size_t i = 0; i < arguments.size(); ++i) CHECK(ints(there[i].download()) == ints(arguments[i]));
  };
  check({std::nullopt, 0, std::nullopt}, 0, {values({2, 3}), values({4, 2, 3}), values({2, 3})});
  check({1, std::nullopt, 2}, 0, {values({2, 4, 3}), values({2, 3}), values({2, 3, 4})});
  check({0, 1, std::nullopt}, 2, {values({4, 2, 3}), values({2, 4, 3}), values({2, 3})});
  const DeviceArray x(device(), values({2, 3})), y(device(), values({4, 2, 3})), z(device(), values({2, 3}));
  launch(device(), vmap(grow, {std::nullopt, 0, std::nullopt}), {donate(x), y, z});
  CHECK(!x.valid());
  CHECK(z.valid());
  // A call that fails has taken nothing.
  const DeviceArray kept(device(), values({2, 3}));
  DeviceArray gone(device(), values({4, 2, 3}));
  gone.free();
  CHECK(error_of<SpecError>([&] {
          launch(device(), vmap(grow, {std::nullopt, 0, std::nullopt}), {donate(kept), gone, z});
        }) == "grow: argument 1: the device array i32[4, 2, 3] has been freed");
  CHECK(ints(kept.download()) == ints(values({2, 3})));
  check_clean(device());
}

}  // namespace call_test
