// Spheres that melt into each other over a floor: ray_march [-o FILE] [--size WxH] [--frames N] [--window]. Nothing in
// the scene has a surface: a function says how far from everything a point is at least, and a ray goes that far, again
// and again (Hart, Sphere Tracing, 1996). The scene is written once, for blocks of pixels and for single numbers, with
// which the answer is checked.
#include <algorithm>
#include <cmath>
#include <functional>
#include <tessera/tessera.hpp>

#include "samples/support/demo.h"

namespace ts = tessera;
using ts::Ref, ts::Value, ts::all;

namespace {
// What the scene needs, of numbers as of blocks.
double sqrt(double x) { return std::sqrt(x); }
double least(double a, double b) { return std::min(a, b); }
double most(double a, double b) { return std::max(a, b); }
double floor(double x) { return std::floor(x); }
double sin(double x) { return std::sin(x); }
Value sqrt(const Value& x) { return ts::sqrt(x); }
Value least(const Value& a, ts::Operand b) { return ts::minimum(a, b); }
Value most(const Value& a, ts::Operand b) { return ts::maximum(a, b); }
Value floor(const Value& x) { return ts::floor(x); }
Value sin(const Value& x) { return ts::sin(x); }
double march(int n, double t, const std::function<double(double)>& step) {
  while (n-- > 0) t = step(t);
  return t;
}
Value march(int n, const Value& t, const std::function<Value(Value)>& step) {
  return ts::fori_loop(0, n, t, [&](Value, Value far) { return step(far); });
}
double tile(double, double v) { return v; }
Value tile(const Value& like, double v) { return ts::full(like.shape(), v, ts::f32); }

constexpr int rows = 8, columns = 64, kFar = 12;

template <class T>
struct Vec {
  T x, y, z;
  Vec operator+(const Vec& o) const { return {x + o.x, y + o.y, z + o.z}; }
  Vec operator*(const T& s) const { return {x * s, y * s, z * s}; }
  T dot(const Vec& o) const { return x * o.x + y * o.y + z * o.z; }
  Vec unit() const { return *this * (1.0 / sqrt(dot(*this))); }
};

template <class T> T ball(const Vec<T>& p, const T& x, const T& y, const T& z, double radius) {
  const Vec<T> d = {p.x - x, p.y - y, p.z - z};
  return sqrt(d.dot(d) + 1e-9) - radius;
}
/// The nearer of two distances, rounded where they meet.
template <class T> T melt(const T& a, const T& b) {
  const T h = most(0.35 - most(a - b, b - a), 0.0) / 0.35;
  return least(a, b) - h * h * 0.0875;
}
template <class T> T scene(const Vec<T>& p, const T& time) {
  const T turn = 6.2831853 * time;
  const T zero = tile(time, 0);
  T d = ball<T>(p, zero, 0.25 * sin(turn) + 0.65, zero, 0.55);
  d = melt<T>(d, ball<T>(p, 0.8 * sin(turn), zero + 0.55, 0.8 * sin(turn + 1.5707963), 0.34));
  d = melt<T>(d,
              ball<T>(p, 0.9 * sin(turn + 2.0943951), 0.35 * sin(2.0 * turn) + 0.7, 0.9 * sin(turn + 3.6651914), 0.28));
  d = melt<T>(d,
              ball<T>(p, 0.7 * sin(turn + 4.1887902), 0.3 * sin(turn + 1.0) + 0.8, 0.7 * sin(turn + 5.7595865), 0.24));
  return melt<T>(d, p.y);
}

/// The three colours that the ray through pixel (row, column) sees.
template <class T> std::array<T, 3> shade(const T& row, const T& column, const T& time, double h, double w) {
  const double side = std::min(h, w);
  const Vec<T> ray = Vec<T>{(column + (0.5 - 0.5 * w)) * (2.0 / side), (0.5 * h - 0.5 - row) * (2.0 / side) - 0.32,
                            tile(row, 1.9)}
                         .unit(),
               eye = {tile(row, 0), tile(row, 1.5), tile(row, -3.2)};
  // The camera looks down a little.
  const Vec<T> way = {ray.x, 0.955 * ray.y - 0.295 * ray.z, 0.955 * ray.z + 0.295 * ray.y};
  const T far = march(96, tile(row, 0.5), std::function<T(T)>([&](T t) {
                        return least(t + scene<T>(eye + way * t, time), static_cast<double>(kFar));
                      }));
  const Vec<T> at = eye + way * far;
  const double e = 0.004;
  const auto slope = [&](double x, double y, double z) {
    return scene<T>({at.x + x, at.y + y, at.z + z}, time) - scene<T>({at.x - x, at.y - y, at.z - z}, time);
  };
  const Vec<T> normal = Vec<T>{slope(e, 0, 0), slope(0, e, 0), slope(0, 0, e) + 1e-12}.unit();
  const Vec<T> light = {tile(row, 0.55), tile(row, 0.7), tile(row, -0.455)};
  // Towards the light, the narrowest gap that the ray passes, by how far away it is.
  T gap = tile(row, 1), walked = tile(row, 0.03);
  for (int i = 0; i < 20; ++i) {
    const T d = scene<T>(at + light * walked, time);
    gap = least(gap, most(9.0 * d / walked, 0.0));
    walked = walked + least(most(d, 0.03), 0.25);
  }
  T open = tile(row, 1);  // how much sky there is around
  for (int i = 1; i <= 4; ++i)
    open = open - (0.09 * i - scene<T>(at + normal * tile(row, 0.09 * i), time)) * (1.3 / (1 << i));
  open = most(open, 0.0);
  const T sun = most(normal.dot(light), 0.0) * gap, sky = (0.5 * normal.y + 0.5) * open;
  const T squares = floor(1.5 * at.x) + floor(1.5 * at.z), odd = squares - 2.0 * floor(0.5 * squares);
  const T floor_tint = 0.32 + 0.4 * odd, on_floor = least(most((0.12 - at.y) * 10.0, 0.0), 1.0);
  const double body[] = {0.95, 0.42, 0.2}, sun_tint[] = {1.15, 1.0, 0.82}, sky_tint[] = {0.3, 0.42, 0.62};
  const T fog = least(far * far * (1.0 / (kFar * kFar)), 1.0), fade = fog * fog;
  std::array<T, 3> out = {row, row, row};
  for (size_t c = 0; c < 3; ++c) {
    const T tint = body[c] + (floor_tint - body[c]) * on_floor;
    const T lit = tint * (sun * sun_tint[c] + sky * sky_tint[c]);
    const T backdrop = sky_tint[c] * (1.25 - 0.6 * way.y) + 0.1;
    out[c] = sqrt(least(most(lit + (backdrop - lit) * fade, 0.0), 1.0));
  }
  return out;
}

ts::PallasCall make_kernel(int64_t h, int64_t w) {
  return ts::pallas_call(
      [=](Ref time, Ref o) {
        const Value y = ts::cast(ts::program_id(0) * rows + ts::iota(ts::i32, {rows, columns}, 0), ts::f32),
                    x = ts::cast(ts::program_id(1) * columns + ts::iota(ts::i32, {rows, columns}, 1), ts::f32);
        const Value now = ts::broadcast_to(time[0], {rows, columns});
        const std::array<Value, 3> colour = shade<Value>(y, x, now, static_cast<double>(h), static_cast<double>(w));
        for (int c = 0; c < 3; ++c) o[c] = colour[static_cast<size_t>(c)];
      },
      {.out_shape = {{{3, h, w}, ts::f32}},
       .grid = {ts::cdiv(h, rows), ts::cdiv(w, columns)},
       .in_specs = {{{1}, [](Value, Value) { return 0; }}},
       .out_specs = {{{3, rows, columns}, [](Value i, Value j) { return ts::Indices{0, i, j}; }}},
       .name = "ray_march"});
}
}  // namespace

