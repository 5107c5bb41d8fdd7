// An array ([slices,] height, width, channels) into an image: stored texel by texel, or with PACK as the bytes of its
// format's texels, which a copy then puts into it. Both round to the format's numbers here, so that no device's own
// rounding is seen. runtime/image/kit.cpp changes the image's type for 3-D images and for devices that want to know its
// format, and gives the constants. KIND 0: floats, 1: unsigned, 2: signed integers. runtime/image/formats.cpp has the
// same numbers.
#version 460
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_buffer_reference_uvec2 : require
#extension GL_GOOGLE_include_directive : require

layout(local_size_x = 64) in;
layout(buffer_reference, std430, buffer_reference_align = 4) readonly buffer Words { uint v[]; };
layout(push_constant) uniform Push {
  uvec2 array;      // its address
  uvec2 bytes;      // PACK: of the texels
  uint width, height, slices, channels;
  uint dtype;       // 0: 32 bits as they are, 1: f16, 2: bf16, 3: integers of 8 bits, 4: of 16
} p;
// Of the format. Constants, because drivers for CPUs evaluate every branch.
layout(constant_id = 0) const uint kNumbers = 0;    // as below
layout(constant_id = 1) const uint kChannels = 4;
layout(constant_id = 2) const bool kBlueFirst = false;
layout(constant_id = 3) const uint kWidths = 0;     // a byte for the bits of each channel
#if KIND == 0
#define TEXEL vec4
#define IMAGE image2DArray
#define OF_BITS(x) uintBitsToFloat(x)
#elif KIND == 1
#define TEXEL uvec4
#define IMAGE uimage2DArray
#define OF_BITS(x) (x)
#else
#define TEXEL ivec4
#define IMAGE iimage2DArray
#define OF_BITS(x) int(x)
#endif
#ifdef PACK
layout(buffer_reference, std430, buffer_reference_align = 4) writeonly buffer Texels { uint v[]; };
#else
layout(set = 0, binding = 0) writeonly uniform IMAGE image;
#endif

uint bits_of(uint channel) { return kWidths >> (8 * channel) & 0xffu; }
uint loaded(uint e) {  // zeros above what it has
  uint word = p.dtype == 0 ? e : p.dtype == 3 ? e / 4 : e / 2, x = Words(p.array).v[word];
  return p.dtype == 0 ? x : p.dtype == 3 ? x >> (e % 4 * 8) & 0xffu : x >> (e % 2 * 16) & 0xffffu;
}
int with_sign(uint x, uint bits) { return int(x << (32 - bits)) >> (32 - bits); }

// Elements, texels' channels and the codes that formats store for these: all as words, floats by their bits.
#if KIND == 0
#include "image_numbers.glsl"
#define UNORM 0
#define SNORM 1
#define SRGB 2
#define HALF 3
#define SINGLE 4
#define SMALL 5
uint most_of(uint c) { return (1u << (bits_of(c) - (kNumbers == SNORM ? 1 : 0))) - 1u; }
const uint kOne = 0x3f800000u;

