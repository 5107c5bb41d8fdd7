// Embedding, products with heads split and joined, SwiGLU and the cache against their definitions.
#include "samples/kernels/linear.h"

#include <algorithm>

#include "tests/kernels/support.h"

namespace linear_test {
using namespace tessera;

namespace {

/// x [rows, k] times w [k, n] (+ residual).
test::Doubles product(const Array& x, const Array& w, const Array* residual = nullptr) {
  const int64_t k = w.shape()[0], n = w.shape()[1], rows = x.size() / k;
  test::Doubles out(static_cast<size_t>(rows * n), 0);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t c = 0; c < n; ++c) {
      double& sum = out[static_cast<size_t>(i * n + c)];
      if (residual) sum = residual->at(i * n + c);
      for (int64_t j = 0; j < k; ++j) sum += x.at(i * k + j) * w.at(j * n + c);
    }
  return out;
}

}  // namespace

TEST_CASE("linear: heads split and joined, residuals, dtypes") {
  struct Shapes {
    Shape x, out;
  };
  uint32_t seed = 1;
  for (const Shapes& s : {Shapes{{1, 1, 1}, {1, 1, 1}},
                          {{2, 5, 24}, {2, 5, 3, 10}},
                          {{2, 5, 3, 10}, {2, 5, 24}},
                          {{1, 70, 32}, {1, 70, 5, 16}},
                          {{1, 3, 8}, {1, 3, 2, 3, 20}},
                          {{0, 3, 8}, {0, 3, 4}},
                          {{2, 0, 8}, {2, 0, 4}},
                          {{1, 4, 8}, {1, 4, 0, 6}}})
    for (const DType t : {f32, bf16}) {
      CAPTURE(to_string(s.x));
      CAPTURE(to_string(s.out));
      const int64_t k = kernels::linear_::product(s.x, 2), n = kernels::linear_::product(s.out, 2);
      const Array x = test::random(s.x, t, seed, 2), w = test::random({k, n}, t, seed + 1),
                  r = test::random(s.out, t, seed + 2);
      seed += 3;
      test::check(kernels::linear(x, w, s.out), {x, w}, {product(x, w)});
      if (t == f32) test::check(kernels::linear_and_add(x, w, r), {x, w, r}, {product(x, w, &r)});
    }
}

TEST_CASE("swiglu: shapes and dtypes") {
  uint32_t seed = 1;
  for (const auto& [shape, n] :
       {std::pair<Shape, int64_t>{{1, 1, 1}, 1}, {{2, 5, 24}, 33}, {{1, 66, 16}, 40}, {{1, 0, 16}, 4}})
    for (const DType t : {f32, f16}) {
      const Array x = test::random(shape, t, seed, 2), g = test::random({shape[2], n}, t, seed + 1),
                  u = test::random({shape[2], n}, t, seed + 2);
      seed += 3;
      test::Doubles a = product(x, g);
      const test::Doubles b = product(x, u);
      for (size_t i = 0; i < a.size(); ++i) a[i] *= b[i] / (1 + std::exp(-a[i]));
      test::check(kernels::swiglu(x, g, u), {x, g, u}, {a}, {.absolute = 3e-5});
    }
}

TEST_CASE("embed: rows by token; those that there are none of") {
  for (const DType t : {f32, f16, bf16}) {
    const Array table = test::random({7, 33}, t, 1),
                tokens({2, 10},
                       std::vector<int32_t>{0, 6, 3, 3, -1, -7, 7, 100, -100, 5, 1, 2, 3, 4, 5, 6, 0, 1, 2, 3});
    test::Doubles expected;
    for (int64_t i = 0; i < tokens.size(); ++i) {
      auto row = static_cast<int64_t>(tokens.at(i));
      row = std::clamp<int64_t>(row < 0 ? row + 7 : row, 0, 6);
      for (int64_t c = 0; c < 33; ++c) expected.push_back(table.at(row * 33 + c));
    }
    test::check(kernels::embed(table, tokens), {table, tokens}, {expected}, {.absolute = 0, .relative = 0});
  }
  const Array table = test::random({7, 8}, f32, 1), none({3, 0}, i32);
  test::check(kernels::embed(table, none), {table, none}, {{}});
}

TEST_CASE("update_cache: the new rows, and all others as they were") {
  const Array cache = test::random({2, 9, 2, 5}, f32, 1);
  for (const int32_t first : {0, 4, 6})
    for (const int64_t length : {1, 3}) {
      const Array start({1}, std::vector<int32_t>{first}), rows = test::random({2, length, 2, 5}, f32, 2);
      test::Doubles expected = test::doubles(cache);
      for (int64_t b = 0; b < 2; ++b)
        for (int64_t i = 0; i < length * 10; ++i)
          expected[static_cast<size_t>(b * 90 + first * 10 + i)] = rows.at(b * length * 10 + i);
      test::check(kernels::update_cache(start, cache, rows), {start, cache, rows}, {expected},
                  {.absolute = 0, .relative = 0});
    }
}

