// samples/kernels/post_processing.h against its definition in double precision, on pictures whose sizes fit no tile.
#include "samples/kernels/post_processing.h"

#include <algorithm>
#include <limits>

#include "tests/kernels/picture.h"
#include "tests/kernels/support.h"

namespace post_processing_test {
using namespace tessera;
using namespace tessera::kernels;
using test::noise;
using test::Picture;

namespace {

// Unit normals of a wavy surface, distances with a step in the middle, and a hole without any surface.
Picture surface(int64_t h, int64_t w) {
  Picture p(h, w);
  for (int64_t y = 0; y < h; ++y)
    for (int64_t x = 0; x < w; ++x) {
      const double a = 0.2 * static_cast<double>(x), b = 0.3 * static_cast<double>(y);
      const double n[3] = {std::sin(a) * std::cos(b), std::sin(b), std::cos(a) * std::cos(b)};
      for (int k = 0; k < 3; ++k) p.at(y, x, k) = static_cast<float>(n[k]);
      p.at(y, x, 3) = static_cast<float>((x > w / 2 ? 9.0 : 5.0) + 0.01 * static_cast<double>(y));
      if ((x - 3) * (x - 3) + (y - 4) * (y - 4) < 5) p.at(y, x, 3) = 0;
    }
  return p;
}

Array size_of(const Picture& p) {
  return {{2}, std::vector<int32_t>{static_cast<int32_t>(p.h), static_cast<int32_t>(p.w)}};
}

// The interpreter, the device and, for the smaller pictures, a GPU's code.
void compare(const PallasCall& call, const std::vector<Array>& arguments, const Picture& expected, double tolerance) {
  test::check(call, arguments, {expected.v},
              {.absolute = tolerance, .relative = tolerance, .gpu = expected.h * expected.w < 2000});
}

Picture denoised(const Picture& p, const Picture& guide, int step, const Denoise& o) {
  constexpr double spline[] = {1.0 / 16, 1.0 / 4, 3.0 / 8, 1.0 / 4, 1.0 / 16};
  Picture out = p;
  for (int64_t y = 0; y < p.h; ++y)
    for (int64_t x = 0; x < p.w; ++x) {
      const double depth = guide.at(y, x, 3);
      if (depth <= 0) continue;
      double weights = 0, sums[3] = {};
      for (int dy = -2; dy <= 2; ++dy)
        for (int dx = -2; dx <= 2; ++dx) {
          const int64_t v = y + dy * step, u = x + dx * step;
          if (!p.has(v, u) || guide.at(v, u, 3) <= 0) continue;
          double cosine = 0;
          for (int k = 0; k < 3; ++k) cosine += guide.at(v, u, k) * guide.at(y, x, k);
          const double unlike = std::abs(p.light(v, u) - p.light(y, x)) / o.color +
                                std::abs(guide.at(v, u, 3) - depth) /
                                    (o.depth * step * std::max(1.0, std::hypot(dy, dx)) * std::max(depth, 1e-6));
          const double weight =
              spline[dy + 2] * spline[dx + 2] * std::exp(-unlike) * std::pow(std::max(cosine, 1e-6), o.normal);
          weights += weight;
          for (int k = 0; k < 3; ++k) sums[k] += weight * p.at(v, u, k);
        }
      for (int k = 0; k < 3; ++k) out.at(y, x, k) = sums[k] / weights;
    }
  return out;
}

Picture halved(const Picture& p, double threshold) {
  Picture out((p.h + 1) / 2, (p.w + 1) / 2);
  for (int64_t y = 0; y < out.h; ++y)
    for (int64_t x = 0; x < out.w; ++x) {
      double weights = 0, sums[3] = {};
      for (int64_t v = 2 * y; v < 2 * y + 2; ++v)
        for (int64_t u = 2 * x; u < 2 * x + 2; ++u) {
          if (!p.has(v, u)) continue;
          const double light = p.light(v, u),
                       kept = threshold > 0 ? std::max(light - threshold, 0.0) / std::max(light, 1e-6) : 1;
          const double weight = threshold > 0 ? 1 / (1 + light * kept) : 1;
          weights += weight;
          for (int k = 0; k < 3; ++k) sums[k] += weight * kept * p.at(v, u, k);
        }
      for (int k = 0; k < 3; ++k) out.at(y, x, k) = sums[k] / weights;
      out.at(y, x, 3) = 1;
    }
  return out;
}

Picture added(const Picture& small, const Picture& large, double strength) {
  Picture out = large;
  for (int64_t y = 0; y < out.h; ++y)
    for (int64_t x = 0; x < out.w; ++x) {
      double weights = 0, sums[3] = {};
      for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 2; ++j) {
          const int64_t v = y / 2 + (i ? (y % 2 ? 1 : -1) : 0), u = x / 2 + (j ? (x % 2 ? 1 : -1) : 0);
          if (!small.has(v, u)) continue;
          const double weight = (i ? 0.25 : 0.75) * (j ? 0.25 : 0.75);
          weights += weight;
          for (int k = 0; k < 3; ++k) sums[k] += weight * small.at(v, u, k);
        }
      for (int k = 0; k < 3; ++k) out.at(y, x, k) += strength * sums[k] / weights;
    }
  return out;
}

Picture toned(const Picture& p, double exposure) {
  Picture out = p;
  for (int64_t y = 0; y < p.h; ++y)
    for (int64_t x = 0; x < p.w; ++x) {
      for (int k = 0; k < 3; ++k) {
        const double v = p.at(y, x, k), e = std::isnan(v) ? 0 : std::clamp(v * exposure, 0.0, 1e4);
        const double c = std::clamp(e * (2.51 * e + 0.03) / (e * (2.43 * e + 0.59) + 0.14), 0.0, 1.0);
        out.at(y, x, k) = c <= 0.0031308 ? 12.92 * c : 1.055 * std::pow(c, 1 / 2.4) - 0.055;
      }
      out.at(y, x, 3) = 1;
    }
  return out;
}

struct Size {
  int64_t h, w;
};
const std::vector<Size> sizes = {{1, 1}, {7, 5}, {33, 66}, {64, 128}, {19, 131}};

}  // namespace

