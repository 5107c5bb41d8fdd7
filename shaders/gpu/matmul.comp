// o = x @ y, [BATCH, M, K] @ [BATCH, K, N], or y is [N, K] (TRANSPOSED), without matrix instructions: a workgroup
// computes BM x BN results, an invocation TM x TN of them as quads of neighbours, from strips of BK k in two shared
// buffers, so that a strip takes one barrier. Loads are of 128 bits, from shared memory too; a strip is fetched while
// the one before it is computed. KIND: 0 f32, 1 f16 (f16 in shared memory too, as mixed multiply-adds take it), 2 bf16.
// Sums are f32. 3 i8, to i32, for chips without packed dot products: 1024 products of i8 add up to at most 2^24, which
// f32 holds exactly; then the sums go to integers. GELU: the function of the sums plus a row of biases. Sizes that are
// no multiples of a piece are loaded element by element.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types_int16 : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#include "pieces.glsl"
layout(local_size_x = LOCAL) in;

#if KIND == 0
#define ELEMENT float
#define ALIGN 4
#elif KIND == 3
#define ELEMENT int  // which no size is loaded by: they all fit pieces
#define ALIGN 4
#else
#define ELEMENT uint16_t
#define ALIGN 2
#endif
#if KIND == 1
#define STAGED float16_t
#define STAGED_QUAD f16vec4
#else
#define STAGED float
#define STAGED_QUAD vec4
#endif
layout(buffer_reference, buffer_reference_align = ALIGN, std430) readonly buffer Elements { ELEMENT at[]; };
layout(buffer_reference, buffer_reference_align = ALIGN, std430) writeonly buffer OutputElements { ELEMENT at[]; };
layout(buffer_reference, buffer_reference_align = 8, std430) writeonly buffer OutputHalves { uvec2 at[]; };
layout(push_constant) uniform Arguments {
  uint64_t x, y;
#ifdef GELU
  uint64_t bias;
#endif
  uint64_t o;
};

const uint quads_down = TM / 4, quads_across = TN / 4, lanes_across = BN / TN, lanes_down = BM / TM;
const uint tiles_across = (N + BN - 1) / BN, tiles_down = (M + BM - 1) / BM, strips = (K + BK - 1) / BK;
const bool pieces_fit = K % each == 0 && N % each == 0 && K % BK == 0;
const uint left_stride = BM / 4 + 1, right_stride = BN / 4 + 1;
const uint left_pieces = (BM * BK / each + LOCAL - 1) / LOCAL, right_pieces = (BN * BK / each + LOCAL - 1) / LOCAL;
const bool all_left = BM * BK / each % LOCAL == 0, all_right = BN * BK / each % LOCAL == 0;  // have a piece
shared STAGED_QUAD left[2][BK * left_stride], right[2][BK * right_stride];

STAGED of_bits(ELEMENT e) {
#if KIND == 0 || KIND == 3
  return STAGED(e);
#elif KIND == 1
  return uint16BitsToFloat16(e);
#else
  return uintBitsToFloat(uint(e) << 16);
#endif
}

#if KIND == 1
void unpack_staged(uvec4 p, out f16vec4 v[vectors]) {
  v[0] = f16vec4(unpackFloat2x16(p.x), unpackFloat2x16(p.y));
  v[1] = f16vec4(unpackFloat2x16(p.z), unpackFloat2x16(p.w));
}
#else
void unpack_staged(uvec4 p, out vec4 v[vectors]) { unpack(p, v); }
#endif

// What this invocation fetches of a strip: pieces, or as many elements.
struct Strip {
  uvec4 x[left_pieces], y[right_pieces];
};

#if defined(TRANSPOSED)
const bool right_along_k = true;
#else
const bool right_along_k = false;
#endif

// Element number more + lane, where `more` is the same for all invocations.
ELEMENT element_at(uint64_t p, uint more, uint lane) {
  return Elements((p + more * ALIGN) + uint64_t(lane * ALIGN)).at[0];
}

