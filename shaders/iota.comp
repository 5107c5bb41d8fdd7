// o[i] = i, one i32 per invocation.
#version 460
#extension GL_EXT_buffer_reference : require
layout(local_size_x = 256) in;

layout(buffer_reference, buffer_reference_align = 4, std430) writeonly buffer Output { int at[]; };
layout(push_constant) uniform Arguments {
  Output o;
  int count;
};

void main() {
  const uint workgroup =
      gl_WorkGroupID.x + gl_NumWorkGroups.x * (gl_WorkGroupID.y + gl_NumWorkGroups.y * gl_WorkGroupID.z);
  const uint i = workgroup * 256 + gl_LocalInvocationIndex;
  if (i < count) o.at[i] = int(i);
}
