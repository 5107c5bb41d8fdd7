#version 450
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_buffer_reference_uvec2 : require
#extension GL_EXT_scalar_block_layout : require
// The dye, f32[3, rows, columns], read where the kernels have left it, and interpolated.
layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer Field { float at[]; };
layout(push_constant) uniform Push {
  uvec2 dye;
  vec2 size;
  ivec2 grid;  // rows and columns
} push;
layout(location = 0) out vec4 result;

float at(int channel, ivec2 cell) {
  cell = clamp(cell, ivec2(0), push.grid - 1);
  return Field(push.dye).at[(channel * push.grid.x + cell.x) * push.grid.y + cell.y];
}

void main() {
  vec2 where = (gl_FragCoord.yx / push.size.yx) * vec2(push.grid) - 0.5;
  ivec2 cell = ivec2(floor(where));
  vec2 part = where - floor(where);
  vec3 color;
  for (int c = 0; c < 3; ++c)
    color[c] = mix(mix(at(c, cell), at(c, cell + ivec2(0, 1)), part.y),
                   mix(at(c, cell + ivec2(1, 0)), at(c, cell + ivec2(1, 1)), part.y), part.x);
  color = max(color, vec3(0.0));
  result = vec4(pow(color / (1.0 + color), vec3(1.0 / 2.2)), 1.0);
}
