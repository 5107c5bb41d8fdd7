// Stable fluids in two dimensions (Stam, 1999): an incompressible fluid on a grid of h x w cells between four walls.
// One step is: move all fields along the velocity, add forces and dye, and take from the velocity what would compress
// it, the gradient of a pressure found by Jacobi's iteration. Fields are f32 [channels, h, w]: velocity has two, along
// rows and along columns, in cells per step; dye any number; pressure one.
#pragma once
#include "samples/kernels/support.h"

namespace tessera::kernels {

namespace fluid {
inline constexpr int rows = 8, columns = 64;  // of the tiles

inline BlockSpec tile(int64_t channels) {
  return {{channels, rows, columns}, [](Value i, Value j) { return Indices{0, i, j}; }};
}
/// A tile with one cell around it; beyond a wall it is the cell at the wall.
inline BlockSpec tile_with_halo(int64_t channels) {
  return {{channels, Halo(rows, 1, Edge::clamp), Halo(columns, 1, Edge::clamp)},
          [](Value i, Value j) { return Indices{0, i, j}; }};
}
/// The row and the column of each cell of the tile.
inline Value row() { return program_id(0) * rows + iota(i32, {rows, columns}, 0); }
inline Value column() { return program_id(1) * columns + iota(i32, {rows, columns}, 1); }
/// The cells `dy` rows and `dx` columns away.
inline Value neighbour(Ref x, int channel, int dy, int dx) {
  return x[{channel, ds(1 + dy, rows), ds(1 + dx, columns)}];
}
inline void check_size(int64_t h, int64_t w, const char* name, Loc loc) {
  Checks{name, loc}.require(h > 0 && w > 0,
                            "a grid of " + std::to_string(h) + " x " + std::to_string(w) + " cells has none");
}
}  // namespace fluid

/// (velocity [2, h, w], field [channels, h, w]) -> [channels, h, w]: what was `step` times the velocity upstream,
/// interpolated between four cells, times `kept`. Positions beyond the walls count as on them. Unconditionally stable:
/// no value grows.
inline PallasCall fluid_advect(int64_t channels, int64_t h, int64_t w, double step = 1, double kept = 1,
                               Loc loc = Loc::here()) {
  fluid::check_size(h, w, "fluid_advect", loc);
  PallasCallParams p = over_tiles(cdiv(h, fluid::rows), cdiv(w, fluid::columns), "fluid_advect");
  p.out_shape = {{{channels, h, w}, f32}};
  p.in_specs = {fluid::tile(2), no_block_spec};
  p.out_specs = {fluid::tile(channels)};
  p.in_shape = {{{2, h, w}, f32}, {{channels, h, w}, f32}};
  return pallas_call(
      [=](Ref velocity, Ref field, Ref o) {
        const Value y = clamp(0, cast(fluid::row(), f32) - step * velocity[0], h - 1),
                    x = clamp(0, cast(fluid::column(), f32) - step * velocity[1], w - 1);
        const Value top = floor(y), left = floor(x), dy = y - top, dx = x - left;
        const Value i = cast(top, i32), j = cast(left, i32);
        for (int c = 0; c < channels; ++c) {
          const auto at = [&](int di, int dj) -> Value {
            return field[{c, minimum(i + di, h - 1), minimum(j + dj, w - 1)}];
          };
          const Value above = at(0, 0) + dx * (at(0, 1) - at(0, 0)), below = at(1, 0) + dx * (at(1, 1) - at(1, 0));
          o[c] = kept * (above + dy * (below - above));
        }
      },
      std::move(p), loc);
}

/// (field [channels, h, w], sources [count, 3 + channels]) -> field with each source added: row, column and radius of a
/// Gaussian bell, all in cells, then what it adds to each channel at its middle. The field is changed in place where it
/// is donated.
inline PallasCall fluid_add(int64_t channels, int64_t h, int64_t w, int64_t count, Loc loc = Loc::here()) {
  fluid::check_size(h, w, "fluid_add", loc);
  PallasCallParams p = over_tiles(cdiv(h, fluid::rows), cdiv(w, fluid::columns), "fluid_add");
  p.out_shape = {{{channels, h, w}, f32}};
  p.in_specs = {fluid::tile(channels), {{count, 3 + channels}, [](Value, Value) { return Indices{0, 0}; }}};
  p.out_specs = {fluid::tile(channels)};
  p.input_output_aliases = {{0, 0}};
  p.in_shape = {{{channels, h, w}, f32}, {{count, 3 + channels}, f32}};
  return pallas_call(
      [=](Ref field, Ref sources, Ref o) {
        o[all] = field[all];
        fori_loop(0, count, [&](Value s) {
          const Value y = cast(fluid::row(), f32) - sources[{s, 0}], x = cast(fluid::column(), f32) - sources[{s, 1}];
          const Value radius = sources[{s, 2}];
          const Value bell = exp(-(y * y + x * x) / (radius * radius));
          for (int c = 0; c < channels; ++c) o[c] += bell * sources[{s, 3 + c}];
        });
      },
      std::move(p), loc);
}

/// velocity [2, h, w] -> [1, h, w]: what flows out of each cell; through walls nothing does.
inline PallasCall fluid_divergence(int64_t h, int64_t w, Loc loc = Loc::here()) {
  fluid::check_size(h, w, "fluid_divergence", loc);
  PallasCallParams p = over_tiles(cdiv(h, fluid::rows), cdiv(w, fluid::columns), "fluid_divergence");
  p.out_shape = {{{1, h, w}, f32}};
  p.in_specs = {fluid::tile_with_halo(2)};
  p.out_specs = {fluid::tile(1)};
  p.in_shape = {{{2, h, w}, f32}};
  return pallas_call(
      [=](Ref v, Ref o) {
        using fluid::row, fluid::column;
        // The velocity at the face between two cells is their mean, at a wall 0.
        const Value none = zeros({fluid::rows, fluid::columns});
        const auto face = [&](int c, int dy, int dx, const Value& wall) {
          const Value here = v[{c, ds(1, fluid::rows), ds(1, fluid::columns)}];
          return where(wall, none, 0.5 * (here + fluid::neighbour(v, c, dy, dx)));
        };
        o[0] = face(0, 1, 0, row() >= h - 1) - face(0, -1, 0, row() == 0) + face(1, 0, 1, column() >= w - 1) -
               face(1, 0, -1, column() == 0);
      },
      std::move(p), loc);
}

/// (pressure [1, h, w], divergence [1, h, w]) -> pressure: one step of Jacobi's iteration for the Laplacian of the
/// pressure being the divergence, with no slope at the walls.
inline PallasCall fluid_pressure(int64_t h, int64_t w, Loc loc = Loc::here()) {
  fluid::check_size(h, w, "fluid_pressure", loc);
  PallasCallParams p = over_tiles(cdiv(h, fluid::rows), cdiv(w, fluid::columns), "fluid_pressure");
  p.out_shape = {{{1, h, w}, f32}};
  p.in_specs = {fluid::tile_with_halo(1), fluid::tile(1)};
  p.out_specs = {fluid::tile(1)};
  p.in_shape = {{{1, h, w}, f32}, {{1, h, w}, f32}};
  return pallas_call(
      [=](Ref x, Ref divergence, Ref o) {
        const auto at = [&](int dy, int dx) { return fluid::neighbour(x, 0, dy, dx); };
        o[0] = 0.25 * (at(-1, 0) + at(1, 0) + at(0, -1) + at(0, 1) - divergence[0]);
      },
      std::move(p), loc);
}

/// (velocity [2, h, w], pressure [1, h, w]) -> velocity less the pressure's gradient, and along each wall without what
/// runs into it.
inline PallasCall fluid_project(int64_t h, int64_t w, Loc loc = Loc::here()) {
  fluid::check_size(h, w, "fluid_project", loc);
  PallasCallParams p = over_tiles(cdiv(h, fluid::rows), cdiv(w, fluid::columns), "fluid_project");
  p.out_shape = {{{2, h, w}, f32}};
  p.in_specs = {fluid::tile(2), fluid::tile_with_halo(1)};
  p.out_specs = {fluid::tile(2)};
  p.input_output_aliases = {{0, 0}};
  p.in_shape = {{{2, h, w}, f32}, {{1, h, w}, f32}};
  return pallas_call(
      [=](Ref v, Ref x, Ref o) {
        const auto at = [&](int dy, int dx) { return fluid::neighbour(x, 0, dy, dx); };
        const Value rowwise = v[0] - 0.5 * (at(1, 0) - at(-1, 0)), columnwise = v[1] - 0.5 * (at(0, 1) - at(0, -1));
        o[0] = where((fluid::row() == 0) | (fluid::row() >= h - 1), 0, rowwise);
        o[1] = where((fluid::column() == 0) | (fluid::column() >= w - 1), 0, columnwise);
      },
      std::move(p), loc);
}

/// (velocity [2, h, w], particles [n, 4]) -> particles: row, column, speed and age of each, moved by `step` times the
/// velocity there, found halfway first (the midpoint rule). One that is older than `life` steps starts again where the
/// hash of its number and row says.
inline PallasCall fluid_particles(int64_t h, int64_t w, int64_t n, double step = 1, double life = 400,
                                  Loc loc = Loc::here()) {
  fluid::check_size(h, w, "fluid_particles", loc);
  constexpr int block = 256;
  PallasCallParams p;
  p.out_shape = {{{n, 4}, f32}};
  p.grid = {cdiv(n, block)};
  p.in_specs = {no_block_spec, {{block, 4}, [](Value i) { return Indices{i, 0}; }}};
  p.out_specs = {{{block, 4}, [](Value i) { return Indices{i, 0}; }}};
  p.input_output_aliases = {{1, 0}};
  p.name = "fluid_particles";
  p.compiler_params = CompilerParams{.dimension_semantics = {"parallel"}};
  p.in_shape = {{{2, h, w}, f32}, {{n, 4}, f32}};
  return pallas_call(
      [=](Ref velocity, Ref particles, Ref o) {
        const auto flow = [&](int c, const Value& y, const Value& x) {
          const Value top = clamp(0, floor(y), h - 1), left = clamp(0, floor(x), w - 1), i = cast(top, i32),
                      j = cast(left, i32);
          const Value dy = clamp(0, y - top, 1), dx = clamp(0, x - left, 1);
          const auto at = [&](int di, int dj) -> Value {
            return velocity[{c, minimum(i + di, h - 1), minimum(j + dj, w - 1)}];
          };
          const Value above = at(0, 0) + dx * (at(0, 1) - at(0, 0)), below = at(1, 0) + dx * (at(1, 1) - at(1, 0));
          return above + dy * (below - above);
        };
        const Value y = particles[{all, 0}], x = particles[{all, 1}], age = particles[{all, 3}];
        const Value half_y = y + 0.5 * step * flow(0, y, x), half_x = x + 0.5 * step * flow(1, y, x);
        const Value dy = flow(0, half_y, half_x), dx = flow(1, half_y, half_x);
        // A hash of 32 bits (Wellons' lowbias32) of the particle's number.
        const auto hash = [](Value v) {
          v = (v ^ shift_right_logical(v, 16)) * cast(full({}, int64_t{0x7feb352d}, i32), u32);
          v = (v ^ shift_right_logical(v, 15)) * cast(full({}, static_cast<int64_t>(int32_t(0x846ca68b)), i32), u32);
          return v ^ shift_right_logical(v, 16);
        };
        const auto unit = [](Value v) { return cast(shift_right_logical(v, 8), f32) * (1.0 / (1 << 24)); };
        const Value number = cast(program_id(0) * block + iota(i32, {block}, 0), u32),
                    seed = hash(number + cast(bitcast(y, i32), u32));
        const Value again = age >= life;
        o[{all, 0}] = where(again, unit(seed) * (h - 1), clamp(0, y + step * dy, h - 1));
        o[{all, 1}] = where(again, unit(hash(seed)) * (w - 1), clamp(0, x + step * dx, w - 1));
        o[{all, 2}] = where(again, 0, sqrt(dy * dy + dx * dx));
        o[{all, 3}] = where(again, 0, age + 1);
      },
      std::move(p), loc);
}

}  // namespace tessera::kernels
