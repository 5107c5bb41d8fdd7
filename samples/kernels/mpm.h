// Soft bodies as particles that carry their deformation, by the material point method in its moving least squares form
// (Hu et al., 2018): a step adds up the particles' mass and momentum on a grid, as integers, so that the order of
// additions does not show; moves the grid's; and gathers. Lengths are in cells of the grid, times in steps, a cell full
// of matter has mass 1. Particles are f32 [12, n]: place (column, row; rows go down), velocity, the affine part of the
// velocity around it [2, 2], and the deformation [2, 2].
#pragma once
#include <algorithm>
#include <array>

#include "samples/kernels/support.h"

namespace tessera::kernels {

struct Soft {
  double mu = 0.05, lambda = 0.08;  ///< stiffness (neo-Hookean); a wave goes sqrt(lambda + 2 mu) cells per step
  double gravity = 2e-4;            ///< cells per step and step
  double kept = 0.9998;             ///< of the velocity in a step
  double volume = 1.0 / 9;          ///< of a particle, in cells
};

namespace mpm {
inline constexpr double kUnit = 1 << 18;  // what a mass or momentum of 1 adds to a node
inline constexpr int64_t kWall = 3;       // cells at each side that nothing enters

/// The weights of a quadratic spline along one axis, and the first of the three nodes.
struct Taps {
  Value first;  // i32
  Value part;   // from that node on, 1/2 to 3/2
  std::array<Value, 3> weights;
};
inline Taps taps(const Value& at, int64_t cells) {
  const Value first = clamp(0, cast(floor(at - 0.5), i32), cells - 3), part = at - cast(first, f32);
  const Value a = 1.5 - part, b = part - 1.0, c = part - 0.5;
  return {first, part, {0.5 * a * a, 0.75 - b * b, 0.5 * c * c}};
}
inline int64_t block(int64_t n) { return std::min<int64_t>(64, power_of_two(n)); }
inline BlockSpec rows(int64_t count, int64_t n, Loc loc) {
  return {{count, block(n)}, [](Value i) { return Indices{0, i}; }, MemorySpace::vmem, {}, loc};
}
inline void check(int64_t n, int64_t h, int64_t w, const char* name, Loc loc) {
  Checks{name, loc}.require(n >= 1 && h >= 8 && w >= 8, std::to_string(n) + " particles on a grid of " +
                                                            tessera::to_string(Shape{h, w}) +
                                                            ": at least 1, and 8 cells along each side");
}
}  // namespace mpm

/// mpm_scatter(particles, grid) -> grid: i32 [h, w, 3], the one given and the momentum (to the right, down) and mass of
/// all particles, with what their stress pushes, in units of 1 / kUnit.
inline PallasCall mpm_scatter(int64_t n, int64_t h, int64_t w, Soft soft = {}, Loc loc = Loc::here()) {
  mpm::check(n, h, w, "mpm_scatter", loc);
  return pallas_call(
      [=](Ref p, Ref, Ref o) {
        const mpm::Taps x = mpm::taps(p[0], w), y = mpm::taps(p[1], h);
        const Value a = p[8], b = p[9], c = p[10], d = p[11], size = maximum(a * d - b * c, 0.05);
        // mu (F F' - 1) + lambda log(det F): the stress by the volume at rest, and what it does in a step.
        const Value pressure = soft.lambda * log(size);
        const double by = -4.0 * soft.volume;
        const Value sxx = by * (soft.mu * (a * a + b * b - 1.0) + pressure), sxy = by * soft.mu * (a * c + b * d),
                    syy = by * (soft.mu * (c * c + d * d - 1.0) + pressure);
        const double m = soft.volume;
        const Value there = program_id(0) * mpm::block(n) + iota(i32, {mpm::block(n)}) < n;
        const Value vx = p[2], vy = p[3];
        const Value mxx = sxx + m * p[4], mxy = sxy + m * p[5], myx = sxy + m * p[6], myy = syy + m * p[7];
        for (int i = 0; i < 3; ++i)
          for (int j = 0; j < 3; ++j) {
            const Value dx = static_cast<double>(j) - x.part, dy = static_cast<double>(i) - y.part,
                        weight = x.weights[static_cast<size_t>(j)] * y.weights[static_cast<size_t>(i)];
            const std::array<Value, 3> gives = {weight * (m * vx + mxx * dx + mxy * dy),
                                                weight * (m * vy + myx * dx + myy * dy), weight * m};
            for (int k = 0; k < 3; ++k)
              atomic_add(o, {y.first + i, x.first + j, k}, cast(round(gives[static_cast<size_t>(k)] * mpm::kUnit), i32),
                         {.mask = there});
          }
      },
      {.out_shape = {{{h, w, 3}, i32}},
       .grid = cdiv(n, mpm::block(n)),
       .in_specs = {mpm::rows(12, n, loc), no_block_spec},
       .out_specs = no_block_spec,
       .input_output_aliases = {{1, 0}},
       .name = "mpm_scatter"},
      loc);
}

/// mpm_move(grid) -> f32 [h, w, 2]: the velocities, a step of gravity later; walls all around, at which matter slides.
inline PallasCall mpm_move(int64_t h, int64_t w, Soft soft = {}, Loc loc = Loc::here()) {
  mpm::check(1, h, w, "mpm_move", loc);
  constexpr int64_t rows = 8, columns = 32;
  const auto tile = [&](int64_t channels) {
    return BlockSpec{
        {rows, columns, channels}, [](Value i, Value j) { return Indices{i, j, 0}; }, MemorySpace::vmem, {}, loc};
  };
  return pallas_call(
      [=](Ref grid, Ref o) {
        const auto at = [&](int k) -> Value { return cast(grid[{all, all, k}], f32); };
        const Value mass = at(2), whole = 1.0 / maximum(mass, 1.0);
        const Value row = program_id(0) * rows + iota(i32, {rows, columns}, 0),
                    column = program_id(1) * columns + iota(i32, {rows, columns}, 1);
        const auto within = [&](const Value& v, const Value& place, int64_t cells) {
          return where(place < mpm::kWall, maximum(v, 0.0), where(place >= cells - mpm::kWall, minimum(v, 0.0), v));
        };
        const Value vx = soft.kept * at(0) * whole, vy = soft.kept * at(1) * whole + soft.gravity;
        o[{all, all, 0}] = where(mass > 0, within(clamp(-0.9, vx, 0.9), column, w), 0.0);
        o[{all, all, 1}] = where(mass > 0, within(clamp(-0.9, vy, 0.9), row, h), 0.0);
      },
      {.out_shape = {{{h, w, 2}, f32}},
       .grid = {cdiv(h, rows), cdiv(w, columns)},
       .in_specs = {tile(3)},
       .out_specs = {tile(2)},
       .name = "mpm_move",
       .in_shape = {{{h, w, 3}, i32}}},
      loc);
}

/// mpm_gather(particles, velocities) -> particles, a step later.
inline PallasCall mpm_gather(int64_t n, int64_t h, int64_t w, Loc loc = Loc::here()) {
  mpm::check(n, h, w, "mpm_gather", loc);
  return pallas_call(
      [=](Ref p, Ref grid, Ref o) {
        const mpm::Taps x = mpm::taps(p[0], w), y = mpm::taps(p[1], h);
        const Value none = zeros({mpm::block(n)});
        Value vx = none, vy = none;
        std::array<Value, 4> c = {none, none, none, none};
        for (int i = 0; i < 3; ++i)
          for (int j = 0; j < 3; ++j) {
            const Value dx = static_cast<double>(j) - x.part, dy = static_cast<double>(i) - y.part,
                        weight = x.weights[static_cast<size_t>(j)] * y.weights[static_cast<size_t>(i)];
            const Value gx = grid[{y.first + i, x.first + j, 0}], gy = grid[{y.first + i, x.first + j, 1}];
            const Value ux = weight * gx, uy = weight * gy;
            vx = vx + ux, vy = vy + uy;
            c[0] = c[0] + 4.0 * ux * dx, c[1] = c[1] + 4.0 * ux * dy;
            c[2] = c[2] + 4.0 * uy * dx, c[3] = c[3] + 4.0 * uy * dy;
          }
        const double low = mpm::kWall - 1.0;
        o[0] = clamp(low, p[0] + vx, static_cast<double>(w) - low);
        o[1] = clamp(low, p[1] + vy, static_cast<double>(h) - low);
        o[2] = vx, o[3] = vy;
        for (int k = 0; k < 4; ++k) o[4 + k] = c[static_cast<size_t>(k)];
        const std::array<Value, 4> f = {p[8], p[9], p[10], p[11]};
        o[8] = f[0] + c[0] * f[0] + c[1] * f[2], o[9] = f[1] + c[0] * f[1] + c[1] * f[3];
        o[10] = f[2] + c[2] * f[0] + c[3] * f[2], o[11] = f[3] + c[2] * f[1] + c[3] * f[3];
      },
      {.out_shape = {{{12, n}, f32}},
       .grid = cdiv(n, mpm::block(n)),
       .in_specs = {mpm::rows(12, n, loc), no_block_spec},
       .out_specs = {mpm::rows(12, n, loc)},
       .name = "mpm_gather",
       .in_shape = {{{12, n}, f32}, {{h, w, 2}, f32}}},
      loc);
}

}  // namespace tessera::kernels
