// o = x + y, one f32 per invocation.
#version 460
#extension GL_EXT_buffer_reference : require
layout(local_size_x = 256) in;

layout(buffer_reference, buffer_reference_align = 4, std430) readonly buffer Floats { float at[]; };
layout(buffer_reference, buffer_reference_align = 4, std430) writeonly buffer Output { float at[]; };
layout(push_constant) uniform Arguments {
  Floats x, y;
  Output o;
  int count;
};

void main() {
  const uint i = gl_GlobalInvocationID.x;
  if (i < count) o.at[i] = x.at[i] + y.at[i];
}
