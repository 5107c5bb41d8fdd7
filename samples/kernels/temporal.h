// A denoiser and an antialiasing filter that remember earlier frames: light of one random ray per pixel is averaged
// over the frames, by where each pixel's surface was in the frame before, and then over the pixels around it, as far as
// its variance makes necessary (SVGF: Schied et al., 2017). Pictures are f32 arrays [h, w, 4] of any size, as in
// post_processing.h. What a renderer gives beside the light:
//   guide   unit normal, and the distance from the eye; 0 where there is no surface (such pixels stay as they are)
//   motion  where the surface was in the frame before: columns to the right, rows down, its distance from the eye then;
//           and by how much the guide's distance changes from pixel to pixel
// A state is [h, w, 4] too: the means of luminance and of its square, the number of frames, and the motion's last.
#pragma once
#include <array>

#include "samples/kernels/post_processing.h"

namespace tessera::kernels {

namespace temporal {
using post::rows, post::columns;

inline BlockSpec tile(Loc loc) { return post::tile(rows, columns, loc); }
/// A tile and what is around it; beyond the picture's edges its last pixels.
inline BlockSpec around(int64_t halo, Loc loc) {
  return {{Halo(rows, halo, Edge::clamp), Halo(columns, halo, Edge::clamp), 4},
          [](Value i, Value j) { return Indices{i, j, 0}; },
          MemorySpace::vmem,
          {},
          loc};
}
inline PallasCallParams over_pictures(const Extent& h, const Extent& w, size_t outputs, const std::string& name,
                                      Loc loc) {
  PallasCallParams p = {.grid = {cdiv(h, rows), cdiv(w, columns)},
                        .name = name,
                        .compiler_params = CompilerParams{.dimension_semantics = {"parallel", "parallel"}}};
  std::vector<ShapeDtype> shapes;
  std::vector<BlockSpec> specs;
  for (size_t i = 0; i < outputs; ++i) shapes.push_back({{h, w, 4}, f32}), specs.push_back(tile(loc));
  p.out_shape = shapes;
  p.out_specs = specs;
  return p;
}
/// A place of the frame before, in pixels, in steps of 1/256: what is left of the number is the same on every device.
inline Value place(const Value& at, int64_t size) {
  const Value v = where(is_nan(at), -2.0, clamp(-2.0, at, static_cast<double>(size) + 1.0));
  return floor(v * 256.0 + 0.5) * (1.0 / 256);
}
inline Value pixel(int axis) {
  return program_id(axis) * (axis == 0 ? rows : columns) + iota(i32, {rows, columns}, axis);
}
inline void check_size(int64_t h, int64_t w, const char* name, Loc loc) {
  Checks{name, loc}.require(h > 0 && w > 0,
                            "a picture of " + std::to_string(h) + " x " + std::to_string(w) + " pixels has none");
}
}  // namespace temporal

struct Accumulate {
  double longest = 32;   ///< of how many frames the mean is, at most
  double depth = 0.03;   ///< relative difference of distances that is still the same surface
  double normal = 0.85;  ///< cosine of two normals that are still the same surface's
  double most = 40;  ///< brighter light is scaled down to this: one ray that met a lamp shall not outlast the others
};

/// Of pictures of h x w pixels: what a pixel was is looked up anywhere in the picture before.
/// temporal_accumulate(light, guide, motion, history, state, before, kept) -> (picture, state, guide): the mean of the
/// light over the frames, with its variance in the fourth channel. history, state and before (the guide) are those of
/// the frame before; kept: a number, 0 to begin anew, 1 to go on. The guide is copied, for the next frame and for the
/// passes that follow.
inline PallasCall temporal_accumulate(int64_t h, int64_t w, Accumulate options = {}, Loc loc = Loc::here()) {
  temporal::check_size(h, w, "temporal_accumulate", loc);
  PallasCallParams p = temporal::over_pictures(h, w, 3, "temporal_accumulate", loc);
  const BlockSpec tile = temporal::tile(loc);
  p.in_specs = {tile, tile, tile, no_block_spec, no_block_spec, no_block_spec, by_value(f32)};
  const ShapeDtype picture = {{h, w, 4}, f32};
  p.in_shape = {picture, picture, picture, picture, picture, picture, {{}, f32}};
  return pallas_call(
      [=](Ref light, Ref guide, Ref motion, Ref history, Ref state, Ref before, Ref kept, Ref o, Ref to_state,
          Ref to_guide) {
        const Shape shape = {temporal::rows, temporal::columns};
        const auto of = [](Ref x, int k) -> Value { return x[{all, all, k}]; };
        const std::array<Value, 3> normal = {of(guide, 0), of(guide, 1), of(guide, 2)};
        const Value distance = of(guide, 3), expected = of(motion, 2);
        const Value x = temporal::place(cast(temporal::pixel(1), f32) + of(motion, 0), w),
                    y = temporal::place(cast(temporal::pixel(0), f32) + of(motion, 1), h);
        const Value left = floor(x), top = floor(y), right = x - left, down = y - top;
        const Value goes_on = broadcast_to(kept[all], shape) > 0;
        Value weights = zeros(shape);
        std::array<Value, 6> sums = {weights, weights, weights, weights, weights, weights};
        for (int i = 0; i < 2; ++i)
          for (int j = 0; j < 2; ++j) {
            const Value row = cast(top, i32) + i, column = cast(left, i32) + j;
            const Value inside = (row >= 0) & (row < h) & (column >= 0) & (column < w);
            const Value r = clamp(0, row, h - 1), c = clamp(0, column, w - 1);
            const auto was = [&](Ref a, int k) -> Value { return a[{r, c, k}]; };
            const Value cosine = was(before, 0) * normal[0] + was(before, 1) * normal[1] + was(before, 2) * normal[2];
            const Value there = was(before, 3);
            const Value same = goes_on & inside & (there > 0) & (cosine > options.normal) &
                               (abs(there - expected) < options.depth * expected);
            const Value weight = where(same, (i ? down : 1.0 - down) * (j ? right : 1.0 - right), 0.0);
            weights = weights + weight;
            for (int k = 0; k < 6; ++k) {
              const Value v = k < 3 ? was(history, k) : was(state, k - 3);
              sums[static_cast<size_t>(k)] = sums[static_cast<size_t>(k)] + where(weight > 0, weight * v, 0.0);
            }
          }
        const Value found = (weights > 1e-3) & (distance > 0), whole = 1.0 / where(found, weights, 1.0);
        const Value frames = where(found, minimum(sums[5] * whole, options.longest - 1.0), 0.0) + 1.0,
                    part = 1.0 / frames;
        std::array<Value, 3> fresh = {of(light, 0), of(light, 1), of(light, 2)};
        const Value bright = post::luminance(fresh), scale = minimum(1.0, options.most / maximum(bright, 1e-6)),
                    seen = where(is_nan(bright), 0.0, bright * scale);
        const auto mean = [&](size_t k, const Value& now) {
          const Value then = where(found, sums[k] * whole, now);
          return then + (now - then) * part;
        };
        for (size_t k = 0; k < 3; ++k)
          o[{all, all, static_cast<int>(k)}] = mean(k, where(is_nan(bright), 0.0, fresh[k] * scale));
        const Value first = mean(3, seen), second = mean(4, seen * seen);
        // What few frames say of the variance is little: it may be as large as the square of the mean.
        const Value measured = maximum(second - first * first, 0.0), young = clamp(0.0, (5.0 - frames) * 0.25, 1.0);
        o[{all, all, 3}] = maximum(measured, young * first * first);
        const Value numbers[] = {first, second, frames, of(motion, 3)};
        for (int k = 0; k < 4; ++k) to_state[{all, all, k}] = numbers[k];
        to_guide[all] = guide[all];
      },
      std::move(p), loc);
}

struct Smooth {
  double color = 3;     ///< differences of luminance, in standard deviations, that are smoothed away
  double normal = 64;   ///< power of the cosine between two normals
  double depth = 1.5;   ///< differences of distances, in those that the slope explains
  double least = 0.01;  ///< a standard deviation below which the light counts as clean
};

/// temporal_smooth(picture, guide, state) -> picture: one pass of the a-trous filter, 3 x 3 taps `step` pixels apart,
/// which are weighted by how alike normal, distance and luminance are, the latter against the standard deviation. The
/// variance in the fourth channel becomes that of the result. Passes with step 1, 2, 4, ... smooth over ever larger
/// parts.
inline PallasCall temporal_smooth(int step, Smooth options = {}, Loc loc = Loc::here()) {
  Checks{"temporal_smooth", loc}.require(step > 0, "step is " + std::to_string(step) + ", not positive",
                                         "give 1, 2, 4, ... to the passes one after another");
  const Extent h = dim("h"), w = dim("w");
  PallasCallParams p = temporal::over_pictures(h, w, 1, "temporal_smooth_" + std::to_string(step), loc);
  p.in_specs = {temporal::around(step, loc), temporal::around(step, loc), temporal::tile(loc)};
  const ShapeDtype picture = {{h, w, 4}, f32};
  p.in_shape = {picture, picture, picture};
  return pallas_call(
      [=](Ref from, Ref guide, Ref state, Ref o) {
        using temporal::rows, temporal::columns;
        const auto at = [=](Ref x, const Value& dy, const Value& dx, int c) -> Value {
          return x[{ds(step + dy, rows), ds(step + dx, columns), c}];
        };
        const auto four = [&](Ref x, const Value& dy, const Value& dx) {
          return std::array<Value, 4>{at(x, dy, dx, 0), at(x, dy, dx, 1), at(x, dy, dx, 2), at(x, dy, dx, 3)};
        };
        const Value middle = zeros({}, i32), nothing = zeros({rows, columns});
        const std::array<Value, 4> mine = four(from, middle, middle), surface = four(guide, middle, middle);
        const Value bright = post::luminance({mine[0], mine[1], mine[2]}), slope = state[{all, all, 3}];
        // The variance is noisy itself: its mean over 3 x 3 pixels decides.
        const Value variance = fori_loop(0, 9, nothing, [&](Value t, Value sum) {
          const Value dy = t / 3 - 1, dx = t % 3 - 1;
          return sum + at(from, dy, dx, 3) * where(dy == 0, 0.5, 0.25) * where(dx == 0, 0.5, 0.25);
        });
        const Value unit = 1.0 / (options.color * sqrt(maximum(variance, 0.0)) + options.least);
        const Value steep = 1.0 / (options.depth * step * slope + 1e-3 * surface[3] + 1e-6);
        auto [weights, red, green, blue, spread] = fori_loop(
            0, 9, std::tuple{nothing, nothing, nothing, nothing, nothing},
            [&](Value t, Value sum, Value r, Value g, Value b, Value v) {
              const Value dy = t / 3 - 1, dx = t % 3 - 1;
              const std::array<Value, 4> c = four(from, dy * step, dx * step), n = four(guide, dy * step, dx * step);
              const Value cosine = clamp(1e-6, n[0] * surface[0] + n[1] * surface[1] + n[2] * surface[2], 1.0);
              const Value unlike =
                  abs(post::luminance({c[0], c[1], c[2]}) - bright) * unit + abs(n[3] - surface[3]) * steep;
              const Value kernel = where(dy == 0, 0.5, 0.25) * where(dx == 0, 0.5, 0.25);
              const Value weight =
                  where(n[3] > 0, kernel * exp2(options.normal * log2(cosine) - 1.4426950408889634 * unlike), 0.0);
              return std::tuple{sum + weight, r + weight * c[0], g + weight * c[1], b + weight * c[2],
                                v + weight * weight * c[3]};
            });
        const Value there = (surface[3] > 0) & (weights > 1e-9), whole = 1.0 / where(there, weights, 1.0);
        const Value sums[] = {red * whole, green * whole, blue * whole, spread * whole * whole};
        for (int k = 0; k < 4; ++k) o[{all, all, k}] = where(there, sums[k], mine[static_cast<size_t>(k)]);
      },
      std::move(p), loc);
}

/// temporal_compose(light, gloss, surface) -> light * surface + gloss: what comes from a surface of that colour. With 1
/// in the fourth channel.
inline PallasCall temporal_compose(Loc loc = Loc::here()) {
  const Extent h = dim("h"), w = dim("w");
  PallasCallParams p = temporal::over_pictures(h, w, 1, "temporal_compose", loc);
  const ShapeDtype picture = {{h, w, 4}, f32};
  const BlockSpec tile = temporal::tile(loc);
  p.in_specs = {tile, tile, tile};
  p.in_shape = {picture, picture, picture};
  return pallas_call(
      [](Ref light, Ref gloss, Ref surface, Ref o) {
        for (int k = 0; k < 3; ++k)
          o[{all, all, k}] = light[{all, all, k}] * surface[{all, all, k}] + gloss[{all, all, k}];
        o[{all, all, 3}] = ones({temporal::rows, temporal::columns});
      },
      std::move(p), loc);
}

/// Of pictures of h x w pixels.
/// temporal_resolve(picture, motion, history, kept) -> picture: antialiasing over the frames, whose pixels are sampled
/// at places that differ from frame to frame (Karis, 2014). The history is interpolated by a Catmull-Rom spline, kept
/// within the mean and the standard deviation of the 3 x 3 pixels around (Salvi, 2016), and has `old` of the result.
inline PallasCall temporal_resolve(int64_t h, int64_t w, double old = 0.9, double deviations = 1.25,
                                   Loc loc = Loc::here()) {
  temporal::check_size(h, w, "temporal_resolve", loc);
  PallasCallParams p = temporal::over_pictures(h, w, 1, "temporal_resolve", loc);
  p.in_specs = {temporal::around(1, loc), temporal::tile(loc), no_block_spec, by_value(f32)};
  const ShapeDtype picture = {{h, w, 4}, f32};
  p.in_shape = {picture, picture, picture, {{}, f32}};
  return pallas_call(
      [=](Ref from, Ref motion, Ref history, Ref kept, Ref o) {
        using temporal::rows, temporal::columns;
        const Shape shape = {rows, columns};
        const Value nothing = zeros(shape);
        // What is compared and mixed has its brightest parts compressed, lest they outweigh all else.
        const auto three = [](const Value& r, const Value& g, const Value& b) {
          const Value by = 1.0 / (1.0 + post::luminance({r, g, b}));
          return std::array<Value, 3>{r * by, g * by, b * by};
        };
        const Value one = zeros({}, i32);
        const auto pixel = [&](const Value& dy, const Value& dx) {
          const auto at = [&](int k) -> Value { return from[{ds(1 + dy, rows), ds(1 + dx, columns), k}]; };
          return three(at(0), at(1), at(2));
        };
        const auto [r1, g1, b1, r2, g2, b2] = fori_loop(
            0, 9, std::tuple{nothing, nothing, nothing, nothing, nothing, nothing},
            [&](Value t, Value a, Value b, Value c, Value d, Value e, Value f) {
              const std::array<Value, 3> v = pixel(t / 3 - 1, t % 3 - 1);
              return std::tuple{a + v[0], b + v[1], c + v[2], d + v[0] * v[0], e + v[1] * v[1], f + v[2] * v[2]};
            });
        const Value x = temporal::place(cast(temporal::pixel(1), f32) + motion[{all, all, 0}], w),
                    y = temporal::place(cast(temporal::pixel(0), f32) + motion[{all, all, 1}], h);
        const Value left = floor(x), top = floor(y), u = x - left, v = y - top;
        const auto spline = [](const Value& t, const Value& i) {
          return where(i == 0, t * (-0.5 + t * (1.0 - 0.5 * t)),
                       where(i == 1, 1.0 + t * t * (-2.5 + 1.5 * t),
                             where(i == 2, t * (0.5 + t * (2.0 - 1.5 * t)), t * t * (-0.5 + 0.5 * t))));
        };
        auto [r, g, b] =
            fori_loop(0, 16, std::tuple{nothing, nothing, nothing}, [&](Value t, Value red, Value green, Value blue) {
              const Value i = t / 4, j = t % 4;
              const Value row = clamp(0, cast(top, i32) + i - 1, h - 1),
                          column = clamp(0, cast(left, i32) + j - 1, w - 1);
              const Value weight = spline(v, i) * spline(u, j);
              const auto add = [&](const Value& to, int k) -> Value {
                const Value was = history[{row, column, k}];
                return to + weight * where(is_nan(was), 0.0, was);
              };
              return std::tuple{add(red, 0), add(green, 1), add(blue, 2)};
            });
        const std::array<Value, 3> now = pixel(one, one), then = three(maximum(r, 0), maximum(g, 0), maximum(b, 0));
        const Value inside =
                        (x >= 0) & (y >= 0) & (x <= static_cast<double>(w - 1)) & (y <= static_cast<double>(h - 1)),
                    part = where(inside & (broadcast_to(kept[all], shape) > 0), old, 0.0);
        const Value ones_of[] = {r1, g1, b1}, squares_of[] = {r2, g2, b2};
        std::array<Value, 3> mixed = {nothing, nothing, nothing};
        for (size_t k = 0; k < 3; ++k) {
          const Value mean = ones_of[k] * (1.0 / 9),
                      wide = deviations * sqrt(maximum(squares_of[k] * (1.0 / 9) - mean * mean, 0.0));
          mixed[k] = now[k] + part * (clamp(mean - wide, then[k], mean + wide) - now[k]);
        }
        const Value by = 1.0 / maximum(1.0 - post::luminance(mixed), 1e-3);
        for (size_t k = 0; k < 3; ++k) o[{all, all, static_cast<int>(k)}] = maximum(mixed[k] * by, 0);
        o[{all, all, 3}] = ones(shape);
      },
      std::move(p), loc);
}

}  // namespace tessera::kernels