uint element(uint e, uint c) {
  uint x = loaded(e);
  if (p.dtype == 1) return from_half(x);
  if (p.dtype == 2) return x << 16;
  if (p.dtype == 0) return x;
  float most = float(most_of(c));
  return floatBitsToUint(kNumbers == SNORM ? max(float(with_sign(x, bits_of(c))) / most, -1.0) : float(x) / most);
}
// Nearest to x * most, x from 0 to 1, most of up to 16 bits: exact products, halves upwards. Of what is less, and of a
// NaN: 0.
uint fixed_point(uint f, uint most) {
  if (f - 1u >= 0x7f800000u) return 0;
  if (f >= kOne) return most;
  uint shift = 149 - max(f >> 23, 1), x = (f & 0x7fffffu) | (f < 0x800000u ? 0u : 0x800000u), twice;
  if (most < 256u) {  // the product is a word
    twice = shift > 31 ? 0 : x * most >> shift;
  } else {
    uint high, low;
    umulExtended(x, most, high, low);
    twice = shift > 40 ? 0 : shift > 31 ? high >> (shift - 32) : low >> shift | high << (32 - shift);
  }
  return (twice + 1u) >> 1;
}
uint code(uint f, uint c) {
  uint bits = bits_of(c);
  switch (kNumbers) {
    case SNORM: {
      uint x = fixed_point(f & 0x7fffffffu, most_of(c));
      return (f >> 31 != 0u ? 0u - x : x) & (0xffffffffu >> (32 - bits));
    }
    case HALF: return to_half(f);
    case SINGLE: return f;
    case SMALL: {  // no negative numbers; what is finite stays it
      int mantissa = int(bits) - 5;
      if ((f & 0x7fffffffu) > 0x7f800000u) return (63u << (mantissa - 1));
      if (f >= 0x80000000u) return 0;
      uint infinity = 31u << mantissa;
      return f == 0x7f800000u   ? infinity
             : f >= 0x47800000u ? infinity - 1
                                : min(small_float(f, mantissa), infinity - 1);
    }
  }
  return fixed_point(f, most_of(c));
}
#ifdef PACK
#include "image_srgb.glsl"
#else
uint number(uint code, uint c) {
  uint bits = bits_of(c);
  switch (kNumbers) {
    case SNORM: return floatBitsToUint(float(with_sign(code, bits)) / float(most_of(c)));
    case HALF: return from_half(code);
    case SINGLE: return code;
    case SMALL: return from_half(code << (15 - bits));
  }
  return floatBitsToUint(float(code) / float(most_of(c)));
}
#endif
#else
const uint kOne = 1;
#if KIND == 1
uint element(uint e, uint c) { return loaded(e); }
uint code(uint x, uint c) { return min(x, 0xffffffffu >> (32 - bits_of(c))); }
uint number(uint code, uint c) { return code; }
#else
uint element(uint e, uint c) { return p.dtype == 0 ? loaded(e) : uint(with_sign(loaded(e), p.dtype == 3 ? 8 : 16)); }
uint code(uint x, uint c) {
  int most = int(0x7fffffffu >> (32 - bits_of(c)));
  return uint(clamp(int(x), -most - 1, most)) & 0xffffffffu >> (32 - bits_of(c));
}
uint number(uint code, uint c) { return uint(with_sign(code, bits_of(c))); }
#endif
#endif

uvec4 texel_at(uint t) {
  uvec4 x = uvec4(0, 0, 0, kOne);
  for (uint c = 0; c < kChannels; ++c)
    if (c < p.channels) x[c] = element(t * p.channels + c, c);
  return x;
}

#ifdef PACK
uint packed(uint x, uint c) {
#if KIND == 0
  if (kNumbers == SRGB && c < 3) return x > 0x7f800000u ? 0 : srgb(x);  // NaNs and what is negative
#endif
  return code(x, c);
}
#endif

void main() {
  uint at = gl_GlobalInvocationID.x + gl_GlobalInvocationID.y * gl_NumWorkGroups.x * 64;
  uint plane = p.width * p.height, count = plane * p.slices;
#ifdef PACK
  uint bits = 0;  // of a texel
  for (uint c = 0; c < kChannels; ++c) bits += bits_of(c);
  uint per = bits < 32 ? 32 / bits : 1;  // in a word
  if (at >= (count + per - 1) / per) return;
  uint words[4] = uint[](0, 0, 0, 0), filled = 0;
  for (uint k = 0; k < per; ++k) {
    uvec4 x = texel_at(min(at * per + k, count - 1));
    for (uint i = 0; i < kChannels; ++i) {
      uint c = kBlueFirst && i < 3 ? 2 - i : i;
      words[filled / 32] |= packed(x[c], c) << (filled % 32);
      filled += bits_of(c);
    }
  }
  for (uint i = 0; i < filled / 32; ++i) Texels(p.bytes).v[at * (filled / 32) + i] = words[i];
#else
  if (at >= count) return;
  uvec4 x = texel_at(at);
  TEXEL texel;
  for (uint c = 0; c < 4; ++c) texel[c] = OF_BITS(c < kChannels ? number(code(x[c], c), c) : x[c]);
  uint xy = at % plane;
  imageStore(image, ivec3(xy % p.width, xy / p.width, at / plane), texel);
#endif
}
