// A convolution of 3 x 3 taps, [IMAGES, H + 2, W + 2, C] by [3, 3, C, N] to [IMAGES, H, W, N], without matrix
// instructions: a workgroup of 128 computes 8 x 16 pixels x 64 channels, an invocation eight neighbours x 8 channels,
// from strips of 8 (f32) or 16 (f16) channels in shared memory. Ten pixels of a row serve the three taps of that row.
// KIND: 0 f32, 1 f16; sums are f32. H is a multiple of 8, W of 16, N of 64, C of a strip.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_EXT_shader_16bit_storage : require
#include "pieces.glsl"
layout(local_size_x = 128) in;
layout(buffer_reference, buffer_reference_align = 8, std430) writeonly buffer OutputQuad { uvec2 v; };
layout(push_constant) uniform Arguments { uint64_t x, filters, o; };

#if KIND == 1
#define STAGED_QUAD f16vec4
void unpack_staged(uvec4 p, out f16vec4 s[vectors]) {
  s[0] = f16vec4(unpackFloat2x16(p.x), unpackFloat2x16(p.y));
  s[1] = f16vec4(unpackFloat2x16(p.z), unpackFloat2x16(p.w));
}
#else
#define STAGED_QUAD vec4
void unpack_staged(uvec4 p, out vec4 s[vectors]) { unpack(p, s); }
#endif

const uint pixels = 10 * 18, strip = 2 * each, quads = strip / 4;  // channels of a strip
const uint pixel_pieces = pixels * 2, filter_pieces = 9 * strip * 64 / each;
const uint pixel_rounds = (pixel_pieces + 127) / 128, filter_rounds = filter_pieces / 128;
shared STAGED_QUAD tile[quads][pixels], taps[9 * strip][16];

void main() {
  const uint t = gl_LocalInvocationIndex, tx = t % 8, ty = t / 8;
  const uint columns = W / 16, rows = H / 8, groups = N / 64;
  const uint group = gl_WorkGroupID.x % groups * 64, column = gl_WorkGroupID.x / groups % columns * 16;
  const uint row = gl_WorkGroupID.x / (groups * columns) % rows * 8,
             image = gl_WorkGroupID.x / (groups * columns * rows);
  const uint from = ((image * (H + 2) + row) * (W + 2) + column) * (C / each);
  vec4 sum[8][2];
  [[unroll]] for (uint p = 0; p < 8; ++p) [[unroll]] for (uint c = 0; c < 2; ++c) sum[p][c] = vec4(0);
  [[dont_unroll]] for (uint c0 = 0; c0 < C; c0 += strip) {
    uvec4 p[pixel_rounds], f[filter_rounds];
    [[unroll]] for (uint i = 0; i < pixel_rounds; ++i) {
      const uint n = min(i * 128 + t, pixel_pieces - 1), pixel = n / 2;
      p[i] = load_piece(x, (pixel / 18 * (W + 2) + pixel % 18) * (C / each) + n % 2, from + c0 / each);
    }
    barrier();
    [[unroll]] for (uint i = 0; i < pixel_rounds; ++i) {
      const uint n = min(i * 128 + t, pixel_pieces - 1);
      STAGED_QUAD s[vectors];
      unpack_staged(p[i], s);
      [[unroll]] for (uint v = 0; v < vectors; ++v) tile[n % 2 * vectors + v][n / 2] = s[v];
    }
    [[unroll]] for (uint i = 0; i < filter_rounds; ++i) {
      const uint n = (i * 128 + t) * each, line = n / 64;  // of tap and channel
      f[i] = load_piece(filters, ((line / strip * C + line % strip) * N + n % 64) / each, (c0 * N + group) / each);
    }
    [[unroll]] for (uint i = 0; i < filter_rounds; ++i) {
      const uint n = (i * 128 + t) * each;
      STAGED_QUAD s[vectors];
      unpack_staged(f[i], s);
      [[unroll]] for (uint v = 0; v < vectors; ++v) taps[n / 64][n % 64 / 4 + v] = s[v];
    }
    barrier();
    [[dont_unroll]] for (uint q = 0; q < quads; ++q)
      [[dont_unroll]] for (uint dy = 0; dy < 3; ++dy) {
        vec4 v[10];
        const uint first = (ty / 2 + dy) * 18 + ty % 2 * 8, filter_ = dy * 3 * strip + q * 4;
        [[unroll]] for (uint i = 0; i < 10; ++i) v[i] = vec4(tile[q][first + i]);
        [[unroll]] for (uint dx = 0; dx < 3; ++dx)
          [[unroll]] for (uint c = 0; c < 4; ++c)
            [[unroll]] for (uint h = 0; h < 2; ++h) {
              const vec4 w = vec4(taps[filter_ + dx * strip + c][h * 8 + tx]);
              [[unroll]] for (uint i = 0; i < 8; ++i) sum[i][h] = fma(vec4(v[i + dx][c]), w, sum[i][h]);
            }
      }
  }
  [[unroll]] for (uint i = 0; i < 8; ++i)
    [[unroll]] for (uint h = 0; h < 2; ++h) {
      const uint at = ((image * H + row + ty / 2) * W + column + ty % 2 * 8 + i) * (N / 4) + group / 4 + h * 8 + tx;
#if KIND == 0
      store_piece(o, at, 0, floatBitsToUint(sum[i][h]));
#else
      OutputQuad(o + uint64_t(at * 8u)).v = uvec2(packed(sum[i][h].xy), packed(sum[i][h].zw));
#endif
    }
}
