// Two galaxies that meet: n_body [-o FILE] [--size WxH] [--frames N] [--window]. Every star pulls at every other
// (kernels/n_body.h); the steps from frame to frame are one graph, and so is the picture: the light of the stars added
// up by atomic additions, and kernels/post_processing.h for the glow and the tone mapping.
#include "samples/kernels/n_body.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <tessera/tessera.hpp>

#include "samples/kernels/post_processing.h"
#include "samples/support/demo.h"
#include "samples/support/picture.h"

namespace ts = tessera;
using ts::Tensor, ts::Value;

constexpr int64_t steps = 10;  // from frame to frame
constexpr double dt = 0.0075, softening = 0.1;
// masses of one galaxy: of its middle, and of its two kinds of stars
constexpr double middle = 0.7, bulge = 0.25, disc = 0.45;

struct Stars {
  ts::Array bodies, velocities, light;
};
using Vector = std::array<double, 3>;

/// What body i of some feels.
Vector pull(const std::vector<std::array<double, 4>>& bodies, size_t i) {
  Vector a = {};
  for (const auto& other : bodies) {
    double r2 = softening * softening;
    for (size_t d = 0; d < 3; ++d) r2 += (other[d] - bodies[i][d]) * (other[d] - bodies[i][d]);
    for (size_t d = 0; d < 3; ++d) a[d] += other[3] * (other[d] - bodies[i][d]) / (r2 * std::sqrt(r2));
  }
  return a;
}

/// A galaxy of n stars at rest: stars of the disc on circles, those of the bulge in every direction, with the speed of
/// a circle too.
Stars galaxy(int64_t n, uint32_t seed, double tilt, double turn, const std::array<Vector, 2>& colours) {
  const ts::Array random = sample::random({6, n}, seed);
  const auto u = [&](int64_t k, int64_t i) { return 0.5 + 0.5 * random.at(k * n + i); };  // [0, 1)
  const int64_t inner = n / 5;
  std::vector<std::array<double, 4>> bodies;
  std::vector<Vector> axes;  // of the circle: what the velocity is perpendicular to
  Stars s{ts::Array({4, n}, ts::f32), ts::Array({3, n}, ts::f32), ts::Array({3, n}, ts::f32)};
  for (int64_t i = 0; i < n; ++i) {
    const double angle = 2 * M_PI * u(0, i);
    if (i == 0) {
      bodies.push_back({0, 0, 0, middle}), axes.push_back({0, 0, 1});
    } else if (i <= inner) {
      const double r = 0.03 + 0.13 * std::sqrt(-std::log(1 - 0.98 * u(1, i))), z = random.at(2 * n + i),
                   q = std::sqrt(1 - z * z), a = 2 * M_PI * u(3, i);
      bodies.push_back({r * q * std::cos(angle), r * q * std::sin(angle), r * z, bulge / static_cast<double>(inner)});
      axes.push_back({std::cos(a), std::sin(a), u(4, i)});
    } else {  // exponential in the radius: the sum of two exponential numbers
      const double r = 0.1 + 0.17 * (-std::log(1 - 0.95 * u(1, i)) - std::log(1 - 0.9 * u(2, i)));
      bodies.push_back({r * std::cos(angle), r * std::sin(angle), 0.03 * (u(3, i) + u(4, i) - 1),
                        disc / static_cast<double>(n - inner - 1)});
      axes.push_back({0, 0, 1});
    }
  }
  const auto turned = [&](Vector v) {
    v = {v[0], v[1] * std::cos(tilt) - v[2] * std::sin(tilt), v[1] * std::sin(tilt) + v[2] * std::cos(tilt)};
    return Vector{v[0] * std::cos(turn) - v[1] * std::sin(turn), v[0] * std::sin(turn) + v[1] * std::cos(turn), v[2]};
  };
  const auto set = [n](ts::Array& a, size_t d, int64_t i, double v) {
    a.data<float>()[d * static_cast<size_t>(n) + static_cast<size_t>(i)] = static_cast<float>(v);
  };
  for (int64_t i = 0; i < n; ++i) {
    const auto& b = bodies[static_cast<size_t>(i)];
    const Vector a = pull(bodies, static_cast<size_t>(i)), k = axes[static_cast<size_t>(i)];
    Vector way = {k[1] * b[2] - k[2] * b[1], k[2] * b[0] - k[0] * b[2], k[0] * b[1] - k[1] * b[0]};
    const double length = std::hypot(way[0], way[1], way[2]) + 1e-9,
                 inwards = -(a[0] * b[0] + a[1] * b[1] + a[2] * b[2]),
                 speed = i ? std::sqrt(std::max(inwards, 0.0)) : 0;
    for (double& v : way) v *= speed / length;
    const Vector at = turned({b[0], b[1], b[2]}), v = turned(way);
    // The light of a star: warm in the bulge, two kinds in the disc, few of them much brighter than the others.
    const double strength = i == 0 ? 6 : i <= inner ? 0.5 : 0.25 + 1.6 * std::pow(u(5, i), 12);
    const Vector colour = i <= inner ? Vector{1.0, 0.72, 0.42} : colours[u(4, i) < 0.8 ? 0 : 1];
    for (size_t d = 0; d < 3; ++d)
      set(s.bodies, d, i, at[d]), set(s.velocities, d, i, v[d]), set(s.light, d, i, strength * colour[d]);
    set(s.bodies, 3, i, b[3]);
  }
  return s;
}

