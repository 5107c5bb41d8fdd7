// samples/kernels/temporal.h against its definition in double precision, on pictures whose sizes fit no tile.
#include "samples/kernels/temporal.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/kernels/picture.h"
#include "tests/kernels/support.h"

namespace temporal_test {
using namespace tessera;
using namespace tessera::kernels;
using test::noise;
using test::Picture;

namespace {

double luminance(const double* c) { return 0.2126 * c[0] + 0.7152 * c[1] + 0.0722 * c[2]; }

// A wavy surface with a step in the middle, and a hole without any.
Picture surface(int64_t h, int64_t w, double shift = 0) {
  Picture p(h, w);
  for (int64_t y = 0; y < h; ++y)
    for (int64_t x = 0; x < w; ++x) {
      const double a = 0.05 * (static_cast<double>(x) + shift), b = 0.07 * static_cast<double>(y);
      const double n[3] = {std::sin(a) * std::cos(b), std::sin(b), std::cos(a) * std::cos(b)};
      for (int k = 0; k < 3; ++k) p.at(y, x, k) = static_cast<float>(n[k]);
      p.at(y, x, 3) =
          static_cast<float>((static_cast<double>(x) + shift > 30.0 ? 9.0 : 5.0) + 0.01 * static_cast<double>(y));
      if ((x - 3) * (x - 3) + (y - 4) * (y - 4) < 5) p.at(y, x, 3) = 0;
    }
  return p;
}
// Small motions in steps of 1/256, and some far beyond the picture or no numbers; distances like those of the guide.
Picture motions(int64_t h, int64_t w, const Picture& guide) {
  Picture p = noise(h, w, 11, 1);
  for (int64_t y = 0; y < h; ++y)
    for (int64_t x = 0; x < w; ++x) {
      for (int k = 0; k < 2; ++k) p.at(y, x, k) = std::floor((p.at(y, x, k) - 0.5) * 5 * 256) / 256;
      if (x % 17 == 5) p.at(y, x, 0) = -1e9;
      if (x % 17 == 6) p.at(y, x, 1) = std::numeric_limits<double>::infinity();
      if (x % 17 == 7) p.at(y, x, 0) = std::numeric_limits<double>::quiet_NaN();
      p.at(y, x, 2) = static_cast<float>(guide.at(y, x, 3) * (x % 5 == 0 ? 1.1 : 1.001));
      p.at(y, x, 3) = static_cast<float>(0.02 + 0.03 * p.at(y, x, 3));
    }
  return p;
}

double place(double at, int64_t size) {
  const double v = std::isnan(at) ? -2 : std::clamp(at, -2.0, static_cast<double>(size) + 1);
  return std::floor(v * 256 + 0.5) / 256;
}

struct Accumulated {
  Picture picture, state;
};
Accumulated accumulated(const Picture& light, const Picture& guide, const Picture& motion, const Picture& history,
                        const Picture& state, const Picture& before, bool kept, const Accumulate& o) {
  Accumulated out{Picture(light.h, light.w), Picture(light.h, light.w)};
  for (int64_t y = 0; y < light.h; ++y)
    for (int64_t x = 0; x < light.w; ++x) {
      const double px = place(static_cast<double>(x) + motion.at(y, x, 0), light.w),
                   py = place(static_cast<double>(y) + motion.at(y, x, 1), light.h);
      double weights = 0, sums[6] = {};
      for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 2; ++j) {
          const int64_t r = static_cast<int64_t>(std::floor(py)) + i, c = static_cast<int64_t>(std::floor(px)) + j;
          if (!kept || r < 0 || r >= light.h || c < 0 || c >= light.w || before.at(r, c, 3) <= 0) continue;
          double cosine = 0;
          for (int k = 0; k < 3; ++k) cosine += before.at(r, c, k) * guide.at(y, x, k);
          const double expected = motion.at(y, x, 2);
          if (cosine <= o.normal || !(std::abs(before.at(r, c, 3) - expected) < o.depth * expected)) continue;
          const double dy = py - std::floor(py), dx = px - std::floor(px),
                       weight = (i ? dy : 1 - dy) * (j ? dx : 1 - dx);
          weights += weight;
          for (int k = 0; k < 6; ++k) sums[k] += weight * (k < 3 ? history.at(r, c, k) : state.at(r, c, k - 3));
        }
      const bool found = weights > 1e-3 && guide.at(y, x, 3) > 0;
      const double frames = found ? std::min(sums[5] / weights, o.longest - 1) + 1 : 1;
      const double* l = &light.v[static_cast<size_t>((y * light.w + x) * 4)];
      const double bright = luminance(l), scale = std::min(1.0, o.most / std::max(bright, 1e-6)), seen = bright * scale;
      const auto mean = [&](int k, double now) {
        const double then = found ? sums[k] / weights : now;
        return then + (now - then) / frames;
      };
      for (int k = 0; k < 3; ++k) out.picture.at(y, x, k) = mean(k, l[k] * scale);
      const double first = mean(3, seen), second = mean(4, seen * seen), young = std::clamp((5 - frames) / 4, 0.0, 1.0);
      out.picture.at(y, x, 3) = std::max(std::max(second - first * first, 0.0), young * first * first);
      const double numbers[] = {first, second, frames, motion.at(y, x, 3)};
      for (int k = 0; k < 4; ++k) out.state.at(y, x, k) = numbers[k];
    }
  return out;
}

Picture smoothed(const Picture& p, const Picture& guide, const Picture& state, int step, const Smooth& o) {
  constexpr double tap[] = {0.25, 0.5, 0.25};
  Picture out = p;
  const auto light = [&](int64_t y, int64_t x) {
    const double c[] = {p.near(y, x, 0), p.near(y, x, 1), p.near(y, x, 2)};
    return luminance(c);
  };
  for (int64_t y = 0; y < p.h; ++y)
    for (int64_t x = 0; x < p.w; ++x) {
      const double distance = guide.at(y, x, 3);
      if (distance <= 0) continue;
      double variance = 0, weights = 0, sums[4] = {};
      for (int dy = -1; dy <= 1; ++dy)
        for (int dx = -1; dx <= 1; ++dx) variance += tap[dy + 1] * tap[dx + 1] * p.near(y + dy, x + dx, 3);
      for (int dy = -1; dy <= 1; ++dy)
        for (int dx = -1; dx <= 1; ++dx) {
          const int64_t v = y + dy * step, u = x + dx * step;
          const double there = guide.near(v, u, 3);
          if (there <= 0) continue;
          double cosine = 0;
          for (int k = 0; k < 3; ++k) cosine += guide.near(v, u, k) * guide.at(y, x, k);
          const double unlike =
              std::abs(light(v, u) - light(y, x)) / (o.color * std::sqrt(variance) + o.least) +
              std::abs(there - distance) / (o.depth * step * state.at(y, x, 3) + 1e-3 * distance + 1e-6);
          const double weight =
              tap[dy + 1] * tap[dx + 1] * std::pow(std::clamp(cosine, 1e-6, 1.0), o.normal) * std::exp(-unlike);
          weights += weight;
          for (int k = 0; k < 3; ++k) sums[k] += weight * p.near(v, u, k);
          sums[3] += weight * weight * p.near(v, u, 3);
        }
      for (int k = 0; k < 4; ++k) out.at(y, x, k) = sums[k] / (k < 3 ? weights : weights * weights);
    }
  return out;
}

Picture resolved(const Picture& p, const Picture& motion, const Picture& history, bool kept, double old,
                 double deviations) {
  Picture out(p.h, p.w);
  const auto compressed = [](std::array<double, 3> c) {
    const double by = 1 / (1 + luminance(c.data()));
    return std::array<double, 3>{c[0] * by, c[1] * by, c[2] * by};
  };
  const auto spline = [](double t, int i) {
    const double d = std::abs(t - (i - 1));
    return d < 1 ? 1 + d * d * (1.5 * d - 2.5) : d < 2 ? 2 + d * (-4 + d * (2.5 - 0.5 * d)) : 0;
  };
  for (int64_t y = 0; y < p.h; ++y)
    for (int64_t x = 0; x < p.w; ++x) {
      const auto pixel = [&](int64_t v, int64_t u) {
        return compressed({p.near(v, u, 0), p.near(v, u, 1), p.near(v, u, 2)});
      };
      double first[3] = {}, second[3] = {};
      for (int64_t v = y - 1; v <= y + 1; ++v)
        for (int64_t u = x - 1; u <= x + 1; ++u)
          for (size_t k = 0; k < 3; ++k) first[k] += pixel(v, u)[k] / 9, second[k] += std::pow(pixel(v, u)[k], 2) / 9;
      const double px = place(static_cast<double>(x) + motion.at(y, x, 0), p.w),
                   py = place(static_cast<double>(y) + motion.at(y, x, 1), p.h);
      std::array<double, 3> sums = {};
      for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 4; ++j)
          for (size_t k = 0; k < 3; ++k)
            sums[k] += spline(py - std::floor(py), i) * spline(px - std::floor(px), j) *
                       history.near(static_cast<int64_t>(std::floor(py)) + i - 1,
                                    static_cast<int64_t>(std::floor(px)) + j - 1, static_cast<int64_t>(k));
      for (double& s : sums) s = std::max(s, 0.0);
      const bool inside =
          px >= 0 && py >= 0 && px <= static_cast<double>(p.w - 1) && py <= static_cast<double>(p.h - 1);
      const std::array<double, 3> now = pixel(y, x), then = compressed(sums);
      std::array<double, 3> mixed = {};
      for (size_t k = 0; k < 3; ++k) {
        const double wide = deviations * std::sqrt(std::max(second[k] - first[k] * first[k], 0.0));
        mixed[k] =
            now[k] + (inside && kept ? old : 0) * (std::clamp(then[k], first[k] - wide, first[k] + wide) - now[k]);
      }
      for (size_t k = 0; k < 3; ++k)
        out.at(y, x, static_cast<int64_t>(k)) = std::max(mixed[k] / std::max(1 - luminance(mixed.data()), 1e-3), 0.0);
      out.at(y, x, 3) = 1;
    }
  return out;
}

