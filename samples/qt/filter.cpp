#include "samples/qt/filter.h"

#include <cmath>

namespace filter {

using namespace tessera;

namespace {
constexpr int64_t kRows = 8, kColumns = 32;  // of a program's texels
constexpr int64_t kReach = 3;                // of the bilateral filter's taps

Indices at_tile(Value i, Value j) { return {i, j, 0}; }
BlockSpec around(int64_t reach) {
  return {{Halo(kRows, reach, Edge::clamp), Halo(kColumns, reach, Edge::clamp), 4}, at_tile};
}
PallasCallParams over_tiles(int64_t height, int64_t width, const char* name) {
  PallasCallParams p;
  p.out_shape = {{{height, width, 4}, f32}};
  p.grid = {cdiv(height, kRows), cdiv(width, kColumns)};
  p.out_specs = {{{kRows, kColumns, 4}, at_tile}};
  p.name = name;
  p.compiler_params = CompilerParams{.dimension_semantics = {"parallel", "parallel"}};
  return p;
}
}  // namespace

PallasCall bilateral(int64_t height, int64_t width) {
  PallasCallParams p = over_tiles(height, width, "bilateral");
  p.in_specs = {by_value(f32), around(kReach)};
  p.in_shape = {{{}, f32}, {{height, width, 4}, f32}};
  return pallas_call(
      [](Ref range, Ref picture, Ref o) {
        const auto at = [&](int64_t dy, int64_t dx, int c) -> Value {
          return picture[{ds(kReach + dy, kRows), ds(kReach + dx, kColumns), c}];
        };
        const Value narrow = -0.5 / maximum(range[all] * range[all], 1e-6);
        const Value middle[3] = {at(0, 0, 0), at(0, 0, 1), at(0, 0, 2)};
        Value sums[3] = {zeros({kRows, kColumns}), zeros({kRows, kColumns}), zeros({kRows, kColumns})},
              weights = zeros({kRows, kColumns});
        for (int64_t dy = -kReach; dy <= kReach; ++dy)
          for (int64_t dx = -kReach; dx <= kReach; ++dx) {
            Value texel[3] = {at(dy, dx, 0), at(dy, dx, 1), at(dy, dx, 2)}, apart = zeros({kRows, kColumns});
            for (int c = 0; c < 3; ++c) apart = apart + (texel[c] - middle[c]) * (texel[c] - middle[c]);
            const double near = std::exp(-0.5 * static_cast<double>(dy * dy + dx * dx) / (0.5 * kReach * 0.5 * kReach));
            const Value weight = near * exp(apart * narrow);
            for (int c = 0; c < 3; ++c) sums[c] = sums[c] + weight * texel[c];
            weights = weights + weight;
          }
        for (int c = 0; c < 3; ++c) o[{all, all, c}] = sums[c] / weights;
        o[{all, all, 3}] = at(0, 0, 3);
      },
      p);
}

PallasCall develop(int64_t height, int64_t width) {
  PallasCallParams p = over_tiles(height, width, "develop");
  p.in_specs = {by_value(f32), by_value(f32), by_value(f32), around(1)};
  p.in_shape = {{{}, f32}, {{}, f32}, {{}, f32}, {{height, width, 4}, f32}};
  return pallas_call(
      [](Ref exposure, Ref sharpness, Ref contrast, Ref picture, Ref o) {
        const auto at = [&](int64_t dy, int64_t dx, int c) -> Value {
          return picture[{ds(1 + dy, kRows), ds(1 + dx, kColumns), c}];
        };
        const Value gain = exp2(exposure[all]);
        for (int c = 0; c < 3; ++c) {
          Value mean = zeros({kRows, kColumns});
          for (int64_t dy = -1; dy <= 1; ++dy)
            for (int64_t dx = -1; dx <= 1; ++dx) mean = mean + at(dy, dx, c);
          const Value sharp = clamp(0, at(0, 0, c) + sharpness[all] * (at(0, 0, c) - mean / 9), 1);
          // sRGB to light and back (IEC 61966-2-1).
          const Value light = where(sharp <= 0.04045, sharp / 12.92, pow((sharp + 0.055) / 1.055, 2.4)) * gain;
          const Value code = where(light <= 0.0031308, light * 12.92, 1.055 * pow(light, 1 / 2.4) - 0.055);
          o[{all, all, c}] = clamp(0, 0.5 + (code - 0.5) * contrast[all], 1);
        }
        o[{all, all, 3}] = at(0, 0, 3);
      },
      p);
}

}  // namespace filter
