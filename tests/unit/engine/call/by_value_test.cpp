// Numbers by value and run-time sizes as Values: what calls take, what kernels see, and what is said of the rest.
#include <doctest/doctest.h>

#include <functional>
#include <sstream>

#include "engine/front.h"
#include "engine/ir/text.h"
#include "engine/ir/verify.h"
#include "tests/support/messages.h"

namespace by_value_test {

namespace ts = tessera;
using tessera::test::at, tessera::test::expect, tessera::test::message, tessera::test::note;
using ts::all, ts::Ref, ts::Value;

namespace {
ts::Array floats(std::vector<float> v) { return {{static_cast<int64_t>(v.size())}, v}; }
std::vector<float> list(const ts::Array& a) { return {a.data<float>().begin(), a.data<float>().end()}; }

ts::PallasCall blend() {
  return ts::pallas_call(
      [](Ref x, Ref gain, Ref bias, Ref o) {
        const Value g = gain[all];
        o[all] = x[all] * g + ts::cast(bias[all], ts::f32);
      },
      {.out_shape = {{{4}, ts::f32}},
       .in_specs = {ts::no_block_spec, ts::by_value(ts::f32), ts::by_value(ts::i32)},
       .name = "blend"});
}

/// What a kernel that stores its number of dtype t makes of `number`.
ts::Array stored(ts::DType t, const ts::Scalar& number) {
  const auto put = ts::pallas_call([](Ref v, Ref o) { o[all] = v[all]; },
                                   {.out_shape = ts::ShapeDtype{{}, t}, .in_specs = ts::by_value(t), .name = "put"});
  return ts::interpret(put, number);
}
}  // namespace

TEST_CASE("numbers by value") {
  const ts::PallasCall call = blend();
  const ts::Array x = floats({1, 2, 3, 4});
  CHECK(list(ts::interpret(call, x, 0.5f, -1)) == std::vector<float>{-0.5f, 0, 0.5f, 1});
  CHECK(list(ts::interpret(call, x, 2, uint8_t{3})) == std::vector<float>{5, 7, 9, 11});
  CHECK(list(ts::interpret(call, x, ts::Array({}, std::vector<float>{3}), 0)) == std::vector<float>{3, 6, 9, 12});
  const ts::ir::Kernel k = call.trace({{{4}, ts::f32}, {{}, ts::f32}, {{}, ts::i32}});
  const std::string text = ts::ir::print(k);
  CHECK(text.find("\nin f32[] value\nin i32[] value\n") != std::string::npos);
  CHECK(ts::ir::print(ts::ir::parse(text)) == text);
  CHECK(&call.trace_for(call.arrays(x, 0.5f, 1)) == &call.trace_for(call.arrays(x, 7.0, 2)));
  std::ostringstream mapping;
  mapping << ts::grid_mapping(k);
  CHECK(mapping.str().find("in_specs[1]: f32() by value\n") != std::string::npos);
}

TEST_CASE("a number takes the dtype of its argument") {
  CHECK(stored(ts::f16, 1.0009765625).element_bits(0) == 0x3c01);
  CHECK(stored(ts::f16, 1e9).element_bits(0) == 0x7c00);
  CHECK(stored(ts::bf16, 1).element_bits(0) == 0x3f80);
  CHECK(stored(ts::f8e5m2, -2).element_bits(0) == 0xc0);
  CHECK(stored(ts::f64, 0.1).element_bits(0) == 0x3fb999999999999a);
  CHECK(stored(ts::f32, (int64_t{1} << 24) + 1).element_bits(0) == 0x4b800000);
  CHECK(stored(ts::i4, -8).element_bits(0) == 8);
  CHECK(stored(ts::u4, 15).element_bits(0) == 15);
  CHECK(stored(ts::i64, INT64_MIN).element_bits(0) == uint64_t{1} << 63);
  CHECK(stored(ts::u64, UINT64_MAX).element_bits(0) == UINT64_MAX);
  CHECK(stored(ts::boolean, true).element_bits(0) == 1);
}

TEST_CASE("numbers that do not fit") {
  const auto says = [](ts::DType t, const ts::Scalar& number) {
    const std::string all_of_it = message([&] { stored(t, number); });
    return all_of_it.substr(0, all_of_it.find('\n'));
  };
  CHECK(says(ts::i8, 128) == "put: argument 0: the number is 128 but i8 holds -128 to 127");
  CHECK(says(ts::i4, -9) == "put: argument 0: the number is -9 but i4 holds -8 to 7");
  CHECK(says(ts::u32, -1) == "put: argument 0: the number is -1 but u32 holds 0 to 4294967295");
  CHECK(says(ts::i64, UINT64_MAX) ==
        "put: argument 0: the number is 18446744073709551615 but i64 holds -9223372036854775808 to "
        "9223372036854775807");
  CHECK(says(ts::i32, 1.5) == "put: argument 0: the number is 1.5 but the argument is i32");
  CHECK(says(ts::f32, true) == "put: argument 0: the number is true but the argument is f32");
  CHECK(says(ts::boolean, 1) == "put: argument 0: the number is 1 but the argument is bool");
}

TEST_CASE("what is wrong with a number by value") {
  const ts::Array x = floats({1, 2, 3, 4});
  const auto first = [](const auto& f) {
    const std::string text = message(f);
    return text.substr(0, text.find('\n'));
  };
  const ts::PallasCall call = blend();
  CHECK(first([&] { ts::interpret(call, 1.0f, 2.0f, x); }) ==
        "blend: argument 0 is a number, but the kernel takes an array there");
  CHECK(first([&] { ts::interpret(call, x, x, 1); }) ==
        "blend: in_specs[1]: by_value of f32 takes f32() but the argument is f32(4,)");
  CHECK(first([&] { ts::interpret(call, x, ts::Array({}, std::vector<int32_t>{1}), 1); }) ==
        "blend: in_specs[1]: by_value of f32 takes f32() but the argument is i32()");
  const auto with = [&](const std::function<void(Ref, Ref)>& kernel, ts::PallasCallParams p) {
    p.out_shape = ts::ShapeDtype{{}, ts::f32};
    p.name = "k";
    return first([&] { ts::interpret(ts::pallas_call([=](Ref v, Ref o) { kernel(v, o); }, p), ts::Scalar(1.0f)); });
  };
  CHECK(with([](Ref v, Ref) { v[all] = 1.0f; }, {.in_specs = ts::by_value(ts::f32)}) ==
        "k: store: in_specs[0] is passed by value and only read");
  CHECK(with([](Ref v, Ref o) { o[all] = v[all]; },
             {.in_specs = ts::by_value(ts::f32), .input_output_aliases = {{0, 0}}}) ==
        "k: input_output_aliases: input 0 is in_specs[0], which is passed by value and has no memory");
  CHECK(with([](Ref v, Ref o) { o[all] = v[all]; },
             {.in_specs = ts::by_value(ts::f32), .out_specs = ts::by_value(ts::f32)}) ==
        "k: out_specs[0]: by_value is for inputs, but this is an output");
  const auto text = [&](const std::string& blocks, const std::string& body) {
    return message([&] {
      ts::ir::verify(ts::ir::parse("tir 1\nkernel @k\n" + blocks + "body (%x, %o) {\n" + body + "}\n", "k.tir"),
                     "parsing");
    });
  };
  CHECK(text("in f32[2] value\nout f32[] whole\n", "")
            .find("in_specs[0]: is passed by value but the array (2,) has 1 dim instead of 0") != std::string::npos);
  CHECK(text("in f32[] whole\nout f32[] value\n", "")
            .find("out_specs[0]: is an output, which has no value before the call") != std::string::npos);
  CHECK(text("in f32[] value\nout f32[] alias 0 whole\n", "")
            .find("out_specs[0]: is aliased to in_specs[0], which is passed by value and has no memory") !=
        std::string::npos);
  CHECK(text("in f32[] value\nout f32[] whole\n", "  %a = load %o[]\n  store %x[], %a\n")
            .find("is no load but takes in_specs[0]: an argument by value is only loaded") != std::string::npos);
}

TEST_CASE("numbers by value under vmap and jit") {
  const ts::PallasCall call = blend();
  const ts::Array x({2, 4}, std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8});
  const auto rows = ts::vmap(call, {0, std::nullopt, std::nullopt});
  CHECK(list(ts::interpret(rows, x, 2, 1)) == std::vector<float>{3, 5, 7, 9, 11, 13, 15, 17});
  const auto gains = ts::vmap(call, {0, 0, std::nullopt});  // of a number per row: an array
  CHECK(list(ts::interpret(gains, x, floats({1, 10}), 0)) == std::vector<float>{1, 2, 3, 4, 50, 60, 70, 80});
  const auto f = ts::jit([&](ts::Tensor a, ts::Tensor g) { return call(call(a, g, 1), 2, 3); });
  CHECK(list(ts::interpret(f, floats({1, 2, 3, 4}), ts::Array({}, std::vector<float>{0.5f}))) ==
        std::vector<float>{6, 7, 8, 9});
}

