// samples/kernels/cloth.h against its definition in double precision, on cloths that fill no tile, partly in the sphere
// and below the floor.
#include "samples/kernels/cloth.h"

#include <algorithm>
#include <cmath>

#include "tests/kernels/support.h"

namespace cloth_test {
using namespace tessera;
using namespace tessera::kernels;
using test::Doubles;

namespace {

struct Size {
  int64_t h, w;
};
const std::vector<Size> sizes = {{1, 1}, {2, 3}, {11, 9}, {17, 40}};

// Meshes that are bent and stretched; some points are held.
Array points(const Size& s, uint32_t seed) {
  Array p({s.h, s.w, 4}, f32);
  const Array u = test::random({s.h, s.w, 4}, f32, seed);
  for (int64_t i = 0; i < s.h; ++i)
    for (int64_t j = 0; j < s.w; ++j)
      for (int64_t k = 0; k < 4; ++k) {
        const int64_t n = (i * s.w + j) * 4 + k;
        const double at[] = {static_cast<double>(j), 1.5, static_cast<double>(i)};
        p.data<float>()[static_cast<size_t>(n)] =
            static_cast<float>(k == 3 ? (i + 2 * j) % 7 != 0 : at[k] + 0.4 * u.at(n) * (k == 1 ? 4 : 1));
      }
  return p;
}

// A pass, as the header has it.
struct Relaxed {
  Doubles points;
};
Relaxed relaxed(const Size& s, const Array& now, const Array& before, const Array& sphere, const Cloth& c) {
  Relaxed out{test::doubles(now)};
  const auto at = [&](const Array& a, int64_t i, int64_t j, int64_t k) { return a.at((i * s.w + j) * 4 + k); };
  for (int64_t i = 0; i < s.h; ++i)
    for (int64_t j = 0; j < s.w; ++j) {
      if (at(now, i, j, 3) == 0) continue;
      double moves[3] = {}, springs = 0, p[3];
      for (int64_t di = -2; di <= 2; ++di)
        for (int64_t dj = -2; dj <= 2; ++dj) {
          const double rest = std::hypot(di, dj);
          const int64_t y = i + di, x = j + dj;
          if (rest == 0 || rest > 2 || y < 0 || y >= s.h || x < 0 || x >= s.w) continue;
          double d[3], length = 0;
          for (int64_t k = 0; k < 3; ++k) d[k] = at(now, y, x, k) - at(now, i, j, k), length += d[k] * d[k];
          length = std::sqrt(length);
          const double strength = rest == 2 ? (length < 2 ? c.bend : 0) : 1;
          for (int64_t k = 0; k < 3; ++k) moves[k] += strength * (1 - rest / length) * d[k] / (1 + at(now, y, x, 3));
          springs += strength;
        }
      for (int64_t k = 0; k < 3; ++k) p[k] = at(now, i, j, k) + c.relaxed * moves[k] / std::max(springs, 1.0);
      const auto out_of = [&](const double(&normal)[3], double deep) {
        if (deep <= 0) return;
        double way[3], away = 0;
        for (int64_t k = 0; k < 3; ++k)
          p[k] += deep * normal[k], way[k] = p[k] - at(before, i, j, k), away += way[k] * normal[k];
        for (int64_t k = 0; k < 3; ++k) p[k] -= c.friction * (way[k] - away * normal[k]);
      };
      double from[3], far = 0;
      for (int64_t k = 0; k < 3; ++k) from[k] = p[k] - sphere.at(k), far += from[k] * from[k];
      far = std::sqrt(far);
      out_of({from[0] / far, from[1] / far, from[2] / far}, sphere.at(3) + c.thick - far);
      out_of({0, 1, 0}, c.floor + c.thick - p[1]);
      for (int64_t k = 0; k < 3; ++k) out.points[static_cast<size_t>((i * s.w + j) * 4 + k)] = p[k];
    }
  return out;
}

}  // namespace

TEST_CASE("cloth_guess: points go on, and fall") {
  const Cloth c;
  for (const Size& s : sizes) {
    CAPTURE(s.h);
    const Array now = points(s, 1), before = points(s, 2);
    Doubles expected = test::doubles(now);
    for (int64_t n = 0; n < s.h * s.w * 4; ++n)
      if (n % 4 != 3 && now.at(n / 4 * 4 + 3) > 0)
        expected[static_cast<size_t>(n)] += c.kept * (now.at(n) - before.at(n)) - (n % 4 == 1 ? c.gravity : 0);
    test::check(cloth_guess(s.h, s.w), {now, before}, {expected});
  }
}

TEST_CASE("cloth_relax: springs, the sphere and the floor") {
  for (const Size& s : sizes) {
    CAPTURE(s.h);
    const Array now = points(s, 1), before = points(s, 3), sphere({4}, std::vector<float>{3, 1, 4, 2.5f});
    test::check(cloth_relax(s.h, s.w), {now, before, sphere}, {relaxed(s, now, before, sphere, {}).points},
                {.absolute = 2e-5, .relative = 1e-5});
  }
}

TEST_CASE("cloth_draw: the nearest part of the cloth, its normal and side") {
  // Flat and level, seen from above: each mesh covers 4 x 4 pixels, the middle of one is where each point falls.
  const int64_t h = 10, w = 35, fine = 4, down = 4 * (h - 1) + 3, across = 4 * (w - 1) - 6;
  Array p({h, w, 4}, f32);
  for (int64_t i = 0; i < h; ++i)
    for (int64_t j = 0; j < w; ++j) {
      const float at[] = {static_cast<float>(j), 2, static_cast<float>(i), 1};
      std::copy(at, at + 4, p.data<float>().begin() + (i * w + j) * 4);
    }
  const Array view({3, 4}, std::vector<float>{4, 0, 0, 0, 0, 0, 4, 0, 0, -0.125f, 0, 0.5f});
  Array before({down, across}, i32);
  Doubles expected;
  for (int64_t y = 0; y < down; ++y)
    for (int64_t x = 0; x < across; ++x) {
      const int32_t was = (x + y) % 11 == 0 ? 5 : cloth::kNothing;
      before.data<int32_t>()[static_cast<size_t>(y * across + x)] = was;
      const int64_t i = y / 4, j = x / 4;
      // x and z of the normal are 0, which 64 stands for; u goes along x and v along z, so it looks up.
      const int32_t drawn = (1 << 13) * 65536 + 64 * 512 + 64 * 4 + ((i / 4 + j / 4) % 2 == 0);
      expected.push_back(i < h - 1 ? std::min(was, drawn) : was);
    }
  test::check(cloth_draw(h, w, down, across, fine), {p, view, before}, {expected}, {.absolute = 0, .relative = 0});
}

TEST_CASE("cloth: what there is none of") {
  CHECK(test::error_of([] { cloth_relax(0, 4, {}, Loc{"flag.cpp", 2}); }) ==
        "cloth_relax: a cloth of (0, 4) points has none\n  at flag.cpp:2");
  CHECK(
      test::error_of([] { cloth_draw(1, 4, 5, 6, 1, Loc{"flag.cpp", 3}); }) ==
      "cloth_draw: a cloth of (1, 4) points, drawn as 1 per mesh in (5, 6): at least 2 points and 1 of all else\n  at "
      "flag.cpp:3");
}

}  // namespace cloth_test
