// o = x @ y for square f32 matrices, one element per invocation: what a first shader looks like.
#version 460
#extension GL_EXT_buffer_reference : require
layout(local_size_x = 64) in;

layout(buffer_reference, buffer_reference_align = 4, std430) readonly buffer Floats { float at[]; };
layout(buffer_reference, buffer_reference_align = 4, std430) writeonly buffer Output { float at[]; };
layout(push_constant) uniform Arguments {
  Floats x, y;
  Output o;
  int n;
};

void main() {
  const uint i = gl_GlobalInvocationID.x / n, j = gl_GlobalInvocationID.x % n;  // one row of workgroups: n up to 2047
  if (i >= n) return;
  float sum = 0;
  for (uint k = 0; k < n; ++k) sum = fma(x.at[i * n + k], y.at[k * n + j], sum);
  o.at[i * n + j] = sum;
}