struct Size {
  int64_t h, w;
};
const std::vector<Size> sizes = {{1, 1}, {7, 5}, {33, 66}, {217, 333}};
bool small(const Size& s) { return s.h * s.w < 2000; }
Array number(float v) { return Array({}, std::vector<float>{v}); }

}  // namespace

TEST_CASE("temporal_accumulate: light, its variance and the number of frames follow the surfaces") {
  for (const Size& s : sizes) {
    CAPTURE(s.h);
    CAPTURE(s.w);
    Picture light = noise(s.h, s.w, 1, 4), state = noise(s.h, s.w, 2, 40);
    const Picture guide = surface(s.h, s.w), before = surface(s.h, s.w, 1.5), motion = motions(s.h, s.w, guide),
                  history = noise(s.h, s.w, 3, 4);
    light.at(s.h / 2, s.w / 2, 1) = 1e6;  // no single pixel outshines the others
    for (const bool kept : {false, true}) {
      CAPTURE(kept);
      const Accumulated a = accumulated(light, guide, motion, history, state, before, kept, {});
      // What remains of second - first * first has the roundings of numbers up to 40 * 40.
      test::check(temporal_accumulate(s.h, s.w),
                  {light.array(), guide.array(), motion.array(), history.array(), state.array(), before.array(),
                   number(kept ? 1 : 0)},
                  {a.picture.v, a.state.v, guide.v}, {.absolute = 5e-4, .relative = 1e-5, .gpu = small(s)});
    }
  }
}

