// Adds to o how often each byte is in x, COUNT bytes of it in pieces of 16: each subgroup (of 32 or more) counts in
// shared memory by itself, or as many subgroups together as there are more than eight; a workgroup adds what it has
// counted to memory once. EACH pieces to an invocation. COUNT is a multiple of 16.
#version 460
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
layout(local_size_x = 256) in;
layout(buffer_reference, buffer_reference_align = 16, std430) readonly buffer Piece { uvec4 v; };
layout(buffer_reference, buffer_reference_align = 4, std430) buffer Counts { uint at[]; };
layout(push_constant) uniform Arguments {
  uint64_t x;
  Counts before, o;
};

const uint copies = 8, pieces = COUNT / 16;
shared uint counts[copies][256];

void main() {
  const uint t = gl_LocalInvocationIndex, mine = t / 32;
  [[unroll]] for (uint i = 0; i < copies; ++i) counts[i][t] = 0;
  barrier();
  const uint first = gl_WorkGroupID.x * (256 * EACH);
  [[dont_unroll]] for (uint i = 0; i < EACH; i += 2) {
    const uint p0 = first + i * 256 + t, p1 = p0 + 256;
    uvec4 v[2];
    if (p0 < pieces) v[0] = Piece(x + uint64_t(p0 * 16)).v;
    if (p1 < pieces) v[1] = Piece(x + uint64_t(p1 * 16)).v;
    [[unroll]] for (uint j = 0; j < 2; ++j)
      if (p0 + j * 256 < pieces)
        [[unroll]] for (uint w = 0; w < 4; ++w)
          [[unroll]] for (uint b = 0; b < 4; ++b) atomicAdd(counts[mine][v[j][w] >> (8 * b) & 255u], 1);
  }
  barrier();
  uint total = 0;
  [[unroll]] for (uint i = 0; i < copies; ++i) total += counts[i][t];
  if (total != 0) atomicAdd(o.at[t], total);
}
