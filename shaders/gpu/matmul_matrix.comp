// o = x @ y, [BATCH, M, K] @ [BATCH, K, N], or y is [N, K] (TRANSPOSED), by cooperative matrices of FM x FN x FK: a
// workgroup is WAVES_M x WAVES_N subgroups of WAVE invocations with WM x WN fragments of sums each. Strips of BK k pass
// through shared memory, whose rows are padded by 16 bytes; the next one is fetched to registers meanwhile. K_MAJOR: y
// is turned on its way to shared memory, for chips whose loads of a fragment want neighbours in k. KIND: 1 f16 (sums
// f32), 3 i8 (sums and results i32). GELU: the function of the sums plus a row of biases. Results pass through shared
// memory too, so that they are written in 128 bits.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types_int8 : require
#extension GL_EXT_shader_explicit_arithmetic_types_int16 : require
#include "matrix.glsl"
layout(local_size_x = WAVES_M * WAVES_N * WAVE) in;
layout(push_constant) uniform Arguments {
  uint64_t x, y;
#ifdef GELU
  uint64_t bias;
#endif
  uint64_t o;
};

const uint bm = WAVES_M * WM * FM, bn = WAVES_N * WN * FN, lanes = WAVES_M * WAVES_N * WAVE;
const uint tiles_down = (M + bm - 1) / bm, tiles_across = (N + bn - 1) / bn, strips = (K + BK - 1) / BK;
const bool pieces_fit = K % BK == 0 && N % piece == 0;
#if defined(TRANSPOSED) || defined(K_MAJOR)
const bool k_major = true;
const uint right_stride = BK / piece + 1, right_size = bn * right_stride;
#else
const bool k_major = false;
const uint right_stride = bn / piece + 1, right_size = BK * right_stride;
#endif
#ifdef TRANSPOSED
const bool turned = false;
#else
const bool turned = k_major;
#endif
const uint left_stride = BK / piece + 1, left_size = bm * left_stride;
const uint left_pieces = bm * BK / piece / lanes, right_pieces = bn * BK / piece / lanes,
           turned_items = right_pieces / deep;
// A subgroup's row of fragments on its way out, in 16 bytes: sums of 32 bits, or f16.
#if KIND == 1 && !defined(GELU)
const uint out_bytes = 2;
#else
const uint out_bytes = 4;
#endif
const uint out_stride = WN * FN * out_bytes / 16 + 1, out_size = FM * out_stride;
const uint most = max(left_size + right_size, WAVES_M * WAVES_N * out_size);
#if KIND == 3 && FK < 16
// A fragment's row has 8 bytes.
const uint units = 2;
shared uvec2 stage[most * units];
uvec4 staged(uint at) { return uvec4(stage[2 * at], stage[2 * at + 1]); }
void put_piece(uint at, uvec4 v) {
  stage[2 * at] = v.xy;
  stage[2 * at + 1] = v.zw;
}
void put_word(uint at, uint word, uint v) { stage[2 * at + word / 2][word % 2] = v; }
#else
const uint units = 1;
shared uvec4 stage[most];
uvec4 staged(uint at) { return stage[at]; }
void put_piece(uint at, uvec4 v) { stage[at] = v; }
void put_word(uint at, uint word, uint v) { stage[at][word] = v; }
#endif
const uint unit = piece / units;  // elements

struct Strip {
  uvec4 x[left_pieces], y[right_pieces];
};

// A piece of elements one by one, number more + lane on, where `more` is the same for all; the first `zeros` of them
// count as zeros, and those from `end` on may be any.
uvec4 piece_of(uint64_t array, uint more, uint lane, uint zeros, uint end) {
  uint words[4] = {0, 0, 0, 0};
#if KIND == 1
  [[unroll]] for (uint e = 0; e < piece; ++e) {
    const uint v = uint(Halves((array + more * 2) + uint64_t((lane + min(e, end - 1)) * 2)).at[0]);
    words[e / 2] |= (e < zeros ? 0 : v) << (e % 2 * 16);
  }
#endif
  return uvec4(words[0], words[1], words[2], words[3]);
}

