#version 450
#extension GL_GOOGLE_include_directive : require
#include "hall.glsl"
layout(location = 0) in vec4 position;  // and the kind
layout(location = 1) in vec4 facing;    // the normal, and how freely it moves
layout(location = 2) in vec4 color;     // and the gloss
layout(location = 0) out vec3 world;
layout(location = 1) out vec3 before;  // where it was in the frame before
layout(location = 2) out vec3 normal;
layout(location = 3) out vec4 material;
layout(location = 4) flat out int kind;

void main() {
  Frame f = Frame(push.frame);
  kind = int(position.w + 0.5);
  vec3 n = facing.xyz;
  before = moved(position.xyz, kind, n, facing.w, f.eye_before.w);
  n = facing.xyz;
  world = moved(position.xyz, kind, n, facing.w, f.eye.w);
  normal = n, material = color;
  gl_Position = f.to_clip * vec4(world, 1.0);
  gl_Position.xy += 2.0 * f.size.zw / f.size.xy * gl_Position.w;
}
