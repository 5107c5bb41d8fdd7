// Flash attention, forward, without matrix instructions: o = softmax(q k^T / sqrt(D)) v for [BATCH, LENGTH, HEADS, D], CAUSAL or not. A workgroup takes 64
// queries of a head and walks over blocks of 64 keys; each of its LOCAL = 1024 / ROWS invocations has ROWS rows x 4 columns of the scores in registers, and of the
// result ROWS rows x D / 16.
// Shared memory holds q, k (whose place the exponentials take) and v; rows of it are exclusive-ored, not padded. Four barriers a block; the next keys are
// fetched while the second product runs. The result is scaled when a row's maximum rises, its sum is added up at the end. KIND: 0 f32, 1 f16. LENGTH is a multiple of 64.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_KHR_shader_subgroup_shuffle : require
#include "pieces.glsl"
layout(local_size_x = LOCAL) in;
layout(buffer_reference, buffer_reference_align = 8, std430) writeonly buffer OutputQuad { uvec2 v; };
layout(push_constant) uniform Arguments { uint64_t q, k, v, o; };

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

const uint block = 64, quads = D / 4, row_pieces = D / each, stride = HEADS * D / each, blocks = LENGTH / block;
const uint fetched = block * row_pieces / LOCAL, columns = D / 64;  // quads of the result's columns
shared STAGED_QUAD queries[block * quads], keys[block * max(quads, 16)], values[block * quads];

// Where a quad of a row lies: lanes read rows that are `step` apart.
uint at(uint row, uint quad, uint step) { return row * quads + (quad ^ (row / step & 15u)); }

void fetch(uint64_t array, uint first, uint row, out uvec4 p[fetched]) {
  const uint t = gl_LocalInvocationIndex;
  [[unroll]] for (uint i = 0; i < fetched; ++i) {
    const uint n = i * LOCAL + t;
    p[i] = load_piece(array, n / row_pieces * stride + n % row_pieces, first + row * stride);
  }
}
#define PUT(array, p, place)                                                                      \
  [[unroll]] for (uint i = 0; i < fetched; ++i) {                                                 \
    const uint n = i * LOCAL + gl_LocalInvocationIndex, row = n / row_pieces, first = n % row_pieces * vectors; \
    STAGED_QUAD s[vectors];                                                                       \
    unpack_staged(p[i], s);                                                                       \
    [[unroll]] for (uint e = 0; e < vectors; ++e) array[place] = s[e];                            \
  }

#if KIND == 1
f16vec4 bits_of(float x) { return f16vec4(unpackFloat2x16(floatBitsToUint(x)), 0, 0); }
float of_quad(f16vec4 s) { return uintBitsToFloat(packFloat2x16(s.xy)); }
#else
vec4 bits_of(float x) { return vec4(x); }
float of_quad(vec4 s) { return s.x; }
#endif

// Over the 16 invocations of a row; through the keys' place where subgroups have fewer.
#define OVER_ROW(name, op)                                                       \
  float name(float x, uint row, uint tx) {                                       \
    x = op(x, subgroupShuffleXor(x, 1));                                         \
    x = op(x, subgroupShuffleXor(x, 2));                                         \
    x = op(x, subgroupShuffleXor(x, 4));                                         \
    if (gl_SubgroupSize >= 16) return op(x, subgroupShuffleXor(x, 8));           \
    barrier();                                                                   \
    keys[row * 16 + tx] = bits_of(x);                                            \
    barrier();                                                                   \
    return op(x, of_quad(keys[row * 16 + (tx ^ 8)]));                            \
  }
float plus(float a, float b) { return a + b; }
OVER_ROW(maximum_of_row, max)
OVER_ROW(sum_of_row, plus)

