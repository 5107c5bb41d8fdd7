// Blurs against the definition in double precision.
#include "samples/kernels/blur.h"

#include <algorithm>

#include "tests/kernels/passes.h"

namespace blur_test {
using namespace tessera;
using kernels::Edge;

namespace {

int64_t inside(int64_t i, int64_t n, Edge edge) {
  if (edge == Edge::clamp || (n == 1 && edge != Edge::zero)) return std::clamp<int64_t>(i, 0, n - 1);
  if (edge == Edge::wrap) return (i % n + n) % n;
  if (edge == Edge::zero) return i >= 0 && i < n ? i : -1;
  const int64_t again = edge == Edge::symmetric ? 1 : 0;
  while (i < 0 || i >= n) i = i < 0 ? -i - again : 2 * (n - 1) + again - i;
  return i;
}

test::Doubles blurred(const Array& x, double sigma, int64_t radius, Edge edge) {
  const Shape& s = x.shape();
  const int64_t h = s[0], w = s[1], c = s.size() == 3 ? s[2] : 1;
  test::Doubles weights, from = test::doubles(x);
  double total = 0;
  for (int64_t t = -radius; t <= radius; ++t)
    total += weights.emplace_back(t == 0 ? 1 : std::exp(-static_cast<double>(t * t) / (2 * sigma * sigma)));
  for (const int64_t along : {1, 0}) {
    test::Doubles to(from.size());
    for (int64_t y = 0; y < h; ++y)
      for (int64_t i = 0; i < w; ++i)
        for (int64_t k = 0; k < c; ++k)
          for (int64_t t = -radius; t <= radius; ++t) {
            const int64_t row = along == 0 ? inside(y + t, h, edge) : y,
                          column = along == 1 ? inside(i + t, w, edge) : i;
            if (row < 0 || column < 0) continue;
            to[static_cast<size_t>((y * w + i) * c + k)] += weights[static_cast<size_t>(t + radius)] / total *
                                                            from[static_cast<size_t>((row * w + column) * c + k)];
          }
    from = to;
  }
  return from;
}

void check_blur(const Array& x, kernels::BlurParams p, const std::vector<test::Way>& ways) {
  const test::Doubles expected =
      blurred(x, p.sigma, p.radius >= 0 ? p.radius : static_cast<int64_t>(4 * p.sigma + 0.5), p.edge);
  for (const test::Way& w : ways) {
    CAPTURE(w.name);
    const Array got = kernels::blur(w.passes, x, p);
    REQUIRE(got.shape() == x.shape());
    REQUIRE(got.dtype() == x.dtype());
    double worst = 0;
    for (int64_t i = 0; i < got.size(); ++i)
      worst = std::max(worst, std::fabs(got.at(i) - expected[static_cast<size_t>(i)]));
    // Weights and sums of f32 below 1 (u8: 255, rounded to whole numbers).
    CHECK(worst <= (x.dtype() == u8 ? 0.5 + 1e-3 : x.dtype() == f32 ? 4e-6 : 1.0 / 256));
  }
}

}  // namespace

TEST_CASE("blur: sizes, channels, edges, dtypes") {
  struct Case {
    Shape shape;
    double sigma;
  };
  const Case cases[] = {{{1, 1}, 1},   {{5, 7}, 0.8},   {{9, 130, 3}, 1}, {{70, 20, 4}, 0.5},
                        {{1, 200}, 2}, {{65, 1, 2}, 1}, {{3, 4, 1}, 3},   {{67, 33}, 1.5}};
  const DType dtypes[] = {f32, u8, f16};
  int number = 0;
  for (const Case& c : cases)
    for (const Edge edge : {Edge::clamp, Edge::zero, Edge::reflect, Edge::symmetric, Edge::wrap}) {
      const DType t = dtypes[number % 3];
      CAPTURE(to_string(c.shape));
      CAPTURE(name(t));
      CAPTURE(static_cast<int>(edge));
      const uint32_t seed = static_cast<uint32_t>(++number);
      const Array x =
          t == u8 ? test::random_integers(c.shape, u8, seed, 0, 255) : test::random(c.shape, t, seed, 0.5, 0.5);
      check_blur(x, {.sigma = c.sigma, .edge = edge}, test::ways(x.size() < 13, x.size() < 2));
    }
}

TEST_CASE("blur: a radius of one's own, wider than the picture; no blur; empty pictures") {
  const Array x = test::random({6, 5}, f32, 1, 0.5, 0.5), empty({0, 4, 3}, u8);
  for (const Edge edge : {Edge::clamp, Edge::zero, Edge::reflect, Edge::symmetric, Edge::wrap})
    check_blur(x, {.sigma = 9, .edge = edge, .radius = 23}, test::ways(false));
  for (const test::Way& w : test::ways(false)) {
    test::check_equal(kernels::blur(w.passes, x, {.sigma = 0}), x);
    test::check_equal(kernels::blur(w.passes, empty, {.sigma = 2}), empty);
  }
}

TEST_CASE("blur: what does not fit") {
  const Array x({4, 4}, f32);
  CHECK(test::error_of([&] { kernels::blur(Array({4, 4}, i32), {}, Loc{"paint.cpp", 2}); }) ==
        "blur: picture is i32, not u8, f32, f16 or bf16\n  at paint.cpp:2");
  CHECK(test::error_of([&] { kernels::blur(Array({4, 4, 5}, u8), {}, Loc{}); }) ==
        "blur: picture has shape (4, 4, 5), not [height, width] or [height, width, 1 to 4 channels]");
  CHECK(test::error_of([&] { kernels::blur(Array({4}, u8), {}, Loc{}); }) ==
        "blur: picture has shape (4,), not [height, width] or [height, width, 1 to 4 channels]");
  CHECK(test::error_of([&] { kernels::blur(x, {.sigma = -1}, Loc{}); }) ==
        "blur: sigma is -1.000000, not from 0 to a million");
  CHECK(test::error_of([&] { kernels::blur(x, {.radius = -2}, Loc{}); }) ==
        "blur: radius is -2, not 0 or more (or -1: four sigma)");
}

}  // namespace blur_test
