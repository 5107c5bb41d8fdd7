// A row minus its mean, over the square root of its variance + 1e-5, times a weight and plus a bias for each column.
// The row is read once and stays in registers (rows.glsl, whose macros it takes), so that the variance is that of the
// differences.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "rows.glsl"
layout(push_constant) uniform Arguments {
  uint64_t x, weight, bias;
  uint64_t o;
};

void main() {
  const uint t = invocation(), lane = t % LANES, row = gl_WorkGroupID.x * (LOCAL / LANES) + t / LANES;
  const bool inside = row < ROWS;
  vec4 v[held][vectors];
  load_row(x, inside ? row : ROWS - 1, lane, 0, v);
  vec4 total = vec4(0);
  [[unroll]] for (uint p = 0; p < held; ++p) [[unroll]] for (uint i = 0; i < vectors; ++i) total += v[p][i];
  const float mean = sum_of_row(of_all(total), 0) * (1.0 / COLUMNS);
  vec4 squares = vec4(0);
  [[unroll]] for (uint p = 0; p < held; ++p)
    [[unroll]] for (uint i = 0; i < vectors; ++i) {
      v[p][i] -= mean;
      if (is_there(p, lane)) squares = fma(v[p][i], v[p][i], squares);
    }
  const float scale = inversesqrt(sum_of_row(of_all(squares), 1) * (1.0 / COLUMNS) + 1e-5);
  [[unroll]] for (uint p = 0; p < held; ++p) {
    if (inside && is_there(p, lane)) {
      vec4 w[vectors], b[vectors];
      unpack(load_piece(weight, lane, p * LANES), w);
      unpack(load_piece(bias, lane, p * LANES), b);
      [[unroll]] for (uint i = 0; i < vectors; ++i) v[p][i] = fma(v[p][i] * scale, w[i], b[i]);
      store_piece(o, row * row_pieces + lane, p * LANES, pack(v[p]));
    }
  }
}
