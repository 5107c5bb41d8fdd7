// samples/kernels/upscale.h: each layer against its definition in double precision, on pictures whose sizes fit no
// tile. tests/samples/upscale_test.cpp has how good the whole is.
#include "samples/kernels/upscale.h"

#include <algorithm>
#include <cmath>

#include "tests/kernels/picture.h"
#include "tests/kernels/support.h"

namespace upscale_test {
using namespace tessera;
using namespace tessera::kernels;
using test::Doubles;
using test::noise;
using test::Picture;
using upscale::Layer;

namespace {

// Of h x w pixels with any number of channels.
struct Features {
  int64_t h, w, channels;
  Doubles v;
  double& at(int64_t y, int64_t x, int64_t c) { return v[static_cast<size_t>((y * w + x) * channels + c)]; }
  double near(int64_t y, int64_t x, int64_t c) const {
    y = std::clamp<int64_t>(y, 0, h - 1), x = std::clamp<int64_t>(x, 0, w - 1);
    return v[static_cast<size_t>((y * w + x) * channels + c)];
  }
  Array array() const {
    Array a({h, w, channels}, f32);
    std::transform(v.begin(), v.end(), a.data<float>().begin(), [](double x) { return static_cast<float>(x); });
    return a;
  }
};

Features luminance(const Picture& p) {
  Features out{p.h, p.w, 1, Doubles(static_cast<size_t>(p.h * p.w))};
  for (int64_t y = 0; y < p.h; ++y)
    for (int64_t x = 0; x < p.w; ++x) out.at(y, x, 0) = p.light(y, x);
  return out;
}
Features convolved(const Features& f, int64_t radius, const Layer& layer, bool kept) {
  const int64_t after = layer.bias.size(), side = 2 * radius + 1;
  Features out{f.h, f.w, after, Doubles(static_cast<size_t>(f.h * f.w * after))};
  for (int64_t y = 0; y < f.h; ++y)
    for (int64_t x = 0; x < f.w; ++x)
      for (int64_t to = 0; to < after; ++to) {
        double sum = layer.bias.at(to);
        for (int64_t t = 0; t < side * side; ++t)
          for (int64_t c = 0; c < f.channels; ++c)
            sum += f.near(y + t / side - radius, x + t % side - radius, c) *
                   layer.weights.at((t * f.channels + c) * after + to);
        out.at(y, x, to) = kept && sum < 0 ? 0.1 * sum : sum;
      }
  return out;
}
double cubic(double x) {  // Catmull and Rom's
  x = std::abs(x);
  return x < 1 ? 1 + x * x * (1.5 * x - 2.5) : x < 2 ? 2 + x * (-4 + x * (2.5 - 0.5 * x)) : 0;
}
Picture enlarged(const Features& lost, const Picture& p) {
  Picture out(2 * p.h, 2 * p.w);
  for (int64_t y = 0; y < out.h; ++y)
    for (int64_t x = 0; x < out.w; ++x)
      for (int64_t c = 0; c < 3; ++c) {
        const double v = (static_cast<double>(y) + 0.5) / 2 - 0.5, u = (static_cast<double>(x) + 0.5) / 2 - 0.5;
        const int64_t top = static_cast<int64_t>(std::floor(v)), left = static_cast<int64_t>(std::floor(u));
        double sum = lost.near(y / 2, x / 2, 2 * (y % 2) + x % 2);
        for (int64_t i = top - 1; i <= top + 2; ++i)
          for (int64_t j = left - 1; j <= left + 2; ++j)
            sum += cubic(v - static_cast<double>(i)) * cubic(u - static_cast<double>(j)) * p.near(i, j, c);
        out.at(y, x, c) = std::clamp(sum, 0.0, 1.0), out.at(y, x, 3) = 1;
      }
  return out;
}

struct Size {
  int64_t h, w;
};
const std::vector<Size> sizes = {{1, 1}, {7, 5}, {9, 33}, {37, 70}};

}  // namespace

TEST_CASE("upscale's layers are convolutions, and its pixels go to their places") {
  const auto layers = upscale::layers();
  for (const Size& s : sizes) {
    CAPTURE(s.h);
    CAPTURE(s.w);
    const test::Check how{.absolute = 1e-5, .relative = 1e-5, .gpu = s.h * s.w < 1000};
    const Picture p = noise(s.h, s.w, 5, 1);
    const Features first = convolved(luminance(p), 2, layers[0], true), second = convolved(first, 1, layers[1], true),
                   last = convolved(second, 1, layers[2], false);
    test::check(upscale_first(), {p.array(), layers[0].weights, layers[0].bias}, {first.v}, how);
    test::check(upscale_second(), {first.array(), layers[1].weights, layers[1].bias}, {second.v}, how);
    test::check(upscale_last(), {second.array(), layers[2].weights, layers[2].bias, p.array()}, {enlarged(last, p).v},
                how);
  }
}

}  // namespace upscale_test
