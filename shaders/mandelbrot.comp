// The mandelbrot sample's picture, [3, 480, 640] f32, one pixel per invocation: as a shader would be written, a point's
// loop ends when it has left the circle.
#version 460
#extension GL_EXT_buffer_reference : require
layout(local_size_x = 64) in;

layout(buffer_reference, buffer_reference_align = 4, std430) writeonly buffer Output { float at[]; };
layout(push_constant) uniform Arguments { Output o; };

const int width = 640, height = 480, iterations = 200;

void main() {
  const uint pixel = gl_GlobalInvocationID.x;
  const float x = float(pixel % width), y = float(pixel / width);
  vec3 total = vec3(0);
  for (int s = 0; s < 4; ++s) {
    const float dx = 0.25 + 0.5 * float(s % 2), dy = 0.25 + 0.5 * float(s / 2);
    const float cr = (x + dx - width / 2) * (3.2 / width) - 0.7, ci = (y + dy - height / 2) * (3.2 / width);
    precise float r = 0, i = 0;  // chaos: the same roundings as the kernel's
    int steps = 0;
    for (; steps < iterations && r * r + i * i < 256; ++steps) {
      precise const float next = r * r - i * i + cr;
      i = 2 * r * i + ci;
      r = next;
    }
    const float distance = r * r + i * i;
    if (distance < 256) continue;
    const float smooth_steps = float(steps) - log2(log2(distance) / 8);
    total += 0.5 + 0.5 * cos(6.2831853 * (log2(max(smooth_steps, 1)) / 4 + vec3(0, 0.1, 0.2)));
  }
  for (int c = 0; c < 3; ++c) o.at[c * width * height + pixel] = total[c] / 4;
}
