// o = x @ y for i8 [BATCH, M, K] @ [BATCH, K, N], or y is [N, K] (TRANSPOSED), to i32, by packed dot products of four:
// a workgroup of 256 computes 128 x 128 results, an invocation 8 x 8 of them as quads of neighbours, from strips of 32
// k in two shared buffers of words of four k. The next strip is fetched meanwhile. K is a multiple of 32, N of 16 (of
// any size where TRANSPOSED).
#version 460
#extension GL_EXT_spirv_intrinsics : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
layout(local_size_x = 256) in;
layout(buffer_reference, buffer_reference_align = 16, std430) readonly buffer Piece { uvec4 v; };
layout(buffer_reference, buffer_reference_align = 4, std430) readonly buffer Word { uint v; };
layout(buffer_reference, buffer_reference_align = 16, std430) writeonly buffer OutputPiece { ivec4 v; };
layout(buffer_reference, buffer_reference_align = 4, std430) writeonly buffer OutputWord { int v; };
layout(push_constant) uniform Arguments { uint64_t x, y, o; };

// OpSDot of four 8-bit numbers in a word.
spirv_instruction(extensions = ["SPV_KHR_integer_dot_product"], capabilities = [6018, 6019], id = 4450)
int signed_dot(uint a, uint b, spirv_literal int packed_format);

const uint tile = 128, depth = 8, strips = K / 32, line = tile / 4 + 1;
const uint tiles_down = (M + tile - 1) / tile, tiles_across = (N + tile - 1) / tile;
shared uvec4 left[2][depth * line], right[2][depth * line];

struct Strip {
  uvec4 x, y;
};

// The invocation's piece of 16 k of a row, of one of 128 rows.
uvec4 along_k(uint64_t array, uint rows, uint batch, uint first, uint k0) {
  const uint t = gl_LocalInvocationIndex, row = rows % tile == 0 ? first + t / 2 : min(first + t / 2, rows - 1);
  return Piece((array + (batch * rows * K + k0)) + uint64_t(row * K + t % 2 * 16)).v;
}
void fetch(uint batch, uint row, uint column, uint k0, out Strip s) {
  s.x = along_k(x, M, batch, row, k0);
#ifdef TRANSPOSED
  s.y = along_k(y, N, batch, column, k0);
#else
  const uint t = gl_LocalInvocationIndex, c = N % tile == 0 ? column + t % 32 * 4 : min(column + t % 32 * 4, N - 4);
  [[unroll]] for (uint i = 0; i < 4; ++i)
    s.y[i] = Word((y + (batch * K + k0) * N) + uint64_t((t / 32 * 4 + i) * N + c)).v;
#endif
}

void put(uint buffer_, Strip s) {
  const uint t = gl_LocalInvocationIndex, row = t / 2;
  [[unroll]] for (uint i = 0; i < 4; ++i) left[buffer_][(t % 2 * 4 + i) * line + row / 4][row % 4] = s.x[i];
#ifdef TRANSPOSED
  [[unroll]] for (uint i = 0; i < 4; ++i) right[buffer_][(t % 2 * 4 + i) * line + row / 4][row % 4] = s.y[i];
#else
  // Four columns of four k: turned.
  const uint even = 0x00ff00ffu, odd = 0xff00ff00u;
  const uint ab = (s.y[0] & even) | (s.y[1] & even) << 8, cd = (s.y[2] & even) | (s.y[3] & even) << 8;
  const uint ab_odd = (s.y[0] & odd) >> 8 | (s.y[1] & odd), cd_odd = (s.y[2] & odd) >> 8 | (s.y[3] & odd);
  right[buffer_][t / 32 * line + t % 32] = uvec4((ab & 0xffffu) | cd << 16, (ab_odd & 0xffffu) | cd_odd << 16,
                                                 ab >> 16 | (cd & 0xffff0000u), ab_odd >> 16 | (cd_odd & 0xffff0000u));
#endif
}

void main() {
  const uint t = gl_LocalInvocationIndex, tx = t % 16, ty = t / 16;
  const uint batch = gl_WorkGroupID.x / (tiles_down * tiles_across),
             in_batch = gl_WorkGroupID.x % (tiles_down * tiles_across);
  const uint row = in_batch / tiles_across * tile, column = in_batch % tiles_across * tile;
  ivec4 sum[8][2];
  [[unroll]] for (uint r = 0; r < 8; ++r) [[unroll]] for (uint c = 0; c < 2; ++c) sum[r][c] = ivec4(0);
  Strip next;
  fetch(batch, row, column, 0, next);
  put(0, next);
  barrier();
  [[dont_unroll]] for (uint s = 0; s < strips; ++s) {
    fetch(batch, row, column, min(s + 1, strips - 1) * 32, next);
    const uint here = s & 1u;
    [[unroll]] for (uint k = 0; k < depth; ++k) {
      uvec4 a[2], b[2];
      [[unroll]] for (uint q = 0; q < 2; ++q) {
        a[q] = left[here][k * line + q * 16 + ty];
        b[q] = right[here][k * line + q * 16 + tx];
      }
      [[unroll]] for (uint r = 0; r < 8; ++r)
        [[unroll]] for (uint c = 0; c < 8; ++c) sum[r][c / 4][c % 4] += signed_dot(a[r / 4][r % 4], b[c / 4][c % 4], 0);
    }
    put(here ^ 1u, next);
    barrier();
  }
  [[unroll]] for (uint r = 0; r < 8; ++r)
    [[unroll]] for (uint c = 0; c < 2; ++c) {
      const uint i = row + (r / 4 * 16 + ty) * 4 + r % 4, j = column + (c * 16 + tx) * 4,
                 at = ((batch * M + i) * N + j) * 4;
      if (M % tile != 0 && i >= M) continue;
      if (N % 4 == 0) {
        if (N % tile == 0 || j < N) OutputPiece(o + uint64_t(at)).v = sum[r][c];
      } else {
        [[unroll]] for (uint e = 0; e < 4; ++e)
          if (j + e < N) OutputWord(o + uint64_t(at + 4 * e)).v = sum[r][c][e];
      }
    }
}
