#include "samples/renderer/mesh.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

#include "samples/renderer/vec.h"

namespace renderer {
namespace {

constexpr double kPi = 3.14159265358979;
enum Kind { kStill = 0, kCloth = 1, kLeaf = 2, kFloor = 3, kWall = 4 };
struct Material {
  Kind kind;
  Vec color;
  double gloss = 0;
};
constexpr Material kStone{kStill, {0.60, 0.52, 0.40}}, kMasonry{kWall, {0.52, 0.41, 0.29}},
    kWood{kStill, {0.20, 0.12, 0.07}}, kClay{kStill, {0.55, 0.26, 0.15}}, kGold{kStill, {1.0, 0.77, 0.33}, 0.8},
    kLamp{kStill, {1.0, 0.62, 0.28}, 1};

constexpr double kSpacing = 4, kSide = 4, kSpring = 4.2, kTop = 7;  // of the arcades: between columns, from the middle
constexpr int kColumns = 6;
constexpr double kFirst = 7;  // where the first columns are
double row(int i) { return kFirst - kSpacing * static_cast<double>(i); }

class Builder {
 public:
  explicit Builder(double detail) : detail_(detail) {}
  Mesh mesh;

  int some(double n) const { return std::max(static_cast<int>(std::lround(n * std::sqrt(detail_))), 3); }
  int many(double n) const { return std::max(static_cast<int>(std::lround(n * detail_)), 1); }
  double random() {  // [0, 1)
    seed_ = seed_ * 1664525u + 1013904223u;
    return (seed_ >> 8) / 16777216.0;
  }
  double random(double from, double to) { return from + (to - from) * random(); }
  Vec any_direction() {
    const double z = random(-1, 1), a = random(0, 2 * kPi), r = std::sqrt(std::max(1 - z * z, 0.0));
    return {r * std::cos(a), r * std::sin(a), z};
  }

  uint32_t vertex(Vec at, Vec normal, const Material& m, double moves = 0) {
    for (const double v : {at.x, at.y, at.z, static_cast<double>(m.kind), normal.x, normal.y, normal.z, moves,
                           m.color.x, m.color.y, m.color.z, m.gloss})
      mesh.vertices.push_back(static_cast<float>(v));
    return static_cast<uint32_t>(mesh.vertices.size() / Mesh::kFloats - 1);
  }
  void square(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    mesh.indices.insert(mesh.indices.end(), {a, b, c, c, b, d});
  }
  /// A surface over [0, 1] x [0, 1] in nu x nv squares; the normals by differences.
  void surface(int nu, int nv, const Material& m, const std::function<Vec(double, double)>& at,
               const std::function<double(double, double)>& moves = {}) {
    const uint32_t first = static_cast<uint32_t>(mesh.vertices.size() / Mesh::kFloats),
                   row = static_cast<uint32_t>(nu) + 1;
    const double e = 1e-4;
    for (int j = 0; j <= nv; ++j)
      for (int i = 0; i <= nu; ++i) {
        const double u = static_cast<double>(i) / nu, v = static_cast<double>(j) / nv;
        const Vec p = at(u, v);
        vertex(p, unit(cross(at(u + e, v) - at(u - e, v), at(u, v + e) - at(u, v - e))), m, moves ? moves(u, v) : 0);
      }
    for (uint32_t j = 0; j < static_cast<uint32_t>(nv); ++j)
      for (uint32_t i = 0; i < static_cast<uint32_t>(nu); ++i) {
        const uint32_t a = first + j * row + i;
        square(a, a + 1, a + row, a + row + 1);
      }
  }
  void box(Vec low, Vec high, const Material& m) {
    for (int axis = 0; axis < 3; ++axis)
      for (const bool far : {false, true})
        surface(1, 1, m, [&](double u, double v) {
          const double t[3] = {u, v, far ? 1.0 : 0.0};
          const double a[3] = {t[(3 - axis + 2) % 3], t[(3 - axis + 3) % 3], t[(3 - axis + 4) % 3]};
          return Vec{low.x + (high.x - low.x) * a[0], low.y + (high.y - low.y) * a[1], low.z + (high.z - low.z) * a[2]};
        });
  }
  /// Around the vertical through `at`: the profile gives radius and height, `flutes` how much the radius changes
  /// around.
  void turned(Vec at, int around, int up, const Material& m,
              const std::function<std::array<double, 2>(double)>& profile,
              const std::function<double(double, double)>& flutes = {}) {
    surface(around, up, m, [&](double u, double v) {
      const auto [radius, height] = profile(v);
      const double a = 2 * kPi * u, r = radius * (flutes ? flutes(u, v) : 1);
      return Vec{at.x + r * std::cos(a), at.y + height, at.z + r * std::sin(a)};
    });
  }
  /// A leaf, bent along its middle: four triangles.
  void leaf(Vec at, Vec way, Vec normal, double length, Vec color, double moves) {
    const Vec across = unit(cross(way, normal));
    const Material m{kLeaf, color};
    const double half = 0.36 * length;
    const Vec bend = normal * (0.22 * length);
    const uint32_t a = vertex(at, unit(normal - way * 0.3), m, 0.4 * moves),
                   l = vertex(at + way * (0.45 * length) - across * half + bend, unit(normal - across * 0.35), m,
                              moves),
                   k = vertex(at + way * (0.5 * length) + bend * 0.6, normal, m, moves),
                   r = vertex(at + way * (0.45 * length) + across * half + bend, unit(normal + across * 0.35), m,
                              moves),
                   b = vertex(at + way * length, unit(normal + way * 0.4), m, moves);
    mesh.indices.insert(mesh.indices.end(), {a, l, k, a, k, r, l, b, k, k, b, r});
  }
  Vec green(double light) {
    const double t = random();
    return {(0.10 + 0.20 * t) * light, (0.26 + 0.16 * t) * light, 0.06 * light};
  }

