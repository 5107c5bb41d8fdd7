#version 450
#extension GL_GOOGLE_include_directive : require
#include "hall.glsl"
// Surfaces, as the lighting and the denoiser need them.
layout(location = 0) in vec3 world;
layout(location = 1) in vec3 before;
layout(location = 2) in vec3 normal;
layout(location = 3) in vec4 material;
layout(location = 4) flat in int kind;
// the colour, and the gloss: below 1/2 under a clear coat, above of metal; 1: a lamp
layout(location = 0) out vec4 surface;
layout(location = 1) out vec4 guide;    // the normal, and the distance from the eye
layout(location = 2) out vec4 motion;   // samples/kernels/temporal.h has them

float hash(vec2 p) {
  uvec2 v = uvec2(ivec2(p)) * uvec2(1597334673u, 3812015801u);
  uint n = (v.x ^ v.y) * 1597334673u;
  return float((n ^ (n >> 15)) & 0xffffu) / 65535.0;
}
float noise(vec2 p) {
  vec2 i = floor(p), t = fract(p);
  t = t * t * (3.0 - 2.0 * t);
  return mix(mix(hash(i), hash(i + vec2(1, 0)), t.x), mix(hash(i + vec2(0, 1)), hash(i + vec2(1, 1)), t.x), t.y);
}
float clouds(vec2 p) {
  return 0.5 * noise(p) + 0.25 * noise(2.1 * p) + 0.125 * noise(4.3 * p) + 0.0625 * noise(8.7 * p);
}
// A line of some width every unit, as wide as a pixel at least, and as faint.
float joint(float x, float width) {
  float pixel = max(fwidth(x), 1e-5), d = abs(fract(x + 0.5) - 0.5);
  return clamp((0.5 * max(width, pixel) - d) / pixel + 0.5, 0.0, 1.0) * min(1.0, width / pixel);
}

void main() {
  Frame f = Frame(push.frame);
  vec3 to_eye = f.eye.xyz - world, n = normalize(normal);
  if (dot(n, to_eye) < 0.0) n = -n;  // leaves and cloth have two sides
  vec3 color = material.rgb;
  float gloss = material.a;
  if (kind == kFloor) {
    vec2 tile = world.xz / 1.2;
    bool odd = (int(floor(tile.x)) + int(floor(tile.y))) % 2 != 0;
    float seam = max(joint(tile.x, 0.012), joint(tile.y, 0.012));
    float vein = clouds(world.xz * 1.7 + 7.0 * hash(floor(tile) + 300.0));
    color = odd ? mix(vec3(0.16, 0.10, 0.08), vec3(0.30, 0.20, 0.15), vein)
                : mix(vec3(0.50, 0.45, 0.38), vec3(0.34, 0.30, 0.25), vein * vein);
    gloss = mix(odd ? 0.49 : 0.42, 0.05, seam);
    color *= 1.0 - 0.6 * seam;
  } else if (kind == kWall) {
    vec2 brick = vec2(abs(n.x) > 0.5 ? world.z : world.x, world.y) / vec2(0.9, 0.42);
    brick.x += 0.5 * float(int(floor(brick.y)) & 1);
    float seam = max(joint(brick.x, 0.02), joint(brick.y, 0.045));
    color *=
        (0.82 + 0.3 * hash(floor(brick) + 500.0)) * (0.85 + 0.3 * clouds(3.0 * brick + 40.0)) * (1.0 - 0.45 * seam);
  } else if (kind == kStill && gloss < 0.5) {
    color *= 0.88 + 0.24 * clouds(vec2(6.0 * world.x + 9.0 * world.z + 90.0, 7.0 * world.y));
  }
  surface = vec4(color, gloss);
  float distance = length(to_eye);
  guide = vec4(n, distance);
  vec4 now = f.to_clip * vec4(world, 1.0), was = f.to_clip_before * vec4(before, 1.0);
  vec2 moves = 0.5 * f.size.xy * (was.xy / max(was.w, 1e-3) - now.xy / now.w);
  motion = vec4(moves, length(f.eye_before.xyz - before), max(abs(dFdx(distance)), abs(dFdy(distance))));
}
