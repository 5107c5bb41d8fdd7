// 100 steps of x + (the four neighbours' sum - 4 x) / 8 on each of f32 [GRIDS, 64, 64], whose borders keep their
// values: a workgroup keeps a grid in registers, 4 x 4 cells to an invocation, which share the edges of their squares
// in shared memory, in two buffers: one barrier a step.
#version 460
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
layout(local_size_x = 256) in;
layout(buffer_reference, buffer_reference_align = 16, std430) readonly buffer Quad { vec4 v; };
layout(buffer_reference, buffer_reference_align = 16, std430) writeonly buffer OutputQuad { vec4 v; };
layout(push_constant) uniform Arguments { uint64_t x, o; };

shared vec4 top[2][256], bottom[2][256], left[2][256], right[2][256];

void main() {
  const uint t = gl_LocalInvocationIndex, i = t / 16, j = t % 16, at = i * 1024 + j * 16;
  const uint grid = gl_WorkGroupID.x * 16384;
  vec4 v[4];
  [[unroll]] for (uint r = 0; r < 4; ++r) v[r] = Quad((x + (grid + r * 256)) + uint64_t(at)).v;
  const uint up = i == 0 ? t : t - 16, down = i == 15 ? t : t + 16, before = j == 0 ? t : t - 1,
             after = j == 15 ? t : t + 1;
  [[dont_unroll]] for (uint s = 0; s < 100; ++s) {
    const uint b = s & 1u;
    top[b][t] = v[0];
    bottom[b][t] = v[3];
    left[b][t] = vec4(v[0].x, v[1].x, v[2].x, v[3].x);
    right[b][t] = vec4(v[0].w, v[1].w, v[2].w, v[3].w);
    barrier();
    const vec4 above = bottom[b][up], below = top[b][down], l = right[b][before], r = left[b][after];
    vec4 n[4];
    [[unroll]] for (uint k = 0; k < 4; ++k) {
      const vec4 beside = vec4(l[k], v[k].xyz) + vec4(v[k].yzw, r[k]);
      const vec4 over = (k == 0 ? above : v[k - 1]) + (k == 3 ? below : v[k + 1]);
      n[k] = fma(over + beside - 4 * v[k], vec4(0.125), v[k]);
      if (j == 0) n[k].x = v[k].x;
      if (j == 15) n[k].w = v[k].w;
    }
    if (i == 0) n[0] = v[0];
    if (i == 15) n[3] = v[3];
    v = n;
  }
  [[unroll]] for (uint r = 0; r < 4; ++r) OutputQuad((o + (grid + r * 256)) + uint64_t(at)).v = v[r];
}
