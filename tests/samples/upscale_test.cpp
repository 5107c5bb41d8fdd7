// What samples/kernels/upscale.h makes of pictures that its network was not trained on, compared with interpolation.
// tests/kernels/upscale_test.cpp compares its layers with their definition.
#include "samples/kernels/upscale.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "samples/support/picture.h"
#include "tests/kernels/picture.h"

namespace upscale_test {
using namespace tessera;
using namespace tessera::kernels;
using test::Picture;

namespace {

/// The picture at half its size, from a PNG of the samples; both even.
struct Pair {
  Picture large, small;
};
Pair halved(const std::string& name) {
  const Array png = sample::read_png(std::string(TESSERA_SAMPLES_DIR) + "/" + name);
  const int64_t h = png.shape()[1] / 2, w = png.shape()[2] / 2;
  Pair p{Picture(2 * h, 2 * w), Picture(h, w)};
  for (int64_t y = 0; y < 2 * h; ++y)
    for (int64_t x = 0; x < 2 * w; ++x)
      for (int64_t c = 0; c < 3; ++c) {
        p.large.at(y, x, c) = png.at((c * png.shape()[1] + y) * png.shape()[2] + x);
        p.small.at(y / 2, x / 2, c) += p.large.at(y, x, c) / 4;
      }
  return p;
}
/// By a filter of `reach` small pixels to each side, separately along columns and rows.
Picture interpolated(const Picture& p, int64_t reach, double (*filter)(double)) {
  Picture out(2 * p.h, 2 * p.w);
  for (int64_t y = 0; y < out.h; ++y)
    for (int64_t x = 0; x < out.w; ++x) {
      const double v = (static_cast<double>(y) + 0.5) / 2 - 0.5, u = (static_cast<double>(x) + 0.5) / 2 - 0.5;
      const int64_t top = static_cast<int64_t>(std::floor(v)), left = static_cast<int64_t>(std::floor(u));
      double weights = 0, sums[3] = {};
      for (int64_t i = top - reach + 1; i <= top + reach; ++i)
        for (int64_t j = left - reach + 1; j <= left + reach; ++j) {
          const double weight = filter(v - static_cast<double>(i)) * filter(u - static_cast<double>(j));
          weights += weight;
          for (int c = 0; c < 3; ++c) sums[c] += weight * p.near(i, j, c);
        }
      for (int c = 0; c < 3; ++c) out.at(y, x, c) = std::clamp(sums[c] / weights, 0.0, 1.0);
    }
  return out;
}
double cubic(double x) {  // Catmull and Rom's
  x = std::abs(x);
  return x < 1 ? 1 + x * x * (1.5 * x - 2.5) : x < 2 ? 2 + x * (-4 + x * (2.5 - 0.5 * x)) : 0;
}
double lanczos(double x) {  // of three lobes
  const double a = 3.14159265358979 * x;
  return x == 0 ? 1 : std::abs(x) < 3 ? 3 * std::sin(a) * std::sin(a / 3) / (a * a) : 0;
}
/// The peak's square over the mean of the squares of the differences, in decibels.
double decibels(const Picture& a, const Picture& b) {
  double sum = 0;
  for (int64_t y = 0; y < a.h; ++y)
    for (int64_t x = 0; x < a.w; ++x)
      for (int c = 0; c < 3; ++c) sum += std::pow(a.at(y, x, c) - b.at(y, x, c), 2);
  return -10 * std::log10(sum / static_cast<double>(3 * a.h * a.w));
}

}  // namespace

TEST_CASE("upscale restores edges of pictures that it has not seen better than interpolation does") {
  const auto layers = upscale::layers();
  // By how many decibels at least. Noise can be guessed by nobody, and what is smooth is best interpolated.
  struct Case {
    std::string name;
    double above_cubic, above_lanczos;
  };
  for (const Case& c : {Case{"ray_march.png", 1.9, 1.7},
                        {"qt.png", 1.5, 1.4},
                        {"renderer_hall.png", 1.1, 0.8},
                        {"path_trace.png", 0.6, 0.5},  // noisy
                        {"mandelbrot.png", 0, -0.2},   // almost noise, and in colours: the network sees luminance
                        {"gray_scott.png", -3.2, -4.5}}) {
    const auto [large, small] = halved(c.name);
    const Array half = small.array(), first = upscale_first()(half, layers[0].weights, layers[0].bias),
                second = upscale_second()(first, layers[1].weights, layers[1].bias),
                result = upscale_last()(second, layers[2].weights, layers[2].bias, half);
    Picture got(large.h, large.w);
    for (int64_t i = 0; i < result.size(); ++i) got.v[static_cast<size_t>(i)] = result.at(i);
    const double ours = decibels(got, large), by_cubic = decibels(interpolated(small, 2, cubic), large),
                 by_lanczos = decibels(interpolated(small, 3, lanczos), large);
    INFO(c.name << ": " << ours << " dB, cubic " << by_cubic << " dB, Lanczos " << by_lanczos << " dB");
    CHECK(ours > by_cubic + c.above_cubic);
    CHECK(ours > by_lanczos + c.above_lanczos);
  }
}

}  // namespace upscale_test
