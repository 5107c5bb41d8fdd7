#include <algorithm>
#include <tessera/tessera.hpp>

#include "tests/bench/gpu/suite/suite.h"

namespace tessera::gpu_suite {
namespace {

/// 3 x 3 taps over x [images, h + 2, w + 2, c] to n channels: a product for each tap.
Case convolution(int64_t images, int64_t h, int64_t w, int64_t c, int64_t n, DType t, Sizes sizes) {
  const int64_t rows = 8, columns = 16, block = 64;
  const PallasCall call = pallas_call(
      [=](Ref x, Ref f, Ref o) {
        Value sums = zeros({rows * columns, block});
        for (int64_t dy = 0; dy < 3; ++dy)
          for (int64_t dx = 0; dx < 3; ++dx) {
            const Value window = x[{ds(dy, rows), ds(dx, columns), all}], filter = f[{dy, dx, all, all}];
            const Value pixels = reshape(window, {rows * columns, c});
            sums = sums + dot(pixels, filter, {.preferred_element_type = f32});
          }
        o[all] = cast(reshape(sums, {rows, columns, block}), t);
      },
      {.out_shape = {{{images, h, w, n}, t}},
       .grid = {images, h / rows, w / columns, n / block},
       .in_specs = {{{squeezed, Element{rows + 2}, Element{columns + 2}, c},
                     [=](Value b, Value i, Value j, Value) { return Indices{b, i * rows, j * columns, 0}; }},
                    {{3, 3, c, block}, [](Value, Value, Value, Value k) { return Indices{0, 0, 0, k}; }}},
       .out_specs = {{{squeezed, rows, columns, block},
                      [](Value b, Value i, Value j, Value k) { return Indices{b, i, j, k}; }}},
       .name = "convolution"});
  Case all_of_it{"convolution_" + short_name(t) + "_" + std::to_string(images) + "x" + std::to_string(h) + "x" +
                     std::to_string(w) + "x" + std::to_string(c) + "x" + std::to_string(n),
                 call.trace({{{images, h + 2, w + 2, c}, t}, {{3, 3, c, n}, t}}),
                 {},
                 t == f32 ? 1e-5 : 2e-3,
                 18 * static_cast<double>(images * h * w * c * n)};
  const std::string defines = macros({{"IMAGES", images}, {"H", h}, {"W", w}, {"C", c}, {"N", n}});
  all_of_it.shaders.push_back({.file = "convolution",
                               .defines = defines + " " + macros({{"KIND", kind(t)}}),
                               .groups = images * (h / 8) * (w / 16) * (n / 64),
                               .local = 128,
                               .inner = "fma " + std::to_string(128 * 768),
                               .note = "the loop over the taps' rows is innermost"});
  if (t == f16) {
    const int64_t f = sizes == Sizes::full ? 16 : 8, wave = sizes == Sizes::full ? 32 : 8,
                  group = sizes == Sizes::full ? 64 : 16;
    all_of_it.shaders.push_back(
        {.file = "convolution_matrix",
         .defines = defines + " " + macros({{"FM", f}, {"WAVE", wave}, {"CHANNELS", group}}),
         .device_class = "matrix",
         .groups = images * (h / 8) * (w / f) * (n / group),
         .local = static_cast<int32_t>(4 * wave),
         .inner = "fma " + std::to_string(8 * f * group * 16 * 9 / (f == 8 ? 6 : 3)),
         .note = "matrices of " + std::to_string(f) + "x" + std::to_string(f) + "x" + std::to_string(f)});
  }
  return all_of_it;
}

/// A filter of 3 x 3 taps for each channel of x [images, h + 2, w + 2, c].
Case depthwise(int64_t images, int64_t h, int64_t w, int64_t c) {
  const int64_t rows = 8, columns = 16, channels = std::min<int64_t>(c, 64);
  const PallasCall call = pallas_call(
      [=](Ref x, Ref f, Ref o) {
        Value sums = zeros({rows, columns, channels});
        for (int64_t dy = 0; dy < 3; ++dy)
          for (int64_t dx = 0; dx < 3; ++dx) {
            const Value window = x[{ds(dy, rows), ds(dx, columns), all}], filter = f[{dy, dx, all}];
            sums = sums + window * filter;
          }
        o[all] = sums;
      },
      {.out_shape = {{{images, h, w, c}, f32}},
       .grid = {images, h / rows, w / columns, c / channels},
       .in_specs = {{{squeezed, Element{rows + 2}, Element{columns + 2}, channels},
                     [=](Value b, Value i, Value j, Value k) { return Indices{b, i * rows, j * columns, k}; }},
                    {{3, 3, channels}, [](Value, Value, Value, Value k) { return Indices{0, 0, k}; }}},
       .out_specs = {{{squeezed, rows, columns, channels},
                      [](Value b, Value i, Value j, Value k) { return Indices{b, i, j, k}; }}},
       .name = "depthwise"});
  const int64_t local = c >= 64 ? 256 : 64, each_rows = 8, lanes = images * (h / each_rows) * (w / 4) * (c / 4);
  return {
      "depthwise_f32_" + std::to_string(images) + "x" + std::to_string(h) + "x" + std::to_string(w) + "x" +
          std::to_string(c),
      call.trace({{{images, h + 2, w + 2, c}, f32}, {{3, 3, c}, f32}}),
      {{.file = "depthwise",
        .defines = macros({{"IMAGES", images}, {"H", h}, {"W", w}, {"C", c}, {"ROWS", each_rows}, {"LOCAL", local}}),
        .groups = cdiv(lanes, local),
        .local = static_cast<int32_t>(local)}},
      1e-5};
}

/// A bilateral filter of 5 x 5 taps over [h + 4, w + 4, 3]: weights fall with the distance in the picture (sigma 2) and
/// that of the colours (sigma 0.2).
Case bilateral(int64_t h, int64_t w) {
  const int64_t rows = 16, columns = 64;
  const PallasCall call = pallas_call(
      [=](Ref x, Ref o) {
        const auto channel = [&](int64_t dy, int64_t dx, int64_t c) -> Value {
          return x[{ds(dy, rows), ds(dx, columns), c}];
        };
        std::vector<Value> centre, sums;
        for (int64_t c = 0; c < 3; ++c) {
          centre.push_back(channel(2, 2, c));
          sums.push_back(zeros({rows, columns}));
        }
        Value weights = zeros({rows, columns});
        for (int64_t dy = 0; dy < 5; ++dy)
          for (int64_t dx = 0; dx < 5; ++dx) {
            std::vector<Value> v;
            Value squares = zeros({rows, columns});
            for (size_t c = 0; c < 3; ++c) {
              v.push_back(channel(dy, dx, static_cast<int64_t>(c)));
              const Value d = v[c] - centre[c];
              squares = squares + d * d;
            }
            const double away = -static_cast<double>((dy - 2) * (dy - 2) + (dx - 2) * (dx - 2)) / 8;
            const Value weight = exp(squares * -12.5 + away);
            weights = weights + weight;
            for (size_t c = 0; c < 3; ++c) sums[c] = sums[c] + weight * v[c];
          }
        for (int64_t c = 0; c < 3; ++c) o[{all, all, c}] = sums[static_cast<size_t>(c)] / weights;
      },
      {.out_shape = {{{h, w, 3}, f32}},
       .grid = {h / rows, w / columns},
       .in_specs = {{{Element{rows + 4}, Element{columns + 4}, 3},
                     [=](Value i, Value j) { return Indices{i * rows, j * columns, 0}; }}},
       .out_specs = {{{rows, columns, 3}, [](Value i, Value j) { return Indices{i, j, 0}; }}},
       .name = "bilateral"});
  return {"bilateral_f32_" + std::to_string(w) + "x" + std::to_string(h),
          call.trace({{{h + 4, w + 4, 3}, f32}}),
          {{.file = "bilateral",
            .defines = macros({{"H", h}, {"W", w}}),
            .groups = h / 16 * (w / 64),
            .inner = "-",
            .note = "no loop: all 25 taps"}},
          1e-5};
}

/// A step of x + (the four neighbours' sum - 4 x) / 8 on [h, w], whose border keeps its values: a call for each step.
Case stencil_step(int64_t h, int64_t w) {
  const int64_t rows = 32, columns = 128;
  const PallasCall call = pallas_call(
      [=](Ref x, Ref o) {
        const auto window = [&](int64_t dy, int64_t dx) -> Value { return x[{ds(dy, rows), ds(dx, columns)}]; };
        const Value here = window(1, 1), over = window(0, 1) + window(2, 1), beside = window(1, 0) + window(1, 2);
        const Value row = program_id(0) * rows + iota(i32, {rows, columns}, 0);
        const Value column = program_id(1) * columns + iota(i32, {rows, columns}, 1);
        const Value inside = (row > 0) & (row < h - 1) & (column > 0) & (column < w - 1);
        o[all] = where(inside, here + (over + beside - 4 * here) * 0.125, here);
      },
      {.out_shape = {{{h, w}, f32}},
       .grid = {h / rows, w / columns},
       .in_specs = {{{Element{rows + 2, {1, 1}}, Element{columns + 2, {1, 1}}},
                     [=](Value i, Value j) { return Indices{i * rows, j * columns}; }}},
       .out_specs = {{{rows, columns}, [](Value i, Value j) { return Indices{i, j}; }}},
       .name = "stencil_step"});
  return {"stencil_step_f32_" + std::to_string(h) + "x" + std::to_string(w),
          call.trace({{{h, w}, f32}}),
          {{.file = "stencil_step",
            .defines = macros({{"H", h}, {"W", w}}),
            .groups = h / 8 * (w / 1024),
            .note = "one of 100 calls"}},
          1e-6};
}

/// 100 such steps in one call on each of [grids, 64, 64].
Case stencil_100(int64_t grids) {
  const int64_t n = 64;
  const BlockSpec grid{{squeezed, n, n}, [](Value b) { return Indices{b, 0, 0}; }};
  const PallasCall call = pallas_call(
      [=](Ref x, Ref o, Ref now) {
        const Value row = iota(i32, {n, n}, 0), column = iota(i32, {n, n}, 1);
        const Value inside = (row > 0) & (row < n - 1) & (column > 0) & (column < n - 1);
        now[{ds(1, n), ds(1, n)}] = x[all];
        fori_loop(0, 100, [&](Value) {
          const auto window = [&](int64_t dy, int64_t dx) -> Value { return now[{ds(dy, n), ds(dx, n)}]; };
          const Value here = window(1, 1), over = window(0, 1) + window(2, 1), beside = window(1, 0) + window(1, 2);
          now[{ds(1, n), ds(1, n)}] = where(inside, here + (over + beside - 4 * here) * 0.125, here);
        });
        o[all] = now[{ds(1, n), ds(1, n)}];
      },
      {.out_shape = {{{grids, n, n}, f32}},
       .grid = grids,
       .in_specs = grid,
       .out_specs = grid,
       .scratch_shapes = {VMEM({n + 2, n + 2}, f32)},
       .name = "stencil_100"});
  return {"stencil_100_f32_" + std::to_string(grids) + "x64x64",
          call.trace({{{grids, n, n}, f32}}),
          {{.file = "stencil_100", .defines = "", .groups = grids}},
          1e-5};
}

}  // namespace

void pictures(std::vector<Case>& cases, Sizes sizes) {
  const bool full = sizes == Sizes::full;
  for (const DType t : {f32, f16})
    cases.push_back(full ? convolution(16, 64, 64, 64, 64, t, sizes) : convolution(1, 8, 32, 16, 64, t, sizes));
  if (full)
    for (const DType t : {f32, f16}) cases.push_back(convolution(16, 32, 32, 256, 256, t, sizes));
  cases.push_back(full ? depthwise(16, 128, 128, 64) : depthwise(2, 8, 16, 8));
  cases.push_back(full ? bilateral(720, 1280) : bilateral(32, 128));
  cases.push_back(full ? stencil_step(4096, 4096) : stencil_step(32, 1024));
  cases.push_back(stencil_100(full ? 1024 : 2));
}

}  // namespace tessera::gpu_suite