TEST_CASE("numbers by value in pipelines") {
  const auto scaled = ts::buffered_pallas_call([](Ref x, Ref s, Ref o) { o[all] = x[all] * s[all]; },
                                               {.out_shape = {{{4}, ts::f32}},
                                                .grid = {2},
                                                .in_specs = {{{2}, [](Value i) { return i; }}, ts::by_value(ts::f32)},
                                                .out_specs = {{{2}, [](Value i) { return i; }}},
                                                .name = "scaled"});
  CHECK(list(ts::interpret(scaled, floats({1, 2, 3, 4}), 3)) == std::vector<float>{3, 6, 9, 12});
  const auto inner = ts::pallas_call(
      [](Ref x, Ref o) {
        ts::emit_pipeline([](Ref a, Ref b) { b[all] = a[all]; },
                          {.grid = {2}, .in_specs = ts::by_value(ts::f32), .out_specs = ts::BlockSpec{}})(x, o);
      },
      {.out_shape = ts::ShapeDtype{{}, ts::f32}, .name = "inner"});
  CHECK(message([&] {
          ts::interpret(inner, ts::Array({}, ts::f32));
        }).find("by_value is for the in_specs of a pallas_call") != std::string::npos);
}

// A size is an integer: no floating number becomes one.
static_assert(!std::is_constructible_v<ts::Extent, double> && !std::is_constructible_v<ts::Extent, bool>);
static_assert(!std::is_constructible_v<Value, double> && !std::is_constructible_v<Value, int>);
static_assert(std::is_convertible_v<ts::Extent, Value> && std::is_constructible_v<ts::Extent, size_t>);

