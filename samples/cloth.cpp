// A cloth that falls on a ball: cloth [-o FILE] [--size WxH] [--frames N] [--window]. The steps from frame to frame are
// one graph (kernels/cloth.h), and so is the picture: the cloth drawn as points for the camera and for the sun, whose
// depths give its shadow, and a kernel that shades each pixel; twice as large as it is shown, for smooth edges.
#include "samples/kernels/cloth.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <tessera/tessera.hpp>

#include "samples/kernels/post_processing.h"
#include "samples/support/demo.h"
#include "samples/support/picture.h"

namespace ts = tessera;
namespace k = ts::kernels;
using ts::Ref, ts::Tensor, ts::Value, ts::all;

constexpr int64_t steps = 16, passes = 12;  // from frame to frame, and in each step
constexpr double tilt = 0.42;               // of the camera, from the horizontal, in radians
using Vec = std::array<double, 3>;

/// All lengths are in meshes, of which the cloth has side - 1 along each edge.
struct Scene {
  int64_t side;
  double size, radius;
  k::Cloth cloth;
  explicit Scene(int64_t points)
      : side(points), size(static_cast<double>(points)), radius(0.23 * size), cloth{.gravity = 4e-5 * size} {}
  ts::Array sphere() const {
    const float r = static_cast<float>(radius);
    return ts::Array({4}, std::vector<float>{0, r, 0, r});
  }
  /// Flat above the ball, turned and beside its middle, lest all is symmetrical.
  ts::Array points() const {
    ts::Array p({side, side, 4}, ts::f32);
    for (int64_t i = 0; i < side; ++i)
      for (int64_t j = 0; j < side; ++j) {
        const double u = static_cast<double>(j) - 0.5 * size, v = static_cast<double>(i) - 0.5 * size, turn = 0.5;
        const double at[] = {std::cos(turn) * u - std::sin(turn) * v + 0.07 * size,
                             2 * radius + 3 + 0.002 * (u + 0.3 * v),
                             std::sin(turn) * u + std::cos(turn) * v - 0.03 * size, 1};
        for (int64_t d = 0; d < 4; ++d)
          p.data<float>()[static_cast<size_t>((i * side + j) * 4 + d)] = static_cast<float>(at[d]);
      }
    return p;
  }
};

/// What sees without a perspective: p is in column right . p * scale + left, row up . p * -scale + top, and `forward` .
/// p / range + 1/2 deep.
struct Camera {
  Vec right, up, forward;
  double scale, left, top, range;
  ts::Array view() const {
    ts::Array v({3, 4}, ts::f32);
    const double last[] = {left, top, 0.5};
    for (size_t c = 0; c < 3; ++c) {
      const double row[] = {right[c] * scale, -up[c] * scale, forward[c] / range};
      for (size_t r = 0; r < 3; ++r) v.data<float>()[4 * r + c] = static_cast<float>(row[r]);
    }
    for (size_t r = 0; r < 3; ++r) v.data<float>()[4 * r + 3] = static_cast<float>(last[r]);
    return v;
  }
};
Camera camera(const Scene& s, int64_t h, int64_t w) {
  const double scale = 0.62 * static_cast<double>(std::min(h * 4 / 3, w)) / s.size;
  const double c = std::cos(tilt), d = std::sin(tilt);
  return {{1, 0, 0},
          {0, c, -d},
          {0, -d, -c},
          scale,
          0.5 * static_cast<double>(w),
          0.5 * static_cast<double>(h) + scale * 0.7 * s.radius,
          6 * s.size};
}
const Vec sun = {0.48, 0.77, 0.42};  // towards it
Camera from_sun(const Scene& s, int64_t side) {
  const double length = std::hypot(sun[0], sun[1], sun[2]), x = sun[0] / length, y = sun[1] / length,
               z = sun[2] / length, across = std::hypot(x, z), middle = 0.5 * static_cast<double>(side);
  return {{z / across, 0, -x / across},
          {-x * y / across, across, -z * y / across},
          {-x, -y, -z},
          static_cast<double>(side) / (2.4 * s.size),
          middle,
          middle,
          6 * s.size};
}