TEST_CASE("update_cache: rows beyond either end") {
  const Array cache = test::random({2, 9, 2, 5}, f32, 1), rows = test::random({2, 1, 2, 5}, f32, 2);
  for (const auto& [first, row] : {std::pair<int32_t, int64_t>{-1, 0}, {-9, 0}, {9, 8}, {100, 8}}) {
    const Array start({1}, std::vector<int32_t>{first});
    test::Doubles expected = test::doubles(cache);
    for (int64_t b = 0; b < 2; ++b)
      for (int64_t i = 0; i < 10; ++i) expected[static_cast<size_t>(b * 90 + row * 10 + i)] = rows.at(b * 10 + i);
    test::check(kernels::update_cache(start, cache, rows), {start, cache, rows}, {expected},
                {.absolute = 0, .relative = 0});
  }
  const Array start({1}, std::vector<int32_t>{8}), three = test::random({2, 3, 2, 5}, f32, 2);
  test::Doubles expected = test::doubles(cache);
  for (int64_t b = 0; b < 2; ++b)
    for (int64_t i = 0; i < 10; ++i) expected[static_cast<size_t>(b * 90 + 80 + i)] = three.at(b * 30 + 20 + i);
  test::check(kernels::update_cache(start, cache, three), {start, cache, three}, {expected},
              {.absolute = 0, .relative = 0});
}

TEST_CASE("linear: results without elements") {
  const Array x = test::random({2, 5, 8}, f32, 1), w({8, 0}, f32);
  for (const Shape& out : {Shape{2, 5, 0}, Shape{2, 5, 0, 3}, Shape{2, 5, 3, 0}, Shape{2, 5, 70, 0, 2}}) {
    const Array residual(out, f32);
    test::check(kernels::linear(x, w, out), {x, w}, {{}});
    test::check(kernels::linear_and_add(x, w, residual), {x, w, residual}, {{}});
  }
}

TEST_CASE("linear and its like: what does not fit") {
  using kernels::Type;
  const Type x({2, 5, 8}, f32), w({8, 6}, f32);
  CHECK(test::error_of([&] { kernels::linear(Type({5, 8}, f32), w, {5, 6}, {}, {}); }) ==
        "linear: x has shape (5, 8), not [batch, length, ...]");
  CHECK(test::error_of([&] { kernels::linear(x, Type({7, 6}, f32), {2, 5, 6}, {}, {}); }) ==
        "linear: rows of x have 8 elements but weights has 7 rows");
  CHECK(test::error_of([&] { kernels::linear(x, Type({8, 6}, f16), {2, 5, 6}, {}, {}); }) ==
        "linear: weights is f16, not f32");
  CHECK(test::error_of([&] { kernels::linear(x, w, {2, 5, 7}, {}, {}); }) ==
        "linear: the result (2, 5, 7) does not hold the batch and length of x, (2, 5, 8), and 6 columns");
  CHECK(test::error_of([&] { kernels::linear_and_add(x, w, Type({2, 5, 6}, bf16), {}); }) ==
        "linear: residual is bf16, not f32");
  CHECK(test::error_of([&] { kernels::swiglu(x, w, Type({8, 5}, f32), {}); }) ==
        "swiglu: up has shape (8, 5), not (8, 6) = that of gate");
  CHECK(test::error_of([&] { kernels::embed(w, Type({2, 5}, i64), {}); }) == "embed: tokens is i64, not i32");
  CHECK(test::error_of([&] { kernels::embed(Type({0, 5}, f32), Type({2, 5}, i32), {}); }) ==
        "embed: table has shape (0, 5), which has no rows");
  CHECK(test::error_of(
            [&] { kernels::update_cache(Type({1}, i32), Type({2, 9, 2, 5}, f32), Type({2, 3, 2, 6}, f32), {}); }) ==
        "update_cache: rows has shape (2, 3, 2, 6), not (2, 3, 2, 5) = the batch, any length, the heads of cache");
  CHECK(test::error_of([&] {
          kernels::update_cache(Type({2}, i32), Type({2, 9, 2, 5}, f32), Type({2, 3, 2, 5}, f32), {});
        }) == "update_cache: start has shape (2,), not (1,) = one number");
}

}  // namespace linear_test
