// An array (height, width, channels) into an image: stored texel by texel, or with PACK as the bytes of its format's texels, which a copy then puts into it.
// KIND 0: floats, 1: unsigned, 2: signed integers. FORMAT: the format that a device needs which stores to none without its name. runtime/image/image.cpp has the same numbers.
#version 460
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_buffer_reference_uvec2 : require

layout(local_size_x = 64) in;
layout(buffer_reference, std430, buffer_reference_align = 4) readonly buffer Words { uint v[]; };
layout(push_constant) uniform Push {
  uvec2 array;      // its address
  uvec2 bytes;      // PACK: of the texels
  uint width, height, channels;
  uint dtype;       // 0: 32 bits as they are, 1: f16, 2: bf16, 3: u8 of a normalized format
  uint packing;     // PACK: as below
} p;
#if KIND == 0
#define TEXEL vec4
#define ELEMENT float
#define IMAGE image2D
#define OF_BITS(x) uintBitsToFloat(x)
#elif KIND == 1
#define TEXEL uvec4
#define ELEMENT uint
#define IMAGE uimage2D
#define OF_BITS(x) (x)
#else
#define TEXEL ivec4
#define ELEMENT int
#define IMAGE iimage2D
#define OF_BITS(x) int(x)
#endif
#ifdef PACK
layout(buffer_reference, std430, buffer_reference_align = 4) writeonly buffer Texels { uint v[]; };
#elif defined(FORMAT)
layout(set = 0, binding = 0, FORMAT) writeonly uniform IMAGE image;
#else
layout(set = 0, binding = 0) writeonly uniform IMAGE image;
#endif

ELEMENT element(uint e) {
  if (p.dtype == 0) return OF_BITS(Words(p.array).v[e]);
#if KIND == 0
  if (p.dtype == 3) return float(Words(p.array).v[e / 4] >> (e % 4 * 8) & 0xffu) / 255.0;
  uint bits = Words(p.array).v[e / 2] >> (e % 2 * 16) & 0xffffu;
  if (p.dtype == 2) return uintBitsToFloat(bits << 16);
  uint sign = (bits & 0x8000u) << 16, a = bits & 0x7fffu;
  if (a >= 0x7c00u) return uintBitsToFloat(sign | 0x7f800000u | (a & 0x3ffu) << 13);
  if (a >= 0x400u) return uintBitsToFloat(sign | ((a << 13) + (112u << 23)));
  float subnormal = float(a) * (1.0 / 16777216.0);
  return sign != 0u ? -subnormal : subnormal;
#else
  return ELEMENT(0);
#endif
}

TEXEL texel_at(uint t) {
  TEXEL x = TEXEL(0, 0, 0, 1);
  for (uint c = 0; c < p.channels; ++c) x[c] = element(t * p.channels + c);
  return x;
}

#ifdef PACK
uint to_half(uint f) {
  uint sign = f >> 16 & 0x8000u, a = f & 0x7fffffffu;
  if (a > 0x7f800000u) return sign | 0x7e00u;
  if (a >= 0x477ff000u) return sign | 0x7c00u;
  if (a < 0x33000001u) return sign;
  int shift = 13;
  uint bits = a - (112u << 23);
  if (a < 0x38800000u) {
    shift = 126 - int(a >> 23);
    bits = (a & 0x7fffffu) | 0x800000u;
  }
  uint kept = bits >> shift, rest = bits & ((1u << shift) - 1u), half_way = 1u << (shift - 1);
  if (rest > half_way || (rest == half_way && (kept & 1u) != 0u)) ++kept;
  return sign | kept;
}
uint unorm(float x, float most) { return x > 0.0 ? uint(min(x, 1.0) * most + 0.5) : 0u; }  // of a NaN too
float srgb(float x) { return x > 0.0031308 ? 1.055 * pow(min(x, 1.0), 1.0 / 2.4) - 0.055 : 12.92 * x; }
#define R8 0
#define RG8 1
#define RGBA8 2
#define RGBA8_SRGB 3
#define BGRA8 4
#define BGRA8_SRGB 5
#define RGB10A2 6
#define R16F 7
#define RG16F 8
#define RGBA16F 9
#define WORDS 10  // 32 bits per channel, as many channels as follow: WORDS + 1 to WORDS + 4

// Word `i` of a texel's bytes, or all of them where they are less than a word.
uint packed(TEXEL x, uint i) {
#if KIND == 0
  vec4 v = x;
  if (p.packing == RGBA8_SRGB || p.packing == BGRA8_SRGB) v.rgb = vec3(srgb(v.r), srgb(v.g), srgb(v.b));
  if (p.packing == BGRA8 || p.packing == BGRA8_SRGB) v = v.bgra;
  if (p.packing <= BGRA8_SRGB) {
    uint bytes = unorm(v.r, 255.0);
    if (p.packing >= RG8) bytes |= unorm(v.g, 255.0) << 8;
    if (p.packing >= RGBA8) bytes |= unorm(v.b, 255.0) << 16 | unorm(v.a, 255.0) << 24;
    return bytes;
  }
  if (p.packing == RGB10A2) return unorm(v.r, 1023.0) | unorm(v.g, 1023.0) << 10 | unorm(v.b, 1023.0) << 20 | unorm(v.a, 3.0) << 30;
  if (p.packing == R16F) return to_half(floatBitsToUint(v.r));
  if (p.packing == RG16F || p.packing == RGBA16F) return to_half(floatBitsToUint(v[2 * i])) | to_half(floatBitsToUint(v[2 * i + 1])) << 16;
  return floatBitsToUint(v[i]);
#else
  return uint(x[i]);
#endif
}
#endif

void main() {
  uint at = gl_GlobalInvocationID.x + gl_GlobalInvocationID.y * gl_NumWorkGroups.x * 64;
  uint count = p.width * p.height;
#ifdef PACK
  uint per = p.packing == R8 ? 4 : p.packing == RG8 || p.packing == R16F ? 2 : 1;            // texels in a word
  uint words = p.packing == RGBA16F ? 2 : p.packing > WORDS ? p.packing - WORDS : 1;         // words of a texel
  if (at >= (count + per - 1) / per) return;
  for (uint i = 0; i < words; ++i) {
    uint value = 0;
    for (uint k = 0; k < per && at * per + k < count; ++k) value |= packed(texel_at(at * per + k), i) << (k * (32 / per));
    Texels(p.bytes).v[at * words + i] = value;
  }
#else
  if (at >= count) return;
  imageStore(image, ivec2(at % p.width, at / p.width), texel_at(at));
#endif
}
