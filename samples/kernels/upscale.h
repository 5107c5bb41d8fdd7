// Pictures at twice their size by a small network: three convolutions, as products of matrices, say what of the
// luminance interpolation has lost in each of the four pixels of a small one (Shi et al., 2016: ESPCN). Pictures are
// f32 [h, w, 4] of any size, 0 to 1 as a screen shows them (after tone_map of post_processing.h); the small one's
// pixels are the means of 2 x 2. Beyond the edges are the last pixels. The numbers are upscale_weights.h's, trained by
// train_upscale.py. Read next: post_processing.h.
//   upscale_first(picture, w, b) -> upscale_second(features, w, b) -> upscale_last(features, w, b, picture) -> large
#pragma once
#include <array>
#include <span>

#include "samples/kernels/post_processing.h"
#include "samples/kernels/upscale_weights.h"

namespace tessera::kernels {

namespace upscale {
inline constexpr int64_t rows = 8, columns = 32;                // of the tiles, in small pixels
inline constexpr int64_t kFirst = 8, kSecond = 8, kPixels = 4;  // channels after each layer
inline constexpr double kSlope = 0.1;                           // of what is below zero, after all layers but the last
inline Array numbers(const Shape& shape, std::span<const int16_t> units) {
  std::vector<float> v;
  for (const int16_t u : units) v.push_back(static_cast<float>(u) / 4096);
  return {shape, v};
}
/// The arguments w and b of each layer.
struct Layer {
  Array weights, bias;
};
inline std::array<Layer, 3> layers() {
  return {Layer{numbers({25, kFirst}, kWeights1), numbers({kFirst}, kBias1)},
          {numbers({9 * kFirst, kSecond}, kWeights2), numbers({kSecond}, kBias2)},
          {numbers({9 * kSecond, kPixels}, kWeights3), numbers({kPixels}, kBias3)}};
}

inline BlockSpec tile(int64_t halo, int64_t channels, Loc loc) {
  return {{Halo(rows, halo, Edge::clamp), Halo(columns, halo, Edge::clamp), channels},
          [](Value i, Value j) { return Indices{i, j, 0}; },
          MemorySpace::vmem,
          {},
          loc};
}
inline BlockSpec tile_of(int64_t times, int64_t channels, Loc loc) {
  return {{times * rows, times * columns, channels},
          [](Value i, Value j) { return Indices{i, j, 0}; },
          MemorySpace::vmem,
          {},
          loc};
}
inline BlockSpec whole(std::vector<BlockDim> dims, Loc loc) {
  return {std::move(dims), {}, MemorySpace::vmem, {}, loc};
}
/// bias + the sum over 3 x 3 taps of features times the tap's weights: [rows * columns, after].
inline Value convolved(Ref features, Ref weights, Ref bias, int64_t before, int64_t after) {
  const Value start = broadcast_to(bias[all], {rows * columns, after});
  return fori_loop(0, 9, start, [&](Value t, Value sums) {
    const Value at = features[{ds(t / 3, rows), ds(t % 3, columns), all}];
    return sums + dot(reshape(at, {rows * columns, before}), weights[{ds(t * before, before), all}]);
  });
}
inline Value kept(const Value& x) { return maximum(x, kSlope * x); }
/// Catmull and Rom's spline at the distances 5/4, 1/4, 3/4 and 7/4.
inline Value cubic(const Value& tap) {
  return where(tap == 0, -0.0703125, where(tap == 1, 0.8671875, where(tap == 2, 0.2265625, -0.0234375)));
}
inline PallasCallParams over_pictures(const Extent& h, const Extent& w, std::string name) {
  return {.grid = {cdiv(h, rows), cdiv(w, columns)},
          .name = std::move(name),
          .compiler_params = CompilerParams{.dimension_semantics = {"parallel", "parallel"}}};
}
}  // namespace upscale

/// upscale_first(picture, weights, bias): the first layer's features of the luminance, f32 [h, w, 8], of 5 x 5 taps.
inline PallasCall upscale_first(Loc loc = Loc::here()) {
  using namespace upscale;
  const Extent h = dim("h"), w = dim("w");
  PallasCallParams p = over_pictures(h, w, "upscale_first");
  p.out_shape = {{{h, w, kFirst}, f32}};
  p.in_specs = {tile(2, 4, loc), whole({25, kFirst}, loc), whole({kFirst}, loc)};
  p.out_specs = {tile_of(1, kFirst, loc)};
  p.in_shape = {{{h, w, 4}, f32}, {{25, kFirst}, f32}, {{kFirst}, f32}};
  return pallas_call(
      [](Ref picture, Ref weights, Ref bias, Ref o) {
        using upscale::rows, upscale::columns;
        // A row of taps is a product: five neighbours by five of the weights' rows.
        Value sums = broadcast_to(bias[all], {rows * columns, kFirst});
        for (int64_t dy = 0; dy < 5; ++dy) {
          std::vector<Operand> five;
          for (int64_t dx = 0; dx < 5; ++dx) {
            const auto at = [&](int k) -> Value { return picture[{ds(dy, rows), ds(dx, columns), k}]; };
            five.push_back(post::luminance({at(0), at(1), at(2)}));
          }
          sums = sums + dot(reshape(stack(five, 2), {rows * columns, 5}), weights[{ds(5 * dy, 5), all}]);
        }
        o[all] = reshape(upscale::kept(sums), {rows, columns, kFirst});
      },
      std::move(p), loc);
}

/// upscale_second(features, weights, bias): the second layer's features, f32 [h, w, 8].
inline PallasCall upscale_second(Loc loc = Loc::here()) {
  using namespace upscale;
  const Extent h = dim("h"), w = dim("w");
  PallasCallParams p = over_pictures(h, w, "upscale_second");
  p.out_shape = {{{h, w, kSecond}, f32}};
  p.in_specs = {tile(1, kFirst, loc), whole({9 * kFirst, kSecond}, loc), whole({kSecond}, loc)};
  p.out_specs = {tile_of(1, kSecond, loc)};
  p.in_shape = {{{h, w, kFirst}, f32}, {{9 * kFirst, kSecond}, f32}, {{kSecond}, f32}};
  return pallas_call(
      [](Ref features, Ref weights, Ref bias, Ref o) {
        using upscale::rows, upscale::columns;
        o[all] = reshape(upscale::kept(upscale::convolved(features, weights, bias, kFirst, kSecond)),
                         {rows, columns, kSecond});
      },
      std::move(p), loc);
}

/// upscale_last(features, weights, bias, picture): the picture at twice its size, f32 [2 h, 2 w, 4]: interpolated by
/// splines, and what the last layer says added to the colours. The fourth channel is 1.
inline PallasCall upscale_last(Loc loc = Loc::here()) {
  using namespace upscale;
  const Extent h = dim("h"), w = dim("w");
  PallasCallParams p = over_pictures(h, w, "upscale_last");
  p.out_shape = {{{2 * h, 2 * w, 4}, f32}};
  p.in_specs = {tile(1, kSecond, loc), whole({9 * kSecond, kPixels}, loc), whole({kPixels}, loc), tile(2, 4, loc)};
  p.out_specs = {tile_of(2, 4, loc)};
  p.in_shape = {{{h, w, kSecond}, f32}, {{9 * kSecond, kPixels}, f32}, {{kPixels}, f32}, {{h, w, 4}, f32}};
  return pallas_call(
      [](Ref features, Ref weights, Ref bias, Ref picture, Ref o) {
        using upscale::rows, upscale::columns;
        const Value lost =
            reshape(upscale::convolved(features, weights, bias, kSecond, kPixels), {rows, columns, kPixels});
        const Value none = zeros({rows, columns});
        for (int64_t pixel = 0; pixel < 4; ++pixel) {
          const int64_t i = pixel / 2, j = pixel % 2;
          const auto [r, g, b] =
              fori_loop(0, 16, std::tuple{none, none, none}, [&](Value t, Value red, Value green, Value blue) {
                const Value y = t / 4, x = t % 4, weight = upscale::cubic(y) * upscale::cubic(x);
                const Ds down = ds(2 + (y - 1) * (2 * i - 1), rows), across = ds(2 + (x - 1) * (2 * j - 1), columns);
                return std::tuple{red + weight * picture[{down, across, 0}],
                                  green + weight * picture[{down, across, 1}],
                                  blue + weight * picture[{down, across, 2}]};
              });
          const Value more = reshape(slice(lost, {0, 0, pixel}, {rows, columns, pixel + 1}), {rows, columns});
          const Value colors[] = {r + more, g + more, b + more};
          const Ds down = ds(i, rows, 2), across = ds(j, columns, 2);
          for (int k = 0; k < 3; ++k) o[{down, across, k}] = clamp(0.0, colors[k], 1.0);
          o[{down, across, 3}] = ones({rows, columns});
        }
      },
      std::move(p), loc);
}

}  // namespace tessera::kernels
