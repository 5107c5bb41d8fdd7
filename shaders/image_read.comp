// The texels of an image as an array (height, width, channels): one word of memory per invocation, so that elements narrower than a word need no feature of the device.
// KIND 0: floats, 1: unsigned, 2: signed integers. runtime/image/image.cpp has the same numbers.
#version 460
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_buffer_reference_uvec2 : require
#extension GL_EXT_samplerless_texture_functions : require

layout(local_size_x = 64) in;
layout(buffer_reference, std430, buffer_reference_align = 4) writeonly buffer Words { uint v[]; };
layout(push_constant) uniform Push {
  uvec2 array;      // its address
  uint width, height, channels;
  uint dtype;       // 0: 32 bits as they are, 1: f16, 2: bf16, 3: u8 of a normalized format
} p;
#if KIND == 0
layout(set = 0, binding = 0) uniform texture2D image;
#define TEXEL vec4
#define BITS(x) floatBitsToUint(x)
#elif KIND == 1
layout(set = 0, binding = 0) uniform utexture2D image;
#define TEXEL uvec4
#define BITS(x) (x)
#else
layout(set = 0, binding = 0) uniform itexture2D image;
#define TEXEL ivec4
#define BITS(x) uint(x)
#endif

// Rounded to nearest even, whatever the driver's conversions do.
uint to_half(uint f) {
  uint sign = f >> 16 & 0x8000u, a = f & 0x7fffffffu;
  if (a > 0x7f800000u) return sign | 0x7e00u;
  if (a >= 0x477ff000u) return sign | 0x7c00u;      // what rounds to infinity
  if (a < 0x33000001u) return sign;                 // to zero: half of the least subnormal, and less
  int shift = 13;
  uint bits = a - (112u << 23);
  if (a < 0x38800000u) {                            // subnormal
    shift = 126 - int(a >> 23);
    bits = (a & 0x7fffffu) | 0x800000u;
  }
  uint kept = bits >> shift, rest = bits & ((1u << shift) - 1u), half_way = 1u << (shift - 1);
  if (rest > half_way || (rest == half_way && (kept & 1u) != 0u)) ++kept;
  return sign | kept;
}
uint to_bfloat(uint f) {
  if ((f & 0x7fffffffu) > 0x7f800000u) return f >> 16 | 0x40u;
  return (f + 0x7fffu + (f >> 16 & 1u)) >> 16;
}

void main() {
  uint word = gl_GlobalInvocationID.x + gl_GlobalInvocationID.y * gl_NumWorkGroups.x * 64;
  uint per = p.dtype == 0 ? 1 : p.dtype == 3 ? 4 : 2;
  uint count = p.width * p.height * p.channels;
  if (word >= (count + per - 1) / per) return;
  uint last = 0xffffffffu, value = 0;
  TEXEL texel = TEXEL(0);
  for (uint k = 0; k < per; ++k) {
    uint e = word * per + k;
    if (e >= count) break;
    uint t = e / p.channels;
    if (t != last) texel = texelFetch(image, ivec2(t % p.width, t / p.width), 0);
    last = t;
    uint c = e % p.channels;
    uint x = BITS(texel[c]);
#if KIND == 0
    if (p.dtype == 1) x = to_half(x);
    if (p.dtype == 2) x = to_bfloat(x);
    if (p.dtype == 3) x = uint(texel[c] * 255.0 + 0.5);
#endif
    value |= x << (k * (32 / per));
  }
  Words(p.array).v[word] = value;
}
