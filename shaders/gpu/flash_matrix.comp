// Flash attention, forward, by cooperative matrices of FM x FM x FM: o = softmax(q k^T / sqrt(D)) v for f16 [BATCH,
// LENGTH, HEADS, D], CAUSAL or not, sums in f32. A subgroup of WAVE invocations has FM queries by itself, whose q stays
// in fragments; the WAVES subgroups of a workgroup share blocks of BLOCK keys and values, the values turned. Scores
// pass through a few lines of shared memory of the subgroup's own, from fragments to rows and back as f16, without a
// barrier of the workgroup; rows of factors come back as fragments whose columns are all the same. LENGTH is a multiple
// of BLOCK and of FM * WAVES.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types_int16 : require
#define KIND 1
#if BLOCK * D / 8 % (2 * WAVES * WAVE) != 0
#error a block of values is no whole number of turned pairs for each invocation
#endif
#include "matrix.glsl"
layout(local_size_x = WAVES * WAVE) in;
layout(push_constant) uniform Arguments { uint64_t q, k, v, o; };

const uint lanes = WAVES * WAVE, rows = WAVES * FM, row_pieces = D / piece, stride = HEADS * D / piece;
const uint fragments = D / FM, key_fragments = BLOCK / FM;
const uint k_stride = D / piece + 1, v_stride = BLOCK / piece + 1, fetched = BLOCK * row_pieces / lanes,
           turned_items = fetched / deep;
const uint s_stride = BLOCK / 4 + 1, o_stride = D / piece + 1, own = FM * max(s_stride, o_stride);
const uint parts = WAVE / FM, held = BLOCK / 4 / parts;  // invocations to a row of scores, and vec4s of each
shared uvec4 keys[BLOCK * k_stride], values[D * v_stride], scores[WAVES * own];
shared float factors[WAVES * FM];

#define Sums coopmat<float, gl_ScopeSubgroup, FM, FM, gl_MatrixUseAccumulator>

void fetch(uint first, uint row, out uvec4 k_next[fetched], out uvec4 v_next[fetched]) {
  const uint t = gl_LocalInvocationIndex;
  [[unroll]] for (uint i = 0; i < fetched; ++i) {
    const uint n = i * lanes + t;
    k_next[i] = load_piece(k, n / row_pieces * stride + n % row_pieces, first + row * stride);
    const uint item = i / deep * lanes + t, line = item % (BLOCK / deep) * deep + i % deep, c = item / (BLOCK / deep);
    v_next[i] = load_piece(v, line * stride + c, first + row * stride);
  }
}
void put(uvec4 k_next[fetched], uvec4 v_next[fetched]) {
  const uint t = gl_LocalInvocationIndex;
  [[unroll]] for (uint i = 0; i < fetched; ++i) {
    const uint n = i * lanes + t;
    keys[n / row_pieces * k_stride + n % row_pieces] = k_next[i];
  }
  [[unroll]] for (uint i = 0; i < turned_items; ++i) {
    const uint item = i * lanes + t, line = item % (BLOCK / deep) * deep, c = item / (BLOCK / deep) * piece;
    uvec4 two[deep];
    uint words[piece];
    [[unroll]] for (uint d = 0; d < deep; ++d) two[d] = v_next[i * deep + d];
    turn(two, words);
    [[unroll]] for (uint e = 0; e < piece; ++e) values[(c + e) * v_stride + line / piece][line / deep % 4] = words[e];
  }
}
void subgroup_sync() {
  subgroupMemoryBarrierShared();
  subgroupBarrier();
}
// A factor for each row of the sums.
Sums of_rows(float factor, bool writes, uint row) {
  subgroup_sync();
  if (writes) factors[gl_SubgroupID * FM + row] = factor;
  subgroup_sync();
  Sums m;
  coopMatLoad(m, factors, gl_SubgroupID * FM, 0, gl_CooperativeMatrixLayoutColumnMajor);
  return m;
}

