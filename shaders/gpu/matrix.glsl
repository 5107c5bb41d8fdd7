// Pieces of 16 bytes of f16 (KIND 1) or i8 (3) for shaders with cooperative matrices, and turning them: `deep` rows of
// a piece as words along the column.
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#if KIND == 1
#define FACTOR float16_t
#define SUM float
const uint piece = 8, deep = 2;
#else
#define FACTOR int8_t
#define SUM int
const uint piece = 16, deep = 4;
#endif
layout(buffer_reference, buffer_reference_align = 16, std430) readonly buffer Piece { uvec4 v; };
layout(buffer_reference, buffer_reference_align = 16, std430) writeonly buffer OutputPiece { uvec4 v; };
layout(buffer_reference, buffer_reference_align = 2, std430) readonly buffer Halves { uint16_t at[]; };
layout(buffer_reference, buffer_reference_align = 2, std430) writeonly buffer OutputHalves { uint16_t at[]; };

// Piece number first + more, where `more` is the same for all invocations.
uvec4 load_piece(uint64_t array, uint first, uint more) {
  return Piece((array + more * 16u) + uint64_t(first * 16u)).v;
}
void store_piece(uint64_t array, uint first, uint more, uvec4 v) {
  OutputPiece((array + more * 16u) + uint64_t(first * 16u)).v = v;
}

// words[c]: column c of the rows, the first row in the lowest bits.
void turn(uvec4 rows[deep], out uint words[piece]) {
#if KIND == 1
  [[unroll]] for (uint w = 0; w < 4; ++w) {
    words[2 * w] = (rows[0][w] & 0xffffu) | rows[1][w] << 16;
    words[2 * w + 1] = rows[0][w] >> 16 | (rows[1][w] & 0xffff0000u);
  }
#else
  [[unroll]] for (uint w = 0; w < 4; ++w) {
    const uint a = rows[0][w], b = rows[1][w], c = rows[2][w], d = rows[3][w], even = 0x00ff00ffu, odd = 0xff00ff00u;
    const uint ab = (a & even) | (b & even) << 8, cd = (c & even) | (d & even) << 8;
    const uint ab_odd = (a & odd) >> 8 | (b & odd), cd_odd = (c & odd) >> 8 | (d & odd);
    words[4 * w] = (ab & 0xffffu) | cd << 16;
    words[4 * w + 1] = (ab_odd & 0xffffu) | cd_odd << 16;
    words[4 * w + 2] = ab >> 16 | (cd & 0xffff0000u);
    words[4 * w + 3] = ab_odd >> 16 | (cd_odd & 0xffff0000u);
  }
#endif
}
