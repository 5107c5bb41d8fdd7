#version 450
#extension GL_GOOGLE_include_directive : require
#include "hall.glsl"
layout(location = 0) in vec4 position;
layout(location = 1) in vec4 facing;
layout(location = 2) in vec4 color;
// The hall as the sun sees it, for its depths alone.
void main() {
  Frame f = Frame(push.frame);
  vec3 n = facing.xyz;
  gl_Position = f.to_sun * vec4(moved(position.xyz, int(position.w + 0.5), n, facing.w, f.eye.w), 1.0);
}
