// A softmax over each row of an f32 matrix: one subgroup of WIDTH invocations per row, three passes over it.
#version 460
#extension GL_EXT_buffer_reference : require
#extension GL_KHR_shader_subgroup_arithmetic : require
layout(local_size_x = WIDTH) in;

layout(buffer_reference, buffer_reference_align = 4, std430) readonly buffer Floats { float at[]; };
layout(buffer_reference, buffer_reference_align = 4, std430) buffer Output { float at[]; };
layout(push_constant) uniform Arguments {
  Floats x;
  Output o;
  int columns;
};

void main() {
  const uint lane = gl_SubgroupInvocationID, row = gl_WorkGroupID.x * columns;
  float high = uintBitsToFloat(0xff800000u);  // -infinity
  for (uint j = lane; j < columns; j += WIDTH) high = max(high, x.at[row + j]);
  high = subgroupMax(high);
  float sum = 0;
  for (uint j = lane; j < columns; j += WIDTH) {
    const float e = exp(x.at[row + j] - high);
    o.at[row + j] = e;
    sum += e;
  }
  const float scale = 1 / subgroupAdd(sum);
  for (uint j = lane; j < columns; j += WIDTH) o.at[row + j] *= scale;
}
