// A cloth of h x w points that hang together by springs, by position based dynamics (Müller et al., 2007), with a
// sphere and a floor that it cannot enter. A step guesses where points go by themselves, and then passes move them all
// at once (Jacobi's way, averaged as by Macklin et al., 2014) towards where each spring to one of twelve neighbours,
// across one or two rows, columns or diagonals, has its length. Points are f32 [h, w, 4]: x, y, z with y up, and 1 /
// mass, 0 for a point that is held. Lengths are in widths of a mesh. Read next: support.h.
#pragma once
#include <array>
#include <cmath>

#include "samples/kernels/support.h"

namespace tessera::kernels {

struct Cloth {
  double gravity = 0.012;  ///< meshes per step and step
  double kept = 0.997;     ///< of the velocity in a step
  double relaxed = 1.4;    ///< by how much more than the average of its springs a point moves
  double bend = 0.25;      ///< strength of the springs across two meshes, which keep the cloth from folding sharply
  double friction = 0.35;  ///< of the way along a surface that a point has gone: what it loses there
  double thick = 0.6;      ///< how far points stay from surfaces
  double floor = 0;        ///< its height
};

namespace cloth {
inline constexpr int64_t rows = 8, columns = 32;  // of the tiles
inline constexpr int kDepths = 1 << 15;           // of cloth_draw, from 0 to 1
inline constexpr int kNothing = 0x7fffffff;
struct Spring {
  int dy, dx;
};
inline constexpr Spring kSprings[] = {{0, 1},  {0, -1},  {1, 0}, {-1, 0}, {1, 1}, {1, -1},
                                      {-1, 1}, {-1, -1}, {0, 2}, {0, -2}, {2, 0}, {-2, 0}};
using Vector = std::array<Value, 3>;

inline BlockSpec tile(int64_t halo, Loc loc) {
  return {{Halo(rows, halo, Edge::clamp), Halo(columns, halo, Edge::clamp), 4},
          [](Value i, Value j) { return Indices{i, j, 0}; },
          MemorySpace::vmem,
          {},
          loc};
}
inline BlockSpec plain(Loc loc) {
  return {{rows, columns, 4}, [](Value i, Value j) { return Indices{i, j, 0}; }, MemorySpace::vmem, {}, loc};
}
inline PallasCallParams over_points(int64_t h, int64_t w, const char* name, Loc loc) {
  Checks{name, loc}.require(h >= 1 && w >= 1, "a cloth of " + tessera::to_string(Shape{h, w}) + " points has none");
  PallasCallParams p = over_tiles(cdiv(h, rows), cdiv(w, columns), name);
  p.out_shape = {{{h, w, 4}, f32}};
  p.out_specs = {plain(loc)};
  return p;
}
inline Vector place(Ref x, int64_t dy, int64_t dx, int64_t halo) {
  const auto at = [&](int k) -> Value { return x[{ds(halo + dy, rows), ds(halo + dx, columns), k}]; };
  return {at(0), at(1), at(2)};
}
inline Value dot(const Vector& a, const Vector& b) { return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]; }
}  // namespace cloth

/// cloth_guess(points, before) -> points: a step later, if there were neither springs nor surfaces; `before` are the
/// points of the step before.
inline PallasCall cloth_guess(int64_t h, int64_t w, Cloth c = {}, Loc loc = Loc::here()) {
  PallasCallParams p = cloth::over_points(h, w, "cloth_guess", loc);
  p.in_specs = {cloth::plain(loc), cloth::plain(loc)};
  p.in_shape = {{{h, w, 4}, f32}, {{h, w, 4}, f32}};
  return pallas_call(
      [=](Ref now, Ref before, Ref o) {
        const Value light = now[{all, all, 3}];
        for (int k = 0; k < 3; ++k) {
          const Value at = now[{all, all, k}], was = before[{all, all, k}];
          const Value moves = c.kept * (at - was) - (k == 1 ? c.gravity : 0.0);
          o[{all, all, k}] = at + where(light > 0, moves, 0.0);
        }
        o[{all, all, 3}] = light;
      },
      std::move(p), loc);
}

