// One pass of the blur sample over three planes: o[c, j, i] = sum over t of weight[t] * x[c, clamp(i + t - 18), j], 37
// taps, one pixel per invocation. The result is transposed, so that two passes blur both ways.
#version 460
#extension GL_EXT_buffer_reference : require
layout(local_size_x = 64) in;

layout(buffer_reference, buffer_reference_align = 4, std430) readonly buffer Floats { float at[]; };
layout(buffer_reference, buffer_reference_align = 4, std430) writeonly buffer Output { float at[]; };
layout(push_constant) uniform Arguments {
  Floats x, weight;
  Output o;
  int height, width;
};

const int taps = 37, radius = 18;

void main() {
  const uint workgroup =
      gl_WorkGroupID.x + gl_NumWorkGroups.x * (gl_WorkGroupID.y + gl_NumWorkGroups.y * gl_WorkGroupID.z);
  const uint row_groups = (width + 63) / 64;
  const int j = int(workgroup % row_groups * 64 + gl_LocalInvocationIndex);
  const int i = int(workgroup / row_groups) % height, plane = int(workgroup / row_groups) / height;
  if (j >= width || plane >= 3) return;
  float sum = 0;
  for (int t = 0; t < taps; ++t)
    sum += weight.at[t] * x.at[(plane * height + clamp(i + t - radius, 0, height - 1)) * width + j];
  o.at[(plane * width + j) * height + i] = sum;
}