/// Two galaxies of n / 2 stars each on the parabola that brings their middles to within `nearest`, if they stayed as
/// they are.
Stars meeting(int64_t n) {
  const double distance = 2.0, nearest = 0.45, mass = 2 * (middle + bulge + disc);
  const double across = std::sqrt(2 * mass * nearest) / distance,
               together = std::sqrt(2 * mass / distance - across * across);
  Stars both{ts::Array({4, n}, ts::f32), ts::Array({3, n}, ts::f32), ts::Array({3, n}, ts::f32)};
  for (int g = 0; g < 2; ++g) {
    const Stars one = g ? galaxy(n - n / 2, 11, -0.7, 0.6, {{{0.62, 0.75, 1.0}, {1.0, 0.45, 0.55}}})
                        : galaxy(n / 2, 7, 0.45, 0, {{{0.45, 0.65, 1.0}, {0.55, 0.95, 1.0}}});
    const double side = g ? 0.5 : -0.5, at[] = {side * distance, 0, 0},
                 velocity[] = {-side * together, side * across, 0};
    const auto join = [&](ts::Array& whole, const ts::Array& part, const double* shift) {
      const int64_t count = part.shape()[1];
      for (int64_t d = 0; d < part.shape()[0]; ++d)
        for (int64_t i = 0; i < count; ++i)
          whole.data<float>()[static_cast<size_t>(d * n + g * (n / 2) + i)] =
              static_cast<float>(part.at(d * count + i) + (shift && d < 3 ? shift[d] : 0));
    };
    join(both.bodies, one.bodies, at), join(both.velocities, one.velocities, velocity),
        join(both.light, one.light, nullptr);
  }
  return both;
}

/// (bodies, velocities) -> both, `steps` kicks and drifts later.
auto make_advance(int64_t n) {
  return ts::jit(
      [step = ts::kernels::n_body_step_by_tiles(n, softening)](Tensor bodies, Tensor velocities, Tensor times) {
        return ts::fori_loop(0, steps, std::tuple{Value(bodies), Value(velocities)}, [&](Value, Value b, Value v) {
          const auto next = step(b, b, v, times);
          return std::tuple{Value(next[0]), Value(next[1])};
        });
      },
      {.name = "n_body"});
}