int main(int argc, char** argv) try {
  const sample::Demo demo = sample::demo_options(
      argc, argv, {"ray_march", "Spheres that melt into each other over a floor, by sphere tracing.", 160, 160, 16});
  const ts::PallasCall draw = make_kernel(demo.height, demo.width);
  sample::Player player(demo);
  while (player.more())
    player.show(draw(ts::Array(
        {1}, std::vector<float>{static_cast<float>(player.frame() % demo.frames) / static_cast<float>(demo.frames)})));
  player.finish();
  // Where rounding decides which thing a ray meets, colours jump; elsewhere they agree. So what is compared is how many
  // of 500 pixels of the first picture differ.
  const ts::Array& first = player.first();
  const int64_t w = demo.width, plane = demo.height * w;
  float others = 0;
  for (int64_t i = 0; i < 500; ++i) {
    const int64_t p = i * 7919 % plane;
    const std::array<double, 3> wanted = shade<double>(static_cast<double>(p / w), static_cast<double>(p % w), 0.0,
                                                       static_cast<double>(demo.height), static_cast<double>(w));
    double off = 0;
    for (int64_t c = 0; c < 3; ++c)
      off = std::max(off, std::isnan(first.at(c * plane + p))
                              ? 1
                              : std::fabs(first.at(c * plane + p) - wanted[static_cast<size_t>(c)]));
    others += off > 0.02 ? 1 : 0;
  }
  return sample::check(
      "ray_march", ts::Array({1}, std::vector<float>{others / 500}), [](int64_t) { return 0.0; }, 0.02);
} catch (const std::exception& e) {
  return sample::fail("ray_march", e);
}