void fetch(uint batch, uint row, uint column, uint k0, out Strip s) {
  // By elements, the last strip begins earlier, and what the one before had counts as zeros: all loads are inside,
  // without a branch.
  const uint t = gl_LocalInvocationIndex, from = min(k0, K - BK), again = k0 - from;
  [[unroll]] for (uint i = 0; i < left_pieces; ++i) {
    const uint at = (i * lanes + t) * piece, r = row + at / BK, k = at % BK;
    if (pieces_fit)
      s.x[i] = load_piece(x, ((M % bm == 0 ? r : min(r, M - 1)) * K + k) / piece, (batch * M * K + k0) / piece);
    else s.x[i] = piece_of(x, batch * M * K + from, min(r, M - 1) * K + k, max(again, k) - k, piece);
  }
  [[unroll]] for (uint i = 0; i < right_pieces; ++i) {
#ifdef TRANSPOSED
    const uint at = (i * lanes + t) * piece, c = column + at / BK, k = at % BK;
    if (pieces_fit)
      s.y[i] = load_piece(y, ((N % bn == 0 ? c : min(c, N - 1)) * K + k) / piece, (batch * N * K + k0) / piece);
    else s.y[i] = piece_of(y, batch * N * K + from, min(c, N - 1) * K + k, max(again, k) - k, piece);
#else
    const uint item = i / deep * lanes + t, at = (i * lanes + t) * piece;  // an item is a piece of `deep` rows
    const uint k = turned ? item % (BK / deep) * deep + i % deep : at / bn;
    const uint c = column + (turned ? item / (BK / deep) * piece : at % bn);
    if (pieces_fit)
      s.y[i] = load_piece(y, (k * N + (N % bn == 0 ? c : min(c, N - piece))) / piece, (batch * K + k0) * (N / piece));
    else s.y[i] = piece_of(y, (batch * K + from) * N, k * N + min(c, N - 1), k < again ? piece : 0, N - min(c, N - 1));
#endif
  }
}

void put(Strip s) {
  const uint t = gl_LocalInvocationIndex;
  [[unroll]] for (uint i = 0; i < left_pieces; ++i) {
    const uint at = (i * lanes + t) * piece;
    put_piece(at / BK * left_stride + at % BK / piece, s.x[i]);
  }
  if (turned) {
    [[unroll]] for (uint i = 0; i < turned_items; ++i) {
      const uint item = i * lanes + t, k = item % (BK / deep) * deep, c = item / (BK / deep) * piece;
      uvec4 rows[deep];
      uint words[piece];
      [[unroll]] for (uint d = 0; d < deep; ++d) rows[d] = s.y[i * deep + d];
      turn(rows, words);
      [[unroll]] for (uint e = 0; e < piece; ++e)
        put_word(left_size + (c + e) * right_stride + k / piece, k / deep % 4, words[e]);
    }
  } else {
    const uint line = k_major ? BK : bn;
    [[unroll]] for (uint i = 0; i < right_pieces; ++i) {
      const uint at = (i * lanes + t) * piece;
      put_piece(left_size + at / line * right_stride + at % line / piece, s.y[i]);
    }
  }
}

#ifdef GELU
uvec4 finish(uvec4 low, uvec4 high, uint column) {
  vec4 v[2] = {uintBitsToFloat(low), uintBitsToFloat(high)};
  const uvec4 b = load_piece(bias, min(column, N - piece) / piece, 0);
  v[0] += vec4(unpackHalf2x16(b.x), unpackHalf2x16(b.y));
  v[1] += vec4(unpackHalf2x16(b.z), unpackHalf2x16(b.w));
  f16vec4 h[2];
  [[unroll]] for (uint i = 0; i < 2; ++i) {
    const vec4 inner = 0.7978845608 * (v[i] + 0.044715 * v[i] * v[i] * v[i]);
    h[i] = f16vec4(v[i] - v[i] / (1 + exp2(2.8853900818 * inner)));  // v (1 + tanh inner) / 2, without overflow
  }
  return uvec4(packFloat2x16(h[0].xy), packFloat2x16(h[0].zw), packFloat2x16(h[1].xy), packFloat2x16(h[1].zw));
}
#endif

