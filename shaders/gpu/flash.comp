// Flash attention, forward, without matrix instructions: o = softmax(q k^T / sqrt(D)) v for [BATCH, LENGTH, HEADS, D],
// CAUSAL or not. A workgroup takes 64 queries of a head and walks over blocks of KEYS keys (64, or 32 for chips with 32
// KiB of shared memory); each of its LOCAL = 1024 / ROWS invocations has ROWS rows x KEYS / 16 columns of the scores in
// registers, and of the result ROWS rows x D / 16. Shared memory holds q, k (whose place the exponentials take) and v;
// rows of it are exclusive-ored, not padded. Four barriers a block; the next keys are fetched while the second product
// runs. The result is scaled when a row's maximum rises, its sum is added up at the end. KIND: 0 f32, 1 f16. LENGTH is
// a multiple of 64.
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

const uint block = 64, each_keys = KEYS / 16, quads = D / 4, row_pieces = D / each, stride = HEADS * D / each,
           blocks = LENGTH / block;
const uint fetched = KEYS * row_pieces / LOCAL, weights = KEYS / 4,  // quads of a row of exponentials
            columns = D / 64;  // quads of the result's columns
shared STAGED_QUAD queries[block * quads], keys[max(KEYS * quads, block * weights)], values[KEYS * quads];

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
    if (tx % 8 == 0) keys[row * 2 + tx / 8] = bits_of(x);                        \
    barrier();                                                                   \
    return op(x, of_quad(keys[row * 2 + (tx / 8 ^ 1)]));                         \
  }
float plus(float a, float b) { return a + b; }
OVER_ROW(maximum_of_row, max)
OVER_ROW(sum_of_row, plus)

void main() {
  const uint t = gl_LocalInvocationIndex, tx = t % 16, ty = t / 16;
  const uint q_block = blocks - 1 - gl_WorkGroupID.x % blocks, head = gl_WorkGroupID.x / blocks % HEADS,
             batch = gl_WorkGroupID.x / blocks / HEADS;
  const uint first = batch * LENGTH * stride + head * row_pieces;  // the longest rows of causal ones begin first
  uvec4 k_next[fetched], v_next[fetched];
  [[unroll]] for (uint part = 0; part < block; part += KEYS) {
    fetch(q, first, q_block * block + part, k_next);
    PUT(queries, k_next, at(part + row, first + e, ROWS))
  }
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
  const uint end = (q_block + 1) * (block / KEYS);
#else
  const uint end = LENGTH / KEYS;
#endif
  [[dont_unroll]] for (uint b = 0; b < end; ++b) {
    barrier();
    PUT(keys, k_next, at(row, first + e, each_keys))
    PUT(values, v_next, row * quads + first + e)
    barrier();
    float s[ROWS][each_keys];
    [[unroll]] for (uint r = 0; r < ROWS; ++r) [[unroll]] for (uint c = 0; c < each_keys; ++c) s[r][c] = 0;
    [[dont_unroll]] for (uint d0 = 0; d0 < quads; d0 += 2)
      [[unroll]] for (uint d = d0; d < d0 + 2; ++d) {
        vec4 y[each_keys];
        [[unroll]] for (uint c = 0; c < each_keys; ++c) y[c] = vec4(keys[at(tx * each_keys + c, d, each_keys)]);
        [[unroll]] for (uint r = 0; r < ROWS; ++r) {
          const vec4 x = vec4(queries[at(ty * ROWS + r, d, ROWS)]);
          [[unroll]] for (uint i = 0; i < 4; ++i)
            [[unroll]] for (uint c = 0; c < each_keys; ++c) s[r][c] = fma(x[i], y[c][i], s[r][c]);
        }
      }
#ifdef CAUSAL
    if ((b + 1) * KEYS > q_block * block)
      [[unroll]] for (uint r = 0; r < ROWS; ++r)
        [[unroll]] for (uint c = 0; c < each_keys; ++c)
          if (b * KEYS + tx * each_keys + c > q_block * block + ty * ROWS + r) s[r][c] = -3.4e38;
#endif
    float high[ROWS];
    [[unroll]] for (uint r = 0; r < ROWS; ++r) {
      high[r] = max(s[r][0], s[r][1]);
      [[unroll]] for (uint c = 2; c < each_keys; ++c) high[r] = max(high[r], s[r][c]);
    }
    [[unroll]] for (uint r = 0; r < ROWS; ++r) high[r] = maximum_of_row(high[r], ty * ROWS + r, tx);
    barrier();  // the keys have been read
    const float scale = 1.4426950408889634 * inversesqrt(float(D));
    [[unroll]] for (uint r = 0; r < ROWS; ++r) {
      const float now = max(greatest[r], high[r]), shrink = exp2((greatest[r] - now) * scale);
      greatest[r] = now;
      float p[each_keys], part = 0;
      [[unroll]] for (uint c = 0; c < each_keys; ++c) {
        p[c] = exp2(fma(s[r][c], scale, -now * scale));
        part += p[c];
      }
      total[r] = fma(total[r], shrink, part);
      [[unroll]] for (uint c = 0; c < columns; ++c) sum[r][c] *= shrink;
#if KEYS == 64
      keys[(ty * ROWS + r) * weights + tx] = STAGED_QUAD(p[0], p[1], p[2], p[3]);
#else
      [[unroll]] for (uint c = 0; c < each_keys; ++c)
        keys[(ty * ROWS + r) * weights + tx / 2][tx % 2 * 2 + c] = STAGED_QUAD(p[c])[0];
#endif
    }
    barrier();
    const uint next = min(b + 1, end - 1) * KEYS;
    fetch(k, first, next, k_next);
    [[dont_unroll]] for (uint j = 0; j < weights; ++j)
      [[unroll]] for (uint c = 0; c < columns; ++c) {
        vec4 y[4];
        [[unroll]] for (uint i = 0; i < 4; ++i) y[i] = vec4(values[(j * 4 + i) * quads + c * 16 + tx]);
        [[unroll]] for (uint r = 0; r < ROWS; ++r) {
          const vec4 p = vec4(keys[(ty * ROWS + r) * weights + j]);
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
