// Rows of a matrix [ROWS, COLUMNS] in registers: LANES invocations to a row, LOCAL / LANES rows to a workgroup, and
// sums and maxima over a row's invocations. LANES and LOCAL are powers of two, COLUMNS a multiple of a piece's
// elements. Read pieces.glsl first.
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_GOOGLE_include_directive : require
#include "pieces.glsl"
layout(local_size_x = LOCAL) in;

const uint row_pieces = COLUMNS / each, held = (row_pieces + LANES - 1) / LANES;
const bool whole = row_pieces % LANES == 0;
const uint none = ~0u;

// Numbered so that a subgroup's invocations are neighbours.
uint invocation() { return gl_SubgroupID * gl_SubgroupSize + gl_SubgroupInvocationID; }
bool is_there(uint p, uint lane) { return whole || p * LANES + lane < row_pieces; }

shared float part[2][LOCAL / 4];

// What all of the row's invocations bring; every call has a `turn` of its own.
#define OVER_LANES(name, op, subgroup_op, identity)                                                                    \
  float name(float v, uint turn) {                                                                                     \
    if (LANES < gl_SubgroupSize) {                                                                                     \
      [[unroll]] for (uint d = LANES / 2; d > 0; d /= 2) v = op(v, subgroupShuffleXor(v, d));                          \
      return v;                                                                                                        \
    }                                                                                                                  \
    v = subgroup_op(v);                                                                                                \
    if (LANES == gl_SubgroupSize) return v;                                                                            \
    const uint count = LANES / gl_SubgroupSize, first = gl_SubgroupID / count * count;                                 \
    if (subgroupElect()) part[turn][gl_SubgroupID] = v;                                                                \
    barrier();                                                                                                         \
    v = identity;                                                                                                      \
    for (uint i = gl_SubgroupInvocationID; i < count; i += gl_SubgroupSize) v = op(v, part[turn][first + i]);          \
    return subgroup_op(v);                                                                                             \
  }
float plus(float a, float b) { return a + b; }
OVER_LANES(sum_of_row, plus, subgroupAdd, 0.0)
OVER_LANES(maximum_of_row, max, subgroupMax, uintBitsToFloat(0xff800000u))

// A row's pieces that this invocation holds; `other` in place of what lies behind the row's end.
void load_row(uint64_t x, uint row, uint lane, float other, out vec4 v[held][vectors]) {
  [[unroll]] for (uint p = 0; p < held; ++p) {
    if (is_there(p, lane)) unpack(load_piece(x, row * row_pieces + lane, p * LANES), v[p]);
    else [[unroll]] for (uint i = 0; i < vectors; ++i) v[p][i] = vec4(other);
  }
}
float of_all(vec4 v) { return v.x + v.y + (v.z + v.w); }
