// Prefix sums against a loop on the host: exact for integers and for floats whose sums are exact, in double precision
// for others.
#include "samples/kernels/prefix_sum.h"

#include "engine/ir/reference.h"
#include "tests/kernels/passes.h"

namespace prefix_sum_test {
using namespace tessera;
using kernels::PrefixSumParams;

namespace {

struct Lines {
  int64_t outer = 1, n, inner = 1;
  Lines(const Shape& s, size_t axis) : n(s[axis]) {
    for (size_t d = 0; d < s.size(); ++d) (d < axis ? outer : inner) *= d == axis ? 1 : s[d];
  }
  int64_t at(int64_t o, int64_t i, int64_t k) const { return (o * n + i) * inner + k; }
};

/// In double for floats, modulo the dtype for integers.
Array summed(const Array& x, const PrefixSumParams& p) {
  const Lines l(x.shape(), static_cast<size_t>(p.axis < 0 ? p.axis + static_cast<int64_t>(x.shape().size()) : p.axis));
  Array out(x.shape(), x.dtype());
  for (int64_t o = 0; o < l.outer; ++o)
    for (int64_t k = 0; k < l.inner; ++k) {
      double sum = 0;
      uint64_t bits = 0;
      for (int64_t j = 0; j < l.n; ++j) {
        const int64_t at = l.at(o, p.reverse ? l.n - 1 - j : j, k);
        if (!p.exclusive) sum += x.at(at), bits += x.element_bits(at);
        const uint64_t mask = size_bytes(x.dtype()) == 8 ? ~uint64_t{0} : (uint64_t{1} << tessera::bits(x.dtype())) - 1;
        out.set_element_bits(at, is_float(x.dtype()) ? tessera::reference::from_double(x.dtype(), sum) : bits & mask);
        if (p.exclusive) sum += x.at(at), bits += x.element_bits(at);
      }
    }
  return out;
}

void check_exact(const Array& x, PrefixSumParams p, const std::vector<test::Way>& ways) {
  const Array expected = summed(x, p);
  for (const test::Way& w : ways) {
    CAPTURE(w.name);
    test::check_equal(kernels::prefix_sum(w.passes, x, p), expected);
  }
}

}  // namespace

TEST_CASE("prefix_sum: shapes, axes, dtypes; integers wrap") {
  const std::pair<Shape, int64_t> cases[] = {{{1}, 0},       {{7}, 0},           {{2048}, -1},  {{2049}, -1},
                                             {{5000}, 0},    {{3, 2100}, -1},    {{65, 3}, 0},  {{130, 70}, 0},
                                             {{2, 3, 5}, 1}, {{2, 70, 3, 5}, 1}, {{1, 1}, 0},   {{0}, 0},
                                             {{3, 0}, 0},    {{0, 3}, 0},        {{4, 0, 2}, 1}};
  const DType dtypes[] = {i32, u8, i64, u32, i16, u64, i8, u16};
  uint32_t seed = 1;
  for (const auto& c : cases) {
    const Shape& shape = c.first;
    const int64_t axis = c.second;
    const DType t = dtypes[seed % std::size(dtypes)];
    CAPTURE(to_string(shape));
    CAPTURE(name(t));
    const Array x = test::random_integers(shape, t, seed, 0, 100);
    check_exact(x, {.axis = axis, .exclusive = seed % 3 == 1, .reverse = seed % 4 > 1},
                test::ways(x.size() < 3000, x.size() < 300));
    ++seed;
  }
}

TEST_CASE("prefix_sum: inclusive and exclusive, from either end") {
  const Array row = test::random_integers({4500}, i32, 7, -1000, 1000),
              column = test::random_integers({150, 2}, f32, 8, -100, 100);
  for (const bool exclusive : {false, true})
    for (const bool reverse : {false, true}) {
      check_exact(row, {.exclusive = exclusive, .reverse = reverse}, test::ways(false));
      check_exact(column, {.axis = 0, .exclusive = exclusive, .reverse = reverse}, test::ways());
    }
}

TEST_CASE("prefix_sum: many blocks") {
  check_exact(test::random_integers({1'000'003}, i32, 3, -1000, 1000), {}, test::ways(false));
  check_exact(test::random_integers({5000, 3}, u32, 4, 0, 1000), {.axis = 0, .exclusive = true}, test::ways(false));
}

TEST_CASE("prefix_sum: floats") {
  for (const DType t : {f32, f16, bf16}) {
    const Array x = test::random({5, 2300}, t, 5, 1, 0.25);
    test::Doubles expected;
    for (int64_t r = 0; r < 5; ++r) {
      double sum = 0;
      for (int64_t i = 0; i < 2300; ++i) expected.push_back(sum += x.at(r * 2300 + i));
    }
    for (const test::Way& w : test::ways(false)) {
      CAPTURE(w.name);
      const Array got = kernels::prefix_sum(w.passes, x);
      const double rounding = t == f32 ? 0 : t == f16 ? std::ldexp(1.0, -11) : std::ldexp(1.0, -8);
      int wrong = 0;
      for (int64_t i = 0; i < got.size(); ++i) {
        const double e = expected[static_cast<size_t>(i)];
        // 2300 terms of up to 1.25: errors of sums near 600
        wrong += !(std::fabs(got.at(i) - e) <= rounding * std::fabs(e) + 2e-3);
      }
      CHECK(wrong == 0);
      test::check_equal(kernels::prefix_sum(w.passes, x), got);  // the order of additions is always the same
    }
  }
}

TEST_CASE("prefix_sum: device arrays, without waiting; host arrays on the best device") {
  const Array x = test::random_integers({10'000}, i32, 9, -1000, 1000);
  const Array expected = summed(x, {});
  test::check_equal(kernels::prefix_sum(x), expected);
  if (const auto device = test::device_if_any())
    test::check_equal(kernels::prefix_sum(kernels::passes(*device), DeviceArray(*device, x)).download(), expected);
}

TEST_CASE("prefix_sum: under jit, as steps of a graph") {
  const auto f = jit([](Tensor x) { return kernels::prefix_sum(kernels::graph_passes(), x, {.exclusive = true}) + 1; });
  const Array x = test::random_integers({2, 5000}, i32, 10, -1000, 1000);
  Array expected = summed(x, {.exclusive = true});
  for (int32_t& v : expected.data<int32_t>()) ++v;
  test::check_equal(interpret(f, x), expected);
  test::check_equal(f(x), expected);
}

TEST_CASE("prefix_sum: what does not fit") {
  const Array x({2, 3}, f32);
  CHECK(test::error_of([&] { kernels::prefix_sum(x, {.axis = 2}, Loc{"scan.cpp", 3}); }) ==
        "prefix_sum: axis 2 is out of range for x, f32(2, 3)\n  at scan.cpp:3");
  CHECK(test::error_of([&] { kernels::prefix_sum(x, {.axis = -3}, Loc{}); }) ==
        "prefix_sum: axis -3 is out of range for x, f32(2, 3)");
  CHECK(test::error_of([&] { kernels::prefix_sum(Array({}, f32), {}, Loc{}); }) ==
        "prefix_sum: axis -1 is out of range for x, f32()");
  CHECK(test::error_of([&] { kernels::prefix_sum(Array({3}, boolean), {}, Loc{}); }) ==
        "prefix_sum: x is bool, not integers or floats of 8 bits and more");
}

}  // namespace prefix_sum_test
