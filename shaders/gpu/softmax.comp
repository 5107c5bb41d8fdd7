// A softmax over each row, which is read once and stays in registers (rows.glsl, whose macros it takes).
#version 460
#extension GL_GOOGLE_include_directive : require
#include "rows.glsl"
layout(push_constant) uniform Arguments {
  uint64_t x;
  uint64_t o;
};

void main() {
  const uint t = invocation(), lane = t % LANES, row = gl_WorkGroupID.x * (LOCAL / LANES) + t / LANES;
  const bool inside = row < ROWS;
  vec4 v[held][vectors];
  load_row(x, inside ? row : ROWS - 1, lane, uintBitsToFloat(0xff800000u), v);
  vec4 high = v[0][0];
  [[unroll]] for (uint p = 0; p < held; ++p) [[unroll]] for (uint i = 0; i < vectors; ++i) high = max(high, v[p][i]);
  const float log2e = 1.4426950408889634,
              greatest = log2e * maximum_of_row(max(max(high.x, high.y), max(high.z, high.w)), 0);
  vec4 total = vec4(0);
  [[unroll]] for (uint p = 0; p < held; ++p)
    [[unroll]] for (uint i = 0; i < vectors; ++i) {
      v[p][i] = exp2(fma(v[p][i], vec4(log2e), vec4(-greatest)));
      total += v[p][i];
    }
  const float scale = 1 / sum_of_row(of_all(total), 1);
  [[unroll]] for (uint p = 0; p < held; ++p) {
    [[unroll]] for (uint i = 0; i < vectors; ++i) v[p][i] *= scale;
    if (inside && is_there(p, lane)) store_piece(o, row * row_pieces + lane, p * LANES, pack(v[p]));
  }
}