/// (points, before, sphere) -> both, `count` steps later.
auto make_advance(const Scene& s, int64_t count) {
  return ts::jit(
      [guess = k::cloth_guess(s.side, s.side, s.cloth), relax = k::cloth_relax(s.side, s.side, s.cloth), count](
          Tensor points, Tensor before, Tensor sphere) {
        return ts::fori_loop(0, count, std::tuple{Value(points), Value(before)}, [&](Value, Value now, Value was) {
          Tensor at = guess(now, was);
          for (int64_t i = 0; i < passes; ++i) at = relax(at, now, sphere);
          return std::tuple{Value(at), now};
        });
      },
      {.name = "cloth"});
}

using Vector = std::array<Value, 3>;
Value dot(const Vector& a, const Vector& b) { return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]; }
Value dot(const Vector& a, const Vec& b) { return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]; }

// colours, of each of two kinds of squares
constexpr double kFloors[2][3] = {{0.26, 0.24, 0.22}, {0.46, 0.43, 0.39}},
                 kFronts[2][3] = {{0.75, 0.06, 0.05}, {0.86, 0.72, 0.50}},
                 kBacks[2][3] = {{0.40, 0.05, 0.06}, {0.55, 0.46, 0.36}}, kBalls[3] = {0.20, 0.34, 0.52},
                 kSkies[3] = {0.62, 0.74, 0.95}, kSuns[3] = {1.0, 0.90, 0.74}, kBeyond[3] = {0.36, 0.42, 0.52};
constexpr int64_t kRows = 8, kColumns = 32;  // of the tiles of a picture
Vec to_sun() {
  const double length = std::hypot(sun[0], sun[1], sun[2]);
  return {sun[0] / length, sun[1] / length, sun[2] / length};
}
/// Which part of the 5 x 5 places around it the sun's view of the cloth leaves lit.
Value seen_by_sun(Ref shadow, Ref view, const Vector& at, const Vector& normal, double lift, int64_t depths) {
  const Value none = ts::zeros({kRows, kColumns});
  const auto seen = [&](int r) {
    Value v = none + view[{r, 3}];
    for (int d = 0; d < 3; ++d)
      v = v + view[{r, d}] * (at[static_cast<size_t>(d)] + lift * normal[static_cast<size_t>(d)]);
    return v;
  };
  const Value column = ts::cast(ts::floor(seen(0)), ts::i32), row = ts::cast(ts::floor(seen(1)), ts::i32),
              mine = ts::cast(ts::floor((seen(2) - 0.0012) * static_cast<double>(k::cloth::kDepths)), ts::i32);
  return ts::fori_loop(0, 25, none, [&](Value t, Value sum) {
    const Value i = ts::clamp(0, row + t / 5 - 2, depths - 1), j = ts::clamp(0, column + t % 5 - 2, depths - 1);
    const Value there = shadow[{i, j}];
    return sum + ts::where(there / 65536 < mine, 0.0, 1.0 / 25);
  });
}

/// How much of the sun passes the ball, whose edge is soft. `up`: from the ball's middle.
Value past_the_ball(const Scene& s, const Vector& up, const Vec& light, const Value& on_ball) {
  const Value along = dot(up, light), beside = ts::sqrt(ts::maximum(dot(up, up) - along * along, 0.0));
  return ts::where(on_ball | (along > 0), 1.0,
                   ts::clamp(0.0, (beside - 0.97 * s.radius) * (1 / (0.06 * s.radius)), 1.0));
}
/// Which part of the sky the ball hides.
Value hidden_by_ball(const Scene& s, const Vector& up, const Vector& normal) {
  const Value distance2 = ts::maximum(dot(up, up), 1e-3);
  return ts::clamp(0.0, -dot(up, normal) * ts::rsqrt(distance2) * (s.radius * s.radius) / distance2, 1.0);
}