/// (bodies, light, view) -> f32 [h, w, 4], what a screen shows: the stars, each with a glow.
auto make_draw(int64_t n, int64_t h, int64_t w) {
  namespace k = ts::kernels;
  return ts::jit(
      [draw = k::n_body_draw(n, h, w), down = k::bloom_down(0), up = k::bloom_up(0.8), add = k::bloom_up(0.55),
       show = k::tone_map(1.1), h, w](Tensor bodies, Tensor light, Tensor view) {
        Tensor sums = draw(bodies, light, view, ts::zeros({h, w, 3}, ts::i32));
        std::vector<Tensor> levels = {ts::concatenate(
                                {ts::cast(sums, ts::f32) * static_cast<float>(1 / k::kLight), ts::ones({h, w, 1})}, 2)},
                            sizes;
        for (int64_t level = 0, rows = h, columns = w; level < 4;
             ++level, rows = ts::cdiv(rows, 2), columns = ts::cdiv(columns, 2)) {
          sizes.push_back(ts::asarray(
              ts::Array({2}, std::vector<int32_t>{static_cast<int32_t>(rows), static_cast<int32_t>(columns)})));
          if (level < 3) levels.push_back(down(sizes.back(), levels.back()));
        }
        Tensor glow = levels[3];
        for (size_t level = 3; level-- > 0;)
          glow = level ? up(sizes[level + 1], glow, levels[level]) : add(sizes[1], glow, levels[0]);
        return Tensor(show(glow));
      },
      {.name = "n_body_picture"});
}

struct Totals {
  // momenta, pulls: of all stars and pairs, without their directions
  double energy = 0, momentum[3] = {}, momenta = 0, pulls = 0, step_energy = 0;
};
/// In double precision, from velocities as of the same moment as the places.
Totals totals(const ts::Array& bodies, const ts::Array& velocities) {
  Totals t;
  const int64_t n = bodies.shape()[1];
  std::vector<std::array<double, 7>> s;  // x, y, z, mass, velocity
  for (int64_t i = 0; i < n; ++i)
    s.push_back({bodies.at(i), bodies.at(n + i), bodies.at(2 * n + i), bodies.at(3 * n + i), velocities.at(i),
                 velocities.at(n + i), velocities.at(2 * n + i)});
  std::vector<std::array<double, 3>> a(s.size());  // of each star, by the pulls of all others
  for (size_t i = 0; i < s.size(); ++i) {
    const auto& one = s[i];
    for (size_t j = 0; j < i; ++j) {
      const auto& other = s[j];
      double d[3], distance2 = 0, apart = 0;
      for (size_t k = 0; k < 3; ++k) {
        const double moves = other[4 + k] - one[4 + k];
        d[k] = other[k] - one[k], distance2 += d[k] * d[k], apart += moves * moves;
      }
      const double r2 = distance2 + softening * softening, r = std::sqrt(r2), per_mass = 1 / (r2 * r),
                   each = one[3] * other[3] * per_mass;
      for (size_t k = 0; k < 3; ++k) a[i][k] += other[3] * per_mass * d[k], a[j][k] -= one[3] * per_mass * d[k];
      t.energy -= one[3] * other[3] / r;
      t.pulls += 2 * each * std::sqrt(distance2);
      t.step_energy += each * 2 * apart / 12;
    }
  }
  for (size_t i = 0; i < s.size(); ++i) {
    const double m = s[i][3];
    double v2 = 0;
    for (size_t d = 0; d < 3; ++d)
      v2 += s[i][4 + d] * s[i][4 + d], t.momentum[d] += m * s[i][4 + d], t.step_energy += m * a[i][d] * a[i][d] / 24;
    t.energy += m * v2 / 2, t.momenta += m * std::sqrt(v2);
  }
  return t;
}
/// What the method may change. A leapfrog step keeps, but for terms of dt^4, not the energy but that plus dt^2 (v V'' v
/// / 12 - V'^2 / 24), V'' being what a pull changes with places: of a pair at most twice its mass by the distance cubed
/// (Hairer, Lubich and Wanner, Geometric Numerical Integration, section IX.4). Pulls are opposite in pairs, so momentum
/// changes by roundings alone: those of sums of 256 and n / 256 terms, of about 8 operations in each, and one of each
/// velocity per step.
bool conserved(int64_t n, double count, const Totals& before, const Totals& after) {
  const double energy = std::fabs(after.energy / before.energy - 1),
               allowed = (1.5 * dt * dt * (before.step_energy + after.step_energy)) / std::fabs(before.energy) +
                         count * 0x1p-23;
  const double change = std::hypot(after.momentum[0] - before.momentum[0], after.momentum[1] - before.momentum[1],
                                   after.momentum[2] - before.momentum[2]);
  const double momenta = std::max(before.momenta, after.momenta), pulls = std::max(before.pulls, after.pulls);
  const double most = 2 * count * 0x1p-24 * ((264 + static_cast<double>(n) / 256) * dt * pulls / momenta + 1);
  const bool right = energy <= allowed && change / momenta <= most;
  std::printf(
      "n_body: %lld stars: energy changed by %.2g of itself (allowed %.2g), momentum by %.2g of all momenta (allowed "
      "%.2g): %s\n",
      static_cast<long long>(n), energy, allowed, change / momenta, most, right ? "ok" : "WRONG");
  return right;
}

