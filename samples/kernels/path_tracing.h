// Light in a closed room with spheres, by path tracing (Kajiya, 1986): rays from the eye bounce between surfaces, at
// each of which the lamp is sampled too, and what they bring is averaged over the frames, also while the camera moves:
// the history of a pixel is looked up where the camera before saw its surface. Arrays are f32 [channels, h, w].
//
// A camera is f32[12]: eye, right, up, forward. The ray of a pixel goes along forward + x * right + y * up, x and y
// from -1 to 1 (right and down to left and up), right, up and forward orthogonal and forward of length 1. A surface is
// [5, h, w]: its normal towards the eye, its distance, and 1 where it does not scatter evenly. A history is [4, h, w]:
// light, and of how many frames. A scene is f32[8 + spheres, 8], whose rows are:
//   0 to 5  red, green and blue that the walls at low x, high x, low y, high y, low z and high z reflect
//   6       the room's low corner and its high corner
//   7       the lamp in the wall at high y: low x, high x, low z, high z; its radiance; 1: it is sampled, 0: found by
//           chance alone (the same mean, more noise); the radiance of all surfaces
//   8 ...   a sphere: centre, radius, what it reflects, and its material: 0 scatters evenly (Lambert), 1 + r reflects
//           as a mirror does and scatters by r, -n is glass of refractive index n
#pragma once
#include <array>
#include <cmath>
#include <tuple>

#include "samples/kernels/support.h"