void fetch(uint batch, uint row, uint column, uint k0, out Strip s) {
  const uint t = gl_LocalInvocationIndex;
  if (pieces_fit) {
    [[unroll]] for (uint i = 0; i < left_pieces; ++i) {
      const uint at = all_left ? (i * LOCAL + t) * each : min((i * LOCAL + t) * each, BM * BK - each),
                 r = M % BM == 0 ? row + at / BK : min(row + at / BK, M - 1);
      s.x[i] = load_piece(x, (r * K + at % BK) / each, (batch * M * K + k0) / each);
    }
    [[unroll]] for (uint i = 0; i < right_pieces; ++i) {
      const uint at = all_right ? (i * LOCAL + t) * each : min((i * LOCAL + t) * each, BN * BK - each);
      if (right_along_k)
        s.y[i] = load_piece(y, ((N % BN == 0 ? column + at / BK : min(column + at / BK, N - 1)) * K + at % BK) / each,
                            (batch * N * K + k0) / each);
      else
        s.y[i] =
            load_piece(y, (at / BN * N + (N % BN == 0 ? column + at % BN : min(column + at % BN, N - each))) / each,
                       (batch * K + k0) * (N / each));
    }
  }
}

void put(uint buffer_, Strip s) {
  const uint t = gl_LocalInvocationIndex;
  [[unroll]] for (uint i = 0; i < left_pieces; ++i) {
    const uint at = (i * LOCAL + t) * each, r = at / BK, k = at % BK;
    if (!all_left && at >= BM * BK) break;
    STAGED_QUAD v[vectors];
    unpack_staged(s.x[i], v);
    [[unroll]] for (uint e = 0; e < each; ++e) left[buffer_][(k + e) * left_stride + r / 4][r % 4] = v[e / 4][e % 4];
  }
  [[unroll]] for (uint i = 0; i < right_pieces; ++i) {
    const uint at = (i * LOCAL + t) * each;
    if (!all_right && at >= BN * BK) break;
    STAGED_QUAD v[vectors];
    unpack_staged(s.y[i], v);
    if (right_along_k) {
      const uint c = at / BK, k = at % BK;
      [[unroll]] for (uint e = 0; e < each; ++e)
        right[buffer_][(k + e) * right_stride + c / 4][c % 4] = v[e / 4][e % 4];
    } else {
      [[unroll]] for (uint q = 0; q < vectors; ++q) right[buffer_][at / BN * right_stride + at % BN / 4 + q] = v[q];
    }
  }
}

// The same by elements, at any sizes with K at least BK.
struct Elementwise {
  STAGED x[BM * BK / LOCAL], y[BN * BK / LOCAL];
};
void fetch_elements(uint batch, uint row, uint column, uint k0, out Elementwise s) {
  // The last strip begins earlier, and what the one before had counts as zeros: all loads are inside, without a branch.
  const uint t = gl_LocalInvocationIndex, from = min(k0, K - BK);
  [[unroll]] for (uint i = 0; i < BM * BK / LOCAL; ++i) {
    const uint at = i * LOCAL + t, r = min(row + at / BK, M - 1), k = at % BK;
    const STAGED v = of_bits(element_at(x, batch * M * K + from, r * K + k));
    s.x[i] = from + k >= k0 ? v : STAGED(0);
  }
  [[unroll]] for (uint i = 0; i < BN * BK / LOCAL; ++i) {
    const uint at = i * LOCAL + t;
    const uint c = min(column + (right_along_k ? at / BK : at % BN), N - 1), k = right_along_k ? at % BK : at / BN;
    const STAGED v = of_bits(right_along_k ? element_at(y, batch * N * K + from, c * K + k)
                                           : element_at(y, (batch * K + from) * N, k * N + c));
    s.y[i] = from + k >= k0 ? v : STAGED(0);
  }
}
void put_elements(uint buffer_, Elementwise s) {
  const uint t = gl_LocalInvocationIndex;
  [[unroll]] for (uint i = 0; i < BM * BK / LOCAL; ++i) {
    const uint at = i * LOCAL + t, r = at / BK;
    left[buffer_][at % BK * left_stride + r / 4][r % 4] = s.x[i];
  }
  [[unroll]] for (uint i = 0; i < BN * BK / LOCAL; ++i) {
    const uint at = i * LOCAL + t, c = right_along_k ? at / BK : at % BN, k = right_along_k ? at % BK : at / BN;
    right[buffer_][k * right_stride + c / 4][c % 4] = s.y[i];
  }
}