TEST_CASE("run-time sizes and floating numbers are values of floats") {
  const auto call = ts::pallas_call(
      [](Ref x, Ref o) {
        const ts::Extent n = ts::dim("n");
        o[0] = x[0] + n * 0.5f;
        o[1] = 0.5f * n;
        o[2] = n - 1.5f;
        o[3] = 1.5 - n;
        o[4] = n + 0.25f;
        o[5] = 0.25 + n;
        o[6] = ts::cast(n / 2, ts::f32);
      },
      {.out_shape = {{{7}, ts::f32}},
       .grid = {1},
       .in_specs = {{{8}, [](Value i) { return i; }}},
       .out_specs = {{{7}, [](Value i) { return i; }}},
       .name = "mixed",
       .in_shape = {{{ts::dim("n")}, ts::f32}}});
  CHECK(list(ts::interpret(call, floats({10, 0, 0}))) == std::vector<float>{11.5f, 1.5f, 1.5f, -1.5f, 3.25f, 3.25f, 1});
}

TEST_CASE("the bits of a number are those of its dtype") {
  CHECK(ts::Scalar(ts::u8, 300).bits(ts::u8) == 44);
  CHECK(ts::Scalar(ts::boolean, 3).bits(ts::boolean) == 1);
  CHECK(ts::Scalar(ts::i4, 0xff).bits(ts::i4) == 15);
  CHECK(ts::Scalar(ts::u64, ~uint64_t{0}).bits(ts::u64) == ~uint64_t{0});
}

