// Bodies that all pull at each other, and a picture of them. A step takes 64 bodies at a time and goes over all the
// others in blocks of 64, whose pulls never leave registers; the drawing adds up each body's light in the pixels around
// it, as integers, so that the order of additions does not show. Aarseth, Gravitational N-Body Simulations (2003);
// Nyland, Harris and Prins, Fast N-Body Simulation with CUDA, GPU Gems 3 (2007).
#pragma once
#include <algorithm>

#include "samples/kernels/support.h"

namespace tessera::kernels {

/// Kick and drift of a block of bodies on which `pulls` act.
inline void n_body_move(Ref body, Ref velocity, Ref times, const Value (&pulls)[3], Ref to, Ref to_velocity) {
  for (int d = 0; d < 3; ++d) {
    const Value v = velocity[d] + times[0] * pulls[d];
    to_velocity[d] = v;
    to[d] = body[d] + times[1] * v;
  }
  to[3] = body[3];
}

/// n_body_step(bodies, bodies, velocities, times) -> (bodies, velocities): kick, then drift. bodies: f32 [4, n], x, y,
/// z and mass; velocities: [3, n]; times: [2]. Velocities change by times[0] times the pull of all bodies, m d / (d^2 +
/// softening^2)^(3/2), then places by times[1] times the velocities. Alternating whole steps, after half a kick, is the
/// leapfrog method. softening is above 0: bodies that meet do not fly apart, and a body does not pull at itself.
inline PallasCall n_body_step(int64_t n, double softening, Loc loc = Loc::here()) {
  const Checks c{"n_body_step", loc};
  c.require(n >= 1, "n is " + std::to_string(n) + ", not at least 1");
  c.require(softening > 0, "softening is " + std::to_string(softening) + ", not above 0");
  const int64_t block = std::min<int64_t>(64, power_of_two(n));
  const auto rows = [&](int64_t count) {
    return BlockSpec{{count, block}, [](Value i) { return Indices{0, i}; }, MemorySpace::vmem, {}, loc};
  };
  return pallas_call(
      [=](Ref others, Ref body, Ref velocity, Ref times, Ref to, Ref to_velocity) {
        const auto mine = [&](int d) { return expand_dims(body[d], {0}); };  // [1, block]
        const Value x = mine(0), y = mine(1), z = mine(2), none = zeros({block});
        auto [ax, ay, az] =
            fori_loop(0, cdiv(n, block), std::tuple{none, none, none}, [&](Value j, Value sx, Value sy, Value sz) {
              const auto theirs = [&](int d) {  // [block, 1]; what is not there has no mass
                if (n % block == 0) return expand_dims(others[{d, ds(j * block, block)}], {1});
                return expand_dims(
                    load(others, {d, ds(j * block, block)}, {.mask = j * block + iota(i32, {block}) < n, .other = 0}),
                    {1});
              };
              const Value dx = theirs(0) - x, dy = theirs(1) - y, dz = theirs(2) - z;
              // [block, block]
              const Value near = rsqrt(dx * dx + dy * dy + dz * dz + softening * softening),
                          pull = theirs(3) * near * near * near;
              const auto total = [&](const Value& d) { return sum(pull * d, {.axis = 0}); };
              return std::tuple{sx + total(dx), sy + total(dy), sz + total(dz)};
            });
        const Value a[] = {ax, ay, az};
        n_body_move(body, velocity, times, a, to, to_velocity);
      },
      {.out_shape = {{{4, n}, f32}, {{3, n}, f32}},
       .grid = cdiv(n, block),
       .in_specs = {no_block_spec, rows(4), rows(3), no_block_spec},
       .out_specs = {rows(4), rows(3)},
       .name = "n_body_step"},
      loc);
}

/// The same for many bodies: 256 others at a time come into shared memory, and each body adds up their pulls by itself,
/// so that no sum goes from one invocation to another. The pulls of 256 are added up first.
inline PallasCall n_body_step_by_tiles(int64_t n, double softening, Loc loc = Loc::here()) {
  const Checks c{"n_body_step_by_tiles", loc};
  c.require(n >= 1, "n is " + std::to_string(n) + ", not at least 1");
  c.require(softening > 0, "softening is " + std::to_string(softening) + ", not above 0");
  const int64_t block = std::min<int64_t>(64, power_of_two(n)), tiled = std::min<int64_t>(256, power_of_two(n)),
                together = std::min<int64_t>(16, tiled);
  const auto rows = [&](int64_t count) {
    return BlockSpec{{count, block}, [](Value i) { return Indices{0, i}; }, MemorySpace::vmem, {}, loc};
  };
  return pallas_call(
      [=](Ref others, Ref body, Ref velocity, Ref times, Ref to, Ref to_velocity, Ref tile) {
        const Value x = body[0], y = body[1], z = body[2], none = zeros({block});
        auto [ax, ay, az] =
            fori_loop(0, cdiv(n, tiled), std::tuple{none, none, none}, [&](Value j, Value sx, Value sy, Value sz) {
              // What is not there has no mass.
              tile[all] = load(others, {all, ds(j * tiled, tiled)},
                               {.mask = j * tiled + iota(i32, {4, tiled}, 1) < n, .other = 0});
              auto [tx, ty, tz] = fori_loop(
                  0, tiled / together, std::tuple{none, none, none}, [&](Value k, Value px, Value py, Value pz) {
                    for (int64_t u = 0; u < together; ++u) {
                      const auto its = [&](int d) -> Value { return tile[{d, together * k + u}]; };
                      const Value dx = its(0) - x, dy = its(1) - y, dz = its(2) - z;
                      const Value near = rsqrt(dx * dx + dy * dy + dz * dz + softening * softening),
                                  pull = its(3) * near * near * near;
                      px = px + pull * dx, py = py + pull * dy, pz = pz + pull * dz;
                    }
                    return std::tuple{px, py, pz};
                  });
              return std::tuple{sx + tx, sy + ty, sz + tz};
            });
        const Value a[] = {ax, ay, az};
        n_body_move(body, velocity, times, a, to, to_velocity);
      },
      {.out_shape = {{{4, n}, f32}, {{3, n}, f32}},
       .grid = cdiv(n, block),
       .in_specs = {no_block_spec, rows(4), rows(3), no_block_spec},
       .out_specs = {rows(4), rows(3)},
       .scratch_shapes = {VMEM({4, tiled}, f32)},
       .name = "n_body_step_by_tiles"},
      loc);
}

inline constexpr double kLight = 65536;  // what one unit of a body's light adds to a pixel

/// n_body_draw(bodies, light, view, picture) -> picture: i32 [h, w, 3], the one given and every body's light (f32 [3,
/// n], in units of 1 / kLight) shared among the four pixels around its place. view: f32 [2, 4], what x, y, z and 1 add
/// to the column, and to the row; pixel i is what lies around i + 1/2.
inline PallasCall n_body_draw(int64_t n, int64_t h, int64_t w, Loc loc = Loc::here()) {
  Checks{"n_body_draw", loc}.require(
      n >= 1 && h >= 1 && w >= 1,
      std::to_string(n) + " bodies in a picture of " + tessera::to_string(Shape{h, w}) + ": at least 1 each");
  const int64_t block = std::min<int64_t>(64, power_of_two(n));
  const auto rows = [&](int64_t count) {
    return BlockSpec{{count, block}, [](Value i) { return Indices{0, i}; }, MemorySpace::vmem, {}, loc};
  };
  return pallas_call(
      [=](Ref body, Ref light, Ref view, Ref, Ref o) {
        const auto along = [&](int d) {
          return view[{d, 0}] * body[0] + view[{d, 1}] * body[1] + view[{d, 2}] * body[2] + view[{d, 3}] - 0.5;
        };
        const Value column = along(0), row = along(1), first_column = floor(column), first_row = floor(row);
        const Value there = program_id(0) * block + iota(i32, {block}) < n;
        for (int dy = 0; dy < 2; ++dy)
          for (int dx = 0; dx < 2; ++dx) {
            const Value i = cast(first_row, i32) + dy, j = cast(first_column, i32) + dx, right = column - first_column,
                        down = row - first_row;
            const Value part = (dx ? right : 1 - right) * (dy ? down : 1 - down),
                        inside = there & (i >= 0) & (i < h) & (j >= 0) & (j < w);
            for (int c = 0; c < 3; ++c)
              atomic_add(o, {i, j, c}, cast(round(part * light[c] * kLight), i32), {.mask = inside});
          }
      },
      {.out_shape = {{{h, w, 3}, i32}},
       .grid = cdiv(n, block),
       .in_specs = {rows(4), rows(3), no_block_spec, no_block_spec},
       .out_specs = no_block_spec,
       .input_output_aliases = {{3, 0}},
       .name = "n_body_draw"},
      loc);
}

}  // namespace tessera::kernels
