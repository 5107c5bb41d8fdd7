// Post-processing of a rendered picture: an edge-aware a-trous denoiser, bloom by a pyramid of halved pictures, tone
// mapping. Pictures are f32 arrays [h, w, 4] of any size, linear red, green, blue and something that is kept (alpha).
// Sizes arrive with the call, so a window that is resized compiles nothing anew; `size` is i32[2], the h and w of the
// picture that the kernel reads, by which taps beyond its edges are left out.
#pragma once
#include <array>

#include "samples/kernels/support.h"

namespace tessera::kernels {

namespace post {
inline constexpr int rows = 8, columns = 64;  // of the tiles

/// A tile with `halo` elements around it, of a picture of any size. The padding behind is for the last tiles, which may
/// begin beyond it.
inline BlockSpec tile_with_halo(int64_t tile_rows, int64_t tile_columns, int64_t halo, Loc loc) {
  return {{Element{tile_rows + 2 * halo, {halo, halo + tile_rows}},
           Element{tile_columns + 2 * halo, {halo, halo + tile_columns}}, 4},
          [=](Value i, Value j) { return Indices{i * tile_rows, j * tile_columns, 0}; },
          MemorySpace::vmem,
          {},
          loc};
}
inline BlockSpec tile(int64_t tile_rows, int64_t tile_columns, Loc loc) {
  return {{tile_rows, tile_columns, 4}, [](Value i, Value j) { return Indices{i, j, 0}; }, MemorySpace::vmem, {}, loc};
}

/// Which of the positions from (`row`, `column`) on, in steps, are in the picture.
inline Value inside(Ref size, Value row, Value column, Shape shape, int64_t step = 1) {
  const Value y = row + step * iota(i32, shape, 0), x = column + step * iota(i32, shape, 1);
  const Value h = size[0], w = size[1];
  return (y >= 0) & (y < h) & (x >= 0) & (x < w);
}
inline Value luminance(const std::array<Value, 3>& c) { return 0.2126 * c[0] + 0.7152 * c[1] + 0.0722 * c[2]; }
}  // namespace post

/// limit_light(picture, guide) -> (picture, guide): pixels brighter than `most` are scaled down to it, lest single ones
/// outshine all that they are smoothed with. The guide is copied: both are read once where they are images, and
/// denoise() goes over arrays.
inline PallasCall limit_light(double most, Loc loc = Loc::here()) {
  const Extent h = dim("h"), w = dim("w");
  return pallas_call(
      [=](Ref picture, Ref guide, Ref o, Ref same) {
        const Value r = picture[{all, all, 0}], g = picture[{all, all, 1}], b = picture[{all, all, 2}];
        const Value scale = minimum(1, most / maximum(post::luminance({r, g, b}), 1e-6));
        o[{all, all, 0}] = r * scale;
        o[{all, all, 1}] = g * scale;
        o[{all, all, 2}] = b * scale;
        o[{all, all, 3}] = picture[{all, all, 3}];
        same[all] = guide[all];
      },
      {.out_shape = {{{h, w, 4}, f32}, {{h, w, 4}, f32}},
       .grid = {cdiv(h, post::rows), cdiv(w, post::columns)},
       .in_specs = {post::tile(post::rows, post::columns, loc), post::tile(post::rows, post::columns, loc)},
       .out_specs = {post::tile(post::rows, post::columns, loc), post::tile(post::rows, post::columns, loc)},
       .name = "limit_light",
       .compiler_params = CompilerParams{.dimension_semantics = {"parallel", "parallel"}},
       .in_shape = {{{h, w, 4}, f32}, {{h, w, 4}, f32}}},
      loc);
}

/// modulate(light, surface) -> their product, with the light's fourth channel: what a surface of that colour sends on
/// of the light that was smoothed without it.
inline PallasCall modulate(Loc loc = Loc::here()) {
  const Extent h = dim("h"), w = dim("w");
  return pallas_call(
      [](Ref light, Ref surface, Ref o) {
        for (int k = 0; k < 3; ++k) o[{all, all, k}] = light[{all, all, k}] * surface[{all, all, k}];
        o[{all, all, 3}] = light[{all, all, 3}];
      },
      {.out_shape = {{{h, w, 4}, f32}},
       .grid = {cdiv(h, post::rows), cdiv(w, post::columns)},
       .in_specs = {post::tile(post::rows, post::columns, loc), post::tile(post::rows, post::columns, loc)},
       .out_specs = {post::tile(post::rows, post::columns, loc)},
       .name = "modulate",
       .compiler_params = CompilerParams{.dimension_semantics = {"parallel", "parallel"}},
       .in_shape = {{{h, w, 4}, f32}, {{h, w, 4}, f32}}},
      loc);
}

struct Denoise {
  double color = 4;     ///< differences of luminance that are smoothed away; large: all
  double normal = 64;   ///< power of the cosine between two normals
  double depth = 0.05;  ///< relative difference of depths, per pixel of distance
};

/// denoise(size, picture, guide): one pass of the edge-avoiding a-trous wavelet filter (Dammertz et al., 2010): 5 x 5
/// taps of a cubic B-spline, `step` pixels apart, weighted by how alike luminance, normal and depth are. guide: f32[h,
/// w, 4], a unit normal and the distance along the ray; where that is not positive there is no surface, and the picture
/// stays as it is. Passes with step 1, 2, 4, ... smooth over ever larger parts.
inline PallasCall denoise(int step, Denoise options = {}, Loc loc = Loc::here()) {
  Checks{"denoise", loc}.require(step > 0, "step is " + std::to_string(step) + ", not positive",
                                 "give 1, 2, 4, ... to the passes one after another");
  const Extent h = dim("h"), w = dim("w");
  const int halo = 2 * step;
  return pallas_call(
      [=](Ref size, Ref picture, Ref guide, Ref o) {
        using post::rows, post::columns;
        const auto at = [=](Ref x, Value dy, Value dx, int c) -> Value {
          return x[{ds(halo + dy, rows), ds(halo + dx, columns), c}];
        };
        const auto three = [&](Ref x, Value dy, Value dx) {
          return std::array<Value, 3>{at(x, dy, dx, 0), at(x, dy, dx, 1), at(x, dy, dx, 2)};
        };
        const Value middle = zeros({}, i32), nothing = zeros({rows, columns});
        const std::array<Value, 3> color = three(picture, middle, middle), normal = three(guide, middle, middle);
        const Value depth = at(guide, middle, middle, 3), light = post::luminance(color);
        const auto spline = [](Value d) { return where(d == 0, 3.0 / 8, where(abs(d) == 1, 1.0 / 4, 1.0 / 16)); };
        // A loop over the taps: written out, 25 of them would take some drivers' compilers minutes.
        auto [weights, red, green, blue] = fori_loop(
            0, 25, std::tuple{nothing, nothing, nothing, nothing}, [&](Value t, Value sum, Value r, Value g, Value b) {
              const Value dy = t / 5 - 2, dx = t % 5 - 2;
              const std::array<Value, 3> c = three(picture, dy * step, dx * step),
                                         n = three(guide, dy * step, dx * step);
              const Value d = at(guide, dy * step, dx * step, 3),
                          cosine = maximum(n[0] * normal[0] + n[1] * normal[1] + n[2] * normal[2], 0);
              const Value distance = step * maximum(1, sqrt(cast(dy * dy + dx * dx, f32)));
              const Value unlike = abs(post::luminance(c) - light) / options.color +
                                   abs(d - depth) / (options.depth * distance * maximum(depth, 1e-6));
              const Value there = post::inside(size, program_id(0) * rows + dy * step,
                                               program_id(1) * columns + dx * step, {rows, columns});
              const Value taken = there & (d > 0);  // what lies beyond the edges may be anything, also NaN
              const Value weight =
                  where(taken,
                        spline(dy) * spline(dx) * exp(-unlike) * exp2(options.normal * log2(maximum(cosine, 1e-6))), 0);
              const auto add = [&](Value to, Value v) { return to + where(taken, weight * v, 0); };
              return std::tuple{sum + weight, add(r, c[0]), add(g, c[1]), add(b, c[2])};
            });
        const std::array<Value, 3> sums = {red, green, blue};
        for (int k = 0; k < 3; ++k)
          o[{all, all, k}] =
              where((depth > 0) & (weights > 0), sums[static_cast<size_t>(k)] / weights, color[static_cast<size_t>(k)]);
        // Always at(...): but a channel that nothing joined to the sums would be laid out apart from them, and then the
        // tile could not be split over workgroups.
        o[{all, all, 3}] = where(weights >= 0, at(picture, middle, middle, 3), 0);
      },
      {.out_shape = {{{h, w, 4}, f32}},
       .grid_spec = PrefetchScalarGridSpec{.num_scalar_prefetch = 1,
                                           .grid = {cdiv(h, post::rows), cdiv(w, post::columns)},
                                           .in_specs = {post::tile_with_halo(post::rows, post::columns, halo, loc),
                                                        post::tile_with_halo(post::rows, post::columns, halo, loc)},
                                           .out_specs = {post::tile(post::rows, post::columns, loc)}},
       .name = "denoise_" + std::to_string(step),
       .compiler_params = CompilerParams{.dimension_semantics = {"parallel", "parallel"}},
       .in_shape = {{{2}, i32}, {{h, w, 4}, f32}, {{h, w, 4}, f32}}},
      loc);
}

/// bloom_down(size, picture): half the size, rounded up: f32[ceil(h / 2), ceil(w / 2), 4], the mean of four pixels.
/// `threshold`: what is less bright does not bloom; and where it is positive, bright single pixels count less (Karis's
/// mean, 2013), lest they flicker.
inline PallasCall bloom_down(double threshold, Loc loc = Loc::here()) {
  const Extent h = dim("h"), w = dim("w");
  return pallas_call(
      [=](Ref size, Ref picture, Ref o) {
        using post::rows, post::columns;
        Value weights = zeros({rows, columns});
        std::array<Value, 3> sums = {weights, weights, weights};
        for (int dy = 0; dy < 2; ++dy)
          for (int dx = 0; dx < 2; ++dx) {
            const auto channel = [&](int k) -> Value { return picture[{range(dy, {}, 2), range(dx, {}, 2), k}]; };
            std::array<Value, 3> c = {channel(0), channel(1), channel(2)};
            const Value taken = post::inside(size, program_id(0) * (2 * rows) + dy, program_id(1) * (2 * columns) + dx,
                                             {rows, columns}, 2);
            Value weight = ones({rows, columns});
            if (threshold > 0) {
              const Value light = post::luminance(c), kept = maximum(light - threshold, 0) / maximum(light, 1e-6);
              for (Value& v : c) v = v * kept;
              weight = 1 / (1 + light * kept);
            }
            weight = where(taken, weight, 0);
            weights = weights + weight;
            for (size_t k = 0; k < 3; ++k) sums[k] = sums[k] + where(taken, weight * c[k], 0);
          }
        for (int k = 0; k < 3; ++k) o[{all, all, k}] = sums[static_cast<size_t>(k)] / weights;
        o[{all, all, 3}] = ones({rows, columns});
      },
      {.out_shape = {{{cdiv(h, 2), cdiv(w, 2), 4}, f32}},
       .grid_spec = PrefetchScalarGridSpec{.num_scalar_prefetch = 1,
                                           .grid = {cdiv(h, 2 * post::rows), cdiv(w, 2 * post::columns)},
                                           .in_specs = {post::tile(2 * post::rows, 2 * post::columns, loc)},
                                           .out_specs = {post::tile(post::rows, post::columns, loc)}},
       .name = threshold > 0 ? "bloom_bright" : "bloom_down",
       .compiler_params = CompilerParams{.dimension_semantics = {"parallel", "parallel"}},
       .in_shape = {{{2}, i32}, {{h, w, 4}, f32}}},
      loc);
}

/// bloom_up(size, small, large): large + strength * small at twice its size, interpolated: small is f32[ceil(h / 2),
/// ceil(w / 2), 4], size its own.
inline PallasCall bloom_up(double strength, Loc loc = Loc::here()) {
  const Extent h = dim("h"), w = dim("w");
  return pallas_call(
      [=](Ref size, Ref small, Ref large, Ref o) {
        using post::rows, post::columns;
        // Three parts of the small pixel that a pixel lies in, one of that one's neighbour on the pixel's side.
        const Shape shape = {rows, columns};
        const Value y = iota(i32, shape, 0), x = iota(i32, shape, 1), down = 2 * (y % 2) - 1, right = 2 * (x % 2) - 1;
        Value weights = zeros(shape);
        std::array<Value, 3> sums = {weights, weights, weights};
        for (int i = 0; i < 2; ++i)
          for (int j = 0; j < 2; ++j) {
            const Value row = y / 2 + i * down, column = x / 2 + j * right;
            const Value v = program_id(0) * (rows / 2) + row, u = program_id(1) * (columns / 2) + column,
                        height = size[0], width = size[1];
            const Value taken = (v >= 0) & (v < height) & (u >= 0) & (u < width);
            const Value weight = where(taken, (i ? 0.25 : 0.75) * (j ? 0.25 : 0.75), zeros(shape));
            weights = weights + weight;
            for (int k = 0; k < 3; ++k) {
              const Value there = small[{1 + row, 1 + column, k}];
              sums[static_cast<size_t>(k)] = sums[static_cast<size_t>(k)] + where(taken, weight * there, 0);
            }
          }
        for (int k = 0; k < 3; ++k) {
          const Value before = large[{all, all, k}];
          o[{all, all, k}] = before + strength * (sums[static_cast<size_t>(k)] / weights);
        }
        o[{all, all, 3}] = large[{all, all, 3}];
      },
      {.out_shape = {{{h, w, 4}, f32}},
       .grid_spec = PrefetchScalarGridSpec{.num_scalar_prefetch = 1,
                                           .grid = {cdiv(h, post::rows), cdiv(w, post::columns)},
                                           .in_specs = {post::tile_with_halo(post::rows / 2, post::columns / 2, 1, loc),
                                                        post::tile(post::rows, post::columns, loc)},
                                           .out_specs = {post::tile(post::rows, post::columns, loc)}},
       .name = "bloom_up",
       .compiler_params = CompilerParams{.dimension_semantics = {"parallel", "parallel"}},
       .in_shape = {{{2}, i32}, {{cdiv(h, 2), cdiv(w, 2), 4}, f32}, {{h, w, 4}, f32}}},
      loc);
}

/// tone_map(picture): to what a screen shows, 0 to 1: exposure, the rational fit of the ACES curve (Narkowicz, 2015),
/// and sRGB's transfer function (IEC 61966-2-1). What is no number becomes black.
inline PallasCall tone_map(double exposure, Loc loc = Loc::here()) {
  const Extent h = dim("h"), w = dim("w");
  return pallas_call(
      [=](Ref picture, Ref o) {
        for (int k = 0; k < 3; ++k) {
          Value x = picture[{all, all, k}];
          x = where(is_nan(x), 0, clamp(0, x * exposure, 1e4));
          x = clamp(0, x * (2.51 * x + 0.03) / (x * (2.43 * x + 0.59) + 0.14), 1);
          o[{all, all, k}] = where(x <= 0.0031308, 12.92 * x, 1.055 * pow(maximum(x, 1e-6), 1 / 2.4) - 0.055);
        }
        o[{all, all, 3}] = ones({post::rows, post::columns});
      },
      {.out_shape = {{{h, w, 4}, f32}},
       .grid = {cdiv(h, post::rows), cdiv(w, post::columns)},
       .in_specs = {post::tile(post::rows, post::columns, loc)},
       .out_specs = {post::tile(post::rows, post::columns, loc)},
       .name = "tone_map",
       .compiler_params = CompilerParams{.dimension_semantics = {"parallel", "parallel"}},
       .in_shape = {{{h, w, 4}, f32}}},
      loc);
}

}  // namespace tessera::kernels
