#include "samples/ffmpeg/filter.h"

namespace filter {

using namespace tessera;

namespace {
constexpr int64_t kRows = 8, kColumns = 64;  // of a program's texels
constexpr int64_t kReach = 2, kTexels = (2 * kReach + 1) * (2 * kReach + 1);
constexpr double kStill = 0.015, kMoved = 0.05;  // mean differences of noise alone, and of other things in the picture

Value light(Value luma) { return pow(maximum(luma, 0), 2.4); }
Indices at_tile(Value i, Value j) { return {i, j}; }
Value film(Value x) { return clamp(0, x * (2.51 * x + 0.03) / (x * (2.43 * x + 0.59) + 0.14), 1); }
}  // namespace

PallasCall denoise(int64_t height, int64_t width) {
  const BlockSpec around{{Halo(kRows, kReach, Edge::clamp), Halo(kColumns, kReach, Edge::clamp)}, at_tile};
  return pallas_call(
      [](Ref least, Ref plane, Ref before, Ref o) {
        const auto at = [](Ref x, int64_t dy, int64_t dx) -> Value {
          return x[{ds(kReach + dy, kRows), ds(kReach + dx, kColumns)}];
        };
        Value now = zeros({kRows, kColumns}), then = now;  // sums over the texels around
        for (int64_t dy = -kReach; dy <= kReach; ++dy)
          for (int64_t dx = -kReach; dx <= kReach; ++dx)
            now = now + at(plane, dy, dx), then = then + at(before, dy, dx);
        const Value moved = clamp(0, (abs(now - then) / kTexels - kStill) / (kMoved - kStill), 1);
        const Value texel = at(plane, 0, 0), old = at(before, 0, 0);
        const Value fresh = texel + moved * (now / kTexels - texel) / 2;
        o[all] = old + maximum(least[all], moved) * (fresh - old);
      },
      {.out_shape = {{{height, width}, f32}},
       .grid = {cdiv(height, kRows), cdiv(width, kColumns)},
       .in_specs = {by_value(f32), around, around},
       .out_specs = {{{kRows, kColumns}, at_tile}},
       .name = "denoise",
       .compiler_params = CompilerParams{.dimension_semantics = {"parallel", "parallel"}},
       .in_shape = {{{}, f32}, {{height, width}, f32}, {{height, width}, f32}}});
}

PallasCall tone_map(int64_t height, int64_t width, double exposure, Range range) {
  const int64_t rows = (height + 1) / 2, columns = (width + 1) / 2;
  const BlockSpec luma{{2 * kRows, 2 * kColumns}, at_tile}, chroma{{kRows, kColumns}, at_tile};
  return pallas_call(
      [=](Ref y, Ref cb, Ref cr, Ref new_y, Ref new_cb, Ref new_cr) {
        const double span = range.white - range.black;
        const Value before = (y[all] - range.black) / span;
        const Value after = pow(film(light(before) * exposure), 1 / 2.4);
        new_y[all] = range.black + span * after;
        // Of an odd row or column the last texel stands for itself: what lies beyond the picture counts as nothing.
        const Shape shape = {2 * kRows, 2 * kColumns};
        const Value inside = (program_id(0) * (2 * kRows) + iota(i32, shape, 0) < height) &
                             (program_id(1) * (2 * kColumns) + iota(i32, shape, 1) < width);
        const auto four = [&](const Value& x) {
          return sum(reshape(where(inside, x, 0), {kRows, 2, kColumns, 2}), {.axis = {1, 3}});
        };
        const Value scale = clamp(0.25, four(after) / maximum(four(maximum(before, 0)), 1e-3), 2);
        new_cb[all] = range.neutral + (cb[all] - range.neutral) * scale;
        new_cr[all] = range.neutral + (cr[all] - range.neutral) * scale;
      },
      {.out_shape = {{{height, width}, f32}, {{rows, columns}, f32}, {{rows, columns}, f32}},
       .grid = {cdiv(rows, kRows), cdiv(columns, kColumns)},
       .in_specs = {luma, chroma, chroma},
       .out_specs = {luma, chroma, chroma},
       .name = "tone_map",
       .compiler_params = CompilerParams{.dimension_semantics = {"parallel", "parallel"}},
       .in_shape = {{{height, width}, f32}, {{rows, columns}, f32}, {{rows, columns}, f32}}});
}

}  // namespace filter
