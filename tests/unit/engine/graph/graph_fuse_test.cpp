#include <doctest/doctest.h>

#include <algorithm>

#include "engine/front.h"
#include "engine/graph/fuse.h"
#include "engine/ir/text.h"
#include "tests/support/mixed_jit.h"
#include "tests/support/random_jit.h"

namespace graph_fuse_test {

namespace ts = tessera;
using namespace tessera;

namespace {
bool equal(const Array& a, const Array& b) {
  if (a.dtype() != b.dtype() || a.shape() != b.shape()) return false;
  for (int64_t i = 0; i < a.size(); ++i)
    if (a.at(i) != b.at(i)) return false;
  return true;
}
std::string names(const Graph& g) {
  std::string s;
  for (const Graph::Step& step : g.body.steps)
    s += (s.empty() ? "" : " ") + (step.call() ? g.kernels[step.call()->kernel].name : "body");
  return s;
}
size_t calls(const Graph::Body& b) {
  size_t n = 0;
  for (const Graph::Step& step : b.steps) {
    n += step.call() != nullptr;
    for (const Graph::Body* inner : step.bodies()) n += calls(*inner);
  }
  return n;
}
Array ramp(Shape shape) {
  Array a(std::move(shape), f32);
  for (int64_t i = 0; i < a.size(); ++i) a.data<float>()[static_cast<size_t>(i)] = static_cast<float>((i * 7) % 11) - 5;
  return a;
}
/// The names of the calls after fusing, once it is sure that nothing else has changed.
template <class F>
std::string fused(const JitFunction<F>& f, const std::vector<Array>& arguments) {
  const Graph& before = f.trace(types_of(arguments));
  const Fused after = fuse(before);
  const std::vector<Array> x = interpret(before, arguments), y = interpret(after.graph, arguments);
  REQUIRE(x.size() == y.size());
  for (size_t i = 0; i < x.size(); ++i) CHECK(equal(x[i], y[i]));
  CHECK(calls(before.body) == calls(after.graph.body) + after.steps + after.graph.dropped);
  return names(after.graph);
}
const BlockSpec rows_spec{{2, 8}, [](Value i) { return Indices{i, 0}; }};
const auto rows = pallas_call(
    [](Ref x, Ref o) { o[all] = x[all] * 2; },
    {.out_shape = {{{4, 8}, f32}}, .grid = {2}, .in_specs = {rows_spec}, .out_specs = {rows_spec}, .name = "rows"});
const auto matmul = pallas_call(
    [](Ref a, Ref b, Ref o, Ref acc) {
      when(program_id(2) == 0, [&] { acc[all] = zeros({2, 2}); });
      acc[all] += dot(a[all], b[all]);
      when(program_id(2) == 1, [&] { o[all] = acc[all]; });
    },
    {.out_shape = {{{4, 4}, f32}},
     .grid = {2, 2, 2},
     .in_specs = {{{2, 4}, [](Value i, Value, Value k) { return Indices{i, k}; }},
                  {{4, 2}, [](Value, Value j, Value k) { return Indices{k, j}; }}},
     .out_specs = {{{2, 2}, [](Value i, Value j, Value) { return Indices{i, j}; }}},
     .scratch_shapes = {VMEM({2, 2}, f32)},
     .name = "matmul"});
}  // namespace

TEST_CASE("fuse: element-wise neighbours") {
  const Array x = ramp({4, 8}), y = ramp({8});
  CHECK(fused(jit([](Tensor a, Tensor b) { return tanh(a * 2 + b) - 1; }), {x, y}) == "broadcast_mul_add_tanh_sub");
  // What two calls need stays.
  CHECK(fused(jit([](Tensor a, Tensor) {
                const Tensor t = tanh(a);
                return std::tuple{t + 1, t * t};
              }),
              {x, y}) == "tanh add mul");
  // Into a reduction and after it, but not over it.
  CHECK(fused(jit([](Tensor a, Tensor) { return exp(sum(tanh(a), {.axis = 1})) + 1; }), {x, y}) ==
        "tanh_reduce_sum_exp_add");
  CHECK(fused(jit([](Tensor a, Tensor) { return a - max(a, {.axis = 1, .keepdims = true}); }), {x, y}) ==
        "reduce_max reshape_broadcast_sub");
  // Not where it would be computed again: by a product for every row, by a broadcast for every copy.
  CHECK(fused(jit([](Tensor a, Tensor) {
                const Tensor t = tanh(a);
                return dot(t, transpose(a));
              }),
              {x, y}) == "tanh transpose dot");
  const std::string steps = fused(jit([](Tensor a, Tensor) {
                                    for (int i = 0; i < 12; ++i)
                                      a = roll(a, 1, 1) * a;  // where each step asks for two elements of the one before
                                    return a;
                                  }),
                                  {ramp({4, 8}), y});
  CHECK(std::count(steps.begin(), steps.end(), ' ') == 23);
  CHECK(fused(jit([](Tensor a, Tensor) { return roll(a, 1, 1) * a; }), {x, y}) == "slice_slice_concatenate mul");
  CHECK(fused(jit([](Tensor a, Tensor b) { return broadcast_to(tanh(b), {4, 8}) * a; }), {x, y}) ==
        "tanh broadcast_mul");
}

TEST_CASE("fuse: into a kernel's loads and stores") {
  const Array x = ramp({4, 8}), y = ramp({8}), w = ramp({8, 4}), b = ramp({4});
  CHECK(fused(jit([](Tensor a, Tensor c) { return Value(rows(a + c)); }), {x, y}) == "broadcast_add_rows");
  CHECK(fused(jit([](Tensor a, Tensor c) { return abs(rows(a) + c) + asarray(ramp({4, 1})); }), {x, y}) ==
        "broadcast_broadcast_rows_add_abs_add");
  CHECK(fused(jit([](Tensor a, Tensor c) { return Value(rows(transpose(a) + c)); }), {w, y}) ==
        "broadcast_transpose_add_rows");
  // A product's blocks are read for every column and row: what makes them stays; what comes after it is stored at once.
  CHECK(fused(jit([](Tensor a, Tensor c, Tensor d) { return maximum(matmul(a * 2, c) + d, 0); }), {x, w, b}) ==
        "mul broadcast_matmul_add_max");
  const auto both = pallas_call(
      [](Ref a, Ref s, Ref t) {
        s[all] = a[all] + 1;
        t[all] = a[all] * 2;
      },
      {.out_shape = {{{4, 8}, f32}, {{4, 8}, f32}},
       .grid = {2},
       .in_specs = {rows_spec},
       .out_specs = {rows_spec, rows_spec},
       .name = "both"});
  CHECK(fused(jit([&](Tensor a) {
                const Results r = both(a);
                return r[0] * r[1];
              }),
              {x}) == "both mul");
  CHECK(fused(jit([&](Tensor a) {
                const Results r = both(a);
                const Tensor t = abs(r[1]);
                return std::tuple{r[0] * 3, t};
              }),
              {x}) == "both_abs_mul");
  // An output of which nobody knows whether all of it is stored.
  const auto some = pallas_call(
      [](Ref a, Ref o) { when(a[{0, 0}] > 100.0f, [&] { o[all] = a[all]; }); },
      {.out_shape = {{{4, 8}, f32}}, .grid = {2}, .in_specs = {rows_spec}, .out_specs = {rows_spec}, .name = "some"});
  CHECK(names(fuse(jit([&](Tensor a) { return some(a) + 1; }).trace({{{4, 8}, f32}})).graph) == "some add");
  // An input that the kernel changes, an output that it reads.
  const auto changed = pallas_call([](Ref, Ref o) { o[0] = o[1]; },
                                   {.out_shape = {{{4, 8}, f32}}, .input_output_aliases = {{0, 0}}, .name = "changed"});
  CHECK(fused(jit([&](Tensor a) { return changed(a + 1) + 1; }), {x}) == "add changed add");
  // What a kernel says has its own name.
  const auto checked = pallas_call(
      [](Ref a, Ref o) {
        const Value v = a[all];
        check(v < 100.0f, "{}", max(v));
        o[all] = v;
      },
      {.out_shape = {{{4, 8}, f32}},
       .grid = {2},
       .in_specs = {rows_spec},
       .out_specs = {rows_spec},
       .name = "checked"});
  const auto g = jit([&](Tensor a) { return Value(checked(a * 1000)); });
  CHECK(fuse(g.trace({{{4, 8}, f32}})).steps == 1);
  for (const Graph& each : {g.trace({{{4, 8}, f32}}), fuse(g.trace({{{4, 8}, f32}})).graph}) {
    std::string text;
    try {
      interpret(each, {x});
    } catch (const KernelError& e) {
      text = e.what();
    }
    CHECK(text.substr(0, text.find('\n')) == "checked: check failed in program (0): 5000.0");
  }
  // A call that is given a result and does not read it may make an array of another shape.
  for (const Shape& shape : {Shape{3}, Shape{3, 5}, Shape{2, 3, 4}}) {
    CAPTURE(to_string(shape));
    const auto other = pallas_call([](Ref, Ref c, Ref o) { o[all] = c[all] + 1; },
                                   {.out_shape = types_of({ramp(shape)}), .name = "other"});
    CHECK(fused(jit([&](Tensor a, Tensor c) { return Value(other(rows(a), c)); }), {x, ramp(shape)}) == "rows other");
  }
  // Where a dim has a step, positions that do not fit are clamped one by one, and else as a window.
  for (const int step : {1, 2}) {
    CAPTURE(step);
    const auto window = pallas_call(
        [&](Ref a, Ref o) {
          const Value i = program_id(0);
          o[all] = a[{ds(i, 2, step), ds(i + 6, 4)}];
        },
        {.out_shape = {{{2, 4}, f32}}, .grid = {1}, .name = "window"});
    const auto f = jit([&](Tensor a, Tensor c) { return Value(window(a + c)); });
    CHECK(fused(f, {x, y}) == (step == 1 ? "broadcast_add_window" : "broadcast_add window"));
    CHECK(fused(f, {x, x}) == "add_window");
  }
}

TEST_CASE("fuse: what is said of a call") {
  Graph g = jit([](Tensor a, Tensor c) { return Value(rows(a * c)); }).trace({{{4, 8}, f32}, {{4, 8}, f32}});
  REQUIRE(names(g) == "mul rows");
  REQUIRE(fuse(g).steps == 1);
  for (ir::Kernel& k : g.kernels) {  // of either
    k.call.metadata = {{"author", "me"}};
    const Fused after = fuse(g);
    REQUIRE(names(after.graph) == "mul_rows");
    CHECK(after.graph.kernels[0].call.metadata == k.call.metadata);
    k.call.metadata = {};
    k.call.debug = true;
    CHECK(fuse(g).steps == 0);
    k.call.debug = false;
  }
  for (ir::Kernel& k : g.kernels) k.call.metadata = {{"author", "me"}};
  CHECK(fuse(g).steps == 0);
}

TEST_CASE("fuse: random graphs compute what they did") {
  size_t fewer = 0;
  for (uint64_t seed = 0; seed < 150; ++seed) {
    CAPTURE(seed);
    const auto f = test::random_jit(seed);
    const Graph& before = f.trace(test::random_jit_arguments());
    const Fused after = fuse(before);
    fewer += after.steps;
    CHECK(calls(before.body) == calls(after.graph.body) + after.steps + after.graph.dropped);
    const std::vector<Array> inputs = test::random_jit_inputs(seed), x = interpret(before, inputs),
                             y = interpret(after.graph, inputs);
    REQUIRE(x.size() == y.size());
    for (size_t i = 0; i < x.size(); ++i) CHECK(equal(x[i], y[i]));
  }
  CHECK(fewer > 500);
}

TEST_CASE("fuse: random graphs of many dtypes, blocks and unread arguments compute what they did") {
  size_t fewer = 0;
  for (uint64_t seed = 0; seed < 800; ++seed) {
    CAPTURE(seed);
    const test::MixedFunction m(seed);
    const auto f = test::mixed_jit(seed);
    const Graph& before = f.trace(m.arguments());
    const Fused after = fuse(before);
    fewer += after.steps;
    const std::vector<Array> x = interpret(before, m.inputs()), y = interpret(after.graph, m.inputs());
    REQUIRE(x.size() == y.size());
    for (size_t i = 0; i < x.size(); ++i) CHECK(equal(x[i], y[i]));
  }
  CHECK(fewer > 2000);
}

}  // namespace graph_fuse_test
