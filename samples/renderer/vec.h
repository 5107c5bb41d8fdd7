// Vectors of three numbers, as the renderer's cameras and meshes need them.
#pragma once
#include <cmath>

namespace renderer {

struct Vec {
  double x = 0, y = 0, z = 0;
};
constexpr Vec operator+(Vec a, Vec b) { return {a.x + b.x, a.y + b.y, a.z + b.z}; }
constexpr Vec operator-(Vec a, Vec b) { return {a.x - b.x, a.y - b.y, a.z - b.z}; }
constexpr Vec operator*(Vec a, double s) { return {a.x * s, a.y * s, a.z * s}; }
constexpr double dot(Vec a, Vec b) { return a.x * b.x + a.y * b.y + a.z * b.z; }
constexpr Vec cross(Vec a, Vec b) { return {a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x}; }
inline Vec unit(Vec a) { return a * (1 / std::sqrt(std::fmax(dot(a, a), 1e-30))); }

}  // namespace renderer
