// Gaussian blur of pictures, as two passes of one dimension each. A program's block is its tile with a halo, which it
// copies to shared memory, in f32. It adds up one tap after another in registers; between the passes the picture is
// f32, so u8 is rounded once. Weights, their number and the edges are those of scipy.ndimage.gaussian_filter. Read
// next: post_processing.h.
#pragma once
#include <algorithm>
#include <cmath>

#include "samples/kernels/passes.h"

namespace tessera::kernels {

using tessera::Edge;

struct BlurParams {
  double sigma = 1;  ///< of the bell, in pixels
  /// What lies beyond the picture's edges: its last pixel (aaa|abc), 0, the pixels in opposite order without the last
  /// one (dcb|abcd) or with it (cba|abc), or the other end (bcd|abcd). SciPy calls them nearest, constant, mirror,
  /// reflect and wrap.
  Edge edge = Edge::clamp;
  int64_t radius = -1;  ///< taps to either side; -1: four sigma
};

namespace gauss {
/// f32 [2 radius + 1], adding up to 1.
inline Array weights(double sigma, int64_t radius) {
  std::vector<double> bell;
  double total = 0;
  for (int64_t t = -radius; t <= radius; ++t) {
    const double d = static_cast<double>(t);
    bell.push_back(t == 0 ? 1 : std::exp(-d * d / (2 * sigma * sigma)));
    total += bell.back();
  }
  std::vector<float> w;
  for (const double b : bell) w.push_back(static_cast<float>(b / total));
  return Array({2 * radius + 1}, w);
}
/// A pass along dim 0 (over tiles of 64 x 16 pixels) or dim 1 (some rows x 128) of [h, w] or [h, w, channels], to dtype
/// `to`.
inline PallasCall call(const Type& x, size_t along, int64_t radius, Edge edge, DType to, Loc loc) {
  const bool colours = x.rank() == 3;
  const int64_t n = x.shape[along], channels = colours ? x.shape[2] : 1;
  // of a tile, along the pass
  const int64_t length = std::min<int64_t>(along == 0 ? 64 : 128, power_of_two(n));
  // across it
  const int64_t lines = along == 0 ? 16 : std::clamp<int64_t>(4096 / ((length + 2 * radius) * channels), 1, 8);
  Shape tile = along == 0 ? Shape{length, lines} : Shape{lines, length}, padded = tile;
  padded[along] += 2 * radius;
  std::vector<BlockDim> from = {BlockDim(tile[0]), BlockDim(tile[1])}, into = from;
  from[along] = Halo(length, radius, edge);
  if (colours) {
    tile.push_back(channels), padded.push_back(channels);
    from.emplace_back(channels), into.emplace_back(channels);
  }
  const auto spec = [&](const std::vector<BlockDim>& block) {
    BlockSpec s{block, [=](Value i, Value j) {
                  std::vector<BlockIndex> at = {i, j};
                  if (colours) at.emplace_back(0);
                  return Indices(at);
                }};
    s.loc = loc;
    return s;
  };
  return pallas_call(
      [=](Ref pixels, Ref weight, Ref o, Ref around) {
        around[all] = cast(pixels[all], f32);
        Value total = fori_loop(0, 2 * radius + 1, zeros(tile), [&](Value t, Value sum_so_far) {
          const Ds window = ds(t, length);
          return sum_so_far + weight[t] * (along == 0 ? Value(around[{window, all}]) : Value(around[{all, window}]));
        });
        o[all] = is_float(to) ? cast(total, to) : cast(clamp(0, round_even(total), 255), to);
      },
      {.out_shape = ShapeDtype(Type(x.shape, to)),
       .grid = {cdiv(x.shape[0], tile[0]), cdiv(x.shape[1], tile[1])},
       .in_specs = {spec(from), {{2 * radius + 1}, {}, MemorySpace::vmem, {}, loc}},
       .out_specs = spec(into),
       .scratch_shapes = {VMEM(padded, f32)},
       .name = along == 0 ? "blur_columns" : "blur_rows"},
      loc);
}
}  // namespace gauss

/// The picture, blurred along both sides: of its shape and dtype. picture: u8, f32, f16 or bf16, [height, width] or
/// [height, width, 1 to 4 channels]. u8 is rounded to nearest even. SpecError otherwise, and for a sigma that is
/// negative or no number.
template <class A>
A blur(const Passes<A>& passes, const A& picture, BlurParams params, Loc loc = Loc::here()) {
  const Checks c{"blur", loc};
  const Type t(picture);
  c.dtype("picture", t, {u8, f32, f16, bf16});
  c.require(
      t.rank() == 2 || (t.rank() == 3 && t.shape[2] >= 1 && t.shape[2] <= 4),
      "picture has shape " + tessera::to_string(t.shape) + ", not [height, width] or [height, width, 1 to 4 channels]");
  c.require(params.sigma >= 0 && params.sigma < 1e6,
            "sigma is " + std::to_string(params.sigma) + ", not from 0 to a million");
  c.require(params.radius >= -1, "radius is " + std::to_string(params.radius) + ", not 0 or more (or -1: four sigma)");
  const int64_t radius = params.radius >= 0 ? params.radius : static_cast<int64_t>(4 * params.sigma + 0.5);
  if (num_elements(t.shape) == 0 || radius == 0) return picture;
  const A weights = passes.constant(gauss::weights(params.sigma, radius));
  const A rows = passes.call(gauss::call(t, 1, radius, params.edge, f32, loc), {picture, weights})[0];
  return passes.call(gauss::call(Type(rows), 0, radius, params.edge, t.dtype, loc), {rows, weights})[0];
}
inline Array blur(const Array& picture, BlurParams params, Loc loc = Loc::here()) {
  return blur(passes(), picture, params, loc);
}

}  // namespace tessera::kernels
