// Functions under jit with run-time sizes: what is traced, and what is refused.
#include <doctest/doctest.h>

#include <string>
#include <tuple>
#include <vector>

#include "engine/front.h"
#include "engine/graph/sizes.h"
#include "engine/graph/write.h"

namespace jit_sizes_test {
using namespace tessera;

namespace {
const Extent n = dim("n"), m = dim("m");
const BlockSpec row = {{16}, [](Value i) { return i; }};
/// Of arrays of any size, under names of its own.
PallasCall mean() {
  return pallas_call([](Ref x, Ref y, Ref o) { o[all] = (x[all] + y[all]) / 2; },
                     {.out_shape = {{{dim("k")}, f32}},
                      .grid = {cdiv(dim("k"), 16)},
                      .in_specs = {row, row},
                      .out_specs = row,
                      .name = "mean",
                      .in_shape = {{{dim("k")}, f32}, {{dim("k")}, f32}}});
}
PallasCall negate(const Extent& size) {
  return pallas_call([](Ref x, Ref o) { o[all] = -x[all]; }, {.out_shape = {{{size}, f32}},
                                                              .grid = {cdiv(size, 16)},
                                                              .in_specs = row,
                                                              .out_specs = row,
                                                              .name = "negate",
                                                              .in_shape = {{{size}, f32}}});
}
Array ramp(int64_t size) {
  Array a({size}, f32);
  for (int64_t i = 0; i < size; ++i) a.data<float>()[static_cast<size_t>(i)] = static_cast<float>(i);
  return a;
}
template <class F> std::string all_of(const F& f, const std::vector<ShapeDtype>& types) {
  try {
    jit(f, {.name = "f"}).trace(types);
  } catch (const Error& e) {
    std::string text = e.what();  // without the lines of this file
    for (size_t at; (at = text.find("\n  at ")) != std::string::npos;)
      text.erase(at, text.find('\n', at + 1) == std::string::npos ? std::string::npos : text.find('\n', at + 1) - at);
    return text;
  }
  return "";
}
}  // namespace

TEST_CASE("a function is traced for run-time sizes, and serves every one") {
  const auto f = jit(
      [](Tensor x, Tensor y, Tensor z) {
        const auto both = fori_loop(0, 2, std::tuple{x, y}, [&](Value, Value a, Value b) {
          return std::tuple{Value(mean()(a, b)), Value(negate(dim("n"))(a))};
        });
        return std::tuple{std::get<0>(both), Value(negate(dim("n"))(z)), std::get<1>(both)};
      },
      {.name = "f"});
  const Graph& g = f.trace({{{n}, f32}, {{n}, f32}, {{m}, f32}});
  CHECK(size_names(g) == std::vector<std::string>{"n", "m"});
  CHECK(to_string(g.values[g.body.outputs[0]]) == "f32[n]");
  CHECK(to_string(g.values[g.body.outputs[1]]) == "f32[m]");
  CHECK(bind_sizes(g, {{f32, {3}}, {f32, {3}}, {f32, {0}}}) == DimValues{{"m", 0}, {"n", 3}});
  for (const int64_t size : {1, 2, 97, 211}) {
    const std::vector<Array> in = {ramp(size), ramp(size), ramp(size + 5)};
    const std::vector<Array> sized = interpret(g, in), fixed = interpret(f.trace(types_of(in)), in);
    REQUIRE(sized.size() == 3);
    for (size_t i = 0; i < 3; ++i) {
      REQUIRE(sized[i].shape() == fixed[i].shape());
      for (int64_t e = 0; e < sized[i].size(); ++e) CHECK(sized[i].at(e) == fixed[i].at(e));
    }
  }
  std::string text;
  try {
    interpret(g, {ramp(3), ramp(4), ramp(5)});
  } catch (const SpecError& e) {
    text = e.what();
  }
  CHECK(text == "f: argument 1 is f32[4] but f32[n] is expected for n = 3\n  at " + to_string(f.loc()));
}

TEST_CASE("element-wise ops on arrays of any size are kernels by blocks") {
  const auto f = jit(
      [](Tensor x, Tensor y, Tensor s, Tensor bias, Tensor t) {
        const Value scaled = x * s + bias;                         // one kernel, on rows of 5
        const Value twice = scaled + scaled;                       // of a value with two uses
        const Value turned = transpose(twice, {1, 0}) * 2.0f - t;  // f32[5, n]
        const Value small = cast(where(y > 3.0f, y, 0.0f), i32);   // f32[n]
        const Value rows = scaled * reshape(cast(small, f32), {y.shape()[0], 1});
        const Value last = fori_loop(0, 3, y, [&](Value, Value v) { return Value(v * 0.5f + y); });
        const Value branch = cond(s > 1.0f, [&] { return last + 1.0f; }, [&] { return -last; });
        return std::tuple{twice, turned, small, rows, branch, Value(mean()(y * 2.0f, y))};
      },
      {.name = "f"});
  const Graph& g = f.trace({{{n, 5}, f32}, {{n}, f32}, {{}, f32}, {{5}, f32}, {{5, n}, f32}});
  CHECK(to_string(g.values[g.body.outputs[1]]) == "f32[5, n]");
  CHECK(to_string(g.values[g.body.outputs[4]]) == "f32[n]");
  const auto ramps = [](const Shape& shape) {
    Array a(shape, f32);
    for (int64_t i = 0; i < a.size(); ++i) a.data<float>()[static_cast<size_t>(i)] = static_cast<float>(i % 37) - 5;
    return a;
  };
  for (const int64_t size : {0, 1, 51, 97, 300}) {
    const std::vector<Array> in = {ramps({size, 5}), ramps({size}), Array({}, std::vector<float>{1.5f}), ramps({5}),
                                   ramps({5, size})};
    const std::vector<Array> sized = interpret(g, in), fixed = interpret(f.trace(types_of(in)), in);
    REQUIRE(sized.size() == fixed.size());
    for (size_t i = 0; i < sized.size(); ++i) {
      REQUIRE(sized[i].shape() == fixed[i].shape());
      for (int64_t e = 0; e < sized[i].size(); ++e) CHECK(sized[i].at(e) == fixed[i].at(e));
    }
  }
  std::string names;
  for (const ir::Kernel& k : g.kernels) names += k.name + " ";
  CHECK(names ==
        "mul_add add transpose_mul_sub gt_select_convert convert_reshape_mul mul_add gt convert neg add mul mean ");
}

TEST_CASE("what cannot be of every size is refused by name") {
  const std::string traced = "\n  note: traced with n = 97 in place of every size";
  const std::string alone =
      ", with a size of run time\n  note: outside of kernels, such values go through element-wise ops, broadcasts and "
      "transposes alone: write it as a pallas_call, or inside of one";
  CHECK(all_of([](Tensor x) { return sum(x); }, {{{n}, f32}}) ==
        "f: reduce_sum: an operand is f32[n]" + alone + traced);
  CHECK(all_of([](Tensor x) { return sum(x * 2.0f + 1.0f); }, {{{n}, f32}}) ==
        "f: reduce_sum: an operand is f32[n]" + alone + traced);
  CHECK(all_of([](Tensor x) { return x + iota(f32, {x.shape()[0]}, 0); }, {{{n}, f32}}) ==
        "f: add: an operand is f32[n]" + alone + traced);
  CHECK(all_of([](Tensor x) { return Value(negate(x.shape()[0])(x)); }, {{{n}, f32}}) ==
        "negate: argument 0 is f32[n] but the kernel takes f32[97]\n  note: it has to fit for every value of the "
        "graph's sizes" +
            traced);
  CHECK(all_of([](Tensor x) { return std::tuple{x, Value(zeros({x.shape()[0]}, f32))}; }, {{{n}, f32}}) ==
        "f: its graph for n = 97 is not the one for n = 211\n  note: shape() has numbers that stand for run-time "
        "sizes: let kernels take these as ts::dim(\"n\")");
  CHECK(all_of([](Tensor x) { return x; }, {{{n * 2}, f32}}) ==
        "f: the size n stands alone as no dim of an input\n  note: a size is taken from an input whose shape names it "
        "alone" +
            traced);
  CHECK(all_of([](Tensor x, Tensor y) { return Value(mean()(x, y)); }, {{{n}, f32}, {{m}, f32}})
            .find("mean: argument 1: shape (99,) has k = 99 but argument 0 has k = 97") == 0);
}
}  // namespace jit_sizes_test
