// samples/kernels/stable_fluids.h against its definition in double precision, on grids that fit no tile, and what a
// whole step is to do.
#include "samples/kernels/stable_fluids.h"

#include <algorithm>

#include "tests/kernels/support.h"

namespace stable_fluids_test {
using namespace tessera;
using namespace tessera::kernels;
using test::Doubles;

namespace {

struct Size {
  int64_t h, w;
};
const std::vector<Size> sizes = {{1, 1}, {2, 3}, {8, 64}, {13, 70}, {33, 131}};

struct Field {
  int64_t h, w;
  Doubles v;  // channels, h, w
  Field(const Array& a) : h(a.shape()[1]), w(a.shape()[2]), v(test::doubles(a)) {}
  Field(int64_t channels, int64_t rows, int64_t columns)
      : h(rows), w(columns), v(static_cast<size_t>(channels * rows * columns)) {}
  double& at(int64_t c, int64_t y, int64_t x) { return v[static_cast<size_t>((c * h + y) * w + x)]; }
  double at(int64_t c, int64_t y, int64_t x) const { return v[static_cast<size_t>((c * h + y) * w + x)]; }
  double near(int64_t c, int64_t y, int64_t x) const {
    return at(c, std::clamp<int64_t>(y, 0, h - 1), std::clamp<int64_t>(x, 0, w - 1));
  }
  double between(int64_t c, double y, double x) const {
    y = std::clamp(y, 0.0, double(h - 1)), x = std::clamp(x, 0.0, double(w - 1));
    const auto i = static_cast<int64_t>(y), j = static_cast<int64_t>(x);
    const double dy = y - double(i), dx = x - double(j);
    return (1 - dy) * ((1 - dx) * near(c, i, j) + dx * near(c, i, j + 1)) +
           dy * ((1 - dx) * near(c, i + 1, j) + dx * near(c, i + 1, j + 1));
  }
};

template <class F>
Field each(int64_t channels, int64_t h, int64_t w, F f) {
  Field out(channels, h, w);
  for (int64_t c = 0; c < channels; ++c)
    for (int64_t y = 0; y < h; ++y)
      for (int64_t x = 0; x < w; ++x) out.at(c, y, x) = f(c, y, x);
  return out;
}

void compare(const PallasCall& call, const std::vector<Array>& arguments, const Doubles& expected,
             double tolerance = 2e-5) {
  test::check(call, arguments, {expected},
              {.absolute = tolerance, .relative = tolerance, .gpu = expected.size() < 1500});
}

double divergence(const Field& v, int64_t y, int64_t x) {
  const auto face = [&](int64_t c, int64_t dy, int64_t dx) {
    if (y + dy < 0 || y + dy >= v.h || x + dx < 0 || x + dx >= v.w) return 0.0;
    return 0.5 * (v.at(c, y, x) + v.at(c, y + dy, x + dx));
  };
  return face(0, 1, 0) - face(0, -1, 0) + face(1, 0, 1) - face(1, 0, -1);
}

}  // namespace

TEST_CASE("fluid_advect: upstream and between cells, also beyond the walls") {
  for (const Size& s : sizes) {
    CAPTURE(s.h);
    CAPTURE(s.w);
    const Array velocity = test::random({2, s.h, s.w}, f32, 1, 3), field = test::random({3, s.h, s.w}, f32, 2);
    const Field v = velocity, f = field;
    const Field expected = each(3, s.h, s.w, [&](int64_t c, int64_t y, int64_t x) {
      return 0.9 * f.between(c, double(y) - 0.7 * v.at(0, y, x), double(x) - 0.7 * v.at(1, y, x));
    });
    // positions of 130 have steps of 2^-17
    compare(fluid_advect(3, s.h, s.w, 0.7, 0.9), {velocity, field}, expected.v, 5e-5);
  }
}

TEST_CASE("fluid_add: bells, each on top of the others") {
  for (const Size& s : sizes) {
    CAPTURE(s.h);
    CAPTURE(s.w);
    const Array field = test::random({2, s.h, s.w}, f32, 3);
    const Array sources({3, 5}, std::vector<float>{2, 5, 3, 1, -1, 0, 0, 1, 0.5f, 0, 20, 60, 9, 2, 3});
    const Field f = field;
    const Doubles b = test::doubles(sources);
    compare(fluid_add(2, s.h, s.w, 3), {field, sources},
            each(2, s.h, s.w, [&](int64_t c, int64_t y, int64_t x) {
              double sum = f.at(c, y, x);
              for (size_t i = 0; i < 15; i += 5)
                sum += b[i + 3 + static_cast<size_t>(c)] *
                       std::exp(-(std::pow(double(y) - b[i], 2) + std::pow(double(x) - b[i + 1], 2)) /
                                (b[i + 2] * b[i + 2]));
              return sum;
            }).v);
  }
}

TEST_CASE("fluid_divergence, fluid_pressure and fluid_project by their definitions") {
  for (const Size& s : sizes) {
    CAPTURE(s.h);
    CAPTURE(s.w);
    const Array velocity = test::random({2, s.h, s.w}, f32, 4), pressure = test::random({1, s.h, s.w}, f32, 5),
                source = test::random({1, s.h, s.w}, f32, 6);
    const Field v = velocity, p = pressure, d = source;
    compare(fluid_divergence(s.h, s.w), {velocity},
            each(1, s.h, s.w, [&](int64_t, int64_t y, int64_t x) { return divergence(v, y, x); }).v);
    compare(fluid_pressure(s.h, s.w), {pressure, source}, each(1, s.h, s.w, [&](int64_t, int64_t y, int64_t x) {
                                                            return 0.25 * (p.near(0, y - 1, x) + p.near(0, y + 1, x) +
                                                                           p.near(0, y, x - 1) + p.near(0, y, x + 1) -
                                                                           d.at(0, y, x));
                                                          }).v);
    compare(fluid_project(s.h, s.w), {velocity, pressure},
            each(2, s.h, s.w, [&](int64_t c, int64_t y, int64_t x) {
              if (c == 0)
                return y == 0 || y == s.h - 1 ? 0 : v.at(0, y, x) - 0.5 * (p.near(0, y + 1, x) - p.near(0, y - 1, x));
              return x == 0 || x == s.w - 1 ? 0 : v.at(1, y, x) - 0.5 * (p.near(0, y, x + 1) - p.near(0, y, x - 1));
            }).v);
  }
  CHECK(test::error_of([] { fluid_divergence(0, 3, {"main.cpp", 7}); }) ==
        "fluid_divergence: a grid of 0 x 3 cells has none\n  at main.cpp:7");
}

TEST_CASE("fluid_particles go where the flow goes, and start again when they are old") {
  const int64_t h = 13, w = 70, n = 300;
  const Array velocity = test::random({2, h, w}, f32, 7, 2);
  Array particles({n, 4}, f32);
  const auto p = particles.data<float>();
  for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
    p[4 * i] = float(i % 13), p[4 * i + 1] = 0.37f * float(i % 180), p[4 * i + 3] = float(i % 50);
  }
  const Field v = velocity;
  Doubles expected;
  for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
    const double y = p[4 * i], x = p[4 * i + 1], half_y = y + 0.5 * v.between(0, y, x),
                 half_x = x + 0.5 * v.between(1, y, x);
    const double dy = v.between(0, half_y, half_x), dx = v.between(1, half_y, half_x);
    const bool again = p[4 * i + 3] >= 40;
    const double any = std::nan("");  // anywhere
    const Doubles moved = {std::clamp(y + dy, 0.0, double(h - 1)), std::clamp(x + dx, 0.0, double(w - 1)),
                           std::hypot(dy, dx), p[4 * i + 3] + 1.0};
    const Doubles born = {any, any, 0, 0};
    expected.insert(expected.end(), again ? born.begin() : moved.begin(), again ? born.end() : moved.end());
  }
  const PallasCall call = fluid_particles(h, w, n, 1, 40);
  compare(call, {velocity, particles}, expected, 1e-4);
  // Those that start again are in the box, and not all in one place.
  const Array out = interpret(call, velocity, particles);
  double low = 1e9, high = -1e9;
  for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
    if (p[4 * i + 3] < 40) continue;
    const double x = out.data<float>()[4 * i + 1];
    low = std::min(low, x), high = std::max(high, x);
    CHECK(x >= 0);
    CHECK(x <= double(w - 1));
  }
  CHECK(high - low > 0.8 * double(w));
}

TEST_CASE("a step of the fluid takes out what would compress it") {
  const int64_t h = 24, w = 40;
  Array velocity = fluid_add(2, h, w, 1)(Array({2, h, w}, f32), Array({1, 5}, std::vector<float>{12, 10, 4, 0.5f, 2})),
        pressure({1, h, w}, f32);
  const Array before = fluid_divergence(h, w)(velocity);
  for (int i = 0; i < 200; ++i) pressure = fluid_pressure(h, w)(pressure, before);
  velocity = fluid_project(h, w)(velocity, pressure);
  const Array after = fluid_divergence(h, w)(velocity);
  const auto norm = [](const Array& a) {
    double sum = 0;
    for (const double x : test::doubles(a)) sum += x * x;
    return std::sqrt(sum);
  };
  CHECK(norm(after) < 0.25 * norm(before));
}

}  // namespace stable_fluids_test
