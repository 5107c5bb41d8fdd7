// RMS norm and layer norm along the last dim, as transformers have them. A program takes some whole rows into
// registers; rows of more than 8192 elements are walked over in chunks, twice. No backward passes. Zhang and Sennrich,
// Root Mean Square Layer Normalization (2019); Ba, Kiros and Hinton, Layer Normalization (2016); the chunks' means and
// squares are joined as in Chan, Golub and LeVeque, Updating Formulae and a Pairwise Algorithm for Computing Sample
// Variances (1979). Read next: rope.h.
#pragma once
#include <algorithm>

#include "samples/kernels/long_rows.h"

namespace tessera::kernels {

struct NormParams {
  double epsilon = 1e-6;  ///< added to the mean square, or to the variance
};

namespace norm {
inline constexpr int64_t kBlock = 4096;  // elements of a program of several rows

/// A row of weights for a chunk.
inline Value weights(const Ref& w, const Value& first, const Value& inside) {
  return cast(load(w.reshape({1, w.shape()[0]}), {all, ds(first, long_rows::kChunk)}, {.mask = inside, .other = 0}),
              f32);
}
inline void check(const Checks& c, const Type& x) {
  c.floats("x", x);
  c.require(x.rank() >= 2, "x has shape " + tessera::to_string(x.shape) + ", not [..., rows, columns]");
}
inline void check_row(const Checks& c, const std::string& argument, const Type& t, const Type& x) {
  c.floats(argument, t);
  c.shape(argument, t, {x.shape.back()}, "the columns of x");
}
}  // namespace norm

/// x / sqrt(mean(x^2) + epsilon) * weight along the last dim of x [..., rows, columns], in f32, as x's dtype (f32, f16
/// or bf16). weight [columns]. SpecError for other shapes or dtypes.
inline PallasCall rms_norm(const Type& x, const Type& weight, NormParams params = {}, Loc loc = Loc::here()) {
  const Checks c{"rms_norm", loc};
  norm::check(c, x);
  norm::check_row(c, "weight", weight, x);
  const int64_t columns = x.shape.back();
  const double epsilon = params.epsilon;
  const RowBlocks rows(x.shape, norm::kBlock, loc);
  return pallas_call(
      [=](Ref x_ref, Ref w, Ref o) {
        if (columns <= long_rows::kLongest) {
          Value v = cast(x_ref[all], f32);  // [rows, columns]
          Value scale = rsqrt(sum(v * v, {.axis = 1, .keepdims = true}) / columns + epsilon);
          o[all] = cast(v * scale * cast(w[all], f32), o.dtype());
          return;
        }
        Value squares = long_rows::over_chunks(columns, zeros({1, long_rows::kChunk}), [&](Value first, Value total) {
          Value v = long_rows::part(x_ref, first, columns).values;
          return total + v * v;
        });
        Value scale = rsqrt(sum(squares, {.axis = 1, .keepdims = true}) / columns + epsilon);
        long_rows::write_chunks(x_ref, o, columns, [&](Value v, Value first, Value inside) {
          return v * scale * norm::weights(w, first, inside);
        });
      },
      {.out_shape = ShapeDtype(x),
       .grid = rows.grid,
       .in_specs = {rows.spec, {{std::max<int64_t>(columns, 1)}, {}, MemorySpace::vmem, {}, loc}},
       .out_specs = rows.spec,
       .name = "rms_norm",
       .in_shape = {x, weight}},
      loc);
}

/// (x - mean(x)) / sqrt(variance(x) + epsilon) * weight + bias along the last dim of x [..., rows, columns], in f32, as
/// x's dtype (f32, f16 or bf16). weight and bias [columns]. The variance is that of the row itself (not divided by
/// columns - 1). SpecError for other shapes or dtypes.
inline PallasCall layer_norm(const Type& x, const Type& weight, const Type& bias, NormParams params = {1e-5},
                             Loc loc = Loc::here()) {
  const Checks c{"layer_norm", loc};
  norm::check(c, x);
  norm::check_row(c, "weight", weight, x);
  norm::check_row(c, "bias", bias, x);
  const int64_t columns = x.shape.back();
  const double epsilon = params.epsilon;
  const RowBlocks rows(x.shape, norm::kBlock, loc);
  const BlockSpec row = {{std::max<int64_t>(columns, 1)}, {}, MemorySpace::vmem, {}, loc};
  return pallas_call(
      [=](Ref x_ref, Ref w, Ref b, Ref o) {
        if (columns <= long_rows::kLongest) {
          Value v = cast(x_ref[all], f32);  // [rows, columns]
          Value away = v - sum(v, {.axis = 1, .keepdims = true}) / columns;
          Value scale = rsqrt(sum(away * away, {.axis = 1, .keepdims = true}) / columns + epsilon);
          o[all] = cast(away * scale * cast(w[all], f32) + cast(b[all], f32), o.dtype());
          return;
        }
        // Mean and sum of squared distances from it, of the chunks so far.
        const Value zero = zeros({1, 1});
        auto [mean, squares] = long_rows::over_chunks(
            columns, std::tuple{zero, zero}, [&](Value first, Value mean_so_far, Value squares_so_far) {
              const long_rows::Part p = long_rows::part(x_ref, first, columns);
              Value before = cast(first, f32), count = minimum(columns - before, long_rows::kChunk);
              Value chunk_mean = sum(p.values, {.axis = 1, .keepdims = true}) / count;
              Value away = where(p.inside, p.values - chunk_mean, 0);
              Value step = chunk_mean - mean_so_far, share = count / (before + count);
              return std::tuple{
                  mean_so_far + step * share,
                  squares_so_far + sum(away * away, {.axis = 1, .keepdims = true}) + step * step * before * share};
            });
        Value scale = rsqrt(squares / columns + epsilon);
        long_rows::write_chunks(x_ref, o, columns, [&, m = mean](Value v, Value first, Value inside) {
          return (v - m) * scale * norm::weights(w, first, inside) + norm::weights(b, first, inside);
        });
      },
      {.out_shape = ShapeDtype(x),
       .grid = rows.grid,
       .in_specs = {rows.spec, row, row},
       .out_specs = rows.spec,
       .name = "layer_norm",
       .in_shape = {x, weight, bias}},
      loc);
}

}  // namespace tessera::kernels
