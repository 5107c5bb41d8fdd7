// o = a x + y in the dtype itself, all accesses of 128 bits: an invocation takes two pieces of 16 bytes, a workgroup's
// width apart. KIND: 0 f32, 1 f16, 2 bf16. COUNT elements; what is left behind the last whole piece is done one by one.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types_int16 : require
#include "pieces.glsl"
layout(local_size_x = 256) in;

#if KIND == 0
#define ELEMENT float
#define ALIGN 4
#else
#define ELEMENT uint16_t
#define ALIGN 2
#endif
layout(buffer_reference, buffer_reference_align = ALIGN, std430) readonly buffer Elements { ELEMENT at[]; };
layout(buffer_reference, buffer_reference_align = ALIGN, std430) writeonly buffer OutputElements { ELEMENT at[]; };
layout(push_constant) uniform Arguments { uint64_t a, x, y, o; };

#if KIND == 0
float axpy(float s, float p, float q) { return fma(s, p, q); }
uvec4 axpy(float s, uvec4 p, uvec4 q) { return floatBitsToUint(fma(vec4(s), uintBitsToFloat(p), uintBitsToFloat(q))); }
#elif KIND == 1
uint pair(f16vec2 s, uint p, uint q) { return packFloat2x16(fma(s, unpackFloat2x16(p), unpackFloat2x16(q))); }
uint16_t axpy(uint16_t s, uint16_t p, uint16_t q) {
  return float16BitsToUint16(fma(uint16BitsToFloat16(s), uint16BitsToFloat16(p), uint16BitsToFloat16(q)));
}
uvec4 axpy(uint16_t s, uvec4 p, uvec4 q) {
  const f16vec2 both = f16vec2(uint16BitsToFloat16(s));
  return uvec4(pair(both, p.x, q.x), pair(both, p.y, q.y), pair(both, p.z, q.z), pair(both, p.w, q.w));
}
#else
// To nearest even. What is no number comes from bf16s, or is the machine's own: its lower half is zero, so that it
// stays none.
uint rounded(float v) {
  const uint bits = floatBitsToUint(v);
  return bits + 0x7fffu + (bits >> 16 & 1u);
}
uint pair(float s, uint p, uint q) {
  const uint low = rounded(fma(s, uintBitsToFloat(p << 16), uintBitsToFloat(q << 16)));
  const uint high = rounded(fma(s, uintBitsToFloat(p & 0xffff0000u), uintBitsToFloat(q & 0xffff0000u)));
  return low >> 16 | (high & 0xffff0000u);
}
uint16_t axpy(uint16_t s, uint16_t p, uint16_t q) {
  return uint16_t(pair(uintBitsToFloat(uint(s) << 16), uint(p), uint(q)) & 0xffffu);
}
uvec4 axpy(uint16_t s, uvec4 p, uvec4 q) {
  const float f = uintBitsToFloat(uint(s) << 16);
  return uvec4(pair(f, p.x, q.x), pair(f, p.y, q.y), pair(f, p.z, q.z), pair(f, p.w, q.w));
}
#endif

const uint pieces = COUNT / each;

void main() {
  const uint group = gl_WorkGroupID.x * 512, t = gl_LocalInvocationIndex;
  const ELEMENT s = Elements(a).at[0];
  if (pieces % 512 == 0 || group + 512 <= pieces) {
    const uvec4 p0 = load_piece(x, t, group), p1 = load_piece(x, t, group + 256);
    const uvec4 q0 = load_piece(y, t, group), q1 = load_piece(y, t, group + 256);
    store_piece(o, t, group, axpy(s, p0, q0));
    store_piece(o, t, group + 256, axpy(s, p1, q1));
  } else {
    [[unroll]] for (uint more = group; more < group + 512; more += 256)
      if (more + t < pieces) store_piece(o, t, more, axpy(s, load_piece(x, t, more), load_piece(y, t, more)));
  }
#if COUNT % 8 != 0
  const uint tail = pieces * each + t;
  if (gl_WorkGroupID.x == 0 && tail < COUNT)
    OutputElements(o).at[tail] = axpy(s, Elements(x).at[tail], Elements(y).at[tail]);
#endif
}
