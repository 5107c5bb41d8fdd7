// Soft bodies that fall, bounce and squeeze each other: jelly [-o FILE] [--size WxH] [--frames N] [--window]. Particles
// that carry their deformation move over a grid (kernels/mpm.h); the steps from frame to frame are one graph, and so is
// the picture, the light of the particles (kernels/n_body.h) with a glow (kernels/post_processing.h).
#include <algorithm>
#include <cmath>
#include <tessera/tessera.hpp>

#include "samples/kernels/mpm.h"
#include "samples/kernels/n_body.h"
#include "samples/kernels/post_processing.h"
#include "samples/support/demo.h"
#include "samples/support/picture.h"

namespace ts = tessera;
namespace k = ts::kernels;
using ts::Tensor, ts::Value;

constexpr int64_t cell = 4;  // pixels

struct Bodies {
  ts::Array particles, light;
};
/// A disc, a ring, a square that turns, and a bar, nine particles in each cell, over a grid of h x w cells.
Bodies bodies(int64_t h, int64_t w) {
  const double size = static_cast<double>(std::min(h, w)), middle = 0.5 * static_cast<double>(w);
  struct Kind {
    double x, y, radius, spin, light[3];
  };
  const Kind kinds[] = {{middle - 0.42 * size, 0.30 * size, 0.20, 0.0, {1.0, 0.22, 0.18}},
                        {middle + 0.05 * size, 0.24 * size, 0.18, 0.6, {0.20, 0.85, 0.35}},
                        {middle + 0.45 * size, 0.30 * size, 0.19, -0.4, {0.25, 0.45, 1.0}},
                        {middle - 0.02 * size, 0.72 * size, 0.16, 0.0, {1.0, 0.70, 0.15}}};
  std::vector<std::array<double, 7>> all;  // place, velocity, light
  for (int kind = 0; kind < 4; ++kind) {
    const Kind& b = kinds[kind];
    const double r = b.radius * size;
    for (double y = -r + 1.0 / 6; y < r; y += 1.0 / 3)
      for (double x = -r + 1.0 / 6; x < r; x += 1.0 / 3) {
        const double away = std::hypot(x, y) / r, turn = 0.5;
        const double u = std::cos(turn) * x + std::sin(turn) * y, v = std::cos(turn) * y - std::sin(turn) * x;
        const bool in = kind == 0   ? away < 1
                        : kind == 1 ? away < 1 && away > 0.5
                        : kind == 2 ? std::fabs(u) < 0.68 * r && std::fabs(v) < 0.68 * r
                                    : std::fabs(y) < 0.35 * r;
        // Stripes, which show how the body is bent.
        const double stripe =
            (static_cast<int>(std::floor(x / 3)) + static_cast<int>(std::floor(y / 3))) % 2 ? 0.28 : 0.75;
        if (in)
          all.push_back({b.x + x, b.y + y, -b.spin * 0.1 * y / r, b.spin * 0.1 * x / r, stripe * b.light[0],
                         stripe * b.light[1], stripe * b.light[2]});
      }
  }
  const int64_t n = static_cast<int64_t>(all.size());
  Bodies out{ts::Array({12, n}, ts::f32), ts::Array({3, n}, ts::f32)};
  for (int64_t i = 0; i < n; ++i) {
    const auto& p = all[static_cast<size_t>(i)];
    for (int64_t d = 0; d < 4; ++d)
      out.particles.data<float>()[static_cast<size_t>(d * n + i)] = static_cast<float>(p[static_cast<size_t>(d)]);
    for (const int64_t d : {8, 11}) out.particles.data<float>()[static_cast<size_t>(d * n + i)] = 1;
    for (int64_t c = 0; c < 3; ++c)
      out.light.data<float>()[static_cast<size_t>(c * n + i)] = static_cast<float>(p[static_cast<size_t>(4 + c)]);
  }
  return out;
}

/// particles -> particles, so many steps later.
auto make_advance(int64_t n, int64_t h, int64_t w, int64_t count) {
  return ts::jit(
      [scatter = k::mpm_scatter(n, h, w), move = k::mpm_move(h, w), gather = k::mpm_gather(n, h, w), h, w,
       count](Tensor particles) {
        return ts::fori_loop(0, count, particles, [&](Tensor, Tensor p) -> Tensor {
          const Tensor grid = scatter(p, ts::zeros({h, w, 3}, ts::i32));
          return gather(p, Tensor(move(grid)));
        });
      },
      {.name = "jelly"});
}

/// (particles, light, view) -> f32 [h, w, 4], what a screen shows.
auto make_draw(int64_t n, int64_t h, int64_t w) {
  return ts::jit(
      [draw = k::n_body_draw(n, h, w), down = k::bloom_down(0), up = k::bloom_up(0.35), show = k::tone_map(1.2), h, w,
       n](Tensor particles, Tensor light, Tensor view) {
        const Tensor flat = ts::slice(particles, {0, 0}, {4, n});  // what n_body_draw takes for z, view leaves out
        Tensor sums = draw(flat, light, view, ts::zeros({h, w, 3}, ts::i32));
        const Tensor picture = ts::concatenate(
            {ts::cast(sums, ts::f32) * static_cast<float>(1 / k::kLight) + 0.003f, ts::ones({h, w, 1})}, 2);
        const auto size = [](int64_t rows, int64_t columns) -> Tensor {
          return ts::asarray(
              ts::Array({2}, std::vector<int32_t>{static_cast<int32_t>(rows), static_cast<int32_t>(columns)}));
        };
        const Tensor half = down(size(h, w), picture);
        return Tensor(show(Tensor(up(size(ts::cdiv(h, 2), ts::cdiv(w, 2)), half, picture))));
      },
      {.name = "jelly_picture"});
}

ts::Array view() {
  const float c = cell;
  return ts::Array({2, 4}, std::vector<float>{c, 0, 0, 0, 0, c, 0, 0});
}
/// With a grid of 16 cells at least, also for the smallest pictures.
int64_t cells(int64_t pixels) { return std::max<int64_t>(ts::cdiv(pixels, cell), 16); }

int main(int argc, char** argv) try {
  const sample::Demo demo =
      sample::demo_options(argc, argv, {"jelly", "Soft bodies fall, bounce and squeeze each other.", 256, 144, 16});
  const int64_t h = cells(demo.height), w = cells(demo.width);
  const Bodies all = bodies(h, w);
  const int64_t n = all.light.shape()[1];
  // From frame to frame as many steps as make a fall through pictures of any size take as many frames.
  const int64_t steps = std::lround(40 * std::sqrt(static_cast<double>(std::min(h, w)) / 36));
  const auto advance = make_advance(n, h, w, steps);
  const auto draw = make_draw(n, demo.height, demo.width);
  ts::Array particles = all.particles;
  sample::Player player(demo);
  while (player.more()) {
    player.show(sample::planes(draw(particles, all.light, view())));
    particles = advance(particles);
  }
  player.finish();
  // The same graphs for a few particles, by the interpreter and by the device, after steps in which they meet a wall.
  // Sums on the grid are of integers, so the order does not show; places of up to 30 cells are rounded in each step.
  const int64_t rows = 19, columns = 30;
  const Bodies few = bodies(rows, columns);
  const auto small = make_advance(few.light.shape()[1], rows, columns, 3);
  ts::Array here = few.particles, there = few.particles;
  for (int i = 0; i < 2; ++i) here = small(here), there = ts::interpret(small, there);
  return sample::check("jelly", here, [&](int64_t i) { return there.at(i); }, 2e-4);
} catch (const std::exception& e) {
  return sample::fail("jelly", e);
}