vec4 finish(vec4 v, uint column) {
#ifdef GELU
  vec4 b[vectors];
  unpack(load_piece(bias, min(column, N - 4) / each, 0), b);
  v += b[column / 4 % vectors];
  const vec4 inner = 0.7978845608 * (v + 0.044715 * v * v * v);
  return v - v / (1 + exp2(2.8853900818 * inner));  // v (1 + tanh inner) / 2, without overflow
#else
  return v;
#endif
}

#if KIND == 3
void write(uint batch, uint row, uint column, ivec4 v) {
  if ((M % BM != 0 && row >= M) || (N % BN != 0 && column >= N)) return;
  store_piece(o, ((batch * M + row) * N + column) / 4, 0, uvec4(v));
}
#else
void write(uint batch, uint row, uint column, vec4 v) {
  if (M % BM != 0 && row >= M) return;
  const uint at = (batch * M + row) * N + column;
  if (N % 4 == 0) {
    if (N % BN != 0 && column >= N) return;
    const vec4 w = finish(v, column);
#if KIND == 0
    store_piece(o, at / 4, 0, floatBitsToUint(w));
#else
    OutputHalves(o).at[at / 4] = uvec2(packed(w.xy), packed(w.zw));
#endif
  } else {
    [[unroll]] for (uint i = 0; i < 4; ++i)
      if (column + i < N)
#if KIND == 0
        OutputElements(o).at[at + i] = v[i];
#else
        OutputElements(o).at[at + i] = uint16_t(packed(vec2(v[i], 0)));
#endif
  }
}

#endif

void main() {
  const uint t = gl_LocalInvocationIndex, tx = t % lanes_across, ty = t / lanes_across;
  const uint batch = gl_WorkGroupID.x / (tiles_down * tiles_across),
             tile = gl_WorkGroupID.x % (tiles_down * tiles_across);
  const uint row = tile / tiles_across * BM, column = tile % tiles_across * BN;
  vec4 sum[TM][quads_across];
  [[unroll]] for (uint r = 0; r < TM; ++r) [[unroll]] for (uint c = 0; c < quads_across; ++c) sum[r][c] = vec4(0);
#if KIND == 3
  ivec4 total[TM][quads_across];
  [[unroll]] for (uint r = 0; r < TM; ++r) [[unroll]] for (uint c = 0; c < quads_across; ++c) total[r][c] = ivec4(0);
#endif
  Strip next;
  Elementwise next_elements;
  if (pieces_fit) {
    fetch(batch, row, column, 0, next);
    put(0, next);
  } else {
    fetch_elements(batch, row, column, 0, next_elements);
    put_elements(0, next_elements);
  }
  barrier();
  [[dont_unroll]] for (uint s = 0; s < strips; ++s) {
    const uint k0 = min(s + 1, strips - 1) * BK;  // of the last strip once more: no branch
    if (pieces_fit) fetch(batch, row, column, k0, next);
    else fetch_elements(batch, row, column, k0, next_elements);
    const uint here = s & 1u;
    [[unroll]] for (uint k = 0; k < BK; ++k) {
      vec4 a[quads_down], b[quads_across];
      [[unroll]] for (uint q = 0; q < quads_down; ++q) a[q] = vec4(left[here][k * left_stride + q * lanes_down + ty]);
      [[unroll]] for (uint q = 0; q < quads_across; ++q)
        b[q] = vec4(right[here][k * right_stride + q * lanes_across + tx]);
      [[unroll]] for (uint r = 0; r < TM; ++r)
        [[unroll]] for (uint c = 0; c < quads_across; ++c) sum[r][c] = fma(vec4(a[r / 4][r % 4]), b[c], sum[r][c]);
    }
    if (pieces_fit) put(here ^ 1u, next);
    else put_elements(here ^ 1u, next_elements);
    barrier();
#if KIND == 3
    if ((s + 1) % (1024 / BK) == 0 || s + 1 == strips)
      [[unroll]] for (uint r = 0; r < TM; ++r)
        [[unroll]] for (uint c = 0; c < quads_across; ++c) {
          total[r][c] += ivec4(sum[r][c]);
          sum[r][c] = vec4(0);
        }
#endif
  }
#if KIND == 3
#define sum total
#endif
  [[unroll]] for (uint r = 0; r < TM; ++r)
    [[unroll]] for (uint c = 0; c < quads_across; ++c)
      write(batch, row + (r / 4 * lanes_down + ty) * 4 + r % 4, column + (c * lanes_across + tx) * 4, sum[r][c]);
}
