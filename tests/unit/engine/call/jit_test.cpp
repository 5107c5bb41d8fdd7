#include "engine/call/jit.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>

#include "engine/front.h"
#include "engine/graph/plan.h"

namespace jit_test {

namespace ts = tessera;
using namespace tessera;

namespace {
Array ramp(Shape shape, float from = 0, float step = 1) {
  Array a(std::move(shape), f32);
  for (int64_t i = 0; i < a.size(); ++i) a.data<float>()[static_cast<size_t>(i)] = from + step * static_cast<float>(i);
  return a;
}
bool same(const Array& a, const Array& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         (a.nbytes() == 0 || std::memcmp(a.bytes(), b.bytes(), static_cast<size_t>(a.nbytes())) == 0);
}
/// The function as one kernel on whole arrays.
template <class F>
Array as_kernel(const F& f, const Array& x, const ShapeDtype& out) {
  return interpret(pallas_call([&](Ref a, Ref o) { o[all] = f(Value(a[all])); }, {.out_shape = out}), x);
}
template <class E = TraceError, class F>
std::string error_of(const F& f) {
  try {
    f();
  } catch (const E& e) {
    const std::string text = e.what();
    return text.substr(0, text.find("\n  at "));
  }
  return "nothing was thrown";
}
const auto twice = pallas_call([](Ref x, Ref o) { o[all] = x[all] * 2; }, {.out_shape = {{{4}, f32}}, .name = "twice"});
const auto sum_and_difference = pallas_call(
    [](Ref x, Ref y, Ref s, Ref d) {
      s[all] = x[all] + y[all];
      d[all] = x[all] - y[all];
    },
    {.out_shape = {{{4}, f32}, {{4}, f32}}, .name = "sum_and_difference"});
}  // namespace

TEST_CASE("jit: plain operations and calls of kernels") {
  const auto f = jit([](Tensor x, Tensor y) {
    const Tensor a = exp(twice(x) + 1.0f), minus = -y;
    return a * where(x < y, x, minus);
  });
  const Array x = ramp({4}), y = ramp({4}, 2, -0.5f);
  const Array r = interpret(f, x, y);
  for (int i = 0; i < 4; ++i)
    CHECK(r.at(i) == doctest::Approx(std::exp(2 * x.at(i) + 1) * (x.at(i) < y.at(i) ? x.at(i) : -y.at(i))));
  const Graph& g = f.trace({{{4}, f32}, {{4}, f32}});
  CHECK(&g == &f.trace({{{4}, f32}, {{4}, f32}}));
  CHECK(&g != &f.trace({{{4}, f32}, {{1}, f32}}));
  std::string kernels;
  for (const Graph::Step& s : g.body.steps) kernels += g.kernels[s.call()->kernel].name + " ";
  CHECK(kernels == "twice add exp neg lt select mul ");
}

TEST_CASE("jit: shapes and dtypes are those of a kernel's Values") {
  const auto check = [](auto f, const Array& x, const ShapeDtype& out) {
    CHECK(same(interpret(jit([f](Tensor v) { return Value(f(v)); }), x),
               as_kernel([f](Value v) { return Value(f(v)); }, x, out)));
  };
  const Array x = ramp({3, 4}, -5, 0.75f);
  check([](Value v) { return cast(v, f16) + 1; }, x, {{3, 4}, f16});
  check([](Value v) { return cast(v, i8) + cast(v, i32); }, x, {{3, 4}, i32});
  check([](Value v) { return transpose(v) * iota(f32, {4, 3}, 1); }, x, {{4, 3}, f32});
  check([](Value v) { return reshape(v, {2, -1}); }, x, {{2, 6}, f32});
  check([](Value v) { return slice(v, {1, 0}, {3, 4}, {1, 2}); }, x, {{2, 2}, f32});
  check([](Value v) { return v - max(v, {.axis = 1, .keepdims = true}); }, x, {{3, 4}, f32});
  check([](Value v) { return sum(v, {.axis = 0}); }, x, {{4}, f32});
  check([](Value v) { return dot(v, transpose(v)); }, x, {{3, 3}, f32});
  check([](Value v) { return argmax(v, {.axis = 1}); }, x, {{3}, i32});
  check([](Value v) { return concatenate({v, full({1, 4}, 7.0f)}); }, x, {{4, 4}, f32});
  check([](Value v) { return cumsum(v, {.axis = 1}); }, x, {{3, 4}, f32});
  check([](Value v) { return sort(v, {.axis = 0}); }, x, {{3, 4}, f32});
  check([](Value v) { return pad(v, 0.5f, {{1, 0}, {0, 2}}); }, x, {{4, 6}, f32});
  check([](Value v) { return v < 0; }, x, {{3, 4}, boolean});
  check([](Value) { return iota(i32, {5}); }, x, {{5}, i32});
  check([](Value) { return full({2000}, 3); }, x, {{2000}, i32});
}

TEST_CASE("jit: several results, other jits, arrays of the host, no arguments") {
  const auto half = jit([](Tensor x) { return x / 2; });
  const auto f = jit([&](Tensor x, Tensor y) {
    const Results r = sum_and_difference(x, y);
    return std::tuple{half(r[0]), r[1] + asarray(ramp({4}, 100))};
  });
  const auto [mean, other] = interpret(f, ramp({4}), ramp({4}, 4));
  CHECK(same(mean, ramp({4}, 2)));
  CHECK(same(other, ramp({4}, 96)));
  const auto all_of_them = jit([](const std::vector<Tensor>& v) {
    std::vector<Tensor> out;
    for (const Tensor& t : v) out.push_back(t + 1);
    return out;
  });
  const std::vector<Array> more = interpret(all_of_them, ramp({2}), ramp({3}), ramp({}));
  REQUIRE(more.size() == 3);
  CHECK(same(more[1], ramp({3}, 1)));
  CHECK(same(interpret(jit([] { return iota(f32, {4}); })), ramp({4})));
  CHECK(same(interpret(jit([](Tensor x) { return x; }), ramp({4})), ramp({4})));
  CHECK(same(interpret(jit([](Tensor x) { return twice(x); }), ramp({4})), ramp({4}, 0, 2)));
}

TEST_CASE("jit: loops and branches around calls are bodies of the graph") {
  const auto power =
      jit([](Tensor x) { return fori_loop(0, 5, x, [](Value i, Value c) { return twice(c) + cast(i, f32); }); });
  Array expected = ramp({4});
  for (int i = 0; i < 5; ++i)
    for (float& v : expected.data<float>()) v = 2 * v + static_cast<float>(i);
  CHECK(same(interpret(power, ramp({4})), expected));
  CHECK(std::get<Graph::Step::CountedLoop>(power.trace({{{4}, f32}}).body.steps.at(0).what).count == 5);

  const auto counted =
      jit([](Tensor x, Tensor n) { return fori_loop(0, n, x, [](Value, Value c) { return Value(twice(c)); }); });
  CHECK(same(interpret(counted, ramp({4}), Array({}, std::vector<int32_t>{3})), ramp({4}, 0, 8)));

  const auto until = jit([](Tensor x) {
    return while_loop(
        std::tuple{x, 0}, [](Value v, Value) { return max(v) < 100; },
        [](Value v, Value n) { return std::tuple{Value(twice(v)), n + 1}; });
  });
  const auto [last, steps] = interpret(until, ramp({4}));
  CHECK(same(last, ramp({4}, 0, 64)));
  CHECK(steps.at(0) == 6);

  const auto branch =
      jit([](Tensor x, Tensor p) { return cond(p, [&] { return Value(twice(x)); }, [&] { return x + 1; }); });
  CHECK(same(interpret(branch, ramp({4}), Array({}, std::vector<bool>{true})), ramp({4}, 0, 2)));
  CHECK(same(interpret(branch, ramp({4}), Array({}, std::vector<bool>{false})), ramp({4}, 1)));
  const auto choice = jit([](Tensor x, Tensor i) {
    return switch_(i, [&] { return x; }, [&] { return Value(twice(x)); }, [&] { return x * 0; });
  });
  for (int i = -1; i < 4; ++i)
    CHECK(same(interpret(choice, ramp({4}), Array({}, std::vector<int32_t>{i})), ramp({4}, 0,
                                                                                      i < 1    ? 1
                                                                                      : i == 1 ? 2
                                                                                               : 0)));

  // A small loop without calls is a kernel.
  const auto small = jit([](Tensor x) { return fori_loop(0, 3, x, [](Value, Value c) { return c * 2; }); });
  CHECK(small.trace({{{4}, f32}}).body.steps.at(0).call());
  CHECK(small.trace({{{5000}, f32}}).body.steps.at(0).loop_body());
  CHECK(same(interpret(small, ramp({4})), ramp({4}, 0, 8)));
  CHECK(same(interpret(small, ramp({5000})), ramp({5000}, 0, 8)));
}

TEST_CASE("jit: vmapped calls, grid sizes, prints") {
  const auto batched = vmap(twice, {0});
  CHECK(same(interpret(jit([&](Tensor x) { return Value(batched(x)); }), ramp({3, 4})), ramp({3, 4}, 0, 2)));
  const auto rows =
      pallas_call([](Ref x, Ref o) { o[all] = x[all] + 1; }, {.out_shape = {{{8}, f32}},
                                                              .grid = {dynamic_grid_dim},
                                                              .in_specs = {{{1}, [](Value i) { return i; }}},
                                                              .out_specs = {{{1}, [](Value i) { return i; }}},
                                                              .input_output_aliases = {{0, 0}},
                                                              .name = "rows"});
  const Array r = interpret(jit([&](Tensor x) { return Value(rows(GridSizes{3}, x)); }), ramp({8}));
  for (int i = 0; i < 8; ++i) CHECK(r.at(i) == (i < 3 ? i + 1 : i));
  const auto prints = jit([](Tensor x) {
    debug_print("x");
    debug_print("sum {}", sum(x));
    return x;
  });
  const Graph& g = prints.trace({{{4}, f32}});
  REQUIRE(g.body.steps.size() == 3);
  CHECK(g.kernels[g.body.steps[0].call()->kernel].texts == std::vector<std::string>{"x"});
  CHECK(g.kernels[g.body.steps[2].call()->kernel].texts == std::vector<std::string>{"sum {}"});
}

TEST_CASE("jit: what is wrong is said") {
  CHECK(error_of([] {
          interpret(jit([](Tensor x, Tensor y) { return x + y; }, {.name = "f"}), ramp({3}), ramp({4}));
        }) == "f: add: shapes (3,) and (4,) do not broadcast");
  CHECK(error_of<SpecError>([] {
          static_cast<const Jit&>(jit([](Tensor x) { return x; }, {.name = "f"})).trace({});
        }) == "f: called with 0 arguments but the function takes 1");
  CHECK(error_of([] { interpret(jit([](Tensor x) { return Value(sum_and_difference(x, x)); }), ramp({4})); }) ==
        "sum_and_difference: the call has 2 outputs, not one\n  note: take them by index");
  CHECK(error_of([] {
          interpret(pallas_call([](Ref x, Ref o) { o[all] = twice(Value(x[all])); },
                                {.out_shape = {{{4}, f32}}, .name = "outer"}),
                    ramp({4}));
        }) == "outer: twice: a pallas_call is called inside of a kernel");
  CHECK(error_of([] {
          interpret(
              pallas_call([](Ref o) { o[all] = asarray(ramp({4})); }, {.out_shape = {{{4}, f32}}, .name = "outer"}));
        }) == "outer: asarray: an array of the host is used inside of a kernel");
  CHECK(error_of([] { asarray(ramp({4})); }) == "asarray: no function under jit is being traced");
  CHECK(error_of([] {
          interpret(jit([](Tensor x) { return x + cast(program_id(0), f32); }, {.name = "f"}), ramp({4}));
        }) == "f: program_id: axis 0 is out of range for a grid of 0 axes");
}

TEST_CASE("jit: how often a loop turns at most, where its test says so") {
  const auto most = [](const auto& f) {
    const Graph& g = f.trace({{{4}, f32}, {{}, i32}});
    for (const Graph::Step& s : g.body.steps)
      if (s.loop_body()) return s.while_loop() ? s.while_loop()->at_most.value_or(-1) : -1;
    return int64_t{-2};
  };
  const auto loop = [&](auto first, auto step, auto test) {
    return most(jit([=](Tensor x, Tensor n) {
      const auto [i, v] = while_loop(
          std::tuple{first, x}, [&](Value k, Value y) { return test(k, y, n); },
          [&](Value k, Value y) { return std::tuple{k + step, Value(twice(y))}; });
      return v;
    }));
  };
  CHECK(loop(0, 1, [](Value i, Value, Value) { return i < 7; }) == 7);
  CHECK(loop(3, 2, [](Value i, Value, Value) { return i <= 7; }) == 3);
  CHECK(loop(9, 1, [](Value i, Value, Value) { return i <= 7; }) == 0);
  CHECK(loop(0, 1, [](Value i, Value, Value) { return 7 > i; }) == 7);
  CHECK(loop(0, 1, [](Value i, Value y, Value) { return max(y) < 100 && i < 7; }) == 7);
  CHECK(loop(0, 1, [](Value i, Value, Value n) { return i < minimum(n, 9) && i < 12; }) == 9);
  CHECK(loop(0, 1, [](Value i, Value, Value n) { return i < n; }) == -1);
  CHECK(loop(0, 1, [](Value i, Value, Value n) { return i < maximum(n, 9); }) == -1);
  CHECK(loop(0, 1, [](Value i, Value y, Value) { return max(y) < 100 || i < 7; }) == -1);
  CHECK(loop(0, -1, [](Value i, Value, Value) { return i < 7; }) == -1);
  CHECK(loop(0, 3, [](Value i, Value, Value) { return i < 2147483647; }) == -1);  // it wraps
  CHECK(loop(0, 0, [](Value i, Value, Value) { return i < 7; }) == -1);
  const auto to = [&](auto last) {
    return most(jit(
        [=](Tensor x, Tensor n) { return fori_loop(2, last(n), x, [](Value, Value c) { return Value(twice(c)); }); }));
  };
  CHECK(to([](Value n) { return minimum(n, 9); }) == 7);
  CHECK(to([](Value n) { return minimum(n, -9); }) == 0);
  CHECK(to([](Value n) { return n; }) == -1);
}

TEST_CASE("jit: calls of a plan stand in levels where that takes fewer barriers and little memory") {
  const auto planned = [](int64_t n, bool reorder) {
    const auto f = jit([](Tensor x) {
      std::vector<Tensor> out;
      for (int i = 0; i < 12; ++i) out.push_back(sum(exp(x + i)));
      return out;
    });
    return plan(f.trace({{{n}, f32}}), {.reorder = reorder});
  };
  const GraphPlan written = planned(256, false), levels = planned(256, true);
  CHECK(written.barriers == 24);
  CHECK(written.barriers_as_written == 24);
  CHECK(levels.barriers == 2);
  CHECK(levels.barriers_as_written == 24);
  CHECK(levels.arena_bytes <= int64_t{16} << 20);
  const GraphPlan large = planned(int64_t{1} << 22, true), as_written = planned(int64_t{1} << 22, false);
  CHECK(large.barriers == large.barriers_as_written);  // all at once would take 24 times 16 MiB
  CHECK(large.arena_bytes == as_written.arena_bytes);
  // As many at a time as there is room for.
  const GraphPlan some = planned(int64_t{1} << 18, true);
  CHECK(some.barriers > levels.barriers);
  CHECK(some.barriers < some.barriers_as_written);
  CHECK(some.arena_bytes <= int64_t{16} << 20);
}

}  // namespace jit_test
