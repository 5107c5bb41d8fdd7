// The sum of each column of [ROWS, COLUMNS], in f32, or with WEIGHTED of each row's element of x times the column,
// rounded to the dtype: a workgroup takes 128 bytes of all rows, eight invocations to a row, and keeps four loads in
// flight. KIND: 0 f32, 1 f16, 2 bf16. COLUMNS is a multiple of what 128 bytes hold, LOCAL of 64.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "pieces.glsl"
layout(local_size_x = LOCAL) in;
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types_int16 : require
#ifdef WEIGHTED  // f16
layout(buffer_reference, buffer_reference_align = 2, std430) readonly buffer Weights { float16_t at[]; };
layout(buffer_reference, buffer_reference_align = 2, std430) writeonly buffer Output { float16_t at[]; };
layout(push_constant) uniform Arguments {
  Weights weights;
  uint64_t x;
  Output o;
};
#else
layout(buffer_reference, buffer_reference_align = 4, std430) writeonly buffer Output { float at[]; };
layout(push_constant) uniform Arguments {
  uint64_t x;
  Output o;
};
#endif

const uint across = 8 * each, down = LOCAL / 8, row_pieces = COLUMNS / each;
const uint fours = ROWS / (4 * down), parts = LOCAL / across;
shared vec4 sums[down][8 * vectors];
shared float half_sums[parts][across];

vec4 plus(vec4 total, vec4 v, uint row) {
#ifdef WEIGHTED
  return fma(vec4(float(weights.at[row])), v, total);
#else
  return total + v;
#endif
}

void main() {
  const uint t = gl_LocalInvocationIndex, line = t / 8, column = t % 8, first = gl_WorkGroupID.x * 8 + column;
  vec4 total[vectors];
  [[unroll]] for (uint i = 0; i < vectors; ++i) total[i] = vec4(0);
  [[dont_unroll]] for (uint r = 0; r < fours; ++r) {
    uvec4 p[4];
    [[unroll]] for (uint i = 0; i < 4; ++i)
      p[i] = load_piece(x, line * row_pieces + first, (r * 4 + i) * down * row_pieces);
    [[unroll]] for (uint i = 0; i < 4; ++i) {
      vec4 v[vectors];
      unpack(p[i], v);
      [[unroll]] for (uint j = 0; j < vectors; ++j) total[j] = plus(total[j], v[j], (r * 4 + i) * down + line);
    }
  }
#if ROWS % (LOCAL / 2) != 0
  for (uint r = fours * 4 * down + line; r < ROWS; r += down) {
    vec4 v[vectors];
    unpack(load_piece(x, r * row_pieces + first, 0), v);
    [[unroll]] for (uint j = 0; j < vectors; ++j) total[j] = plus(total[j], v[j], r);
  }
#endif
  [[unroll]] for (uint j = 0; j < vectors; ++j) sums[line][column * vectors + j] = total[j];
  barrier();
  const uint c = t % across, part = t / across;
  float sum = 0;
  [[unroll]] for (uint r = 0; r < down / parts; ++r) sum += sums[part + r * parts][c / 4][c % 4];
  half_sums[part][c] = sum;
  barrier();
  if (t < across) {
    sum = half_sums[0][t];
    [[unroll]] for (uint r = 1; r < parts; ++r) sum += half_sums[r][t];
#ifdef WEIGHTED
    o.at[gl_WorkGroupID.x * across + t] = float16_t(sum);
#else
    o.at[gl_WorkGroupID.x * across + t] = sum;
#endif
  }
}