TEST_CASE("temporal_smooth: as far as the variance says, on one surface") {
  for (const Size& s : sizes)
    for (const int step : {1, 2, 16}) {
      if (step == 2 && !small(s)) continue;
      CAPTURE(s.h);
      CAPTURE(s.w);
      CAPTURE(step);
      const Picture p = noise(s.h, s.w, 4, 2), guide = surface(s.h, s.w), state = motions(s.h, s.w, guide);
      // Rounding of the exponent 64 log2(cosine) by f32 moves a weight by a few 1e-5.
      test::check(temporal_smooth(step), {p.array(), guide.array(), state.array()},
                  {smoothed(p, guide, state, step, {}).v}, {.absolute = 1e-4, .relative = 1e-4, .gpu = small(s)});
    }
  CHECK(test::error_of([] { temporal_smooth(0, {}, {"main.cpp", 7}); }) ==
        "temporal_smooth: step is 0, not positive\n  at main.cpp:7\n  note: give 1, 2, 4, ... to the passes one after "
        "another");
}

TEST_CASE("temporal_compose: light by the surface's colour, and what it mirrors") {
  for (const Size& s : sizes) {
    const Picture light = noise(s.h, s.w, 5, 3), gloss = noise(s.h, s.w, 6, 1), colour = noise(s.h, s.w, 7, 1);
    Picture expected = light;
    for (size_t i = 0; i < light.v.size(); ++i) expected.v[i] = i % 4 == 3 ? 1 : light.v[i] * colour.v[i] + gloss.v[i];
    test::check(temporal_compose(), {light.array(), gloss.array(), colour.array()}, {expected.v}, {.gpu = small(s)});
  }
}

TEST_CASE("temporal_resolve: the history, within what the pixels around are") {
  for (const Size& s : sizes) {
    CAPTURE(s.h);
    CAPTURE(s.w);
    const Picture p = noise(s.h, s.w, 8, 3), motion = motions(s.h, s.w, surface(s.h, s.w));
    Picture history = noise(s.h, s.w, 9, 3);
    for (const bool kept : {false, true})
      // Compressed colours near 1 are expanded again, by up to 4 times as much as their luminance leaves to 1.
      test::check(temporal_resolve(s.h, s.w), {p.array(), motion.array(), history.array(), number(kept ? 1 : 0)},
                  {resolved(p, motion, history, kept, 0.9, 1.25).v},
                  {.absolute = 2e-5, .relative = 2e-5, .gpu = small(s)});
  }
}

TEST_CASE("temporal kernels: errors name the line that asked") {
  const Loc loc{"main.cpp", 7};
  CHECK(test::error_of([&] { temporal_accumulate(0, 5, {}, loc); }) ==
        "temporal_accumulate: a picture of 0 x 5 pixels has none\n  at main.cpp:7");
  CHECK(test::error_of([&] { temporal_resolve(3, -1, 0.9, 1.25, loc); }) ==
        "temporal_resolve: a picture of 3 x -1 pixels has none\n  at main.cpp:7");
}

}  // namespace temporal_test
