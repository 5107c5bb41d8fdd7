#include <doctest/doctest.h>

#include <algorithm>

#include "engine/front.h"
#include "engine/graph/dce.h"
#include "engine/graph/fuse.h"
#include "engine/graph/plan.h"

namespace graph_dce_test {
using namespace tessera;

namespace {
const auto next = pallas_call([](Ref, Ref o) { o[all] = o[all] + 1; },
                              {.out_shape = {{{4}, f32}}, .input_output_aliases = {{0, 0}}, .name = "next"});
const auto twice = pallas_call([](Ref x, Ref o) { o[all] = x[all] * 2; }, {.out_shape = {{{4}, f32}}, .name = "twice"});

Array ramp() { return Array({4}, std::vector<float>{1, 2, 3, 4}); }
/// Calls that are left, loops and branches in brackets; the results are what they were.
std::string left(const Jit& f, size_t dropped) {
  const Graph& before = f.trace({{{4}, f32}, {{4}, f32}});
  Graph g = before;
  CHECK(dead_code_elimination(g, g.body) == dropped);
  const std::vector<Array> inputs{ramp(), ramp()}, x = interpret(before, inputs), y = interpret(g, inputs),
                                                   z = interpret(fuse(before).graph, inputs);
  REQUIRE(x.size() == y.size());
  REQUIRE(x.size() == z.size());
  for (size_t i = 0; i < x.size(); ++i)
    for (int64_t k = 0; k < x[i].size(); ++k) {
      CHECK(x[i].at(k) == y[i].at(k));
      CHECK(x[i].at(k) == z[i].at(k));
    }
  CHECK(dead_code_elimination(g, g.body) == 0);
  CHECK(plan(before).dropped == dropped);
  CHECK(plan(fuse(before).graph).dropped == dropped);
  const auto text = [&](const auto& self, const Graph::Body& b) -> std::string {
    std::string t;
    for (const Graph::Step& s : b.steps) {
      t += t.empty() ? "" : " ";
      if (s.call()) t += g.kernels[s.call()->kernel].name;
      for (const Graph::Body* inner : s.bodies()) t += "[" + self(self, *inner) + "]";
    }
    return t;
  };
  return text(text, g.body);
}
}  // namespace

TEST_CASE("graph dce: calls that no output hangs on") {
  CHECK(left(jit([](Tensor x, Tensor y) {
               const Tensor unused = twice(twice(y));
               return Value(next(x));
             }),
             2) == "next");
  CHECK(left(jit([](Tensor x, Tensor) {
               check(max(x) < 9.0f, "too large");
               return std::vector<Tensor>{};
             }),
             0) == "reduce_max lt check");
}

TEST_CASE("graph dce: what a loop carries for its own sake alone") {
  const auto both = [](Tensor x, Tensor y) {
    return fori_loop(0, 3, std::tuple{x, y},
                     [](Value, Value a, Value b) { return std::tuple{Value(next(a)), Value(twice(b))}; });
  };
  CHECK(left(jit(both), 0) == "[next twice]");
  CHECK(left(jit([&](Tensor x, Tensor y) { return std::get<0>(both(x, y)); }), 1) == "[next]");
  CHECK(left(jit([&](Tensor x, Tensor y) { return std::get<1>(both(x, y)); }), 1) == "[twice]");
  // Not what another one needs, be it turns later.
  CHECK(left(jit([](Tensor x, Tensor y) {
               return std::get<0>(fori_loop(0, 3, std::tuple{x, y}, [](Value, Value a, Value b) {
                 return std::tuple{Value(next(b)), Value(twice(a))};
               }));
             }),
             0) == "[next twice]");
  // Nor what the test reads.
  CHECK(left(jit([](Tensor x, Tensor y) {
               return std::get<0>(while_loop(
                   std::tuple{x, y, x}, [](Value, Value b, Value) { return sum(b) < 1000; },
                   [](Value a, Value b, Value c) {
                     return std::tuple{Value(next(a)), Value(twice(b)), Value(twice(c))};
                   }));
             }),
             1) == "[next twice][reduce_sum lt]");
  // In a loop that is needed, a loop of which a part is.
  CHECK(left(jit([&](Tensor x, Tensor y) {
               return fori_loop(0, 2, x, [&](Value, Value v) { return std::get<0>(both(v, y)); });
             }),
             1) == "[[next]]");
  const GraphPlan p =
      plan(jit([&](Tensor x, Tensor y) { return std::get<0>(both(x, y)); }).trace({{{4}, f32}, {{4}, f32}}));
  CHECK(std::count_if(p.commands.begin(), p.commands.end(),
                      [](const GraphPlan::Command& c) { return c.call() != nullptr; }) == 3);
}

TEST_CASE("graph dce: results of a branch that nobody reads") {
  const auto both = [](Tensor x, Tensor y) {
    return cond(
        sum(x) > 3.0f, [&] { return std::tuple{Value(next(x)), Value(twice(y))}; },
        [&] { return std::tuple{Value(twice(twice(x))), y}; });
  };
  CHECK(left(jit(both), 0) == "reduce_sum gt convert [twice twice][next twice]");
  CHECK(left(jit([&](Tensor x, Tensor y) { return std::get<0>(both(x, y)); }), 1) ==
        "reduce_sum gt convert [twice twice][next]");
  CHECK(left(jit([&](Tensor x, Tensor y) { return std::get<1>(both(x, y)); }), 3) == "reduce_sum gt convert [][twice]");
}

TEST_CASE("graph dce: rows that are sliced and stacked to no end") {
  Graph g = jit([](Tensor x) { return Value(twice(x)); }).trace({{{4}, f32}});  // for its kernel
  using Step = Graph::Step;
  g.values = {{f32, {3, 4}}, {f32, {3, 4}}, {f32, {4}},    {f32, {4}},
              {f32, {4}},    {f32, {4}},    {f32, {3, 4}}, {f32, {3, 4}}};
  const Step::Call twice_{.kernel = 0};
  Graph::Body rows{
      {2, 3},
      {4, 5},
      {{.what = twice_, .arguments = {2}, .results = {4}}, {.what = twice_, .arguments = {3}, .results = {5}}}};
  const Step loop{.what = Step::CountedLoop{.body = std::move(rows), .count = 3, .slices = 2},
                  .arguments = {0, 1},
                  .results = {6, 7}};
  g.body = {{0, 1}, {7}, {loop}};
  const Graph before = g;
  CHECK(dead_code_elimination(g, g.body) == 1);
  REQUIRE(g.body.steps.size() == 1);
  const Step& s = g.body.steps[0];
  CHECK(s.arguments == std::vector<size_t>{1});
  CHECK(s.results == std::vector<size_t>{7});
  const auto& left_of = std::get<Step::CountedLoop>(s.what);
  CHECK(left_of.slices == 1);
  CHECK(left_of.body.inputs == std::vector<size_t>{3});
  CHECK(left_of.body.outputs == std::vector<size_t>{5});
  const std::vector<Array> inputs{Array({3, 4}, f32),
                                  Array({3, 4}, std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12})};
  const Array x = interpret(before, inputs)[0], y = interpret(g, inputs)[0];
  for (int64_t i = 0; i < 12; ++i) CHECK(x.at(i) == y.at(i));
}

}  // namespace graph_dce_test
