// A bilateral filter of 5 x 5 taps over f32 [H + 4, W + 4, 3], without the border of two: weights fall with the
// distance in the picture (sigma 2) and of the colours (sigma 0.2). A workgroup stages a tile of 64 x 16 pixels and
// what is around it, plane by plane; an invocation computes four neighbours, so that eight pixels of a row serve twenty
// taps. W is a multiple of 64, H of 16.
#version 460
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
layout(local_size_x = 256) in;
layout(buffer_reference, buffer_reference_align = 16, std430) readonly buffer Quad { vec4 v; };
layout(buffer_reference, buffer_reference_align = 16, std430) writeonly buffer OutputQuad { vec4 v; };
layout(push_constant) uniform Arguments { uint64_t x, o; };

const uint rows = 20, width = 68, line = width * 3 / 4;  // a tile with its surroundings; vec4s of its row in memory
shared vec4 planes[3][rows][width / 4];

void main() {
  const uint t = gl_LocalInvocationIndex, row = gl_WorkGroupID.x / (W / 64) * 16,
             column = gl_WorkGroupID.x % (W / 64) * 64;
  const uint64_t from = x + (row * (W + 4) + column) * 12;
  vec4 staged[4];
  [[unroll]] for (uint i = 0; i < 4; ++i) {
    const uint n = min(i * 256 + t, rows * line - 1);
    staged[i] = Quad(from + uint64_t(n / line * ((W + 4) * 12) + n % line * 16)).v;
  }
  [[unroll]] for (uint i = 0; i < 4; ++i) {
    const uint n = i * 256 + t;
    if (n < rows * line)
      [[unroll]] for (uint e = 0; e < 4; ++e) {
        const uint at = n % line * 4 + e;
        planes[at % 3][n / line][at / 12][at / 3 % 4] = staged[i][e];
      }
  }
  barrier();
  const uint ty = t / 16, tx = t % 16;
  const float log2e = 1.4426950408889634, near = -log2e / (2 * 2.0 * 2.0), like = -log2e / (2 * 0.2 * 0.2);
  vec4 centre[3], sum[3], weights = vec4(0);
  [[unroll]] for (uint c = 0; c < 3; ++c) {
    const vec4 left = planes[c][ty + 2][tx], right = planes[c][ty + 2][tx + 1];
    centre[c] = vec4(left.zw, right.xy);
    sum[c] = vec4(0);
  }
  [[unroll]] for (uint dy = 0; dy < 5; ++dy) {
    float line_[3][8];
    [[unroll]] for (uint c = 0; c < 3; ++c) {
      const vec4 left = planes[c][ty + dy][tx], right = planes[c][ty + dy][tx + 1];
      [[unroll]] for (uint i = 0; i < 4; ++i) line_[c][i] = left[i], line_[c][i + 4] = right[i];
    }
    [[unroll]] for (uint dx = 0; dx < 5; ++dx) {
      const float away = near * float((int(dy) - 2) * (int(dy) - 2) + (int(dx) - 2) * (int(dx) - 2));
      vec4 v[3], squares;
      [[unroll]] for (uint c = 0; c < 3; ++c) {
        v[c] = vec4(line_[c][dx], line_[c][dx + 1], line_[c][dx + 2], line_[c][dx + 3]);
        const vec4 d = v[c] - centre[c];
        squares = c == 0 ? d * d : fma(d, d, squares);
      }
      const vec4 w = exp2(fma(squares, vec4(like), vec4(away)));
      weights += w;
      [[unroll]] for (uint c = 0; c < 3; ++c) sum[c] = fma(w, v[c], sum[c]);
    }
  }
  const vec4 scale = 1 / weights;
  float pixels[12];
  [[unroll]] for (uint i = 0; i < 4; ++i)
    [[unroll]] for (uint c = 0; c < 3; ++c) pixels[i * 3 + c] = sum[c][i] * scale[i];
  [[unroll]] for (uint i = 0; i < 3; ++i)
    OutputQuad((o + i * 16) + uint64_t(((row + ty) * W + column + tx * 4) * 12)).v =
        vec4(pixels[4 * i], pixels[4 * i + 1], pixels[4 * i + 2], pixels[4 * i + 3]);
}