TEST_CASE("numbers that are put into memory: scalar-prefetch operands stay in smem") {
  ts::ir::Kernel k = ts::ir::parse(R"(tir 1
kernel @pre
grid (2)
prefetch i32[] value
in f32[16] block (4) map (%i, %a) {
  %s = load %a[]
  %at = add %s, %i
  yield %at
}
in f32[] value
out f32[8] block (4) map (%i, %a) {
  yield %i
}
body (%a, %x, %f, %o) {
  %v = load %x[0:4]
  store %o[0:4], %v
}
)",
                                   "pre.tir");
  k.put_values_in_memory();
  ts::ir::verify(k, "the test");
  CHECK(k.blocks[0].space == ts::ir::MemorySpace::smem);
  CHECK(k.blocks[2].space == ts::ir::MemorySpace::any);
}

TEST_CASE("run-time sizes as values") {
  const auto mean = ts::pallas_call(
      [](Ref x, Ref o) {
        const Value n = ts::dim("n"), twice = ts::dim("n") * 2, half = ts::cdiv(ts::dim("n"), 2);
        const Value inside = ts::iota(ts::i32, {8}, 0) < ts::dim("n");
        o[0] = ts::sum(ts::where(inside, x[all], 0.0f)) / ts::cast(n, ts::f32);
        o[1] = ts::cast(twice + half * 100, ts::f32);
        o[2] = ts::cast(Value(ts::dim("m") - 1), ts::f32);
      },
      {.out_shape = {{{3}, ts::f32}},
       .grid = {1},
       .in_specs = {{{8}, [](Value i) { return i; }}},
       .out_specs = {{{3}, [](Value i) { return i; }}},
       .name = "mean",
       .in_shape = {{{ts::dim("n")}, ts::f32}}});
  CHECK(list(ts::interpret(mean, ts::GridSizes(ts::DimValues{{"m", 7}}), floats({1, 2, 6}))) ==
        std::vector<float>{3, 206, 6});
  CHECK(list(ts::interpret(mean, ts::GridSizes(ts::DimValues{{"m", 0}}), floats({1, 2}))) ==
        std::vector<float>{1.5f, 104, -1});
  const std::string text = ts::ir::print(mean.trace());
  CHECK(text.find("\nsizes (n, n * 2, cdiv(n, 2), m - 1)\n") != std::string::npos);
  CHECK(ts::ir::print(ts::ir::parse(text)) == text);
  const auto first = [](const auto& g) {
    const std::string m = message(g);
    return m.substr(0, m.find('\n'));
  };
  CHECK(first([&] { ts::interpret(mean, floats({1})); }) == "mean: the kernel: no value for the size \"m\" in m - 1");
  CHECK(first([&] { ts::interpret(mean, ts::GridSizes(ts::DimValues{{"m", int64_t{1} << 40}}), floats({1})); }) ==
        "mean: m - 1 is 1099511627775 but the kernel counts it in 32 bits");
  CHECK(first([] { const Value v = ts::dim("n"); }).find("dim: ") != std::string::npos);
  CHECK(first([&] {
          ts::pallas_call([](Ref, Ref) {}, {.out_shape = {{{3}, ts::f32}},
                                            .grid = {1},
                                            .in_specs = {{{8}, [](Value i) { return i + ts::dim("n"); }}},
                                            .name = "k"})
              .trace({{{8}, ts::f32}});
        }) == "k: in_specs[0]: index map: dim: the run-time size n is read in an index map");
}

}  // namespace by_value_test
