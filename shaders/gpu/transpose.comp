// o = x transposed, [M, N] to [N, M] in tiles of 64 x 64, all accesses of 128 bits, to shared memory too: an invocation
// turns a square of `each` x `each` elements in registers. A square's column in the shared tile is exclusive-ored with
// its row, so that neither writes nor reads meet in a bank. KIND: 0 f32, 1 f16; 256 or 64 invocations. M and N are
// multiples of 64.
#version 460
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#if KIND == 0
#define PIECE vec4
const uint each = 4;
layout(local_size_x = 256) in;
#else
#define PIECE uvec4
const uint each = 8;
layout(local_size_x = 64) in;
#endif
layout(buffer_reference, buffer_reference_align = 16, std430) readonly buffer Piece { PIECE v; };
layout(buffer_reference, buffer_reference_align = 16, std430) writeonly buffer OutputPiece { PIECE v; };
layout(push_constant) uniform Arguments { uint64_t x, o; };

const uint tile = 64, across = tile / each;
shared PIECE turned[tile][across];

void main() {
  const uint row = gl_WorkGroupID.x / (N / tile) * tile, column = gl_WorkGroupID.x % (N / tile) * tile;
  const uint i = gl_LocalInvocationIndex / across, j = gl_LocalInvocationIndex % across;
  const uint x_line = N / each * 16, o_line = M / each * 16;  // bytes
  const uint64_t from = x + row * x_line + column / each * 16, to = o + column * o_line + row / each * 16;
  PIECE square[each];
  [[unroll]] for (uint r = 0; r < each; ++r)
    square[r] = Piece((from + r * x_line) + uint64_t(i * each * x_line + j * 16)).v;
#if KIND == 0
  [[unroll]] for (uint c = 0; c < 4; ++c)
    turned[j * 4 + c][i ^ j] = vec4(square[0][c], square[1][c], square[2][c], square[3][c]);
#else
  [[unroll]] for (uint c = 0; c < 4; ++c) {
    uvec4 even, odd;
    [[unroll]] for (uint r = 0; r < 4; ++r) {
      const uint above = square[2 * r][c], below = square[2 * r + 1][c];
      even[r] = (above & 0xffffu) | below << 16;
      odd[r] = above >> 16 | (below & 0xffff0000u);
    }
    turned[j * 8 + 2 * c][i ^ j] = even;
    turned[j * 8 + 2 * c + 1][i ^ j] = odd;
  }
#endif
  barrier();
  [[unroll]] for (uint r = 0; r < each; ++r) {
    const uint line = i + r * across;
    OutputPiece((to + r * across * o_line) + uint64_t(i * o_line + j * 16)).v = turned[line][j ^ (line / each)];
  }
}
