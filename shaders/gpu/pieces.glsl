// Pieces of 16 bytes of an array of floats, as vec4s: 4 elements of f32 (KIND 0), 8 of f16 (1) or bf16 (2), 16 of i8
// (3). They lie at an address that is the same for all invocations plus bytes that fit 32 bits, which costs no
// arithmetic in 64 bits where loads take both.
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_EXT_control_flow_attributes : require

#if KIND == 0
const uint each = 4, vectors = 1;
#elif KIND == 3
const uint each = 16, vectors = 4;
#else
const uint each = 8, vectors = 2;
#endif
layout(buffer_reference, buffer_reference_align = 16, std430) readonly buffer Piece { uvec4 v; };
layout(buffer_reference, buffer_reference_align = 16, std430) writeonly buffer OutputPiece { uvec4 v; };

// Piece number first + more, where `more` is the same for all invocations.
uvec4 load_piece(uint64_t array, uint first, uint more) {
  return Piece((array + more * 16u) + uint64_t(first * 16u)).v;
}
void store_piece(uint64_t array, uint first, uint more, uvec4 v) {
  OutputPiece((array + more * 16u) + uint64_t(first * 16u)).v = v;
}

void unpack(uvec4 p, out vec4 v[vectors]) {
#if KIND == 0
  v[0] = uintBitsToFloat(p);
#elif KIND == 3
  [[unroll]] for (uint i = 0; i < 4; ++i) {
    const int w = int(p[i]);
    v[i] =
        vec4(bitfieldExtract(w, 0, 8), bitfieldExtract(w, 8, 8), bitfieldExtract(w, 16, 8), bitfieldExtract(w, 24, 8));
  }
#elif KIND == 1
  v[0] = vec4(unpackHalf2x16(p.x), unpackHalf2x16(p.y));
  v[1] = vec4(unpackHalf2x16(p.z), unpackHalf2x16(p.w));
#else
  v[0] = uintBitsToFloat(uvec4(p.x << 16, p.x & 0xffff0000u, p.y << 16, p.y & 0xffff0000u));
  v[1] = uintBitsToFloat(uvec4(p.z << 16, p.z & 0xffff0000u, p.w << 16, p.w & 0xffff0000u));
#endif
}

#if KIND == 2
// To nearest even, for numbers.
uint packed(vec2 v) {
  const uvec2 bits = floatBitsToUint(v), up = bits + 0x7fffu + (bits >> 16 & 1u);
  return up.x >> 16 | (up.y & 0xffff0000u);
}
#else
uint packed(vec2 v) { return packFloat2x16(f16vec2(v)); }  // to nearest even, which packHalf2x16 leaves open
#endif
#if KIND != 3
uvec4 pack(vec4 v[vectors]) {
#if KIND == 0
  return floatBitsToUint(v[0]);
#else
  return uvec4(packed(v[0].xy), packed(v[0].zw), packed(v[1].xy), packed(v[1].zw));
#endif
}
#endif