// Writes a subgroup's row of fragments, which lies in shared memory from `from` on.
void write(uint from, uint batch, uint row, uint column) {
  const uint result = KIND == 1 ? 8 : 4, across = WN * FN / result;  // elements of 16 bytes
  [[unroll]] for (uint i = 0; i < FM * across / WAVE; ++i) {
    const uint item = i * WAVE + gl_SubgroupInvocationID, r = item / across, c = item % across;
#ifdef GELU
    const uvec4 v =
        finish(staged(from + r * out_stride + 2 * c), staged(from + r * out_stride + 2 * c + 1), column + c * result);
#else
    const uvec4 v = staged(from + r * out_stride + c);
#endif
    if ((M % bm != 0 && row + r >= M) || (N % bn != 0 && column + c * result >= N)) continue;
    if (N % result == 0) {
      store_piece(o, (r * N + c * result) / result, ((batch * M + row) * N + column) / result, v);
    } else {
#if KIND == 1
      [[unroll]] for (uint e = 0; e < 8; ++e)
        if (column + c * 8 + e < N)
          OutputHalves(o).at[(batch * M + row + r) * N + column + c * 8 + e] =
              uint16_t(v[e / 2] >> (e % 2 * 16) & 0xffffu);
#endif
    }
  }
}

void main() {
  // Tiles that run at once lie near each other: columns of eight rows of tiles.
  const uint batch = gl_WorkGroupID.x / (tiles_down * tiles_across),
             tile = gl_WorkGroupID.x % (tiles_down * tiles_across);
  const uint band = tile / (8 * tiles_across), in_band = tile % (8 * tiles_across),
             height = min(8, tiles_down - band * 8);
  const uint row = (band * 8 + in_band % height) * bm, column = in_band / height * bn;
  const uint wave_row = gl_SubgroupID / WAVES_N * (WM * FM), wave_column = gl_SubgroupID % WAVES_N * (WN * FN);
  coopmat<SUM, gl_ScopeSubgroup, FM, FN, gl_MatrixUseAccumulator> sum[WM][WN];
  [[unroll]] for (uint i = 0; i < WM; ++i)
    [[unroll]] for (uint j = 0; j < WN; ++j)
      sum[i][j] = coopmat<SUM, gl_ScopeSubgroup, FM, FN, gl_MatrixUseAccumulator>(SUM(0));
  Strip next;
  fetch(batch, row, column, 0, next);
  put(next);
  barrier();
  [[dont_unroll]] for (uint s = 0; s < strips; ++s) {
    fetch(batch, row, column, min(s + 1, strips - 1) * BK, next);
    [[unroll]] for (uint k = 0; k < BK; k += FK) {
      coopmat<FACTOR, gl_ScopeSubgroup, FM, FK, gl_MatrixUseA> a[WM];
      [[unroll]] for (uint i = 0; i < WM; ++i)
        coopMatLoad(a[i], stage, (wave_row + i * FM) * left_stride * units + k / unit, left_stride * units,
                    gl_CooperativeMatrixLayoutRowMajor);
      [[unroll]] for (uint j = 0; j < WN; ++j) {
        coopmat<FACTOR, gl_ScopeSubgroup, FK, FN, gl_MatrixUseB> b;
        const uint c = wave_column + j * FN;
        if (k_major)
          coopMatLoad(b, stage, (left_size + c * right_stride) * units + k / unit, right_stride * units,
                      gl_CooperativeMatrixLayoutColumnMajor);
        else
          coopMatLoad(b, stage, (left_size + k * right_stride) * units + c / unit, right_stride * units,
                      gl_CooperativeMatrixLayoutRowMajor);
        [[unroll]] for (uint i = 0; i < WM; ++i) sum[i][j] = coopMatMulAdd(a[i], b, sum[i][j]);
      }
    }
    barrier();
    put(next);
    barrier();
  }
  const uint from = gl_SubgroupID * out_size;
  [[unroll]] for (uint i = 0; i < WM; ++i) {
    [[unroll]] for (uint j = 0; j < WN; ++j) {
#if KIND == 1 && !defined(GELU)
      const coopmat<float16_t, gl_ScopeSubgroup, FM, FN, gl_MatrixUseAccumulator> result =
          coopmat<float16_t, gl_ScopeSubgroup, FM, FN, gl_MatrixUseAccumulator>(sum[i][j]);
      coopMatStore(result, stage, (from * 16 + j * FN * out_bytes) / 16 * units, out_stride * units,
                   gl_CooperativeMatrixLayoutRowMajor);
#else
      coopMatStore(sum[i][j], stage, (from * 16 + j * FN * out_bytes) / 16 * units, out_stride * units,
                   gl_CooperativeMatrixLayoutRowMajor);
#endif
    }
    subgroupMemoryBarrierShared();
    subgroupBarrier();
    write(from, batch, row + wave_row + i * FM, column + wave_column);
    subgroupMemoryBarrierShared();
    subgroupBarrier();
  }
}
