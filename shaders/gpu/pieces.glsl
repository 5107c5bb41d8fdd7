// Pieces of 16 bytes of an array of floats, as vec4s: 4 elements of f32 (KIND 0), 8 of f16 (1) or bf16 (2).
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_control_flow_attributes : require

#if KIND == 0
const uint each = 4, vectors = 1;
#else
const uint each = 8, vectors = 2;
#endif
layout(buffer_reference, buffer_reference_align = 16, std430) readonly buffer Pieces { uvec4 at[]; };
layout(buffer_reference, buffer_reference_align = 16, std430) writeonly buffer OutputPieces { uvec4 at[]; };

void unpack(uvec4 p, out vec4 v[vectors]) {
#if KIND == 0
  v[0] = uintBitsToFloat(p);
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
uint packed(vec2 v) { return packHalf2x16(v); }
#endif
uvec4 pack(vec4 v[vectors]) {
#if KIND == 0
  return floatBitsToUint(v[0]);
#else
  return uvec4(packed(v[0].xy), packed(v[0].zw), packed(v[1].xy), packed(v[1].zw));
#endif
}
