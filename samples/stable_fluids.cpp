// Dye in a stirred fluid: stable_fluids [-o FILE] [--size WxH] [--frames N] [--window]. One step of the solver, thirty
// rounds of Jacobi's iteration for the pressure included, is a function under jit: one graph of kernels
// (kernels/stable_fluids.h), planned into one arena, recorded once and replayed by one submission a step.
#include "samples/kernels/stable_fluids.h"

#include <algorithm>
#include <cmath>
#include <tessera/tessera.hpp>

#include "samples/support/demo.h"

namespace ts = tessera;
using ts::Tensor;

constexpr int64_t jets = 3, steps = 5;  // steps: from frame to frame

/// (velocity [2, h, w], dye [3, h, w], pushes [jets, 5], drops [jets, 6]) -> velocity and dye a step later.
auto make_step(int64_t h, int64_t w, int rounds) {
  namespace k = ts::kernels;
  return ts::jit(
      [carry = k::fluid_advect(2, h, w, 1, 0.999), carry_dye = k::fluid_advect(3, h, w, 1, 0.997),
       push = k::fluid_add(2, h, w, jets), drop = k::fluid_add(3, h, w, jets), divergence = k::fluid_divergence(h, w),
       pressure = k::fluid_pressure(h, w), project = k::fluid_project(h, w), h, w,
       rounds](Tensor velocity, Tensor dye, Tensor pushes, Tensor drops) {
        Tensor moved = push(carry(velocity, velocity), pushes), outflow = divergence(moved);
        Tensor p = ts::fori_loop(0, rounds, ts::zeros({1, h, w}),
                                 [&](Tensor, Tensor before) -> Tensor { return pressure(before, outflow); });
        Tensor kept = project(moved, p);
        return std::tuple{kept, Tensor(drop(carry_dye(kept, dye), drops))};
      },
      {.name = "stable_fluids"});
}

/// Three jets, a third of a turn apart, which go round and blow across the middle.
std::pair<ts::Array, ts::Array> sources(int64_t h, int64_t w, int64_t step) {
  std::vector<float> pushes, drops;
  const double size = static_cast<double>(std::min(h, w)),
               colours[jets][3] = {{1, 0.25, 0.1}, {0.15, 0.75, 0.3}, {0.15, 0.35, 1}};
  for (int64_t j = 0; j < jets; ++j) {
    const double angle = 2 * M_PI * (static_cast<double>(j) / jets + static_cast<double>(step) / 360),
                 way = angle + M_PI - 0.5;
    const double place[] = {static_cast<double>(h) * (0.5 + 0.32 * std::sin(angle)),
                            static_cast<double>(w) * (0.5 + 0.32 * std::cos(angle)), 0.045 * size};
    for (const double v : {place[0], place[1], place[2], 0.0035 * size * std::sin(way), 0.0035 * size * std::cos(way)})
      pushes.push_back(static_cast<float>(v));
    for (const double v :
         {place[0], place[1], place[2], 0.16 * colours[j][0], 0.16 * colours[j][1], 0.16 * colours[j][2]})
      drops.push_back(static_cast<float>(v));
  }
  return {ts::Array({jets, 5}, pushes), ts::Array({jets, 6}, drops)};
}

ts::Array picture(ts::Array dye) {
  for (float& v : dye.data<float>()) v = 1 - std::exp(-v);
  return dye;
}

int main(int argc, char** argv) try {
  const sample::Demo demo =
      sample::demo_options(argc, argv, {"stable_fluids", "Dye in a fluid that three jets stir.", 128, 128, 24});
  const auto step = make_step(demo.height, demo.width, 30);
  ts::Array velocity({2, demo.height, demo.width}, ts::f32), dye({3, demo.height, demo.width}, ts::f32);
  sample::Player player(demo);
  while (player.more()) {
    for (int64_t s = 0; s < steps; ++s) {
      const auto [pushes, drops] = sources(demo.height, demo.width, player.frame() * steps + s);
      const auto next = step(velocity, dye, pushes, drops);
      velocity = next[0], dye = next[1];
    }
    player.show(picture(dye));
  }
  player.finish();
  // The same graph on a small grid, by the interpreter and by the device: three steps, in each of which a position
  // within a cell errs by some units of 2^-23.
  const int64_t h = 40, w = 37;
  const auto small = make_step(h, w, 8);
  std::vector<ts::Array> here = {ts::Array({2, h, w}, ts::f32), ts::Array({3, h, w}, ts::f32)}, there = here;
  for (int64_t s = 0; s < 3; ++s) {
    const auto [pushes, drops] = sources(h, w, s);
    const auto next = small(here[0], here[1], pushes, drops),
               same = ts::interpret(small, there[0], there[1], pushes, drops);
    here = {next[0], next[1]}, there = {same[0], same[1]};
  }
  return sample::check("stable_fluids", here[1], [&](int64_t i) { return there[1].at(i); }, 1e-5);
} catch (const std::exception& e) {
  return sample::fail("stable_fluids", e);
}