void main() {
  const uint blocks = LENGTH / rows, lane = gl_SubgroupInvocationID, row = lane % FM, part = lane / FM;
  const uint q_block = blocks - 1 - gl_WorkGroupID.x % blocks, head = gl_WorkGroupID.x / blocks % HEADS,
             batch = gl_WorkGroupID.x / blocks / HEADS;
  const uint first = batch * LENGTH * stride + head * row_pieces, from = gl_SubgroupID * own;
  const uint first_query = q_block * rows + gl_SubgroupID * FM;
  uvec4 k_next[fetched], v_next[fetched];
  fetch(first, 0, k_next, v_next);
  [[unroll]] for (uint i = 0; i < FM * row_pieces / WAVE; ++i) {
    const uint n = i * WAVE + lane;
    scores[from + n / row_pieces * o_stride + n % row_pieces] =
        load_piece(q, (first_query + n / row_pieces) * stride + n % row_pieces, first);
  }
  subgroup_sync();
  coopmat<float16_t, gl_ScopeSubgroup, FM, FM, gl_MatrixUseA> queries[fragments];
  [[unroll]] for (uint d = 0; d < fragments; ++d)
    coopMatLoad(queries[d], scores, from + d * FM / piece, o_stride, gl_CooperativeMatrixLayoutRowMajor);
  subgroup_sync();
  Sums sum[fragments];
  [[unroll]] for (uint d = 0; d < fragments; ++d) sum[d] = Sums(0.0);
  float greatest = -3.4e38, total = 0;
#ifdef CAUSAL
  const uint end = (q_block * rows + rows + BLOCK - 1) / BLOCK;
#else
  const uint end = LENGTH / BLOCK;
#endif
  [[dont_unroll]] for (uint b = 0; b < end; ++b) {
    barrier();
    put(k_next, v_next);
    barrier();
    fetch(first, min(b + 1, end - 1) * BLOCK, k_next, v_next);
    [[unroll]] for (uint j = 0; j < key_fragments; ++j) {
      Sums s = Sums(0.0);
      [[unroll]] for (uint d = 0; d < fragments; ++d) {
        coopmat<float16_t, gl_ScopeSubgroup, FM, FM, gl_MatrixUseB> m;
        coopMatLoad(m, keys, j * FM * k_stride + d * FM / piece, k_stride, gl_CooperativeMatrixLayoutColumnMajor);
        s = coopMatMulAdd(queries[d], m, s);
      }
      coopMatStore(s, scores, from + j * FM / 4, s_stride, gl_CooperativeMatrixLayoutRowMajor);
    }
    subgroup_sync();
    vec4 x[held];
    float high = greatest;
    [[unroll]] for (uint i = 0; i < held; ++i) x[i] = uintBitsToFloat(scores[from + row * s_stride + part * held + i]);
#ifdef CAUSAL
    if ((b + 1) * BLOCK > first_query)
      [[unroll]] for (uint i = 0; i < held; ++i)
        [[unroll]] for (uint e = 0; e < 4; ++e)
          if (b * BLOCK + (part * held + i) * 4 + e > first_query + row) x[i][e] = -3.4e38;
#endif
    [[unroll]] for (uint i = 0; i < held; ++i) high = max(high, max(max(x[i].x, x[i].y), max(x[i].z, x[i].w)));
    [[unroll]] for (uint d = FM; d < WAVE; d *= 2) high = max(high, subgroupShuffleXor(high, d));
    const float scale = 1.4426950408889634 * inversesqrt(float(D)), shrink = exp2((greatest - high) * scale);
    greatest = high;
    total *= shrink;
    [[unroll]] for (uint i = 0; i < held; ++i) {
      x[i] = exp2(fma(x[i], vec4(scale), vec4(-high * scale)));
      total += (x[i].x + x[i].y) + (x[i].z + x[i].w);
    }
    // All have read; the weights take the place of their row's first scores.
    const Sums shrinks = of_rows(shrink, part == 0, row);
    [[unroll]] for (uint i = 0; i < held; i += 2)
      scores[from + row * s_stride + (part * held + i) / 2] =
          uvec4(packFloat2x16(f16vec2(x[i].xy)), packFloat2x16(f16vec2(x[i].zw)), packFloat2x16(f16vec2(x[i + 1].xy)),
                packFloat2x16(f16vec2(x[i + 1].zw)));
    [[unroll]] for (uint d = 0; d < fragments; ++d) sum[d] *= shrinks;
    subgroup_sync();
    [[unroll]] for (uint j = 0; j < key_fragments; ++j) {
      coopmat<float16_t, gl_ScopeSubgroup, FM, FM, gl_MatrixUseA> p;
      coopMatLoad(p, scores, from + j * FM / piece, s_stride, gl_CooperativeMatrixLayoutRowMajor);
      [[unroll]] for (uint d = 0; d < fragments; ++d) {
        coopmat<float16_t, gl_ScopeSubgroup, FM, FM, gl_MatrixUseB> m;
        coopMatLoad(m, values, d * FM * v_stride + j * FM / piece, v_stride, gl_CooperativeMatrixLayoutColumnMajor);
        sum[d] = coopMatMulAdd(p, m, sum[d]);
      }
    }
  }
  [[unroll]] for (uint d = FM; d < WAVE; d *= 2) total += subgroupShuffleXor(total, d);
  const Sums inverse = of_rows(1 / total, part == 0, row);
  [[unroll]] for (uint d = 0; d < fragments; ++d) {
    const coopmat<float16_t, gl_ScopeSubgroup, FM, FM, gl_MatrixUseAccumulator> result =
        coopmat<float16_t, gl_ScopeSubgroup, FM, FM, gl_MatrixUseAccumulator>(sum[d] * inverse);
    coopMatStore(result, scores, from + d * FM / piece, o_stride, gl_CooperativeMatrixLayoutRowMajor);
  }
  subgroup_sync();
  [[unroll]] for (uint i = 0; i < FM * row_pieces / WAVE; ++i) {
    const uint n = i * WAVE + lane;
    store_piece(o, (first_query + n / row_pieces) * stride + n % row_pieces, first,
                scores[from + n / row_pieces * o_stride + n % row_pieces]);
  }
}
