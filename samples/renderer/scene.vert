#version 450
#extension GL_GOOGLE_include_directive : require
#include "scene.glsl"
// Spheres as grids of 24 x 48 squares, two triangles each, and one large square for the ground: no vertex buffers.
layout(location = 0) out vec3 world;
layout(location = 1) out vec3 normal;
layout(location = 2) flat out int which;

const int kRings = 24, kSegments = 48;
const vec2 kCorners[6] = vec2[](vec2(0, 0), vec2(0, 1), vec2(1, 0), vec2(1, 0), vec2(0, 1), vec2(1, 1));

void main() {
  int square = gl_VertexIndex / 6;
  vec2 corner = kCorners[gl_VertexIndex % 6];
  which = gl_InstanceIndex;
  if (which == kSpheres) {
    if (square > 0) {
      gl_Position = vec4(0.0, 0.0, 2.0, 1.0);  // beyond the far plane: clipped
      world = normal = vec3(0.0);
      return;
    }
    world = vec3(40.0 * (corner.x - 0.5), 0.0, 40.0 * (corner.y - 0.5));
    normal = vec3(0.0, 1.0, 0.0);
  } else {
    float v = 3.14159265 * (float(square / kSegments) + corner.y) / float(kRings), u = 6.2831853 * (float(square % kSegments) + corner.x) / float(kSegments);
    vec4 s = sphere(which, push.eye.w);
    normal = vec3(sin(v) * cos(u), cos(v), sin(v) * sin(u));
    world = s.xyz + s.w * normal;
  }
  gl_Position = push.to_clip * vec4(world, 1.0);
}
