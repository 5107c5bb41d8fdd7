// A room with a lamp, by the paths that light may have taken: path_trace [-o FILE] [--size WxH] [--frames N]
// [--window]. A frame is a graph of block kernels (kernels/path_tracing.h) under jit: paths, the history of each pixel
// by where the camera before saw its surface, and what a screen shows. The first picture is of many frames from one
// place; then the camera goes round, and what it sees is kept.
#include <algorithm>
#include <cmath>
#include <tessera/tessera.hpp>

#include "samples/kernels/path_tracing.h"
#include "samples/support/demo.h"

namespace ts = tessera;
using ts::Tensor;

constexpr int spheres = 4, samples = 2, bounces = 6, passes = 3;  // passes: frames from picture to picture

ts::Array scene() {
  return ts::Array({8 + spheres, 8},
                   std::vector<float>{0.78f,  0.20f, 0.12f,  0,     0,     0,     0,     0,     0.14f,
                                      0.36f,  0.62f, 0,      0,     0,     0,     0,  // left and right
                                      0.70f,  0.68f, 0.64f,  0,     0,     0,     0,     0,     0.76f,
                                      0.75f,  0.72f, 0,      0,     0,     0,     0,  // floor and ceiling
                                      0.70f,  0.68f, 0.64f,  0,     0,     0,     0,     0,     0.76f,
                                      0.74f,  0.70f, 0,      0,     0,     0,     0,  // behind the eye, and before it
                                      -1,     0,     -2.2f,  1,     2,     1,     0,     0,      // the room
                                      -0.42f, 0.42f, -0.32f, 0.42f, 9,     1,     0,     0,      // the lamp
                                      -0.44f, 0.45f, 0.42f,  0.45f, 0.94f, 0.93f, 0.90f, 1,      // a mirror
                                      0.42f,  0.36f, -0.12f, 0.36f, 0.97f, 0.99f, 0.98f, -1.5f,  // glass
                                      -0.50f, 0.20f, -0.42f, 0.20f, 0.92f, 0.66f, 0.24f, 1.25f,  // brushed gold
                                      -0.06f, 0.15f, -0.56f, 0.15f, 0.30f, 0.62f, 0.36f, 0});    // chalk
}

/// The camera of a picture of h x w pixels, which are squares.
std::vector<float> camera(double turn, int64_t h, int64_t w) {
  std::vector<float> c = ts::kernels::look({0.5 * std::sin(turn), 1.0 + 0.15 * std::sin(2 * turn), -2.1},
                                           {0.05 * std::sin(turn), 0.74, 0.2}, 0.56);
  const float side = static_cast<float>(std::min(h, w));
  for (size_t i = 0; i < 3; ++i) c[3 + i] *= static_cast<float>(w) / side, c[6 + i] *= static_cast<float>(h) / side;
  return c;
}

/// (cameras, scene, frame, longest, history, surface before) -> history, surface, and a picture [3, h, w]: exposed,
/// with the rational fit of the ACES curve (Narkowicz, 2015).
auto make_frame(int64_t h, int64_t w) {
  return ts::jit(
      [trace = ts::kernels::path_trace(h, w, {.spheres = spheres, .samples = samples, .bounces = bounces, .most = 8}),
       accumulate = ts::kernels::path_accumulate(h, w), h,
       w](Tensor cameras, Tensor room, Tensor frame, Tensor longest, Tensor history, Tensor before) {
        const ts::Results traced = trace(ts::reshape(ts::slice(cameras, {0, 0}, {1, 12}), {12}), room, frame);
        const Tensor kept = accumulate(cameras, longest, traced[0], traced[1], history, before);
        const Tensor seen = 0.8f * ts::slice(kept, {0, 0, 0}, {3, h, w}),
                     curve = seen * (2.51f * seen + 0.03f) / (seen * (2.43f * seen + 0.59f) + 0.14f);
        return std::tuple{kept, traced[1], Tensor(ts::pow(ts::clamp(1e-6f, curve, 1.0f), 1 / 2.2f))};
      },
      {.name = "path_trace"});
}

/// What goes from frame to frame: on a device, or by the interpreter.
class Film {
 public:
  Film(int64_t h, int64_t w, bool interpreted = false)
      : interpreted_(interpreted),
        h_(h),
        w_(w),
        frame_(make_frame(h, w)),
        history_({4, h, w}, ts::f32),
        surface_({5, h, w}, ts::f32) {}
  ts::Array expose(double turn) {
    const std::vector<float> now = camera(turn, h_, w_);
    std::vector<float> both = now;
    both.insert(both.end(), before_.empty() ? now.begin() : before_.begin(),
                before_.empty() ? now.end() : before_.end());
    before_ = now;
    // What is seen in a mirror moves otherwise than the mirror does, so while the camera moves, little of that is kept.
    const bool still = std::equal(now.begin(), now.end(), both.begin() + 12);
    const ts::Array cameras({2, 12}, both), number({2}, std::vector<uint32_t>{number_++, 1}),
        longest({2}, std::vector<float>{1000, still ? 1000.0f : 10.0f});
    const auto next = interpreted_ ? ts::interpret(frame_, cameras, scene(), number, longest, history_, surface_)
                                   : frame_(cameras, scene(), number, longest, history_, surface_);
    history_ = next[0], surface_ = next[1];
    return next[2];
  }

 private:
  bool interpreted_;
  int64_t h_, w_;
  decltype(make_frame(1, 1)) frame_;
  ts::Array history_, surface_;
  std::vector<float> before_;
  uint32_t number_ = 0;
};

int main(int argc, char** argv) try {
  const sample::Demo demo =
      sample::demo_options(argc, argv, {"path_trace", "A room with a lamp, by path tracing.", 160, 160, 16});
  Film film(demo.height, demo.width);
  const double step = 6.2831853 / static_cast<double>(demo.frames);
  sample::Player player(demo);
  while (player.more()) {
    ts::Array picture;
    if (const int64_t f = player.frame(); f == 0)
      for (int64_t i = 0; i < std::max<int64_t>(std::min(demo.height, demo.width) / 2, 1); ++i)
        picture = film.expose(0);
    else
      for (int i = 0; i < passes; ++i) picture = film.expose(step * (static_cast<double>(f - 1) + (i + 1.0) / passes));
    player.show(picture);
  }
  player.finish();
  // The same on a small picture, by the interpreter and by the device: five frames, the camera moving. Where rounding
  // decides what a path meets, colours differ; of how many pixels, is compared.
  const int64_t h = 24, w = 29, plane = h * w;
  Film here(h, w), there(h, w, true);
  ts::Array got, wanted;
  for (int i = 0; i < 5; ++i) got = here.expose(0.02 * i), wanted = there.expose(0.02 * i);
  float others = 0;
  for (int64_t p = 0; p < plane; ++p) {
    double off = 0;
    for (int64_t c = 0; c < 3; ++c)
      off = std::max(
          off, std::isnan(got.at(c * plane + p)) ? 1 : std::fabs(got.at(c * plane + p) - wanted.at(c * plane + p)));
    others += off > 1e-3 ? 1 : 0;
  }
  return sample::check(
      "path_trace", ts::Array({1}, std::vector<float>{others / static_cast<float>(plane)}), [](int64_t) { return 0.0; },
      0.02);
} catch (const std::exception& e) {
  return sample::fail("path_trace", e);
}
