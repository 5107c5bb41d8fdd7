// The running sums of each row of f32 [ROWS, COLUMNS], a workgroup to a row: an invocation holds EACH vec4s, LOCAL
// vec4s apart, whose sums are scanned by subgroups and then, through shared memory, over all subgroups at once. What a
// pass of LOCAL * EACH vec4s leaves is carried to the next. COLUMNS is a multiple of a pass.
#version 460
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_KHR_shader_subgroup_ballot : require
layout(local_size_x = LOCAL) in;
layout(buffer_reference, buffer_reference_align = 16, std430) readonly buffer Quads { vec4 at[]; };
layout(buffer_reference, buffer_reference_align = 16, std430) writeonly buffer Output { vec4 at[]; };
layout(push_constant) uniform Arguments {
  Quads x;
  Output o;
};

const uint row_quads = COLUMNS / 4, pass = LOCAL * EACH;
shared float ends[2][EACH * LOCAL / 4];  // the sum of each subgroup's vec4s, in the order of the row

void main() {
  const uint t = gl_SubgroupID * gl_SubgroupSize + gl_SubgroupInvocationID, first = gl_WorkGroupID.x * row_quads + t;
  const uint count = EACH * gl_NumSubgroups;
  float carry = 0;
  [[dont_unroll]] for (uint start = 0, turn = 0; start < row_quads; start += pass, turn ^= 1) {
    vec4 v[EACH];
    float before[EACH];
    [[unroll]] for (uint i = 0; i < EACH; ++i) v[i] = x.at[first + start + i * LOCAL];
    [[unroll]] for (uint i = 0; i < EACH; ++i) {
      v[i].y += v[i].x;
      v[i].w += v[i].z;
      v[i].zw += v[i].y;
      const float upto = subgroupInclusiveAdd(v[i].w);
      before[i] = upto - v[i].w;
      if (gl_SubgroupInvocationID == gl_SubgroupSize - 1) ends[turn][i * gl_NumSubgroups + gl_SubgroupID] = upto;
    }
    barrier();
    // Every subgroup adds them all up for itself, which takes no further barrier.
    float offset[EACH];
    [[dont_unroll]] for (uint s = 0; s < count; s += gl_SubgroupSize) {
      const uint at = s + gl_SubgroupInvocationID;
      const float end = at < count ? ends[turn][at] : 0, upto = carry + subgroupInclusiveAdd(end), from = upto - end;
      [[unroll]] for (uint i = 0; i < EACH; ++i) {
        const uint mine = i * gl_NumSubgroups + gl_SubgroupID;
        const float value = subgroupBroadcast(from, mine % gl_SubgroupSize);
        if (mine / gl_SubgroupSize * gl_SubgroupSize == s) offset[i] = value;
      }
      carry = subgroupBroadcast(upto, gl_SubgroupSize - 1);
    }
    [[unroll]] for (uint i = 0; i < EACH; ++i) o.at[first + start + i * LOCAL] = v[i] + (before[i] + offset[i]);
  }
}
