// o = y x for a matrix [ROWS, COLUMNS] and a vector: 32 invocations to four rows, so that a piece of x serves four of y
// (rows.glsl, whose macros it takes; LANES is 32). Sums are f32.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types_int16 : require
#include "rows.glsl"
layout(buffer_reference, buffer_reference_align = 8, std430) writeonly buffer Output { uint16_t at[]; };
layout(push_constant) uniform Arguments {
  uint64_t x, y;
  uint64_t o;
};

const uint rows_each = 4;
shared float parts[LOCAL / 8][rows_each];

void main() {
  const uint t = invocation(), lane = t % LANES, row = (gl_WorkGroupID.x * (LOCAL / LANES) + t / LANES) * rows_each;
  vec4 sum[rows_each][vectors];
  [[unroll]] for (uint r = 0; r < rows_each; ++r) [[unroll]] for (uint i = 0; i < vectors; ++i) sum[r][i] = vec4(0);
  [[dont_unroll]] for (uint p = 0; p < held; p += 2)
    [[unroll]] for (uint q = 0; q < 2; ++q) {
      vec4 a[vectors];
      if ((held % 2 == 0 || p + q < held) && is_there(p + q, lane)) {
        unpack(load_piece(x, lane, (p + q) * LANES), a);
        [[unroll]] for (uint r = 0; r < rows_each; ++r) {
          vec4 b[vectors];
          unpack(load_piece(y, row * row_pieces + lane, r * row_pieces + (p + q) * LANES), b);
          [[unroll]] for (uint i = 0; i < vectors; ++i) sum[r][i] = fma(a[i], b[i], sum[r][i]);
        }
      }
    }
  float total[rows_each];
  [[unroll]] for (uint r = 0; r < rows_each; ++r) {
    vec4 v = sum[r][0];
    [[unroll]] for (uint i = 1; i < vectors; ++i) v += sum[r][i];
    total[r] = of_all(v);
    [[unroll]] for (uint d = 1; d < 8; d *= 2) total[r] += subgroupShuffleXor(total[r], d);
    if (gl_SubgroupSize >= 32) {
      total[r] += subgroupShuffleXor(total[r], 8);
      total[r] += subgroupShuffleXor(total[r], 16);
    }
  }
  if (gl_SubgroupSize < 32) {
    [[unroll]] for (uint r = 0; r < rows_each; ++r)
      if (t % 8 == 0) parts[t / 8][r] = total[r];
    barrier();
    [[unroll]] for (uint r = 0; r < rows_each; ++r) {
      total[r] = 0;
      [[unroll]] for (uint i = 0; i < 4; ++i) total[r] += parts[t / LANES * 4 + i][r];
    }
  }
  if (lane < rows_each && row + lane < ROWS) {
    float mine = total[0];
    [[unroll]] for (uint r = 1; r < rows_each; ++r) mine = lane == r ? total[r] : mine;
    Output(o).at[row + lane] = uint16_t(packed(vec2(mine, 0)));
  }
}
