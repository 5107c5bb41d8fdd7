#version 450
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_buffer_reference_uvec2 : require
#extension GL_EXT_scalar_block_layout : require
// temporal_smooth() of samples/kernels/temporal.h by hand, to compare with.
layout(local_size_x = 32, local_size_y = 4) in;
layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer In { vec4 at[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) writeonly buffer Out { vec4 at[]; };
layout(push_constant) uniform Push {
  uvec2 picture, guide, state, result;
  ivec2 size;
  int step;
  float color, depth, least;
} push;

int index(ivec2 p) {
  p = clamp(p, ivec2(0), push.size - 1);
  return p.y * push.size.x + p.x;
}
float luminance(vec3 c) { return dot(c, vec3(0.2126, 0.7152, 0.0722)); }

// Not by pow(): its error near 1, times 96, is percents on llvmpipe (Mesa 22.3).
float power96(float x) {
  float x2 = x * x, x4 = x2 * x2, x8 = x4 * x4, x16 = x8 * x8, x32 = x16 * x16;
  return x32 * x32 * x32;
}
float tap(int dy, int dx) { return (dy == 0 ? 0.5 : 0.25) * (dx == 0 ? 0.5 : 0.25); }

// Pixels are read whole: of a vec4 that is also loaded whole, llvmpipe (Mesa 22.3) gives the first component for any
// component that is read by itself.
void main() {
  ivec2 p = ivec2(gl_GlobalInvocationID.xy);
  // No invocation goes another way than the others before the end: llvmpipe (Mesa 22.3) would read wrong numbers by
  // addresses.
  In picture = In(push.picture), guides = In(push.guide);
  vec4 mine = picture.at[index(p)], surface = guides.at[index(p)];
  float bright = luminance(mine.rgb), variance = 0.0;
  vec4 state = In(push.state).at[index(p)];
  float slope = state.w;
  for (int dy = -1; dy <= 1; ++dy)
    for (int dx = -1; dx <= 1; ++dx) {
      vec4 near = picture.at[index(p + ivec2(dx, dy))];
      variance += tap(dy, dx) * near.w;
    }
  float unit = 1.0 / (push.color * sqrt(max(variance, 0.0)) + push.least);
  float steep = 1.0 / (push.depth * float(push.step) * slope + 1e-3 * surface.w + 1e-6);
  float weights = 0.0;
  vec4 sums = vec4(0.0);
  for (int dy = -1; dy <= 1; ++dy)
    for (int dx = -1; dx <= 1; ++dx) {
      int i = index(p + push.step * ivec2(dx, dy));
      vec4 c = picture.at[i], n = guides.at[i];
      float cosine = clamp(dot(n.xyz, surface.xyz), 1e-6, 1.0);
      float unlike = abs(luminance(c.rgb) - bright) * unit + abs(n.w - surface.w) * steep;
      float weight = n.w <= 0.0 ? 0.0 : tap(dy, dx) * power96(cosine) * exp(-unlike);
      weights += weight;
      sums += vec4(weight * c.rgb, weight * weight * c.a);
    }
  bool there = surface.w > 0.0 && weights > 1e-9;
  if (all(lessThan(p, push.size)))
    Out(push.result).at[index(p)] = there ? vec4(sums.rgb / weights, sums.a / (weights * weights)) : mine;
}
