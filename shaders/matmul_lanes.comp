// o = x @ y for 1024 x 1024 f32, the fastest way known on lavapipe: a workgroup is one subgroup of 8 and computes 16 rows x 64 columns.
// Each lane owns 8 columns in adjacent pairs, so one 64-bit load brings two of them; the lanes hold 8 k-values of a row of x between them
// and hand each round by shuffle. Rows are outermost inside a strip of 8 k, so that a row's sums stay in CPU registers for all 8.
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

const uint n = 1024, rows = 16, pairs = 4, columns = pairs * 16, strip = 8;

void main() {
  const uint lane = gl_SubgroupInvocationID;
  const uint row = gl_WorkGroupID.x / (n / columns) * rows, column = gl_WorkGroupID.x % (n / columns) * columns;
  vec2 sum[rows][pairs];
  [[unroll]] for (uint r = 0; r < rows; ++r) [[unroll]] for (uint c = 0; c < pairs; ++c) sum[r][c] = vec2(0);
  [[dont_unroll]] for (uint k0 = 0; k0 < n; k0 += strip) {
    float a[rows];
    vec2 b[strip][pairs];
    [[unroll]] for (uint r = 0; r < rows; ++r) a[r] = x.at[(row + r) * n + k0 + lane];
    [[unroll]] for (uint k = 0; k < strip; ++k)
      [[unroll]] for (uint c = 0; c < pairs; ++c)
        b[k][c] = uintBitsToFloat(unpackUint2x32(y.at[((k0 + k) * n + column) / 2 + c * 8 + lane]));
    [[unroll]] for (uint r = 0; r < rows; ++r)
      [[unroll]] for (uint k = 0; k < strip; ++k) {
        const float left = subgroupShuffle(a[r], k);
        [[unroll]] for (uint c = 0; c < pairs; ++c) sum[r][c] = fma(vec2(left), b[k][c], sum[r][c]);
      }
  }
  [[unroll]] for (uint r = 0; r < rows; ++r)
    [[unroll]] for (uint c = 0; c < pairs; ++c) {
      const uint at = (row + r) * n + column + c * 16 + lane * 2;
      o.at[at] = sum[r][c].x;
      o.at[at + 1] = sum[r][c].y;
    }
}
