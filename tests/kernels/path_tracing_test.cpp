// samples/kernels/path_tracing.h: rooms whose light is known exactly, means that converge as they must, histories that
// go where the surfaces go; on the interpreter, the device and a GPU's code.
#include "samples/kernels/path_tracing.h"

#include <algorithm>
#include <array>

#include "engine/interpreter/interpreter.h"
#include "runtime/call/call.h"
#include "tests/kernels/support.h"

namespace path_tracing_test {
using namespace tessera;
using namespace tessera::kernels;
using test::Doubles;

namespace {

constexpr double kPi = 3.14159265358979;
using Vec3 = std::array<double, 3>;

struct Room {
  double reflects = 0.6, lamp = 8, sampled = 1, glow = 0;
  std::vector<std::vector<float>> spheres = {};
};
const std::vector<std::vector<float>> kBalls = {{-0.4f, 0.4f, 0.3f, 0.4f, 0.6f, 0.6f, 0.6f, 1},
                                                {0.4f, 0.35f, -0.2f, 0.35f, 0.6f, 0.6f, 0.6f, -1.5f},
                                                {0, 0.2f, -0.7f, 0.2f, 0.6f, 0.6f, 0.6f, 1.3f},
                                                {0.5f, 1.2f, 0.4f, 0.3f, 0.6f, 0.6f, 0.6f, 0}};
Array scene(const Room& room) {
  const auto f = [](double v) { return static_cast<float>(v); };
  std::vector<float> v;
  for (int wall = 0; wall < 6; ++wall)
    v.insert(v.end(), {f(room.reflects), f(room.reflects), f(room.reflects), 0, 0, 0, 0, 0});
  v.insert(v.end(), {-1, 0, -2, 1, 2, 1, 0, 0});
  v.insert(v.end(), {-0.5f, 0.5f, -0.4f, 0.4f, f(room.lamp), f(room.sampled), f(room.glow), 0});
  for (std::vector<float> s : room.spheres) {
    for (size_t k = 4; k < 7; ++k) s[k] = f(room.reflects);
    v.insert(v.end(), s.begin(), s.end());
  }
  return Array({8 + static_cast<int64_t>(room.spheres.size()), 8}, v);
}
Array camera(const std::vector<float>& c) { return Array({12}, c); }
Array cameras(const std::vector<float>& now, const std::vector<float>& before) {
  std::vector<float> both = now;
  both.insert(both.end(), before.begin(), before.end());
  return Array({2, 12}, both);
}
Array frame(uint32_t number) { return Array({2}, std::vector<uint32_t>{number, 7}); }
const std::vector<float> kEye = look({0.1, 1.1, -1.9}, {0, 0.8, 0}, 0.6);

/// On the device where there is one.
Arrays run(const PallasCall& call, const std::vector<Array>& arguments) {
  if (!test::device()) return interpret(call, arguments);
  std::vector<DeviceArray> on;
  for (const Array& a : arguments) on.emplace_back(*test::device(), a);
  std::vector<Array> out;
  for (const DeviceArray& a : launch(*test::device(), call, on)) out.push_back(a.download());
  return Arrays(out);
}
double mean(const Array& a) {
  double sum = 0;
  for (int64_t i = 0; i < a.size(); ++i) sum += a.at(i);
  return sum / static_cast<double>(a.size());
}
/// Where the ray through the middle of a pixel begins, and its direction.
std::pair<Vec3, Vec3> ray(const std::vector<float>& c, int64_t y, int64_t x, int64_t h, int64_t w) {
  const double a = (static_cast<double>(x) + 0.5) * 2 / static_cast<double>(w) - 1,
               b = 1 - (static_cast<double>(y) + 0.5) * 2 / static_cast<double>(h);
  Vec3 d;
  double squares = 0;
  for (size_t i = 0; i < 3; ++i) d[i] = c[9 + i] + a * c[3 + i] + b * c[6 + i], squares += d[i] * d[i];
  for (double& v : d) v /= std::sqrt(squares);
  return {{c[0], c[1], c[2]}, d};
}

}  // namespace

TEST_CASE("path_trace: in a furnace every path brings the same light") {
  // All surfaces shine with g and reflect a, whatever they are: after n of them a path has g (1 + a + ... + a^(n - 1)),
  // and no other light.
  const int64_t h = 13, w = 37;
  for (const bool white : {false, true}) {
    CAPTURE(white);
    const double a = white ? 1 : 0.5, g = white ? 0.25 : 0.5, expected = white ? 1 : 1 - std::pow(0.5, 4);
    const Array room = scene({.reflects = a, .lamp = 0, .sampled = 0, .glow = g, .spheres = kBalls});
    test::check(
        path_trace(h, w, {.spheres = 4, .samples = 2, .bounces = 4}), {camera(kEye), room, frame(3)},
        {Doubles(static_cast<size_t>(3 * h * w), expected), Doubles(static_cast<size_t>(5 * h * w), std::nan(""))},
        {.absolute = 2e-6, .relative = 0});
  }
}

TEST_CASE("path_trace: the interpreter's light and surfaces, but where rounding decides what a path meets") {
  const int64_t h = 19, w = 45;
  const PallasCall call = path_trace(h, w, {.spheres = 4, .samples = 1, .bounces = 4, .most = 20});
  const std::vector<Array> arguments = {camera(kEye), scene({.spheres = kBalls}), frame(5)};
  const Arrays expected = interpret(call, arguments);
  const auto others = [&](const std::vector<Array>& got) {
    int64_t n = 0;
    for (size_t k = 0; k < 2; ++k)
      for (int64_t i = 0; i < got[k].size(); ++i)
        n += !(std::abs(got[k].at(i) - expected[k].at(i)) <= 1e-3 * (1 + std::abs(expected[k].at(i))));
    return static_cast<double>(n) / static_cast<double>(got[0].size() + got[1].size());
  };
  const Arrays device = run(call, arguments);
  CHECK(others({device[0], device[1]}) < 0.01);
  std::vector<ShapeDtype> types;
  for (const Array& a : arguments) types.push_back(Type(a));
  CHECK(others(test::on_lanes(call.trace(types), arguments, false)) < 0.01);
}

TEST_CASE("path_trace: to sample the lamp and to meet it by chance are one mean") {
  const int64_t n = 32, frames = 48;
  const PallasCall call = path_trace(n, n, {.spheres = 4, .samples = 1, .bounces = 5});
  double means[2], errors[2];
  for (int sampled = 0; sampled < 2; ++sampled) {
    double sum = 0, squares = 0;
    for (uint32_t f = 0; f < frames; ++f) {
      const double m =
          mean(run(call, {camera(kEye), scene({.lamp = 8, .sampled = static_cast<double>(sampled), .spheres = kBalls}),
                          frame(100 + f)})[0]);
      sum += m, squares += m * m;
    }
    means[sampled] = sum / frames,
    errors[sampled] = std::sqrt((squares / frames - means[sampled] * means[sampled]) / (frames - 1));
  }
  CAPTURE(means[0]);
  CAPTURE(means[1]);
  CAPTURE(errors[0]);
  CAPTURE(errors[1]);
  CHECK(std::abs(means[0] - means[1]) < 4 * std::hypot(errors[0], errors[1]));  // four standard deviations
  CHECK(errors[1] < errors[0]);
  CHECK(errors[0] < 0.02 * means[0]);  // so that this says something
}

TEST_CASE("path_accumulate: frames from one place are a mean whose error falls with the square root of their number") {
  // One bounce on the floor: light of the lamp alone, which an integral over the lamp gives. Pixels and frames have
  // random numbers of their own, so the error of a mean of n frames, over all pixels, is sigma / sqrt(n); of 1024
  // pixels it is known within 1 / sqrt(2048), here doubled, for the errors of few frames are not normal, and taken four
  // times.
  const int64_t n = 32;
  const Room room;
  const std::vector<float> eye = look({0, 1, -1.5}, {0.3, 0, 0.1}, 0.02);
  const PallasCall trace = path_trace(n, n, {.samples = 1, .bounces = 1}), accumulate = path_accumulate(n, n);
  Doubles expected(static_cast<size_t>(n * n));
  for (int64_t p = 0; p < n * n; ++p) {
    const auto [from, way] = ray(eye, p / n, p % n, n, n);
    const double t = -from[1] / way[1], x = from[0] + t * way[0], z = from[2] + t * way[2];
    double sum = 0;
    constexpr int steps = 24;
    for (int i = 0; i < steps; ++i)
      for (int j = 0; j < steps; ++j) {
        const double dx = -0.5 + (i + 0.5) / steps - x, dz = -0.4 + 0.8 * (j + 0.5) / steps - z,
                     squared = dx * dx + 4 + dz * dz;
        sum += 4 / (squared * squared);  // both cosines are the height over the distance
      }
    expected[static_cast<size_t>(p)] = room.reflects / kPi * room.lamp * 0.8 * sum / (steps * steps);
  }
  Array history({4, n, n}, f32), surface({5, n, n}, f32);
  double first = 0;
  for (uint32_t f = 1; f <= 256; ++f) {
    const Arrays traced = run(trace, {camera(eye), scene(room), frame(f)});
    history = run(accumulate, {cameras(eye, eye), Array({2}, std::vector<float>{1e6, 1e6}), traced[0], traced[1],
                               history, surface})[0];
    surface = traced[1];
    if (f != 1 && f != 4 && f != 16 && f != 64 && f != 256) continue;
    CAPTURE(f);
    double squares = 0;
    for (int64_t p = 0; p < n * n; ++p) {
      REQUIRE(history.at(3 * n * n + p) == f);
      squares += std::pow(history.at(p) - expected[static_cast<size_t>(p)], 2);
    }
    const double sigma = std::sqrt(squares / static_cast<double>(n * n)) * std::sqrt(static_cast<double>(f));
    if (f == 1) first = sigma;
    CHECK(sigma > 0.01 * expected[0]);
    CHECK(std::abs(sigma / first - 1) < 2 * 4 / std::sqrt(2048.0));
  }
}

TEST_CASE("path_accumulate: a camera that stands still finds each pixel in its own place") {
  for (const auto& size : {std::pair<int64_t, int64_t>{13, 70}, {8, 32}, {40, 21}}) {
    const int64_t h = size.first, w = size.second, plane = h * w;
    CAPTURE(h);
    const Array surface = run(path_trace(h, w, {.spheres = 4, .samples = 1, .bounces = 1}),
                              {camera(kEye), scene({.spheres = kBalls}), frame(1)})[1];
    Array history = test::random({4, h, w}, f32, 9, 1, 2);
    for (int64_t p = 0; p < plane; ++p)
      history.data<float>()[static_cast<size_t>(3 * plane + p)] = static_cast<float>(1 + p % 50);
    const Array light = test::random({3, h, w}, f32, 10, 1, 2);
    const double longest[2] = {30, 12};
    Doubles expected;
    for (int64_t i = 0; i < 4 * plane; ++i) {
      const int64_t p = i % plane;
      const double frames = std::min(history.at(3 * plane + p), longest[surface.at(4 * plane + p) > 0] - 1) + 1;
      expected.push_back(i >= 3 * plane ? frames : history.at(i) + (light.at(i) - history.at(i)) / frames);
    }
    test::check(path_accumulate(h, w),
                {cameras(kEye, kEye), Array({2}, std::vector<float>{30, 12}), light, surface, history, surface},
                {expected}, {.absolute = 1e-6, .relative = 1e-6, .gpu = plane < 1000});
  }
}

TEST_CASE("path_accumulate: when the camera moves, the history goes with the surfaces") {
  // The history is a smooth function of the place on the surface, so that what is found can be foretold, up to what
  // interpolating it between pixels costs.
  const int64_t n = 64, plane = n * n;
  const std::vector<float> then = kEye, now = look({0.25, 1.0, -1.8}, {0.05, 0.75, 0}, 0.6);
  const PallasCall trace = path_trace(n, n, {.spheres = 4, .samples = 1, .bounces = 1});
  const Array room = scene({.spheres = kBalls});
  const Array before = run(trace, {camera(then), room, frame(1)})[1],
              surface = run(trace, {camera(now), room, frame(1)})[1];
  const auto field = [&](const std::vector<float>& c, const Array& seen, int64_t p) {
    const auto [from, way] = ray(c, p / n, p % n, n, n);
    double v = 2;
    for (size_t i = 0; i < 3; ++i) v += std::sin(2 * (from[i] + way[i] * seen.at(3 * plane + p)));
    return v;
  };
  Array history({4, n, n}, f32);
  for (int64_t p = 0; p < plane; ++p)
    for (int64_t c = 0; c < 4; ++c)
      history.data<float>()[static_cast<size_t>(c * plane + p)] =
          c == 3 ? 9 : static_cast<float>(field(then, before, p));
  const Array next = run(path_accumulate(n, n), {cameras(now, then), Array({2}, std::vector<float>{1e9f, 1e9f}),
                                                 Array({3, n, n}, f32), surface, history, before})[0];
  int64_t found = 0, facing = 0, right = 0;
  double worst = 0;
  for (int64_t p = 0; p < plane; ++p) {
    if (next.at(3 * plane + p) == 1) continue;  // not seen before
    ++found;
    CHECK(next.at(3 * plane + p) == doctest::Approx(10).epsilon(1e-4));
    // Where a surface turns away, a pixel covers much of it, and the middle of four pixels says little.
    const Vec3 way = ray(now, p / n, p % n, n, n).second;
    if (-(way[0] * surface.at(p) + way[1] * surface.at(plane + p) + way[2] * surface.at(2 * plane + p)) < 0.3) continue;
    const double off = std::abs(next.at(p) * 10 / 9 - field(now, surface, p));
    ++facing, right += off < 0.02;
    worst = std::max(worst, off);
  }
  CHECK(found > 0.8 * static_cast<double>(plane));
  CHECK(found < plane);  // spheres hide what has been behind them, and the picture's edge what lies beyond
  CHECK(facing > 0.7 * static_cast<double>(plane));
  // At edges, where not all four neighbours count, what is found is of up to a pixel beside. A pixel is about 0.06 wide
  // where it is farthest, wider by 1 / 0.3 where the surface is turned away most, and the function changes by up to 2
  // sqrt(3) per unit.
  CHECK(right > 0.95 * static_cast<double>(facing));
  CHECK(worst < 0.06 / 0.3 * 2 * std::sqrt(3.0));
}

TEST_CASE("path_trace, path_accumulate: what they are not for") {
  CHECK(test::error_of([] { path_trace(0, 3, {}, {"main.cpp", 7}); }) ==
        "path_trace: a picture of 0 x 3 pixels has none\n  at main.cpp:7");
  CHECK(test::error_of([] { path_accumulate(4, -1, {"main.cpp", 7}); }) ==
        "path_accumulate: a picture of 4 x -1 pixels has none\n  at main.cpp:7");
  CHECK(test::error_of([] { path_trace(4, 4, {.samples = 0}, {"main.cpp", 8}); }) ==
        "path_trace: 0 paths of 5 bounces bring no light\n  at main.cpp:8");
  CHECK(test::error_of([] { path_trace(4, 4, {.spheres = -2}, {"main.cpp", 9}); }) ==
        "path_trace: there are -2 spheres\n  at main.cpp:9");
}

}  // namespace path_tracing_test
