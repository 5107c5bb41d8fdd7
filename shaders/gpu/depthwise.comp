// A depthwise convolution of 3 x 3 taps over f32 [IMAGES, H + 2, W + 2, C], with a filter for each channel, f32 [3, 3,
// C]: an invocation has four channels of four neighbours and goes down ROWS rows. Each row that it reads adds to the
// three rows of results that it touches, so that it is read once. W is a multiple of 4, H of ROWS, C of 4.
#version 460
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
layout(local_size_x = LOCAL) in;
layout(buffer_reference, buffer_reference_align = 16, std430) readonly buffer Quad { vec4 v; };
layout(buffer_reference, buffer_reference_align = 16, std430) writeonly buffer OutputQuad { vec4 v; };
layout(push_constant) uniform Arguments { uint64_t x, filters, o; };

const uint quads = C / 4, across = W / 4, down = H / ROWS, in_row = (W + 2) * C * 4, out_row = W * C * 4;
const uint all_of_them = IMAGES * down * across * quads;

void main() {
  const uint n = gl_WorkGroupID.x * LOCAL + gl_LocalInvocationIndex;
  if (all_of_them % LOCAL != 0 && n >= all_of_them) return;
  const uint quad = n % quads, column = n / quads % across * 4, row = n / (quads * across) % down * ROWS,
             image = n / (quads * across * down);
  const uint from = (image * (H + 2) + row) * in_row + column * C * 4 + quad * 16;
  const uint to = (image * H + row) * out_row + column * C * 4 + quad * 16;
  vec4 f[3][3];
  [[unroll]] for (uint i = 0; i < 9; ++i) f[i / 3][i % 3] = Quad((filters + i * C * 4) + uint64_t(quad * 16)).v;
  vec4 sum[3][4];  // of rows r - 2, r - 1 and r
  [[unroll]] for (uint i = 0; i < 3; ++i) [[unroll]] for (uint c = 0; c < 4; ++c) sum[i][c] = vec4(0);
  [[unroll]] for (uint r = 0; r < ROWS + 2; ++r) {
    vec4 v[6];
    [[unroll]] for (uint c = 0; c < 6; ++c) v[c] = Quad((x + (r * in_row + c * C * 4)) + uint64_t(from)).v;
    [[unroll]] for (uint i = 0; i < 3; ++i)
      [[unroll]] for (uint c = 0; c < 4; ++c)
        [[unroll]] for (uint d = 0; d < 3; ++d) sum[i][c] = fma(v[c + d], f[2 - i][d], sum[i][c]);
    [[unroll]] for (uint c = 0; c < 4; ++c) {
      if (r >= 2) OutputQuad((o + ((r - 2) * out_row + c * C * 4)) + uint64_t(to)).v = sum[0][c];
      sum[0][c] = sum[1][c], sum[1][c] = sum[2][c], sum[2][c] = vec4(0);
    }
  }
}
