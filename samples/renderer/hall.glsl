// What the shaders of the hall share: a frame's numbers, read by address, and how cloth and leaves move.
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_buffer_reference_uvec2 : require
#extension GL_EXT_scalar_block_layout : require

layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer Frame {
  mat4 to_clip, to_clip_before, to_sun;
  vec4 eye, eye_before;       // and the time in seconds
  vec4 right, up, forward;    // of the camera; right.w and up.w: half of what it sees, one unit away
  vec4 sun;                   // towards it; w: half its angle
  vec4 size;                  // of the picture; zw: by how much this frame's pixels are shifted
  uvec4 frame;                // its number, and whether there is a picture of the frame before
  uvec2 picture;              // that one, f32[h, w, 4]
};
layout(push_constant) uniform Push { uvec2 frame; } push;

const int kStill = 0, kCloth = 1, kLeaf = 2, kFloor = 3, kWall = 4;

// Where a vertex is at a time; `weight`: how freely it moves. Cloth swings along its normal, which follows.
vec3 moved(vec3 p, int kind, inout vec3 normal, float weight, float time) {
  if (kind == kLeaf)
    return p + weight * vec3(sin(1.3 * time + 2.0 * p.x + 3.0 * p.z), 0.5 * sin(1.7 * time + 5.0 * p.y),
                             cos(1.1 * time + 3.0 * p.z));
  if (kind != kCloth) return p;
  vec3 across = abs(normal.y) > 0.9 ? vec3(1.0, 0.0, 0.0) : normalize(cross(vec3(0.0, 1.0, 0.0), normal)),
       along = cross(normal, across);
  float s = dot(p, across), t = dot(p, along);
  float swing = 2.1 * s + 1.4 * t - 2.1 * time, ripple = 5.3 * s - 3.1 * t + 1.7 * time, fold = 11.0 * s;
  float still = 0.3 + 0.7 * weight;
  float d = weight * (0.15 * sin(swing) + 0.04 * sin(ripple)) + 0.045 * still * sin(fold);
  float by_s = weight * (0.15 * 2.1 * cos(swing) + 0.04 * 5.3 * cos(ripple)) + 0.045 * 11.0 * still * cos(fold);
  float by_t = weight * (0.15 * 1.4 * cos(swing) - 0.04 * 3.1 * cos(ripple));
  vec3 at = p + d * normal;
  normal = normalize(normal - by_s * across - by_t * along);
  return at;
}
