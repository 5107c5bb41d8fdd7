// RMS and layer norm against their definitions in double precision.
#include "samples/kernels/norm.h"

#include <algorithm>

#include "tests/kernels/support.h"

namespace norm_test {
using namespace tessera;
using test::Doubles;

namespace {

struct Rows {
  int64_t count, columns;
  explicit Rows(const Array& x) : count(x.size() / std::max<int64_t>(x.shape().back(), 1)), columns(x.shape().back()) {}
};

Doubles rms_norm_reference(const Array& x, const Array& w, double epsilon) {
  const Rows rows(x);
  Doubles out(static_cast<size_t>(x.size()));
  for (int64_t r = 0; r < rows.count; ++r) {
    double squares = 0;
    for (int64_t c = 0; c < rows.columns; ++c) squares += x.at(r * rows.columns + c) * x.at(r * rows.columns + c);
    const double scale = 1 / std::sqrt(squares / static_cast<double>(rows.columns) + epsilon);
    for (int64_t c = 0; c < rows.columns; ++c)
      out[static_cast<size_t>(r * rows.columns + c)] = x.at(r * rows.columns + c) * scale * w.at(c);
  }
  return out;
}

Doubles layer_norm_reference(const Array& x, const Array& w, const Array& b, double epsilon) {
  const Rows rows(x);
  Doubles out(static_cast<size_t>(x.size()));
  for (int64_t r = 0; r < rows.count; ++r) {
    const auto at = [&](int64_t c) { return x.at(r * rows.columns + c); };
    double mean = 0, variance = 0;
    for (int64_t c = 0; c < rows.columns; ++c) mean += at(c) / static_cast<double>(rows.columns);
    for (int64_t c = 0; c < rows.columns; ++c)
      variance += (at(c) - mean) * (at(c) - mean) / static_cast<double>(rows.columns);
    for (int64_t c = 0; c < rows.columns; ++c)
      out[static_cast<size_t>(r * rows.columns + c)] =
          (at(c) - mean) / std::sqrt(variance + epsilon) * w.at(c) + b.at(c);
  }
  return out;
}

const Shape kShapes[] = {{1, 1},  {7, 33}, {64, 128},    {3, 1000}, {2, 3, 5, 65},
                         {0, 16}, {4, 0},  {2, 0, 3, 8}, {2, 9001}, {1, 8192}};

}  // namespace

TEST_CASE("rms_norm: shapes and dtypes") {
  uint32_t seed = 1;
  for (const Shape& shape : kShapes)
    for (const DType t : {f32, f16, bf16}) {
      CAPTURE(to_string(shape));
      CAPTURE(name(t));
      const Array x = test::random(shape, t, seed++, 3),
                  w = test::random({shape.back()}, t == bf16 ? f32 : t, seed++, 1, 1);
      test::check(kernels::rms_norm(x, w), {x, w}, {rms_norm_reference(x, w, 1e-6)}, {.general = shape.back() < 100});
    }
}

TEST_CASE("rms_norm: epsilon counts where x is small") {
  const Array x = test::random({5, 40}, f32, 1, 1e-3), w = test::random({40}, f32, 2);
  test::check(kernels::rms_norm(x, w, {.epsilon = 1e-5}), {x, w}, {rms_norm_reference(x, w, 1e-5)});
}

TEST_CASE("layer_norm: shapes and dtypes") {
  uint32_t seed = 100;
  for (const Shape& shape : kShapes)
    for (const DType t : {f32, f16, bf16}) {
      CAPTURE(to_string(shape));
      CAPTURE(name(t));
      const Array x = test::random(shape, t, seed++, 3, 1), w = test::random({shape.back()}, t, seed++, 1, 1),
                  b = test::random({shape.back()}, f32, seed++);
      test::check(kernels::layer_norm(x, w, b), {x, w, b}, {layer_norm_reference(x, w, b, 1e-5)},
                  {.general = shape.back() < 100});
    }
}

TEST_CASE("layer_norm: far from zero the variance keeps its digits") {
  for (const int64_t columns : {500, 10'000}) {
    const Array x = test::random({2, columns}, f32, 7, 1, 1000), w = test::random({columns}, f32, 8),
                b = test::random({columns}, f32, 9);
    // the mean of numbers near 1000
    test::check(kernels::layer_norm(x, w, b), {x, w, b}, {layer_norm_reference(x, w, b, 1e-5)}, {.absolute = 4e-4});
  }
}

TEST_CASE("norms: what does not fit") {
  const Array x({4, 8}, f32), w({8}, f32), short_w({7}, f32), ints({8}, i32), row({8}, f32);
  CHECK(test::error_of([&] { kernels::rms_norm(x, short_w, {}, Loc{"model.cpp", 7}); }) ==
        "rms_norm: weight has shape (7,), not (8,) = the columns of x\n  at model.cpp:7");
  CHECK(test::error_of([&] { kernels::rms_norm(x, ints, {}, {}); }) == "rms_norm: weight is i32, not f32, f16 or bf16");
  CHECK(test::error_of([&] { kernels::rms_norm(ints, w, {}, {}); }) == "rms_norm: x is i32, not f32, f16 or bf16");
  CHECK(test::error_of([&] { kernels::rms_norm(row, w, {}, {}); }) ==
        "rms_norm: x has shape (8,), not [..., rows, columns]");
  CHECK(test::error_of([&] { kernels::layer_norm(x, w, short_w, {}, {}); }) ==
        "layer_norm: bias has shape (7,), not (8,) = the columns of x");
}

}  // namespace norm_test
