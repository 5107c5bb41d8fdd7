// vmap of a pallas_call: results against the call made once per element of the batch, and the grid it makes.
#include "engine/call/vmap.h"

#include <doctest/doctest.h>

#include <sstream>

#include "engine/front.h"
#include "tests/support/messages.h"

namespace vmap_test {

namespace ts = tessera;
using tessera::test::at, tessera::test::expect;
using ts::all, ts::Ref, ts::Value;

namespace {
ts::Array ramp(ts::Shape shape, double start = 0) {
  std::vector<float> v(static_cast<size_t>(ts::num_elements(shape)));
  for (size_t i = 0; i < v.size(); ++i) v[i] = static_cast<float>(start + static_cast<double>(i % 17));
  return {std::move(shape), v};
}
/// a with the index `i` fixed on `axis`, that dim gone.
ts::Array take(const ts::Array& a, int64_t i, size_t axis) {
  ts::Shape shape = a.shape();
  const int64_t n = shape[axis];
  int64_t inner = 1;
  for (size_t d = axis + 1; d < shape.size(); ++d) inner *= shape[d];
  shape.erase(shape.begin() + static_cast<int64_t>(axis));
  ts::Array out(shape, a.dtype());
  for (int64_t e = 0; e < out.size(); ++e)
    out.set_element_bits(e, a.element_bits((e / inner * n + i) * inner + e % inner));
  return out;
}
bool same(const ts::Array& a, const ts::Array& b) {
  bool equal = a.shape() == b.shape() && a.dtype() == b.dtype();
  for (int64_t i = 0; equal && i < a.size(); ++i) equal = a.element_bits(i) == b.element_bits(i);
  return equal;
}
ts::PallasCall matmul(int m, int n, int bm, int bn) {
  return ts::pallas_call(
      [](Ref a, Ref b, Ref o) {
        o[all] = ts::dot(a[all], b[all]) + ts::cast(ts::program_id(0) * 100 + ts::num_programs(1), ts::f32);
      },
      {.out_shape = {{{m, n}, ts::f32}},
       .grid = {m / bm, n / bn},
       .in_specs = {{{bm, 3}, [](Value i, Value) { return ts::Indices{i, 0}; }},
                    {{3, bn}, [](Value, Value j) { return ts::Indices{0, j}; }}},
       .out_specs = {{{bm, bn}, [](Value i, Value j) { return ts::Indices{i, j}; }}},
       .name = "matmul"});
}
std::string error(const ts::PallasCall& call, const std::vector<ts::Array>& arguments) {
  try {
    ts::interpret(call, arguments);
  } catch (const ts::SpecError& e) {
    return e.what();
  }
  return "no error";
}
}  // namespace

TEST_CASE("both arguments batched, in every place") {
  const auto call = matmul(4, 4, 2, 2);
  for (int64_t ax : {0, 1, 2})
    for (int64_t ay : {0, 1, 2})
      for (int64_t ao : {0, 1, 2}) {
        ts::Shape xs{4, 3}, ys{3, 4};
        xs.insert(xs.begin() + ax, 5);
        ys.insert(ys.begin() + ay, 5);
        const ts::Array x = ramp(xs), y = ramp(ys, -3);
        const ts::Array z = ts::interpret(ts::vmap(call, {ax, ay - 3}, {ao - 3}), x, y);
        for (int64_t i = 0; i < 5; ++i)
          CHECK(same(take(z, i, static_cast<size_t>(ao)),
                     ts::interpret(call, take(x, i, static_cast<size_t>(ax)), take(y, i, static_cast<size_t>(ay)))));
      }
}

TEST_CASE("one argument batched") {
  const auto call = matmul(4, 4, 4, 2);
  const ts::Array x = ramp({4, 3}), y = ramp({2, 3, 4});
  const ts::Array z = ts::interpret(ts::vmap(call, {std::nullopt, 0}), x, y);
  CHECK(z.shape() == ts::Shape{2, 4, 4});
  for (int64_t i = 0; i < 2; ++i) CHECK(same(take(z, i, 0), ts::interpret(call, x, take(y, i, 0))));
}

TEST_CASE("nested") {
  const auto call = matmul(2, 2, 1, 2);
  const auto nested = ts::vmap(ts::vmap(call, {0, std::nullopt}), {std::nullopt, 2}, 1);
  const ts::Array x = ramp({5, 2, 3}), y = ramp({3, 2, 4});
  const ts::Array z = ts::interpret(nested, x, y);
  CHECK(z.shape() == ts::Shape{5, 4, 2, 2});
  for (int64_t i = 0; i < 5; ++i)
    for (int64_t j = 0; j < 4; ++j)
      CHECK(same(take(take(z, i, 0), j, 0), ts::interpret(call, take(x, i, 0), take(y, j, 2))));
  std::ostringstream out;
  out << nested.grid_mapping({{{5, 2, 3}, ts::f32}, {{3, 2, 4}, ts::f32}});
  CHECK(out.str() ==
        "grid (4 parallel vmapped, 5 parallel vmapped, 2, 1)\n"
        "in_specs[0]: f32(5, 2, 3) in blocks (squeezed, 1, 3), in vmem, index map (i0, i1, i2, i3) -> (i1, i2, 0)\n"
        "in_specs[1]: f32(3, 2, 4) in blocks (3, 2, squeezed), in vmem, index map (i0, i1, i2, i3) -> (0, i3, i0)\n"
        "out_specs[0]: f32(5, 4, 2, 2) in blocks (squeezed, squeezed, 1, 2), in vmem, index map (i0, i1, i2, i3) -> "
        "(i1, i0, i2, i3)\n");
}

TEST_CASE("whole arrays, scratch, and several outputs") {
  auto call = ts::pallas_call(
      [](Ref x, Ref w, Ref o, Ref p, Ref count) {
        ts::when(ts::program_id(0) == 0, [&] { count[0] = 0; });
        count[0] += 1;
        o[ts::program_id(0)] = x[ts::program_id(0)] * w[0];
        p[all] = count[all];
      },
      {.out_shape = {{{3}, ts::f32}, {{1}, ts::i32}}, .grid = {3}, .scratch_shapes = {ts::SMEM({1}, ts::i32)}});
  const ts::Array x = ramp({3, 2}, 1), w = ramp({1}, 10);
  auto [o, p] = ts::unpack<2>(ts::interpret(ts::vmap(call, {1, std::nullopt}, {-1, 0}), x, w));
  CHECK(o.shape() == ts::Shape{3, 2});
  CHECK(p.shape() == ts::Shape{2, 1});
  for (int64_t i = 0; i < 6; ++i) CHECK(o.at(i) == 10 * (i + 1));
  CHECK(p.at(0) == 3);
  CHECK(p.at(1) == 3);
}

TEST_CASE("errors") {
  const auto call = matmul(4, 4, 2, 2);
  const ts::Array x = ramp({5, 4, 3}), y = ramp({5, 3, 4}), plain = ramp({3, 4});
  int line = __LINE__ + 1;
  expect(error(ts::vmap(call, {0, 0, 0}), {x, y}),
         "matmul: vmap: in_axes has 3 entries but the call has 2 arguments" + at(line));
  line = __LINE__ + 1;
  expect(error(ts::vmap(call, {std::nullopt, std::nullopt}), {x, y}),
         "matmul: vmap: no argument is batched" + at(line) +
             "\n  note: in_axes must name an axis of at least one argument");
  line = __LINE__ + 1;
  expect(error(ts::vmap(call, {0, 3}), {x, y}),
         "matmul: vmap: in_axes[1] is 3, but the batched array has 3 dims" + at(line));
  line = __LINE__ + 1;
  expect(error(ts::vmap(call, {0, 1}), {x, y}),
         "matmul: vmap: argument 0 has a batch of 5 but argument 1 of shape (5, 3, 4) has 3 along axis 1" + at(line));
  line = __LINE__ + 1;
  expect(error(ts::vmap(call, 0, -4), {x, y}),
         "matmul: vmap: out_axes[0] is -4, but the batched array has 3 dims" + at(line));
  line = __LINE__ + 1;
  expect(error(ts::vmap(call, 0, {0, 0}), {x, y}),
         "matmul: vmap: out_axes has 2 entries but the call has 1 output" + at(line));
  line = __LINE__ + 1;
  expect(error(ts::vmap(call, 0, {std::nullopt}), {x, y}),
         "matmul: vmap: out_axes[0] is nullopt, but every output is batched" + at(line));
}

}  // namespace vmap_test