/// cloth_relax(points, before, sphere) -> points: one pass. sphere: f32 [4], its middle and radius; `before` as above,
/// by which friction knows how far a point has come.
inline PallasCall cloth_relax(int64_t h, int64_t w, Cloth c = {}, Loc loc = Loc::here()) {
  PallasCallParams p = cloth::over_points(h, w, "cloth_relax", loc);
  p.in_specs = {cloth::tile(2, loc), cloth::plain(loc), {{4}, {}, MemorySpace::vmem, {}, loc}};
  p.in_shape = {{{h, w, 4}, f32}, {{h, w, 4}, f32}, {{4}, f32}};
  return pallas_call(
      [=](Ref now, Ref before, Ref sphere, Ref o) {
        using cloth::rows, cloth::columns, cloth::Vector;
        const Value row = program_id(0) * rows + iota(i32, {rows, columns}, 0),
                    column = program_id(1) * columns + iota(i32, {rows, columns}, 1);
        const Vector me = cloth::place(now, 0, 0, 2);
        const Value none = zeros({rows, columns}), light = now[{ds(2, rows), ds(2, columns), 3}];
        Vector moves = {none, none, none};
        Value springs = none;
        for (const cloth::Spring& s : cloth::kSprings) {
          const Vector other = cloth::place(now, s.dy, s.dx, 2);
          const Value its = now[{ds(2 + s.dy, rows), ds(2 + s.dx, columns), 3}];
          const Value there = (row + s.dy >= 0) & (row + s.dy < h) & (column + s.dx >= 0) & (column + s.dx < w);
          const Vector d = {other[0] - me[0], other[1] - me[1], other[2] - me[2]};
          const double rest = std::sqrt(static_cast<double>(s.dy * s.dy + s.dx * s.dx));
          const Value length = sqrt(maximum(cloth::dot(d, d), 1e-12));
          // Springs across two meshes only push.
          const Value strength = rest == 2 ? where(length < 2.0, c.bend, 0.0) : ones({rows, columns});
          const Value part = where(there, strength * (1.0 - rest / length) * light / maximum(light + its, 1e-6), 0.0);
          for (size_t k = 0; k < 3; ++k) moves[k] = moves[k] + part * d[k];
          springs = springs + where(there, strength, 0.0);
        }
        const Value by = c.relaxed / maximum(springs, 1.0);
        Vector at = {me[0] + by * moves[0], me[1] + by * moves[1], me[2] + by * moves[2]};
        // Out of the sphere and the floor, and slower along them.
        const Vector was = {before[{all, all, 0}], before[{all, all, 1}], before[{all, all, 2}]};
        const auto out_of = [&](const Vector& normal, const Value& deep) {
          const Value touches = (deep > 0) & (light > 0), out = where(touches, deep, 0.0),
                      slows = where(touches, c.friction, 0.0);
          for (size_t k = 0; k < 3; ++k) at[k] = at[k] + out * normal[k];
          const Vector way = {at[0] - was[0], at[1] - was[1], at[2] - was[2]};
          const Value away = cloth::dot(way, normal);
          for (size_t k = 0; k < 3; ++k) at[k] = at[k] - slows * (way[k] - away * normal[k]);
        };
        const auto of_sphere = [&](int k) { return broadcast_to(sphere[k], {rows, columns}); };
        const Vector from = {at[0] - of_sphere(0), at[1] - of_sphere(1), at[2] - of_sphere(2)};
        const Value far = sqrt(maximum(cloth::dot(from, from), 1e-12));
        out_of({from[0] / far, from[1] / far, from[2] / far}, of_sphere(3) + c.thick - far);
        out_of({none, ones({rows, columns}), none}, c.floor + c.thick - at[1]);
        for (size_t k = 0; k < 3; ++k) o[{all, all, static_cast<int>(k)}] = where(light > 0, at[k], me[k]);
        o[{all, all, 3}] = light;
      },
      std::move(p), loc);
}

