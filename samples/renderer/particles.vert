#version 450
// A point per particle: row, column, speed and age.
layout(location = 0) in vec4 particle;
layout(location = 0) out vec3 color;

layout(push_constant) uniform Push {
  vec2 grid;  // rows and columns of the fluid
  float glow;
} push;

void main() {
  vec2 at = (particle.yx + 0.5) / push.grid.yx;
  gl_Position = vec4(2.0 * at - 1.0, 0.0, 1.0);
  gl_PointSize = 1.0;
  float fast = clamp(0.35 * particle.z, 0.0, 1.0);
  color = push.glow * mix(vec3(0.04, 0.06, 0.12), vec3(1.0, 0.75, 0.45), fast) * min(particle.w / 20.0, 1.0);
}