namespace tessera::kernels {

namespace path {
inline constexpr int rows = 8, columns = 32;  // of the tiles
inline constexpr int camera_size = 12, first_sphere = 8, scene_columns = 8;
inline constexpr double near = 1e-3;  // where a ray begins it meets nothing, lest it meets the surface that it leaves

struct Vec {
  Value x, y, z;
  Vec operator+(const Vec& o) const { return {x + o.x, y + o.y, z + o.z}; }
  Vec operator-(const Vec& o) const { return {x - o.x, y - o.y, z - o.z}; }
  Vec operator*(const Vec& o) const { return {x * o.x, y * o.y, z * o.z}; }
  Vec operator*(const Value& s) const { return {x * s, y * s, z * s}; }
  Value dot(const Vec& o) const { return x * o.x + y * o.y + z * o.z; }
  Vec unit() const { return *this * rsqrt(maximum(dot(*this), 1e-12)); }
};
inline Vec where(const Value& c, const Vec& a, const Vec& b) {
  return {tessera::where(c, a.x, b.x), tessera::where(c, a.y, b.y), tessera::where(c, a.z, b.z)};
}
/// Three scalars from `column` on, as blocks.
inline Vec vec(Ref x, const IndexItem& row, int column, const Shape& shape) {
  const auto at = [&](int k) -> Value { return broadcast_to(x[{row, column + k}], shape); };
  return {at(0), at(1), at(2)};
}
inline Vec vec(Ref x, int from, const Shape& shape) {
  const auto at = [&](int k) -> Value { return broadcast_to(x[from + k], shape); };
  return {at(0), at(1), at(2)};
}
inline Value row() { return program_id(0) * rows + iota(i32, {rows, columns}, 0); }
inline Value column() { return program_id(1) * columns + iota(i32, {rows, columns}, 1); }
inline BlockSpec tile(int64_t channels) {
  return {{channels, rows, columns}, [](Value i, Value j) { return Indices{0, i, j}; }};
}
/// A camera's ray through a place of the picture, in pixels from its upper left corner.
inline Vec ray(Ref camera, const Value& y, const Value& x, int64_t h, int64_t w) {
  const Shape shape = {rows, columns};
  const Vec right = vec(camera, 3, shape), up = vec(camera, 6, shape), forward = vec(camera, 9, shape);
  return (forward + right * (x * (2.0 / static_cast<double>(w)) - 1.0) +
          up * (1.0 - y * (2.0 / static_cast<double>(h))))
      .unit();
}

struct Hit {
  Value distance;
  Vec normal;  // towards where the ray came from
  Vec reflects;
  Value material;
  Value inside;  // of a sphere
  Value upper;   // the wall at high y
};
/// What a ray meets: the nearest of the spheres before the wall that it would meet.
inline Hit meet(Ref scene, int64_t spheres, const Vec& from, const Vec& way) {
  const Shape shape = {rows, columns};
  const Vec low = vec(scene, 6, 0, shape), high = vec(scene, 6, 3, shape);
  const auto wall = [&](const Value& o, const Value& d, const Value& l, const Value& h) {
    const Value safe = tessera::where(abs(d) < 1e-9, 1e-9, d);
    return maximum((tessera::where(d > 0, h, l) - o) / safe, 0);
  };
  const Value wx = wall(from.x, way.x, low.x, high.x), wy = wall(from.y, way.y, low.y, high.y),
              wz = wall(from.z, way.z, low.z, high.z);
  const Value is_x = (wx <= wy) & (wx <= wz), is_y = (wy <= wz) & !is_x;
  const auto against = [](const Value& is, const Value& d) {
    return tessera::where(is, tessera::where(d > 0, -1.0, full({rows, columns}, 1.0, f32)), 0.0);
  };
  const Vec normal = {against(is_x, way.x), against(is_y, way.y), against(!(is_x | is_y), way.z)};
  const auto of = [&](int axis, const Value& d) {
    return where(d > 0, vec(scene, 2 * axis + 1, 0, shape), vec(scene, 2 * axis, 0, shape));
  };
  const Vec reflects = where(is_x, of(0, way.x), where(is_y, of(1, way.y), of(2, way.z)));
  const Value none = zeros(shape);
  const Value nearest = minimum(wx, minimum(wy, wz));
  auto [t, cx, cy, cz, r, g, b, material, radius] = fori_loop(
      0, spheres, std::tuple{nearest, none, none, none, reflects.x, reflects.y, reflects.z, none, none},
      [&](Value i, Value before, Value x, Value y, Value z, Value red, Value green, Value blue, Value kind,
          Value size) {
        const Value at = i + first_sphere;
        const Vec centre = vec(scene, at, 0, shape), colour = vec(scene, at, 4, shape), to = from - centre;
        const Value r1 = broadcast_to(scene[{at, 3}], shape), k = broadcast_to(scene[{at, 7}], shape);
        const Value half = to.dot(way), under = half * half - (to.dot(to) - r1 * r1), root = sqrt(maximum(under, 0));
        const Value first = -half - root, meets = tessera::where(first > near, first, root - half);
        const Value hit = (under > 0) & (meets > near) & (meets < before);
        const auto pick = [&](const Value& a, const Value& c) { return tessera::where(hit, a, c); };
        return std::tuple{pick(meets, before),  pick(centre.x, x),   pick(centre.y, y),
                          pick(centre.z, z),    pick(colour.x, red), pick(colour.y, green),
                          pick(colour.z, blue), pick(k, kind),       pick(r1, size)};
      });
  const Value is_sphere = radius > 0;
  const Vec outward = (from + way * t - Vec{cx, cy, cz}) * (1.0 / maximum(radius, 1e-9));
  const Value inside = is_sphere & (outward.dot(way) > 0);
  const Vec toward = outward * tessera::where(inside, -1.0, full(shape, 1.0, f32));
  return {t, where(is_sphere, toward, normal), {r, g, b}, material, inside, is_y & (way.y > 0) & !is_sphere};
}
/// Whether no sphere is between.
inline Value open(Ref scene, int64_t spheres, const Vec& from, const Vec& way, const Value& distance) {
  const Value free = full({rows, columns}, 1.0, f32);
  return fori_loop(0, spheres, free, [&](Value i, Value still) {
    const Value at = i + first_sphere;
    const Vec to = from - vec(scene, at, 0, {rows, columns});
    const Value r1 = broadcast_to(scene[{at, 3}], {rows, columns});
    const Value half = to.dot(way), under = half * half - (to.dot(to) - r1 * r1), root = sqrt(maximum(under, 0));
    const Value first = -half - root, meets = tessera::where(first > near, first, root - half);
    return tessera::where((under > 0) & (meets > near) & (meets < distance - near), 0.0, still);
  });
}
/// A number in [0, 1) of 24 bits.
inline Value uniform(const Value& word) { return cast(word >> 8, f32) * (1.0 / (1 << 24)); }
inline std::array<Value, 4> uniform(const std::array<Value, 4>& words) {
  return {uniform(words[0]), uniform(words[1]), uniform(words[2]), uniform(words[3])};
}
/// A direction, evenly spread.
inline Vec direction(const Value& u, const Value& v) {
  const Value z = 1.0 - 2.0 * u, around = sqrt(maximum(1.0 - z * z, 0)), angle = 6.283185307 * v;
  return {around * cos(angle), around * sin(angle), z};
}
/// Where a path goes on: by the cosine's law, mirrored, or through glass as Fresnel's term (Schlick, 1994) says. `u`:
/// random numbers; `one` is 1 in each pixel.
inline Vec onward(const Hit& hit, const Vec& way, const std::array<Value, 4>& u, const Value& scatters,
                  const Value& one) {
  const Vec any = direction(u[0], u[1]);
  const Vec scattered = (hit.normal + any).unit();
  const Value cosine = -(hit.normal.dot(way));
  const Vec mirrored = way + hit.normal * (2.0 * cosine);
  const Vec rough = (mirrored + any * maximum(hit.material - 1.0, 0)).unit();
  const Vec reflected = where(rough.dot(hit.normal) > 0, rough, mirrored);
  const Value index = maximum(-hit.material, 1e-3), ratio = tessera::where(hit.inside, index, 1.0 / index);
  const Value under = 1.0 - ratio * ratio * (1.0 - cosine * cosine), root = sqrt(maximum(under, 0));
  const Vec refracted = (way * ratio + hit.normal * (ratio * cosine - root)).unit();
  const Value straight = (1.0 - index) / (1.0 + index), r0 = straight * straight,
              slant = 1.0 - tessera::where(hit.inside, root, cosine), slant2 = slant * slant;
  const Value fresnel = tessera::where(under > 0, r0 + (1.0 - r0) * slant2 * slant2 * slant, one);
  const Value through = (hit.material < 0) & (u[2] >= fresnel);
  return where(scatters, scattered, where(through, refracted, reflected));
}
inline void check_size(int64_t h, int64_t w, const char* name, Loc loc) {
  Checks{name, loc}.require(h > 0 && w > 0,
                            "a picture of " + std::to_string(h) + " x " + std::to_string(w) + " pixels has none");
}
}  // namespace path

/// The camera at `eye` that looks at `at`, high y up: `scale` is half of what it sees in height and width one unit
/// away.
inline std::vector<float> look(const std::array<double, 3>& eye, const std::array<double, 3>& at, double scale) {
  std::array<double, 3> forward = {at[0] - eye[0], at[1] - eye[1], at[2] - eye[2]};
  const double length = std::hypot(forward[0], forward[1], forward[2]);
  for (double& v : forward) v /= length;
  const double across = std::hypot(forward[0], forward[2]);
  const std::array<double, 3> right = {forward[2] / across, 0, -forward[0] / across};
  const std::array<double, 3> up = {forward[1] * right[2] - forward[2] * right[1],
                                    forward[2] * right[0] - forward[0] * right[2],
                                    forward[0] * right[1] - forward[1] * right[0]};
  std::vector<float> camera;
  for (const auto& [row, by] : {std::pair{eye, 1.0}, {right, scale}, {up, scale}, {forward, 1.0}})
    for (const double v : row) camera.push_back(static_cast<float>(by * v));
  return camera;
}

struct PathTrace {
  int spheres = 0;
  int samples = 1;  ///< paths per pixel
  int bounces = 5;  ///< surfaces that a path meets
  /// paths that bring more light (luminance) are scaled down to it: less noise, and too little of what is rarely
  /// found; 0: no limit
  double most = 0;
};

namespace path {
inline PallasCallParams path_trace_params(int64_t h, int64_t w, const PathTrace& options, Loc loc) {
  check_size(h, w, "path_trace", loc);
  const Checks checks{"path_trace", loc};
  checks.require(
      options.samples > 0 && options.bounces > 0,
      std::to_string(options.samples) + " paths of " + std::to_string(options.bounces) + " bounces bring no light");
  checks.require(options.spheres >= 0, "there are " + std::to_string(options.spheres) + " spheres");
  PallasCallParams p = over_tiles(cdiv(h, rows), cdiv(w, columns), "path_trace");
  p.out_shape = {{{3, h, w}, f32}, {{5, h, w}, f32}};
  p.in_specs = {no_block_spec, no_block_spec, no_block_spec};
  p.out_specs = {tile(3), tile(5)};
  p.in_shape = {{{camera_size}, f32}, {{first_sphere + options.spheres, scene_columns}, f32}, {{2}, u32}};
  return p;
}
}  // namespace path

/// path_trace(camera, scene, frame u32[2]) -> (light [3, h, w], surface [5, h, w]): the mean of some paths per pixel,
/// with random numbers of their own (Philox 4x32-10) for each pixel and frame, the two words of which are the
/// generator's key. Light that takes more than `bounces` surfaces is left out.
inline PallasCall path_trace(int64_t h, int64_t w, PathTrace options, Loc loc = Loc::here()) {
  return pallas_call(
      [=](Ref camera, Ref scene, Ref frame, Ref light, Ref surface) {
        using path::Vec;
        const Shape shape = {path::rows, path::columns};
        const Value y = path::row(), x = path::column(), pixel = cast(y * w + x, u32), none = zeros(shape),
                    one = full(shape, 1.0, f32);
        const Value key0 = frame[0], key1 = frame[1];
        const auto random = [&](const Value& sample, const Value& bounce) {
          return path::uniform(random::philox4x32(key0, key1, {pixel, cast(bounce, u32), cast(sample, u32), 0}));
        };
        const Vec eye = path::vec(camera, 0, shape),
                  lamp_low = {broadcast_to(scene[{7, 0}], shape), broadcast_to(scene[{6, 4}], shape),
                              broadcast_to(scene[{7, 2}], shape)};
        const Value wide = scene[{7, 1}] - scene[{7, 0}], deep = scene[{7, 3}] - scene[{7, 2}],
                    radiance = scene[{7, 4}], sampled = scene[{7, 5}], glow = scene[{7, 6}];
        const Value strength = sampled * radiance * wide * deep * (1 / 3.14159265358979);

        const Vec middle = path::ray(camera, cast(y, f32) + 0.5, cast(x, f32) + 0.5, h, w);
        const path::Hit seen = path::meet(scene, options.spheres, eye, middle);
        surface[0] = seen.normal.x;
        surface[1] = seen.normal.y;
        surface[2] = seen.normal.z;
        surface[3] = seen.distance;
        surface[4] = where(seen.material == 0, 0.0, one);

        auto [red, green, blue] = fori_loop(
            0, options.samples, std::tuple{none, none, none}, [&](Value sample, Value sum_r, Value sum_g, Value sum_b) {
              const auto within = random(sample, zeros({}, i32) + options.bounces);
              const Vec start = path::ray(camera, cast(y, f32) + within[0], cast(x, f32) + within[1], h, w);
              auto [ox, oy, oz, dx, dy, dz, kept_r, kept_g, kept_b, got_r, got_g, got_b, lucky] = fori_loop(
                  0, options.bounces,
                  std::tuple{eye.x, eye.y, eye.z, start.x, start.y, start.z, one, one, one, none, none, none, one},
                  [&](Value bounce, Value fx, Value fy, Value fz, Value wx, Value wy, Value wz, Value kr, Value kg,
                      Value kb, Value gr, Value gg, Value gb, Value chance) {
                    const Vec from = {fx, fy, fz}, way = {wx, wy, wz}, kept = {kr, kg, kb};
                    const path::Hit hit = path::meet(scene, options.spheres, from, way);
                    const Vec at = from + way * hit.distance;
                    const auto u = random(sample, bounce);
                    // Light of the surface itself. The lamp's counts where it could not be sampled before.
                    const Value in_lamp = hit.upper & (at.x >= lamp_low.x) & (at.x <= lamp_low.x + wide) &
                                          (at.z >= lamp_low.z) & (at.z <= lamp_low.z + deep);
                    const Value shines = glow + where(in_lamp, chance * radiance, 0.0);

                    // Light from a point of the lamp, where the surface scatters.
                    const Value scatters = hit.material == 0;
                    const Vec to = Vec{lamp_low.x + u[2] * wide, lamp_low.y, lamp_low.z + u[3] * deep} - at;
                    const Value squared = maximum(to.dot(to), 1e-6), shorter = rsqrt(squared);
                    const Vec lampward = to * shorter;
                    const Value cosines = maximum(hit.normal.dot(lampward), 0) * maximum(lampward.y, 0);
                    const Value direct = where(scatters, strength * cosines / squared, 0.0) *
                                         path::open(scene, options.spheres, at, lampward, squared * shorter);

                    const Vec next = path::onward(hit, way, u, scatters, one);
                    const Vec now = kept * hit.reflects;
                    return std::tuple{at.x,
                                      at.y,
                                      at.z,
                                      next.x,
                                      next.y,
                                      next.z,
                                      now.x,
                                      now.y,
                                      now.z,
                                      gr + kept.x * shines + now.x * direct,
                                      gg + kept.y * shines + now.y * direct,
                                      gb + kept.z * shines + now.z * direct,
                                      where(scatters, 1.0 - sampled, one)};
                  });
              Value part = one;
              if (options.most > 0)
                part = minimum(1.0, options.most / maximum(0.2126 * got_r + 0.7152 * got_g + 0.0722 * got_b, 1e-6));
              return std::tuple{sum_r + part * got_r, sum_g + part * got_g, sum_b + part * got_b};
            });
        light[0] = red * (1.0 / options.samples);
        light[1] = green * (1.0 / options.samples);
        light[2] = blue * (1.0 / options.samples);
      },
      path::path_trace_params(h, w, options, loc), loc);
}

/// path_accumulate(cameras [2, 12]: now and before, longest [2], light, surface, history, surface before) -> history:
/// the mean of the light and of what each pixel's surface has had before. It is looked up where the camera before saw
/// it, between four pixels, of which those count whose surface lay where it should and faced the same way. Positions
/// are rounded to 1/256 of a pixel (as textures' are), so that a camera that stands still finds each pixel in its own
/// place. A history counts as of at most longest[0] - 1 frames, where surfaces do not scatter evenly of longest[1] - 1:
/// what is seen in a mirror is not where the mirror is.
inline PallasCall path_accumulate(int64_t h, int64_t w, Loc loc = Loc::here()) {
  path::check_size(h, w, "path_accumulate", loc);
  PallasCallParams p = over_tiles(cdiv(h, path::rows), cdiv(w, path::columns), "path_accumulate");
  p.out_shape = {{{4, h, w}, f32}};
  p.in_specs = {no_block_spec, no_block_spec, path::tile(3), path::tile(5), no_block_spec, no_block_spec};
  p.out_specs = {path::tile(4)};
  p.in_shape = {{{2, path::camera_size}, f32},
                {{2}, f32},
                {{3, h, w}, f32},
                {{5, h, w}, f32},
                {{4, h, w}, f32},
                {{5, h, w}, f32}};
  return pallas_call(
      [=](Ref cameras, Ref longest, Ref light, Ref surface, Ref history, Ref before, Ref o) {
        using path::Vec;
        const Shape shape = {path::rows, path::columns};
        const Ref now = cameras.at({0, all}), then = cameras.at({1, all});
        const Value y = cast(path::row(), f32) + 0.5, x = cast(path::column(), f32) + 0.5;
        const Value distance = surface[3];
        const Vec to = path::vec(now, 0, shape) + path::ray(now, y, x, h, w) * distance - path::vec(then, 0, shape);
        const Vec right = path::vec(then, 3, shape), up = path::vec(then, 6, shape),
                  forward = path::vec(then, 9, shape);
        const Value ahead = to.dot(forward), scale = 1.0 / maximum(ahead, 1e-6);
        const auto snapped = [](const Value& v) { return floor(v * 256.0 + 0.5) * (1.0 / 256); };
        const double half_h = 0.5 * static_cast<double>(h), half_w = 0.5 * static_cast<double>(w);
        const Value there_y = snapped(clamp(-2, half_h - half_h * (to.dot(up) * scale / up.dot(up)) - 0.5, h + 1));
        const Value there_x =
            snapped(clamp(-2, half_w + half_w * (to.dot(right) * scale / right.dot(right)) - 0.5, w + 1));
        const Value top = floor(there_y), left = floor(there_x), part_y = there_y - top, part_x = there_x - left;
        const Value expected = sqrt(to.dot(to));
        const Vec normal = {surface[0], surface[1], surface[2]};
        Value weights = zeros(shape);
        std::array<Value, 4> sums = {weights, weights, weights, weights};
        for (int i = 0; i < 2; ++i)
          for (int j = 0; j < 2; ++j) {
            const Value row = cast(top, i32) + i, column = cast(left, i32) + j;
            const Value inside = (row >= 0) & (row < h) & (column >= 0) & (column < w) & (ahead > 0);
            const Value r = clamp(0, row, h - 1), c = clamp(0, column, w - 1);
            const Vec faced = {before[{0, r, c}], before[{1, r, c}], before[{2, r, c}]};
            const Value was = before[{3, r, c}], kind = before[{4, r, c}];
            const Value same =
                inside & (faced.dot(normal) > 0.9) & (abs(was - expected) < 0.04 * expected) & (kind == surface[4]);
            const Value weight = where(same, (i ? part_y : 1.0 - part_y) * (j ? part_x : 1.0 - part_x), 0.0);
            weights = weights + weight;
            for (int k = 0; k < 4; ++k) {
              const Value v = history[{k, r, c}];
              sums[static_cast<size_t>(k)] = sums[static_cast<size_t>(k)] + where(weight > 0, weight * v, 0.0);
            }
          }
        const Value found = weights > 1e-3, whole = 1.0 / where(found, weights, 1.0);
        const Value most = where(surface[4] == 0, longest[0], longest[1]);
        const Value frames = where(found, minimum(sums[3] * whole, most - 1.0), 0.0);
        for (int k = 0; k < 3; ++k) {
          const Value fresh = light[k], kept = where(found, sums[static_cast<size_t>(k)] * whole, 0.0);
          o[k] = kept + (fresh - kept) / (frames + 1.0);
        }
        o[3] = frames + 1.0;
      },
      std::move(p), loc);
}

}  // namespace tessera::kernels