/// cloth_draw(points, view, picture) -> picture: i32 [down, across], the one given (of cloth::kNothing where there is
/// nothing) and what of the cloth is nearest: its depth, above 16 bits; 7 bits for each of its normal's x and z, by
/// which y is known, for it is turned up; and whether that took a turn, in bit 1, and stripes, in bit 0. view: f32 [3,
/// 4], what x, y, z and 1 add to a column, a row and the depth, which is from 0 to 1. Each mesh is drawn as `fine` x
/// `fine` points.
inline PallasCall cloth_draw(int64_t h, int64_t w, int64_t down, int64_t across, int64_t fine, Loc loc = Loc::here()) {
  const Checks c{"cloth_draw", loc};
  c.require(h >= 2 && w >= 2 && fine >= 1 && down >= 1 && across >= 1,
            "a cloth of " + tessera::to_string(Shape{h, w}) + " points, drawn as " + std::to_string(fine) +
                " per mesh in " + tessera::to_string(Shape{down, across}) + ": at least 2 points and 1 of all else");
  PallasCallParams p = over_tiles(cdiv(h, cloth::rows), cdiv(w, cloth::columns), "cloth_draw");
  p.compiler_params = {};
  p.out_shape = {{{down, across}, i32}};
  p.out_specs = {no_block_spec};
  p.in_specs = {{{Halo(cloth::rows, {1, 2}, Edge::clamp), Halo(cloth::columns, {1, 2}, Edge::clamp), 4},
                 [](Value i, Value j) { return Indices{i, j, 0}; },
                 MemorySpace::vmem,
                 {},
                 loc},
                no_block_spec,
                no_block_spec};
  p.in_shape = {{{h, w, 4}, f32}, {{3, 4}, f32}, {{down, across}, i32}};
  p.input_output_aliases = {{2, 0}};
  return pallas_call(
      [=](Ref points, Ref view, Ref, Ref o) {
        using cloth::rows, cloth::columns, cloth::Vector;
        const Value row = program_id(0) * rows + iota(i32, {rows, columns}, 0),
                    column = program_id(1) * columns + iota(i32, {rows, columns}, 1);
        const Value is_mesh = (row < h - 1) & (column < w - 1);
        const auto at = [&](int64_t dy, int64_t dx) { return cloth::place(points, dy, dx, 1); };
        const auto minus = [](const Vector& a, const Vector& b) {
          return Vector{a[0] - b[0], a[1] - b[1], a[2] - b[2]};
        };
        const auto normal = [&](int64_t dy, int64_t dx) {
          const Vector u = minus(at(dy, dx + 1), at(dy, dx - 1)), v = minus(at(dy + 1, dx), at(dy - 1, dx));
          return Vector{v[1] * u[2] - v[2] * u[1], v[2] * u[0] - v[0] * u[2], v[0] * u[1] - v[1] * u[0]};
        };
        const std::array<Vector, 4> corners = {at(0, 0), at(0, 1), at(1, 0), at(1, 1)},
                                    normals = {normal(0, 0), normal(0, 1), normal(1, 0), normal(1, 1)};
        fori_loop(0, fine * fine, [&](Value t) {
          const Value v = (cast(t / fine, f32) + 0.5) * (1.0 / static_cast<double>(fine)),
                      u = (cast(t % fine, f32) + 0.5) * (1.0 / static_cast<double>(fine));
          const auto mixed = [&](const std::array<Vector, 4>& of) {
            Vector m = of[0];
            for (size_t k = 0; k < 3; ++k)
              m[k] = (1.0 - v) * ((1.0 - u) * of[0][k] + u * of[1][k]) + v * ((1.0 - u) * of[2][k] + u * of[3][k]);
            return m;
          };
          const Vector place = mixed(corners), across_it = mixed(normals);
          const auto seen = [&](int k) {
            return view[{k, 0}] * place[0] + view[{k, 1}] * place[1] + view[{k, 2}] * place[2] + view[{k, 3}];
          };
          const Value i = cast(floor(seen(1)), i32), j = cast(floor(seen(0)), i32), depth = seen(2);
          const Value taken = is_mesh & (i >= 0) & (i < down) & (j >= 0) & (j < across) & (depth >= 0) & (depth < 1);
          const Value turned = across_it[1] < 0,
                      by = where(turned, -63.0, 63.0) / sqrt(maximum(cloth::dot(across_it, across_it), 1e-12));
          const auto seven = [&](const Value& x) { return cast(floor(clamp(-63.0, x * by, 63.0) + 64.5), i32); };
          const Value stripe = cast((row / 4 + column / 4) % 2 == 0, i32);
          const Value packed = cast(floor(depth * static_cast<double>(cloth::kDepths)), i32) * 65536 +
                               seven(across_it[0]) * 512 + seven(across_it[2]) * 4 + cast(turned, i32) * 2 + stripe;
          atomic_min(o, {i, j}, packed, {.mask = taken});
        });
      },
      std::move(p), loc);
}

}  // namespace tessera::kernels