void main() {
  const uint t = gl_LocalInvocationIndex, tx = t % 16, ty = t / 16;
  const uint q_block = blocks - 1 - gl_WorkGroupID.x % blocks, head = gl_WorkGroupID.x / blocks % HEADS, batch = gl_WorkGroupID.x / blocks / HEADS;
  const uint first = batch * LENGTH * stride + head * row_pieces;  // the longest rows of causal ones begin first
  uvec4 k_next[fetched], v_next[fetched];
  fetch(q, first, q_block * block, k_next);
  PUT(queries, k_next, at(row, first + e, ROWS))
  fetch(k, first, 0, k_next);
  fetch(v, first, 0, v_next);
  vec4 sum[ROWS][columns];
  float greatest[ROWS], total[ROWS];
  [[unroll]] for (uint r = 0; r < ROWS; ++r) {
    [[unroll]] for (uint c = 0; c < columns; ++c) sum[r][c] = vec4(0);
    greatest[r] = -3.4e38;
    total[r] = 0;
  }
#ifdef CAUSAL
  const uint end = q_block + 1;
#else
  const uint end = blocks;
#endif
  [[dont_unroll]] for (uint b = 0; b < end; ++b) {
    barrier();
    PUT(keys, k_next, at(row, first + e, 4))
    PUT(values, v_next, row * quads + first + e)
    barrier();
    float s[ROWS][4];
    [[unroll]] for (uint r = 0; r < ROWS; ++r) [[unroll]] for (uint c = 0; c < 4; ++c) s[r][c] = 0;
    [[dont_unroll]] for (uint d0 = 0; d0 < quads; d0 += 2)
      [[unroll]] for (uint d = d0; d < d0 + 2; ++d) {
        vec4 y[4];
        [[unroll]] for (uint c = 0; c < 4; ++c) y[c] = vec4(keys[at(tx * 4 + c, d, 4)]);
        [[unroll]] for (uint r = 0; r < ROWS; ++r) {
          const vec4 x = vec4(queries[at(ty * ROWS + r, d, ROWS)]);
          [[unroll]] for (uint i = 0; i < 4; ++i) [[unroll]] for (uint c = 0; c < 4; ++c) s[r][c] = fma(x[i], y[c][i], s[r][c]);
        }
      }
#ifdef CAUSAL
    if (b == q_block)
      [[unroll]] for (uint r = 0; r < ROWS; ++r)
        [[unroll]] for (uint c = 0; c < 4; ++c) if (tx * 4 + c > ty * ROWS + r) s[r][c] = -3.4e38;
#endif
    float high[ROWS];
    [[unroll]] for (uint r = 0; r < ROWS; ++r) high[r] = max(max(s[r][0], s[r][1]), max(s[r][2], s[r][3]));
    [[unroll]] for (uint r = 0; r < ROWS; ++r) high[r] = maximum_of_row(high[r], ty * ROWS + r, tx);
    barrier();  // the keys have been read
    const float scale = 1.4426950408889634 * inversesqrt(float(D));
    [[unroll]] for (uint r = 0; r < ROWS; ++r) {
      const float now = max(greatest[r], high[r]), shrink = exp2((greatest[r] - now) * scale);
      greatest[r] = now;
      vec4 p;
      [[unroll]] for (uint c = 0; c < 4; ++c) p[c] = exp2(fma(s[r][c], scale, -now * scale));
      total[r] = fma(total[r], shrink, (p.x + p.y) + (p.z + p.w));
      [[unroll]] for (uint c = 0; c < columns; ++c) sum[r][c] *= shrink;
      keys[(ty * ROWS + r) * 16 + tx] = STAGED_QUAD(p);
    }
    barrier();
    const uint next = min(b + 1, end - 1) * block;
    fetch(k, first, next, k_next);
    [[dont_unroll]] for (uint j = 0; j < 16; ++j)
      [[unroll]] for (uint c = 0; c < columns; ++c) {
        vec4 y[4];
        [[unroll]] for (uint i = 0; i < 4; ++i) y[i] = vec4(values[(j * 4 + i) * quads + c * 16 + tx]);
        [[unroll]] for (uint r = 0; r < ROWS; ++r) {
          const vec4 p = vec4(keys[(ty * ROWS + r) * 16 + j]);
          [[unroll]] for (uint i = 0; i < 4; ++i) sum[r][c] = fma(vec4(p[i]), y[i], sum[r][c]);
        }
      }
    fetch(v, first, next, v_next);
  }
  [[unroll]] for (uint r = 0; r < ROWS; ++r) {
    const float all_keys = sum_of_row(total[r], ty * ROWS + r, tx);
    const float inverse = 1 / all_keys;
    const uint row = q_block * block + ty * ROWS + r;
    [[unroll]] for (uint c = 0; c < columns; ++c) {
      const vec4 w = sum[r][c] * inverse;
#if KIND == 0
      store_piece(o, first + row * stride + c * 16 + tx, 0, floatBitsToUint(w));
#else
      OutputQuad(o + uint64_t(((first + row * stride) * 2 + c * 16 + tx) * 8u)).v = uvec2(packed(w.xy), packed(w.zw));
#endif
    }
  }
}
