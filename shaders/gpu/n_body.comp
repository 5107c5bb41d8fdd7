// A step of bodies [4, COUNT] (x, y, z, mass) that all pull at each other: velocities change by times[0] times the
// pull, places by times[1] times the velocities. An invocation has EACH bodies; the others pass LOCAL at a time through
// shared memory, as vec4s that all read together. Two buffers: one barrier a block.
#version 460
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_control_flow_attributes : require
layout(local_size_x = LOCAL) in;
layout(buffer_reference, buffer_reference_align = 4, std430) readonly buffer Floats { float at[]; };
layout(buffer_reference, buffer_reference_align = 4, std430) writeonly buffer Output { float at[]; };
layout(push_constant) uniform Arguments {
  Floats others, bodies, velocities, times;
  Output to, to_velocities;
};

const uint blocks = (COUNT + LOCAL - 1) / LOCAL;
shared vec4 block[2][LOCAL];

vec4 body(Floats from, uint i) {
  const bool there = COUNT % LOCAL == 0 || i < COUNT;
  const uint j = there ? i : COUNT - 1;
  return vec4(from.at[j], from.at[COUNT + j], from.at[2 * COUNT + j], there ? from.at[3 * COUNT + j] : 0);
}

void main() {
  const uint t = gl_LocalInvocationIndex, first = gl_WorkGroupID.x * (LOCAL * EACH) + t;
  vec4 mine[EACH];
  vec3 pull[EACH];
  [[unroll]] for (uint e = 0; e < EACH; ++e) {
    mine[e] = body(bodies, first + e * LOCAL);
    pull[e] = vec3(0);
  }
  block[0][t] = body(others, t);
  barrier();
  [[dont_unroll]] for (uint b = 0; b < blocks; ++b) {
    const vec4 next = body(others, min(b + 1, blocks - 1) * LOCAL + t);
    [[dont_unroll]] for (uint j0 = 0; j0 < LOCAL; j0 += 8)
      [[unroll]] for (uint j = j0; j < j0 + 8; ++j) {
        const vec4 other = block[b & 1u][j];
        [[unroll]] for (uint e = 0; e < EACH; ++e) {
          const vec3 d = other.xyz - mine[e].xyz;
          const float near = inversesqrt(fma(d.x, d.x, fma(d.y, d.y, fma(d.z, d.z, float(SOFTENING * SOFTENING)))));
          pull[e] = fma(vec3(other.w * near * (near * near)), d, pull[e]);
        }
      }
    block[(b & 1u) ^ 1u][t] = next;
    barrier();
  }
  [[unroll]] for (uint e = 0; e < EACH; ++e) {
    const uint i = first + e * LOCAL;
    if (COUNT % (LOCAL * EACH) != 0 && i >= COUNT) continue;
    [[unroll]] for (uint d = 0; d < 3; ++d) {
      const float v = velocities.at[d * COUNT + i] + times.at[0] * pull[e][d];
      to_velocities.at[d * COUNT + i] = v;
      to.at[d * COUNT + i] = mine[e][d] + times.at[1] * v;
    }
    to.at[3 * COUNT + i] = mine[e].w;
  }
}