/// (drawn, shadow, sun's view) -> f32 [h, w, 4], light: floor, ball and the cloth that `drawn` has.
ts::PallasCall shade(const Scene& s, int64_t h, int64_t w, int64_t depths) {
  constexpr int64_t rows = kRows, columns = kColumns;
  const Camera c = camera(s, h, w);
  const Vec light = to_sun();
  return ts::pallas_call(
      [=](Ref drawn, Ref shadow, Ref view, Ref o) {
        const ts::Shape shape = {rows, columns};
        const Value none = ts::zeros(shape);
        const auto pixels = [&](int axis, int64_t tile) {
          return ts::cast(ts::program_id(axis) * tile + ts::iota(ts::i32, shape, axis), ts::f32) + 0.5;
        };
        const Value x = (pixels(1, columns) - c.left) / c.scale, y = (c.top - pixels(0, rows)) / c.scale;
        Vector from = {none, none, none};
        for (size_t d = 0; d < 3; ++d) from[d] = c.right[d] * x + c.up[d] * y;
        const Value pixel = drawn[all], is_cloth = pixel != k::cloth::kNothing;
        // How far along `forward` the ray meets each.
        const Value to_floor = from[1] * (-1 / c.forward[1]);
        const Vector off = {from[0], from[1] - s.radius, from[2]};
        const Value middle = -dot(off, c.forward), apart = dot(off, off) - middle * middle,
                    inside = s.radius * s.radius - apart;
        const Value to_ball = ts::where(inside > 0, middle - ts::sqrt(ts::maximum(inside, 0.0)), 1e9);
        const Value deep = (ts::cast(pixel / 65536, ts::f32) + 0.5) * (1.0 / k::cloth::kDepths);
        const Value to_cloth = ts::where(is_cloth, (deep - 0.5) * c.range, 1e9);
        const Value cloth = (to_cloth < to_floor) & (to_cloth < to_ball),
                    ball = (to_ball < to_floor) & (to_ball <= to_cloth);
        const Value far = ts::minimum(ts::minimum(to_floor, to_ball), to_cloth);
        Vector at = from, normal = {none, none + 1.0, none};
        for (size_t d = 0; d < 3; ++d) at[d] = from[d] + far * c.forward[d];
        const auto seven = [&](int by) { return (ts::cast(pixel / by % 128, ts::f32) - 64.0) * (1.0 / 63); };
        const Value nx = seven(512), nz = seven(4), ny = ts::sqrt(ts::maximum(1.0 - nx * nx - nz * nz, 0.0));
        const Vector of_cloth = {nx, ny, nz};
        for (size_t d = 0; d < 3; ++d)
          normal[d] = ts::where(cloth, of_cloth[d],
                                ts::where(ball, (d == 1 ? at[d] - s.radius : at[d]) * (1 / s.radius), normal[d]));
        // Cloth is seen from both sides: its normal looks at the camera.
        const Value away = ts::where(cloth & (dot(normal, c.forward) > 0), -1.0, 1.0);
        for (Value& n : normal) n = n * away;

        // The sun: behind the ball or not, with a soft edge, and not behind what its own view of the cloth has.
        const Vector up = {at[0], at[1] - s.radius, at[2]};
        const Value past = past_the_ball(s, up, light, ball);
        const Value lit = seen_by_sun(shadow, view, at, normal, 0.012 * s.size, depths);
        const Value facing = ts::maximum(dot(normal, light), 0.0), sunlight = 2.7 * facing * past * lit;
        // The sky from above, less of it close to the ball and below the cloth.
        const Value hidden = ts::where(ball, 0.0, hidden_by_ball(s, up, normal));
        const Value near_floor = ts::where(ball | cloth, ts::clamp(0.25, 0.35 + at[1] * (0.9 / s.radius), 1.0), 1.0);
        const Value sky = (0.5 + 0.5 * normal[1]) * (1.0 - 0.75 * hidden) * near_floor * (0.55 + 0.45 * lit);
        const Value half = ts::maximum(
            dot(normal, {light[0] - c.forward[0], light[1] - c.forward[1], light[2] - c.forward[2]}) * 0.55, 0.0);
        const Value stripe = pixel % 2 != 0, turned = pixel / 2 % 2 != 0;
        const Value tiles =
            (ts::cast(ts::floor(at[0] * (9 / s.size)), ts::i32) + ts::cast(ts::floor(at[2] * (9 / s.size)), ts::i32)) &
            1;
        const Value fade = ts::exp(-(at[0] * at[0] + at[2] * at[2]) * (0.55 / (s.size * s.size)));
        for (size_t d = 0; d < 3; ++d) {
          const auto either = [&](const Value& which, const double(&of)[2][3]) {
            return ts::where(which, of[1][d], of[0][d]) + none;
          };
          const Value own = ts::where(cloth, ts::where(turned, either(stripe, kBacks), either(stripe, kFronts)),
                                      ts::where(ball, kBalls[d], either(tiles != 0, kFloors)));
          const Value gleams = ts::where(
              ball, 0.9 * kSuns[d] * past * lit * ts::exp2(60.0 * ts::log2(ts::maximum(ts::minimum(half, 1.0), 1e-4))),
              0.0);
          const Value shown = own * (kSuns[d] * sunlight + 0.75 * kSkies[d] * sky) + gleams;
          o[{all, all, static_cast<int>(d)}] = ts::where(cloth | ball, shown, kBeyond[d] + fade * (shown - kBeyond[d]));
        }
        o[{all, all, 3}] = none + 1.0;
      },
      {.out_shape = {{{h, w, 4}, ts::f32}},
       .grid = {ts::cdiv(h, rows), ts::cdiv(w, columns)},
       .in_specs = {{{rows, columns}, [](Value i, Value j) { return ts::Indices{i, j}; }},
                    ts::no_block_spec,
                    ts::no_block_spec},
       .out_specs = {{{rows, columns, 4}, [](Value i, Value j) { return ts::Indices{i, j, 0}; }}},
       .name = "cloth_shade",
       .in_shape = {{{h, w}, ts::i32}, {{depths, depths}, ts::i32}, {{3, 4}, ts::f32}}});
}

