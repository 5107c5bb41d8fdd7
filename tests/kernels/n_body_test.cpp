// samples/kernels/n_body.h against its definition in double precision, for numbers of bodies that fill no block, and
// light that falls beside the picture.
#include "samples/kernels/n_body.h"

#include <algorithm>

#include "tests/kernels/support.h"

namespace n_body_test {
using namespace tessera;
using test::Doubles;

TEST_CASE("n_body_step: every body pulls at every other") {
  for (const int64_t n : {1, 2, 5, 64, 100, 130, 300}) {
    CAPTURE(n);
    const double soft = 0.25, kick = 0.125, drift = 0.5;
    Array bodies = test::random({4, n}, f32, static_cast<uint32_t>(n)), velocities = test::random({3, n}, f32, 3);
    for (int64_t i = 0; i < n; ++i)
      bodies.data<float>()[static_cast<size_t>(3 * n + i)] =
          static_cast<float>(1 + bodies.at(3 * n + i)) / static_cast<float>(n);
    Doubles places(static_cast<size_t>(4 * n)), speeds(static_cast<size_t>(3 * n));
    for (int64_t i = 0; i < n; ++i) {
      double a[3] = {};
      for (int64_t j = 0; j < n; ++j) {
        double r2 = soft * soft;
        for (int64_t d = 0; d < 3; ++d) r2 += std::pow(bodies.at(d * n + j) - bodies.at(d * n + i), 2);
        for (int64_t d = 0; d < 3; ++d)
          a[d] += bodies.at(3 * n + j) * (bodies.at(d * n + j) - bodies.at(d * n + i)) / std::pow(r2, 1.5);
      }
      for (int64_t d = 0; d < 3; ++d) {
        const auto at = static_cast<size_t>(d * n + i);
        speeds[at] = velocities.at(d * n + i) + kick * a[d];
        places[at] = bodies.at(d * n + i) + drift * speeds[at];
      }
      places[static_cast<size_t>(3 * n + i)] = bodies.at(3 * n + i);
    }
    // Masses add up to 2 at most, so pulls to 0.8 / soft^2 * 2; each rounds some ten times.
    for (const PallasCall& step : {kernels::n_body_step(n, soft), kernels::n_body_step_by_tiles(n, soft)})
      test::check(step,
                  {bodies, bodies, velocities,
                   Array({2}, std::vector<float>{static_cast<float>(kick), static_cast<float>(drift)})},
                  {places, speeds}, {.absolute = 1e-5, .relative = 1e-6, .gpu = n <= 100, .general = n == 5});
  }
}

TEST_CASE("n_body_draw: light falls on four pixels, and on none beside the picture") {
  const int64_t n = 70, h = 5, w = 9;
  const Array bodies = test::random({4, n}, f32, 1, 1.5), light = test::random({3, n}, f32, 2, 1, 1);
  const Array view({2, 4}, std::vector<float>{4, 0, 0, 4.5f, 0, 2, -1, 2.5f}),
      before = test::random_integers({h, w, 3}, i32, 5, 0, 1000);
  Doubles expected = test::doubles(before);
  for (int64_t i = 0; i < n; ++i) {
    const double column = 4 * bodies.at(i) + 4, row = 2 * bodies.at(n + i) - bodies.at(2 * n + i) + 2;
    for (int64_t y = 0; y < h; ++y)
      for (int64_t x = 0; x < w; ++x) {
        const double part = std::max(0.0, 1 - std::fabs(column - static_cast<double>(x))) *
                            std::max(0.0, 1 - std::fabs(row - static_cast<double>(y)));
        for (int64_t c = 0; c < 3; ++c)
          expected[static_cast<size_t>((y * w + x) * 3 + c)] += part * light.at(c * n + i) * kernels::kLight;
      }
  }
  // Places err by some 2^-22 pixels, which is part of a unit of light; every body's share rounds to a whole one.
  test::check(kernels::n_body_draw(n, h, w), {bodies, light, view, before}, {expected},
              {.absolute = n, .relative = 0, .general = true});
}

TEST_CASE("n_body: what does not fit") {
  CHECK(test::error_of([] { kernels::n_body_step(0, 1, Loc{"stars.cpp", 4}); }) ==
        "n_body_step: n is 0, not at least 1\n  at stars.cpp:4");
  CHECK(test::error_of([] { kernels::n_body_step(3, 0, Loc{}); }) == "n_body_step: softening is 0.000000, not above 0");
  CHECK(test::error_of([] { kernels::n_body_step_by_tiles(0, 1, Loc{"stars.cpp", 4}); }) ==
        "n_body_step_by_tiles: n is 0, not at least 1\n  at stars.cpp:4");
  CHECK(test::error_of([] { kernels::n_body_draw(3, 0, 4, Loc{}); }) ==
        "n_body_draw: 3 bodies in a picture of (0, 4): at least 1 each");
}

}  // namespace n_body_test
