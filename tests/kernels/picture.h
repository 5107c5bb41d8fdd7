// Pictures in double precision, which the tests of kernels for pictures compute their references on.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "engine/base/array.h"

namespace tessera::test {

struct Picture {
  int64_t h, w;
  std::vector<double> v;  // h, w, 4
  Picture(int64_t rows, int64_t columns) : h(rows), w(columns), v(static_cast<size_t>(rows * columns * 4)) {}
  double& at(int64_t y, int64_t x, int64_t c) { return v[static_cast<size_t>((y * w + x) * 4 + c)]; }
  double at(int64_t y, int64_t x, int64_t c) const { return v[static_cast<size_t>((y * w + x) * 4 + c)]; }
  bool has(int64_t y, int64_t x) const { return y >= 0 && y < h && x >= 0 && x < w; }
  /// The pixel nearest to a place beyond the edges.
  double near(int64_t y, int64_t x, int64_t c) const {
    return at(std::clamp<int64_t>(y, 0, h - 1), std::clamp<int64_t>(x, 0, w - 1), c);
  }
  double light(int64_t y, int64_t x) const {
    return 0.2126 * at(y, x, 0) + 0.7152 * at(y, x, 1) + 0.0722 * at(y, x, 2);
  }
  Array array() const {
    Array a({h, w, 4}, DType::f32);
    std::transform(v.begin(), v.end(), a.data<float>().begin(), [](double x) { return static_cast<float>(x); });
    return a;
  }
};

/// Values below `scale` that f32 holds exactly, so that both sides start from the same.
inline Picture noise(int64_t h, int64_t w, uint32_t seed, double scale) {
  Picture p(h, w);
  for (double& x : p.v) {
    seed = seed * 1664525u + 1013904223u;
    x = static_cast<float>(scale * (seed >> 8) / (1 << 24));
  }
  return p;
}

}  // namespace tessera::test