/// (points, camera's view, sun's view) -> f32 [h, w, 4], what a screen shows.
auto make_draw(const Scene& s, int64_t h, int64_t w, int64_t depths) {
  const auto fine = [](double scale) {
    return static_cast<int64_t>(std::ceil(1.6 * scale));
  };  // no holes where it is stretched
  return ts::jit(
      [draw = k::cloth_draw(s.side, s.side, 2 * h, 2 * w, fine(camera(s, 2 * h, 2 * w).scale)),
       shadow = k::cloth_draw(s.side, s.side, depths, depths, fine(from_sun(s, depths).scale)),
       shade = shade(s, 2 * h, 2 * w, depths), down = k::bloom_down(0), show = k::tone_map(0.55), h, w,
       depths](Tensor points, Tensor view, Tensor suns) {
        const auto nothing = [](int64_t rows, int64_t columns) -> Tensor {
          return ts::zeros({rows, columns}, ts::i32) + k::cloth::kNothing;
        };
        const Tensor seen = draw(points, view, nothing(2 * h, 2 * w)),
                     dark = shadow(points, suns, nothing(depths, depths));
        const Tensor large = shade(seen, dark, suns);
        const Tensor size =
            ts::asarray(ts::Array({2}, std::vector<int32_t>{static_cast<int32_t>(2 * h), static_cast<int32_t>(2 * w)}));
        return Tensor(show(Tensor(down(size, large))));
      },
      {.name = "cloth_picture"});
}

int main(int argc, char** argv) try {
  const sample::Demo demo = sample::demo_options(argc, argv, {"cloth", "A cloth falls on a ball.", 256, 144, 16});
  const int64_t h = demo.height, w = demo.width;
  const Scene scene(std::clamp<int64_t>(w / 8, 24, 112));
  const int64_t depths = std::clamp<int64_t>(w, 64, 1024);
  const auto advance = make_advance(scene, steps);
  const auto draw = make_draw(scene, h, w, depths);
  const ts::Array view = camera(scene, 2 * h, 2 * w).view(), suns = from_sun(scene, depths).view();
  ts::Array points = scene.points(), before = points;
  sample::Player player(demo);
  while (player.more()) {
    player.show(sample::planes(draw(points, view, suns)));
    if (!player.more()) break;
    const auto next = advance(points, before, scene.sphere());
    points = next[0], before = next[1];
  }
  player.finish();
  // The same graph for a small cloth, by the interpreter and by the device, after steps in which it meets the ball;
  // each rounds places of up to 20.
  const Scene few(18);
  const auto small = make_advance(few, 6);
  ts::Array at = few.points();
  for (int64_t i = 0; i < few.side * few.side; ++i) at.data<float>()[static_cast<size_t>(4 * i + 1)] -= 3;
  const auto here = small(at, at, few.sphere()), there = ts::interpret(small, at, at, few.sphere());
  return sample::check("cloth", here[0], [&](int64_t i) { return there[0].at(i); }, 2e-4);
} catch (const std::exception& e) {
  return sample::fail("cloth", e);
}
