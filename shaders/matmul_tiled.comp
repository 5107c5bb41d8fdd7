// o = x @ y for 1024 x 1024 f32, for real GPUs: a workgroup of 256 computes 128 x 128 results, 8 x 8 per invocation,
// from operand tiles staged in shared memory in strips of 8 k. Loads are 128 bits wide; the next strip is in registers
// while this one is computed.
#version 460
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_control_flow_attributes : require
layout(local_size_x = 256) in;

layout(buffer_reference, buffer_reference_align = 16, std430) readonly buffer Quads { vec4 at[]; };
layout(buffer_reference, buffer_reference_align = 16, std430) writeonly buffer Output { vec4 at[]; };
layout(push_constant) uniform Arguments {
  Quads x, y;
  Output o;
};

const uint n = 1024, tile = 128, strip = 8;
shared float left[strip][tile + 4];    // transposed: a column of results reads along k
shared vec4 right[strip][tile / 4];

void main() {
  const uint t = gl_LocalInvocationIndex;
  const uint row = gl_WorkGroupID.x / (n / tile) * tile, column = gl_WorkGroupID.x % (n / tile) * tile;
  const uint ty = t / 16, tx = t % 16;
  const uint left_row = t / 2, left_k = t % 2 * 4;     // this invocation's part of the tiles: one vec4 of each
  const uint right_k = t / 32, right_column = t % 32;
  vec4 sum[8][2];
  [[unroll]] for (uint r = 0; r < 8; ++r) { sum[r][0] = vec4(0); sum[r][1] = vec4(0); }
  vec4 a = x.at[((row + left_row) * n + left_k) / 4];
  vec4 b = y.at[(right_k * n + column) / 4 + right_column];
  [[dont_unroll]] for (uint k0 = 0; k0 < n; k0 += strip) {
    barrier();
    [[unroll]] for (uint i = 0; i < 4; ++i) left[left_k + i][left_row] = a[i];
    right[right_k][right_column] = b;
    barrier();
    const uint next = k0 + strip < n ? k0 + strip : k0;
    a = x.at[((row + left_row) * n + next + left_k) / 4];
    b = y.at[((next + right_k) * n + column) / 4 + right_column];
    [[unroll]] for (uint k = 0; k < strip; ++k) {
      const vec4 b0 = right[k][tx], b1 = right[k][tx + 16];
      [[unroll]] for (uint r = 0; r < 8; ++r) {
        const vec4 l = vec4(left[k][ty * 8 + r]);
        sum[r][0] = fma(l, b0, sum[r][0]);
        sum[r][1] = fma(l, b1, sum[r][1]);
      }
    }
  }
  [[unroll]] for (uint r = 0; r < 8; ++r)
    [[unroll]] for (uint half_ = 0; half_ < 2; ++half_)
      o.at[((row + ty * 8 + r) * n + column) / 4 + tx + 16 * half_] = sum[r][half_];
}