 private:
  double detail_;
  uint32_t seed_ = 20;
};

void column(Builder& b, double x, double z) {
  const Vec at{x, 0, z};
  b.box({x - 0.55, 0, z - 0.55}, {x + 0.55, 0.28, z + 0.55}, kStone);
  b.turned(at, b.some(48), b.some(16), kStone, [](double v) {  // the base's rings
    return std::array<double, 2>{0.40 + 0.11 * std::fabs(std::sin(2 * kPi * v)) * (1.2 - 0.5 * v), 0.28 + 0.30 * v};
  });
  b.turned(
      at, b.some(200), b.some(28), kStone,
      [](double v) { return std::array<double, 2>{0.40 - 0.055 * v - 0.02 * v * v, 0.55 + 3.1 * v}; },
      [](double u, double v) {
        const double ends = std::min(1.0, 14 * std::min(v, 1 - v));
        return 1 - 0.075 * ends * std::sqrt(std::fabs(std::sin(10 * 2 * kPi * u)));
      });
  b.turned(at, b.some(48), b.some(20), kStone, [](double v) {  // the capital
    return std::array<double, 2>{0.33 + 0.24 * v * v + 0.035 * std::sin(9 * v), 3.62 + 0.42 * v};
  });
  b.box({x - 0.6, 4.02, z - 0.6}, {x + 0.6, kSpring, z + 0.6}, kStone);
}

// Between two columns: the vault's underside, its two faces with the wall above, a moulding along it.
void arch(Builder& b, double x, double z) {
  const double radius = 0.5 * kSpacing - 0.5, half = 0.42;
  const auto on = [=](double u, double r) {
    return std::array<double, 2>{z - r * std::cos(kPi * u), kSpring + r * std::sin(kPi * u)};
  };
  b.surface(b.some(48), 2, kStone, [=](double u, double v) {
    const auto [along, up] = on(u, radius);
    return Vec{x + half * (2 * v - 1), up, along};
  });
  for (const double side : {-1.0, 1.0}) {
    b.surface(b.some(48), b.some(10), kMasonry, [=](double u, double v) {
      const auto [along, up] = on(u, radius);
      const double t = std::clamp(v, 0.0, 1.0), edge = z + (2 * u - 1) * 0.5 * kSpacing;
      return Vec{x + side * half, up + (kTop - up) * t, along + (edge - along) * std::min(4 * t, 1.0)};
    });
    b.surface(b.some(64), b.some(10), kStone, [=](double u, double v) {
      const auto [along, up] = on(u, radius + 0.13 + 0.11 * std::cos(kPi * v));
      return Vec{x + side * (half + 0.09 * std::sin(kPi * v)), up, along};
    });
  }
}

void cloths(Builder& b) {
  const Vec colors[] = {{0.62, 0.05, 0.05}, {0.06, 0.14, 0.45}, {0.70, 0.42, 0.06}, {0.08, 0.33, 0.16}};
  const auto hangs = [](double, double v) { return v; };
  for (int i = 0; i + 1 < kColumns; ++i)
    for (const double side : {-1.0, 1.0}) {
      if ((i + (side > 0)) % 2) continue;
      const double z = row(i) - 0.5 * kSpacing, x = side * (kSide - 0.55);
      b.surface(
          b.some(70), b.some(110), {kCloth, colors[static_cast<size_t>(i + (side > 0)) % 4]},
          [=](double u, double v) { return Vec{x, 6.3 - 3.6 * v, z + 1.5 * (u - 0.5)}; }, hangs);
      b.surface(b.some(16), 6, kWood, [=](double u, double v) {
        return Vec{x + 0.04 * std::cos(2 * kPi * v), 6.33 + 0.04 * std::sin(2 * kPi * v), z + 1.8 * (u - 0.5)};
      });
    }
  // Two sails across, held at both sides.
  for (const auto& [z, color] : {std::pair{2.6, Vec{0.78, 0.70, 0.58}}, {-6.2, Vec{0.66, 0.22, 0.10}}})
    b.surface(
        b.some(110), b.some(60), {kCloth, color},
        [z = z](double u, double v) {
          const double sag = 4 * u * (1 - u);
          return Vec{(2 * u - 1) * (kSide - 0.42), 6.75 - 0.9 * sag - 0.1 * std::sin(kPi * v), z + 2.0 * (v - 0.5)};
        },
        [](double u, double) { return 0.9 * 4 * u * (1 - u); });
}

void vine(Builder& b, Vec from, int leaves, double reach, bool climbs, double radius) {
  for (int i = 0; i < leaves; ++i) {
    const double t = b.random();
    Vec at, out;
    if (climbs) {  // around a column
      const double a = 9 * t + b.random(-1.1, 1.1) + from.z;
      out = {std::cos(a), 0, std::sin(a)};
      at = {from.x + (radius + b.random(0.0, 0.12)) * out.x, from.y + reach * t + b.random(-0.2, 0.2),
            from.z + (radius + b.random(0.0, 0.12)) * out.z};
    } else {  // down from an edge
      const double a = b.random(0, 2 * kPi), r = 0.22 * b.random() * (1.2 - t);
      out = {std::cos(a), 0.2, std::sin(a)};
      at = {from.x + r * out.x, from.y - reach * t * t, from.z + r * out.z + 0.1 * std::sin(7 * t + from.z)};
    }
    const Vec normal = unit(out + b.any_direction() * 0.5),
              way = unit(cross(normal, b.any_direction()) + Vec{0, -0.8, 0});
    b.leaf(at, way, normal, b.random(0.09, 0.19), b.green(b.random(0.6, 1.2)), climbs ? 0.008 : 0.03 * t);
  }
}

void tree(Builder& b, double x, double z, double height) {
  b.turned({x, 0, z}, b.some(40), b.some(16), kClay, [](double v) {
    return std::array<double, 2>{v < 0.8 ? 0.30 + 0.20 * v : 0.50 - 0.6 * (v - 0.8),
                                 0.68 * std::min(v / 0.8, 1.0) - (v > 0.8 ? 0.5 * (v - 0.8) : 0)};
  });
  b.surface(b.some(14), b.some(24), kWood, [=](double u, double v) {
    const double r = 0.075 * (1.15 - 0.6 * v), a = 2 * kPi * u;
    return Vec{x + r * std::cos(a) + 0.12 * std::sin(3 * v), 0.55 + (height - 0.9) * v,
               z + r * std::sin(a) + 0.08 * std::sin(4 * v + 1)};
  });
  const int leaves = b.many(5200);
  for (int i = 0; i < leaves; ++i) {  // in clumps
    const int clump = i % 17;
    const double a = 2.4 * clump, up = (clump + 0.5) / 17;
    const Vec middle{x + 0.62 * std::sin(kPi * std::min(up + 0.2, 1.0)) * std::cos(a), height - 0.75 + 1.35 * up,
                     z + 0.62 * std::sin(kPi * std::min(up + 0.2, 1.0)) * std::sin(a)};
    const Vec out = b.any_direction();
    const double r = 0.42 * std::cbrt(b.random());
    const Vec normal = unit(out + b.any_direction() * 0.7 + Vec{0, 0.5, 0});
    b.leaf(middle + out * r, unit(cross(normal, b.any_direction())), normal, b.random(0.10, 0.17),
           b.green(b.random(0.7, 1.25)), 0.02);
  }
}

void statue(Builder& b) {
  const Vec at{0, 0, -2.2};
  b.box({-0.85, 0, at.z - 0.85}, {0.85, 0.18, at.z + 0.85}, kStone);
  b.box({-0.6, 0.18, at.z - 0.6}, {0.6, 0.36, at.z + 0.6}, kStone);
  b.turned(at, b.some(80), b.some(32), kStone, [](double v) {
    return std::array<double, 2>{0.44 - 0.10 * std::sin(kPi * v) + 0.03 * std::sin(6 * kPi * v) * (v < 0.2 || v > 0.8),
                                 0.36 + 0.85 * v};
  });
  b.box({-0.5, 1.21, at.z - 0.5}, {0.5, 1.3, at.z + 0.5}, kStone);
  const auto knot = [](double t) {  // a (2, 3) torus knot
    const double r = 0.42 * (2 + std::cos(3 * t)) / 2;
    return Vec{r * std::cos(2 * t), 0.30 * std::sin(3 * t), r * std::sin(2 * t)};
  };
  b.surface(b.some(420), b.some(36), kGold, [&](double u, double v) {
    const double t = 2 * kPi * u, a = 2 * kPi * v;
    const Vec p = knot(t), way = unit(knot(t + 1e-3) - knot(t - 1e-3)), side = unit(cross(way, Vec{0.3, 1, 0.1})),
              up = cross(side, way);
    const Vec q = p + side * (0.115 * std::cos(a)) + up * (0.115 * std::sin(a));
    return Vec{q.x, q.z + 2.05, q.y + at.z};  // upright
  });
}

void lamps(Builder& b) {
  for (int i = 0; i < kColumns; i += 1)
    for (const double side : {-1.0, 1.0}) {
      const Vec at{side * (kSide - 0.95), 3.35, row(i)};
      b.turned(at, b.some(20), b.some(12), kLamp,
               [](double v) { return std::array<double, 2>{0.085 * std::sin(kPi * v), -0.085 * std::cos(kPi * v)}; });
      b.turned(at, b.some(20), 4, kWood,
               [](double v) { return std::array<double, 2>{0.13 * (1 - v), 0.10 + 0.10 * v}; });
      b.box({std::min(at.x, side * (kSide - 0.35)), at.y + 0.18, at.z - 0.015},
            {std::max(at.x, side * (kSide - 0.35)), at.y + 0.21, at.z + 0.015}, kWood);
    }
}

}  // namespace

Mesh make_hall(double detail) {
  Builder b(detail);
  b.surface(8, 8, {kFloor, {0.5, 0.5, 0.5}, 0.3}, [](double u, double v) { return Vec{20 * u - 10, 0, 14 - 34 * v}; });
  const double end = row(kColumns - 1) - 0.5 * kSpacing;
  b.box({-9, 0, end - 3.6}, {9, 8.5, end - 3}, kMasonry);
  b.box({-9.4, 0, end - 3}, {-8.8, 6.4, 14}, kMasonry);
  b.box({8.8, 0, end - 3}, {9.4, 5.2, 14}, kMasonry);
  for (const double side : {-1.0, 1.0}) {
    for (int i = 0; i < kColumns; ++i) column(b, side * kSide, row(i));
    for (int i = -1; i < kColumns; ++i) arch(b, side * kSide, row(i) - 0.5 * kSpacing);
    b.box({side * kSide - 0.62, kTop, end - 3}, {side * kSide + 0.62, kTop + 0.22, kFirst + kSpacing}, kStone);
    b.box({side * kSide - 0.52, kTop + 0.22, end - 3}, {side * kSide + 0.52, kTop + 0.4, kFirst + kSpacing}, kStone);
    for (int i = 0; i < 9; ++i)
      vine(b, {side * (kSide - 0.6), kTop + 0.42, kFirst + 1.5 - 2.6 * i - 0.7 * side}, b.many(430), b.random(0.8, 2.3),
           false, 0);
    for (int i = side > 0 ? 0 : 1; i < kColumns; i += 2)
      vine(b, {side * kSide, 0.5, row(i)}, b.many(1500), 3.3, true, 0.36);
  }
  cloths(b);
  tree(b, -2.35, 1.6, 2.3), tree(b, 2.45, -0.6, 2.0), tree(b, -2.4, -6.5, 2.3), tree(b, 2.4, -8.2, 2.4);
  statue(b);
  lamps(b);
  return std::move(b.mesh);
}

}  // namespace renderer
