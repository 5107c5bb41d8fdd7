// The sum of each row, in f32 (rows.glsl, whose macros it takes).
#version 460
#extension GL_GOOGLE_include_directive : require
#include "rows.glsl"
layout(buffer_reference, buffer_reference_align = 4, std430) writeonly buffer Output { float at[]; };
layout(push_constant) uniform Arguments {
  uint64_t x;
  Output o;
};

void main() {
  const uint t = invocation(), lane = t % LANES, row = gl_WorkGroupID.x * (LOCAL / LANES) + t / LANES;
  vec4 v[held][vectors];
  load_row(x, min(row, ROWS - 1), lane, 0, v);
  vec4 total = vec4(0);
  [[unroll]] for (uint p = 0; p < held; ++p) [[unroll]] for (uint i = 0; i < vectors; ++i) total += v[p][i];
  const float sum = sum_of_row(of_all(total), 0);
  if (lane == 0 && row < ROWS) o.at[row] = sum;
}
