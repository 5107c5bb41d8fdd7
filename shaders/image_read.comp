// The texels of an image as an array ([slices,] height, width, channels): one word of memory per invocation, so that
// elements narrower than a word need no feature of the device. Slices are layers, or those of a 3-D image:
// runtime/image/kit.cpp then changes the image's type. KIND 0: floats, 1: unsigned, 2: signed integers.
// runtime/image/formats.cpp has the same numbers.
#version 460
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_buffer_reference_uvec2 : require
#extension GL_EXT_samplerless_texture_functions : require
#extension GL_GOOGLE_include_directive : require

layout(local_size_x = 64) in;
layout(buffer_reference, std430, buffer_reference_align = 4) writeonly buffer Words { uint v[]; };
layout(push_constant) uniform Push {
  uvec2 array;      // its address
  uint width, height, slices, channels;
  uint dtype;       // 0: 32 bits as they are, 1: f16, 2: bf16, 3: integers of 8 bits, 4: of 16
  uint most;        // what 1 is as an integer in a normalized format
} p;
#if KIND == 0
#include "image_numbers.glsl"
layout(set = 0, binding = 0) uniform texture2DArray image;
#define TEXEL vec4
#elif KIND == 1
layout(set = 0, binding = 0) uniform utexture2DArray image;
#define TEXEL uvec4
#else
layout(set = 0, binding = 0) uniform itexture2DArray image;
#define TEXEL ivec4
#endif

#if KIND == 0
uint to_bfloat(uint f) {
  if ((f & 0x7fffffffu) > 0x7f800000u) return f >> 16 | 0x40u;
  return (f + 0x7fffu + (f >> 16 & 1u)) >> 16;
}
uint element(float x) {
  if (p.dtype == 0) return floatBitsToUint(x);
  if (p.dtype == 1) return to_half(floatBitsToUint(x));
  if (p.dtype == 2) return to_bfloat(floatBitsToUint(x));
  return uint(int(floor(x * float(p.most) + 0.5)));
}
#else
#define element(x) uint(x)
#endif

void main() {
  uint word = gl_GlobalInvocationID.x + gl_GlobalInvocationID.y * gl_NumWorkGroups.x * 64;
  uint per = p.dtype == 0 ? 1 : p.dtype == 3 ? 4 : 2, bits = 32 / per, mask = 0xffffffffu >> (32 - bits);
  uint plane = p.width * p.height, count = plane * p.slices * p.channels;
  if (word >= (count + per - 1) / per) return;
  uint last = 0xffffffffu, value = 0;
  TEXEL texel = TEXEL(0);
  for (uint k = 0; k < per; ++k) {
    uint e = word * per + k;
    if (e >= count) break;
    uint t = e / p.channels, at = t % plane;
    if (t != last) texel = texelFetch(image, ivec3(at % p.width, at / p.width, t / plane), 0);
    last = t;
    value |= (element(texel[e % p.channels]) & mask) << (k * bits);
  }
  Words(p.array).v[word] = value;
}
