// The hall's triangles, made up: columns with flutes, arches, walls, cloth, ivy and trees. No Vulkan. Read next:
// hall.cpp.
#pragma once
#include <cstdint>
#include <vector>

namespace renderer {

/// Three vec4 per vertex, as hall.vert takes them: place and kind, normal and how freely it moves, colour and gloss.
struct Mesh {
  std::vector<float> vertices;
  std::vector<uint32_t> indices;
  static constexpr uint32_t kFloats = 12;
};

/// `detail`: of how many triangles, 1 being a few hundred thousand.
Mesh make_hall(double detail);

}  // namespace renderer
