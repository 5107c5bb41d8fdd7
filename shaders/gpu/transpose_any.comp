// o = x transposed, [M, N] to [N, M] of any sizes, in tiles of 64 x 64 through padded shared memory, element by
// element: rows of such sizes begin at no multiple of 16 bytes. KIND: 0 f32, 1 f16.
#version 460
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types_int16 : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
layout(local_size_x = 256) in;
#if KIND == 0
#define ELEMENT uint
#define ALIGN 4
#else
#define ELEMENT uint16_t
#define ALIGN 2
#endif
layout(buffer_reference, buffer_reference_align = ALIGN, std430) readonly buffer Element { ELEMENT v; };
layout(buffer_reference, buffer_reference_align = ALIGN, std430) writeonly buffer Output { ELEMENT v; };
layout(push_constant) uniform Arguments { uint64_t x, o; };

const uint size = ALIGN, tile = 64, tiles = (N + tile - 1) / tile;
shared uint turned[tile][tile + 1];

void main() {
  const uint row = gl_WorkGroupID.x / tiles * tile, column = gl_WorkGroupID.x % tiles * tile;
  const uint i = gl_LocalInvocationIndex / tile, j = gl_LocalInvocationIndex % tile;
  const uint64_t from = x + (row * N + column) * size, to = o + (column * M + row) * size;
  // of the first row; four rows further
  const uint in_x = (i * N + j) * size, in_o = (i * M + j) * size, step = 4 * size;
  if (row + tile <= M && column + tile <= N) {
    ELEMENT v[16];
    [[unroll]] for (uint r = 0; r < 16; ++r) v[r] = Element((from + r * step * N) + uint64_t(in_x)).v;
    [[unroll]] for (uint r = 0; r < 16; ++r) turned[j][i + 4 * r] = uint(v[r]);
    barrier();
    [[unroll]] for (uint r = 0; r < 16; ++r)
      Output((to + r * step * M) + uint64_t(in_o)).v = ELEMENT(turned[i + 4 * r][j]);
  } else {
    [[dont_unroll]] for (uint r = 0; r < 16; ++r)
      if (row + i + 4 * r < M && column + j < N)
        turned[j][i + 4 * r] = uint(Element((from + r * step * N) + uint64_t(in_x)).v);
    barrier();
    [[dont_unroll]] for (uint r = 0; r < 16; ++r)
      if (column + i + 4 * r < N && row + j < M)
        Output((to + r * step * M) + uint64_t(in_o)).v = ELEMENT(turned[i + 4 * r][j]);
  }
}
