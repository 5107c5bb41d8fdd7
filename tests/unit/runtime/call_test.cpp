#include "runtime/call/call.h"

#include "engine/front/front.h"
#include "engine/ir/text.h"
#include "support.h"

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
  const CompiledKernel a = load(d, k), b = load(d, ir::parse(kTwice, "twice.tir")), c = load(d, k, general), other = load(Device(), k);
  CHECK(&a.program() == &b.program());
  CHECK(&a.program() != &c.program());
  CHECK(&a.program() != &other.program());
  CHECK(floats(c.run({ramp(300)}).at(0)) == doubled(300));
  CHECK(floats(other.run({ramp(300)}).at(0)) == doubled(300));
}

TEST_CASE("calls on the default device, by kernel and by pallas_call") {
  CHECK(floats(run_on_default_device(ir::parse(kTwice, "twice.tir"), {ramp(77)}).at(0)) == doubled(77));
  const PallasCall twice = pallas_call([](Ref x, Ref o) { o[all] = x[all] + x[all]; }, {.out_shape = {{{40}, f32}}, .name = "twice"});
  CHECK(floats(Array(twice(ramp(40)))) == doubled(40));
}

TEST_CASE("a pallas_call on device arrays waits for nothing and chains") {
  const PallasCall twice = pallas_call([](Ref x, Ref o) { o[all] = x[all] + x[all]; }, {.out_shape = {{{40}, f32}}, .name = "twice"});
  DeviceArray x(device(), ramp(40));
  for (int i = 0; i < 3; ++i) x = launch(device(), twice, {x}).at(0);
  CHECK(floats(x.download())[39] == 8 * 39);
  check_clean(device());
}

TEST_CASE("index maps load from scalar-prefetch operands") {
  const PallasCall gather = pallas_call([](Ref rows, Ref x, Ref o) { o[all] = x[all] + rows[program_id(0)]; },
                                        {.out_shape = {{{4, 9}, i32}},
                                         .grid_spec = PrefetchScalarGridSpec{.num_scalar_prefetch = 1,
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
)", "wide.tir");
  CHECK(error_of<CompileError>([&] { compile(k, poor); }) == "wide: load: dtype f64 needs shaderFloat64, which " + poor.name + " does not have\n  at wide.tir:8");
}

TEST_CASE("a store to an input is an error on a device") {
  const PallasCall count = pallas_call([](Ref x, Ref o) { o[0] = x[0]; x[0] += 1; }, {.out_shape = {{{1}, i32}}, .name = "count"});
  const int line = __LINE__ - 1;
  CHECK(error_of<CompileError>([&] { count(Array({1}, i32)); }) ==
        "count: store: storing to an input (in_specs[0]) is not implemented yet on devices\n  at " + std::string(__FILE__) + ":" + std::to_string(line) +
            "\n  note: store to an output or to scratch; the interpreter runs it");
  CHECK(Array(interpret(count, Array({1}, std::vector<int32_t>{7}))).at(0) == 7);
}