ts::Array view(int64_t h, int64_t w) {  // from above, and a little from the side
  const float scale = std::min(static_cast<float>(w) / 3.4f, static_cast<float>(h) / 2.125f);
  return ts::Array({2, 4}, std::vector<float>{scale, 0, 0, 0.5f * static_cast<float>(w), 0, -0.8f * scale,
                                              -0.6f * scale, 0.5f * static_cast<float>(h)});
}
/// 2,048 for pictures of 256 columns, more than 100,000 for 1280.
int64_t stars(int64_t w) { return std::max<int64_t>(std::llround(std::pow(static_cast<double>(w), 2.5) / 512), 2); }
ts::Array times(double kick, double drift) {
  return ts::Array({2}, std::vector<float>{static_cast<float>(kick), static_cast<float>(drift)});
}

int main(int argc, char** argv) try {
  const sample::Demo demo =
      sample::demo_options(argc, argv, {"n_body", "Two galaxies meet; every star pulls at every other.", 256, 160, 20});
  const int64_t w = demo.width, h = demo.height, n = stars(w);
  sample::Player player(demo);
  const auto advance = make_advance(n);
  const auto draw = make_draw(n, h, w);
  const ts::PallasCall step = ts::kernels::n_body_step_by_tiles(n, softening);
  const Stars stars = meeting(n);
  ts::Array bodies = stars.bodies, velocities = stars.velocities;
  const Totals before = totals(bodies, velocities);
  const auto once = [&](double kick, double drift) {
    const ts::Arrays next = step(bodies, bodies, velocities, times(kick, drift));
    bodies = next[0], velocities = next[1];
  };
  once(dt / 2, dt);  // from now on velocities are half a step ahead
  while (player.more()) {
    player.show(sample::planes(draw(bodies, stars.light, view(h, w))));
    if (!player.more()) break;
    const auto next = advance(bodies, velocities, times(dt, dt));
    bodies = next[0], velocities = next[1];
  }
  once(dt / 2, 0);
  player.finish();
  if (!conserved(n, static_cast<double>((player.frame() - 1) * steps + 1), before, totals(bodies, velocities)))
    return 1;
  // The same graphs for a few stars, by the interpreter and by the device: ten steps, each of which rounds places and
  // velocities of about 1; and a picture of the same places, where a star's share of a pixel rounds to 2^-16 and the
  // curve of the tone mapping is at most 13 times as steep. Places and velocities count ten times.
  const int64_t few = 100, rows = 20, columns = 24;
  const auto [there, speeds, colours] = meeting(few);
  const auto small = make_advance(few);
  const auto small_draw = make_draw(few, rows, columns);
  const auto here = small(there, speeds, times(dt, dt)), same = ts::interpret(small, there, speeds, times(dt, dt));
  const ts::Array drawn = small_draw(same[0], colours, view(rows, columns)),
                  expected = ts::interpret(small_draw, same[0], colours, view(rows, columns));
  ts::Array numbers({7 * few + drawn.size()}, ts::f32);
  std::vector<double> wanted;
  for (const auto& [got, right] : {std::pair{here[0], same[0]}, {here[1], same[1]}, {drawn, expected}})
    for (int64_t i = 0; i < got.size(); ++i) {
      const double weight = wanted.size() < static_cast<size_t>(7 * few) ? 10 : 1;
      numbers.data<float>()[wanted.size()] = static_cast<float>(weight * got.at(i)),
      wanted.push_back(weight * right.at(i));
    }
  return sample::check("n_body", numbers, [&](int64_t i) { return wanted[static_cast<size_t>(i)]; }, 2e-4);
} catch (const std::exception& e) {
  return sample::fail("n_body", e);
}
