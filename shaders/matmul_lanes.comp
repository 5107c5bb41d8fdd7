// o = x @ y in f32, [batch, M, K] @ [batch, K, N], the fastest way known on lavapipe: a workgroup is one subgroup of 8
// and computes ROWS rows x 64 columns. Each lane owns 8 columns in adjacent pairs, so one 64-bit load brings two of
// them; the lanes hold 8 k-values of a row of x between them and hand each round by shuffle. Rows are outermost inside
// a strip of 8 k, so that a row's sums stay in CPU registers for all 8. N is even and K a multiple of 8; other sizes
// are clamped at the edges. GELU applies that function to the sums.
#version 460
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#extension GL_KHR_shader_subgroup_shuffle : require
layout(local_size_x = 8) in;

layout(buffer_reference, buffer_reference_align = 4, std430) readonly buffer Floats { float at[]; };
layout(buffer_reference, buffer_reference_align = 8, std430) readonly buffer Pairs { uint64_t at[]; };
layout(buffer_reference, buffer_reference_align = 4, std430) writeonly buffer Output { float at[]; };
layout(push_constant) uniform Arguments {
  Floats x;
  Pairs y;
  Output o;
};

const uint m = M, n = N, k_size = K, rows = ROWS, pairs = 4, columns = pairs * 16, strip = 8;
const uint row_tiles = (m + rows - 1) / rows, column_tiles = (n + columns - 1) / columns;
const bool whole_rows = m % rows == 0, whole_columns = n % columns == 0;

float finish(float v) {
#ifdef GELU
  return 0.5 * v * (1 + tanh(0.7978845608 * (v + 0.044715 * v * v * v)));
#else
  return v;
#endif
}

void main() {
  const uint lane = gl_SubgroupInvocationID;
  const uint batch = gl_WorkGroupID.x / (row_tiles * column_tiles),
             tile = gl_WorkGroupID.x % (row_tiles * column_tiles);
  const uint row = tile % row_tiles * rows, column = tile / row_tiles * columns;  // y's columns stay in the cache
  uint left_row[rows], right_pair[pairs];  // where a row of x begins; a lane's pairs in a row of y
  [[unroll]] for (uint r = 0; r < rows; ++r)
    left_row[r] = (batch * m + (whole_rows ? row + r : min(row + r, m - 1))) * k_size;
  [[unroll]] for (uint c = 0; c < pairs; ++c) {
    const uint first = column / 2 + c * 8 + lane;
    right_pair[c] = batch * k_size * n / 2 + (whole_columns ? first : min(first, n / 2 - 1));
  }
  vec2 sum[rows][pairs];
  [[unroll]] for (uint r = 0; r < rows; ++r) [[unroll]] for (uint c = 0; c < pairs; ++c) sum[r][c] = vec2(0);
  [[dont_unroll]] for (uint k0 = 0; k0 < k_size; k0 += strip) {
    float a[rows];
    vec2 b[strip][pairs];
    [[unroll]] for (uint r = 0; r < rows; ++r) a[r] = x.at[left_row[r] + k0 + lane];
    [[unroll]] for (uint k = 0; k < strip; ++k)
      [[unroll]] for (uint c = 0; c < pairs; ++c)
        b[k][c] = uintBitsToFloat(unpackUint2x32(y.at[(k0 + k) * (n / 2) + right_pair[c]]));
    [[unroll]] for (uint r = 0; r < rows; ++r)
      [[unroll]] for (uint k = 0; k < strip; ++k) {
        const float left = subgroupShuffle(a[r], k);
        [[unroll]] for (uint c = 0; c < pairs; ++c) sum[r][c] = fma(vec2(left), b[k][c], sum[r][c]);
      }
  }
  [[unroll]] for (uint r = 0; r < rows; ++r)
    [[unroll]] for (uint c = 0; c < pairs; ++c) {
      const uint j = column + c * 16 + lane * 2, at = (batch * m + row + r) * n + j;
      if ((whole_rows || row + r < m) && (whole_columns || j < n)) {
        o.at[at] = finish(sum[r][c].x);
        o.at[at + 1] = finish(sum[r][c].y);
      }
    }
}