TEST_CASE("limit_light scales down what is too bright") {
  for (const Size& s : sizes) {
    CAPTURE(s.h);
    CAPTURE(s.w);
    const Picture p = noise(s.h, s.w, 7, 9), guide = surface(s.h, s.w);
    Picture limited = p;
    for (int64_t y = 0; y < s.h; ++y)
      for (int64_t x = 0; x < s.w; ++x)
        for (int k = 0; k < 3; ++k) limited.at(y, x, k) *= std::min(1.0, 4 / p.light(y, x));
    test::check(limit_light(4), {p.array(), guide.array()}, {limited.v, guide.v}, {.gpu = s.h * s.w < 2000});
  }
}

TEST_CASE("modulate multiplies light and surface") {
  for (const Size& s : sizes) {
    CAPTURE(s.h);
    CAPTURE(s.w);
    const Picture p = noise(s.h, s.w, 8, 5), surface = noise(s.h, s.w, 9, 1);
    Picture product = p;
    for (size_t i = 0; i < p.v.size(); ++i) product.v[i] *= i % 4 == 3 ? 1 : surface.v[i];
    test::check(modulate(), {p.array(), surface.array()}, {product.v}, {.gpu = s.h * s.w < 2000});
  }
}

TEST_CASE("denoise smooths what belongs together") {
  for (const int step : {1, 2, 4}) {
    const PallasCall call = denoise(step);
    for (const Size& s : sizes) {
      const int64_t h = s.h, w = s.w;
      CAPTURE(h);
      CAPTURE(w);
      CAPTURE(step);
      Picture p = noise(h, w, 1, 4), guide = surface(h, w);
      // Rounding of the exponent 64 log2(cosine) by f32 moves a weight by a few 1e-5.
      compare(call, {size_of(p), p.array(), guide.array()}, denoised(p, guide, step, {}), 1e-4);
    }
  }
  CHECK(test::error_of([] { denoise(0, {}, {"main.cpp", 7}); }) ==
        "denoise: step is 0, not positive\n  at main.cpp:7\n  note: give 1, 2, 4, ... to the passes one after another");
}

TEST_CASE("bloom: halved and added at twice the size") {
  for (const Size& s : sizes) {
    const int64_t h = s.h, w = s.w;
    CAPTURE(h);
    CAPTURE(w);
    const Picture p = noise(h, w, 2, 3);
    for (const double threshold : {0.0, 1.0}) {
      compare(bloom_down(threshold), {size_of(p), p.array()}, halved(p, threshold), 4e-6);
    }
    const Picture small = noise((h + 1) / 2, (w + 1) / 2, 3, 1);
    compare(bloom_up(0.6), {size_of(small), small.array(), p.array()}, added(small, p, 0.6), 4e-6);
  }
}

TEST_CASE("tone_map: from nothing to far too bright") {
  for (const Size& s : sizes) {
    const int64_t h = s.h, w = s.w;
    CAPTURE(h);
    CAPTURE(w);
    Picture p = noise(h, w, 4, 2);
    p.at(0, 0, 0) = std::numeric_limits<double>::quiet_NaN();
    p.at(0, 0, 1) = std::numeric_limits<double>::infinity();
    p.at(h - 1, w - 1, 2) = -1;
    compare(tone_map(1.5), {p.array()}, toned(p, 1.5), 4e-6);
  }
}

TEST_CASE("post-processing: errors name the line that asked") {
  const Loc loc{"main.cpp", 7};
  const Array flat({8, 8}, f32), picture({8, 8, 4}, f32), size({2}, std::vector<int32_t>{8, 8});
  const auto error = [](const PallasCall& call, const std::vector<Array>& arguments) {
    return test::error_of([&] { interpret(call, arguments); });
  };
  const auto wrong = [](const std::string& name, int argument) {
    const std::string n = std::to_string(argument);
    return name + ": argument " + n + " is f32(8, 8) but in_shape[" + n + "] is f32(h, w, 4)\n  at main.cpp:7";
  };
  CHECK(error(limit_light(1, loc), {flat, picture}) == wrong("limit_light", 0));
  CHECK(error(modulate(loc), {flat, picture}) == wrong("modulate", 0));
  CHECK(error(denoise(1, {}, loc), {size, flat, picture}) == wrong("denoise_1", 1));
  CHECK(error(bloom_down(1, loc), {size, flat}) == wrong("bloom_bright", 1));
  CHECK(error(bloom_up(1, loc), {size, picture, flat}) == wrong("bloom_up", 2));
  CHECK(error(tone_map(1, loc), {flat}) == wrong("tone_map", 0));
}

}  // namespace post_processing_test
