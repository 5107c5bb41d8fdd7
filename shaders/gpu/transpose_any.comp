// o = x transposed, [M, N] to [N, M] of any sizes, in tiles of 64 x 64 through padded shared memory, element by element: rows of such sizes begin at no multiple of
// 16 bytes. KIND: 0 f32, 1 f16.
#version 460
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types_int16 : require
layout(local_size_x = 256) in;
#if KIND == 0
#define ELEMENT uint
#else
#define ELEMENT uint16_t
#endif
layout(buffer_reference, buffer_reference_align = 2, std430) readonly buffer Elements { ELEMENT at[]; };
layout(buffer_reference, buffer_reference_align = 2, std430) writeonly buffer Output { ELEMENT at[]; };
layout(push_constant) uniform Arguments {
  Elements x;
  Output o;
};

const uint tile = 64, tiles = (N + tile - 1) / tile;
shared uint turned[tile][tile + 1];

void main() {
  const uint row = gl_WorkGroupID.x / tiles * tile, column = gl_WorkGroupID.x % tiles * tile;
  const uint i = gl_LocalInvocationIndex / tile, j = gl_LocalInvocationIndex % tile;
  if (row + tile <= M && column + tile <= N) {
    ELEMENT v[16];
    [[unroll]] for (uint r = 0; r < 16; ++r) v[r] = x.at[(row + i + 4 * r) * N + column + j];
    [[unroll]] for (uint r = 0; r < 16; ++r) turned[j][i + 4 * r] = uint(v[r]);
    barrier();
    [[unroll]] for (uint r = 0; r < 16; ++r) o.at[(column + i + 4 * r) * M + row + j] = ELEMENT(turned[i + 4 * r][j]);
  } else {
    [[unroll]] for (uint r = 0; r < 16; ++r)
      if (row + i + 4 * r < M && column + j < N) turned[j][i + 4 * r] = uint(x.at[(row + i + 4 * r) * N + column + j]);
    barrier();
    [[unroll]] for (uint r = 0; r < 16; ++r)
      if (column + i + 4 * r < N && row + j < M) o.at[(column + i + 4 * r) * M + row + j] = ELEMENT(turned[i + 4 * r][j]);
  }
}
