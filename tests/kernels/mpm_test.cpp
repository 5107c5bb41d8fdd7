// samples/kernels/mpm.h against its definition in double precision, with particles at the walls and many in one cell.
#include "samples/kernels/mpm.h"

#include <algorithm>
#include <cmath>

#include "tests/kernels/support.h"

namespace mpm_test {
using namespace tessera;
using namespace tessera::kernels;

namespace {

struct Size {
  int64_t n, h, w;
};
const std::vector<Size> sizes = {{1, 8, 8}, {100, 11, 17}, {333, 19, 40}};

Array particles(const Size& s) {
  Array p({12, s.n}, f32);
  const Array u = test::random({12, s.n}, f32, 5);
  for (int64_t i = 0; i < s.n; ++i)
    for (int64_t d = 0; d < 12; ++d) {
      const double r = u.at(d * s.n + i), size = static_cast<double>(d == 0 ? s.w : s.h);
      const double v = d < 2   ? std::clamp(0.5 * size * (1 + 1.1 * r), 2.0, size - 2)
                       : d < 4 ? 0.3 * r
                       : d < 8 ? 0.05 * r
                               : (d == 8 || d == 11) + 0.2 * r;
      p.data<float>()[static_cast<size_t>(d * s.n + i)] = static_cast<float>(v);
    }
  return p;
}
struct Taps {
  int64_t first;
  double part, weight[3];
};
Taps taps(double at, int64_t cells) {
  const int64_t first = std::clamp<int64_t>(static_cast<int64_t>(std::floor(at - 0.5)), 0, cells - 3);
  const double x = at - static_cast<double>(first);
  return {first, x, {0.5 * (1.5 - x) * (1.5 - x), 0.75 - (x - 1) * (x - 1), 0.5 * (x - 0.5) * (x - 0.5)}};
}

}  // namespace

TEST_CASE("mpm_scatter adds up mass, momentum and stress") {
  const Soft soft;
  for (const Size& s : sizes) {
    CAPTURE(s.n);
    const Array p = particles(s);
    const Array before = test::random_integers({s.h, s.w, 3}, i32, 3, -100, 100);
    test::Doubles expected = test::doubles(before);
    for (int64_t i = 0; i < s.n; ++i) {
      const auto at = [&](int64_t d) { return p.at(d * s.n + i); };
      const Taps x = taps(at(0), s.w), y = taps(at(1), s.h);
      const double f[2][2] = {{at(8), at(9)}, {at(10), at(11)}};
      const double pressure = soft.lambda * std::log(std::max(f[0][0] * f[1][1] - f[0][1] * f[1][0], 0.05));
      double m[2][2];
      for (int r = 0; r < 2; ++r)
        for (int c = 0; c < 2; ++c)
          m[r][c] = soft.volume * at(4 + 2 * r + c) -
                    4 * soft.volume *
                        (soft.mu * (f[r][0] * f[c][0] + f[r][1] * f[c][1] - (r == c)) + (r == c ? pressure : 0));
      for (int j = 0; j < 3; ++j)
        for (int k = 0; k < 3; ++k) {
          const double dx = k - x.part, dy = j - y.part, weight = x.weight[k] * y.weight[j];
          const double gives[] = {weight * (soft.volume * at(2) + m[0][0] * dx + m[0][1] * dy),
                                  weight * (soft.volume * at(3) + m[1][0] * dx + m[1][1] * dy), weight * soft.volume};
          for (int c = 0; c < 3; ++c)
            expected[static_cast<size_t>(((y.first + j) * s.w + x.first + k) * 3 + c)] +=
                std::round(gives[c] * mpm::kUnit);
        }
    }
    // A particle's share rounds to another integer where f32 errs by more than is left to the half, and it errs by some
    // 2^-24 of products up to 1.
    test::check(mpm_scatter(s.n, s.h, s.w), {p, before}, {expected},
                {.absolute = 2.0 * static_cast<double>(s.n), .relative = 0, .gpu = s.n <= 100});
  }
}

TEST_CASE("mpm_move: gravity, and walls that nothing enters") {
  const Soft soft;
  for (const Size& s : sizes) {
    CAPTURE(s.h);
    Array grid = test::random_integers({s.h, s.w, 3}, i32, 7, -40000, 40000);
    for (int64_t i = 0; i < s.h * s.w; ++i) {
      int32_t& mass = grid.data<int32_t>()[static_cast<size_t>(3 * i + 2)];
      mass = i % 5 == 0 ? 0 : std::abs(mass) + 1;
    }
    test::Doubles expected;
    for (int64_t y = 0; y < s.h; ++y)
      for (int64_t x = 0; x < s.w; ++x)
        for (int c = 0; c < 2; ++c) {
          const double mass = grid.at((y * s.w + x) * 3 + 2);
          double v = 0;
          if (mass > 0) {
            v = std::clamp(soft.kept * grid.at((y * s.w + x) * 3 + c) / mass + (c ? soft.gravity : 0), -0.9, 0.9);
            const int64_t place = c ? y : x, cells = c ? s.h : s.w;
            if (place < mpm::kWall) v = std::max(v, 0.0);
            else if (place >= cells - mpm::kWall) v = std::min(v, 0.0);
          }
          expected.push_back(v);
        }
    test::check(mpm_move(s.h, s.w), {grid}, {expected}, {.absolute = 1e-6, .relative = 1e-6});
  }
}

TEST_CASE("mpm_gather: particles go with the grid, and are deformed as it is") {
  for (const Size& s : sizes) {
    CAPTURE(s.n);
    const Array p = particles(s), grid = test::random({s.h, s.w, 2}, f32, 9, 0.5);
    test::Doubles expected(static_cast<size_t>(12 * s.n));
    for (int64_t i = 0; i < s.n; ++i) {
      const auto at = [&](int64_t d) { return p.at(d * s.n + i); };
      const auto to = [&](int64_t d) -> double& { return expected[static_cast<size_t>(d * s.n + i)]; };
      const Taps x = taps(at(0), s.w), y = taps(at(1), s.h);
      for (int j = 0; j < 3; ++j)
        for (int k = 0; k < 3; ++k)
          for (int64_t c = 0; c < 2; ++c) {
            const double v = x.weight[k] * y.weight[j] * grid.at(((y.first + j) * s.w + x.first + k) * 2 + c);
            to(2 + c) += v, to(4 + 2 * c) += 4 * v * (k - x.part), to(5 + 2 * c) += 4 * v * (j - y.part);
          }
      for (int64_t c = 0; c < 2; ++c) {
        to(c) = std::clamp(at(c) + to(2 + c), mpm::kWall - 1.0, static_cast<double>((c ? s.h : s.w) - mpm::kWall) + 1);
        for (int64_t d = 0; d < 2; ++d)
          to(8 + 2 * c + d) = at(8 + 2 * c + d) + to(4 + 2 * c) * at(8 + d) + to(5 + 2 * c) * at(10 + d);
      }
    }
    test::check(mpm_gather(s.n, s.h, s.w), {p, grid}, {expected},
                {.absolute = 4e-6, .relative = 1e-6, .gpu = s.n <= 100});
  }
  CHECK(test::error_of([] { mpm_gather(5, 7, 9, {"main.cpp", 7}); }) ==
        "mpm_gather: 5 particles on a grid of (7, 9): at least 1, and 8 cells along each side\n  at main.cpp:7");
}

}  // namespace mpm_test
