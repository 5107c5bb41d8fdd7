// A step of o = x + (the four neighbours' sum - 4 x) / 8 on f32 [H, W], whose border keeps its values: an invocation
// has four neighbours of a row and goes down eight rows. What lies left and right of them comes from the nearest cache
// by loads of its own: some drivers' shuffles cost more. W is a multiple of 1024, H of 8.
#version 460
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
layout(local_size_x = 256) in;
layout(buffer_reference, buffer_reference_align = 16, std430) readonly buffer Quad { vec4 v; };
layout(buffer_reference, buffer_reference_align = 4, std430) readonly buffer One { float v; };
layout(buffer_reference, buffer_reference_align = 16, std430) writeonly buffer OutputQuad { vec4 v; };
layout(push_constant) uniform Arguments { uint64_t x, o; };

const uint rows = 8, across = W / 1024, row_bytes = W * 4;

void main() {
  const uint column = gl_WorkGroupID.x % across * 1024 + gl_LocalInvocationIndex * 4,
             row = gl_WorkGroupID.x / across * rows;
  const uint64_t first = x + row * row_bytes, to = o + row * row_bytes;  // the same for all
  const uint at = column * 4, left_at = column == 0 ? 0 : at - 4, right_at = min(at + 16, row_bytes - 4);
  vec4 v[rows + 2];
  float left[rows], right[rows];
  v[0] = Quad(x + (row == 0 ? 0 : row - 1) * row_bytes + uint64_t(at)).v;
  v[rows + 1] = Quad(x + min(row + rows, H - 1) * row_bytes + uint64_t(at)).v;
  [[unroll]] for (uint r = 0; r < rows; ++r) {
    v[r + 1] = Quad((first + r * row_bytes) + uint64_t(at)).v;
    left[r] = One((first + r * row_bytes) + uint64_t(left_at)).v;
    right[r] = One((first + r * row_bytes) + uint64_t(right_at)).v;
  }
  [[unroll]] for (uint r = 0; r < rows; ++r) {
    const vec4 here = v[r + 1], beside = vec4(left[r], here.xyz) + vec4(here.yzw, right[r]);
    vec4 n = fma((v[r] + v[r + 2]) + beside - 4 * here, vec4(0.125), here);
    n.x = column == 0 ? here.x : n.x;
    n.w = column == W - 4 ? here.w : n.w;
    if (r == 0) n = row == 0 ? here : n;
    if (r + 1 == rows) n = row + rows == H ? here : n;
    OutputQuad((to + r * row_bytes) + uint64_t(at)).v = n;
  }
}
