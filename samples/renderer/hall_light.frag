#version 450
#extension GL_GOOGLE_include_directive : require
#include "hall.glsl"
// The light on each surface, by one random ray of each kind per pixel: towards the sun's disc (in its depth map), into
// the half space above (in the picture's depths; what it meets shines as it did in the frame before), and mirrored.
// That is noisy; the denoiser is to mend it.
layout(set = 0, binding = 0) uniform sampler2D guides;
layout(set = 0, binding = 1) uniform sampler2D surfaces;
layout(set = 0, binding = 2) uniform sampler2D motions;
layout(set = 0, binding = 3) uniform sampler2D shadows;
layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer Picture { vec4 at[]; };
layout(location = 0) out vec4 light;  // as if all surfaces were white
layout(location = 1) out vec4 gloss;  // what is mirrored

struct Now {
  mat4 to_clip, to_sun;
  vec4 eye, sun, size;
  uvec2 picture;
  bool goes_on;
} now;
uint state;
float random() {  // PCG (O'Neill, 2014)
  state = state * 747796405u + 2891336453u;
  uint word = ((state >> ((state >> 28u) + 4u)) ^ state) * 277803737u;
  return float(((word >> 22u) ^ word) >> 8) * (1.0 / 16777216.0);
}
vec3 any_direction() {
  float z = 2.0 * random() - 1.0, a = 6.2831853 * random(), r = sqrt(max(1.0 - z * z, 0.0));
  return vec3(r * cos(a), r * sin(a), z);
}

vec3 sky(vec3 way, vec3 sun) {
  vec3 high = vec3(0.20, 0.42, 0.95), low = vec3(0.75, 0.82, 0.92);
  vec3 c = mix(low, high, pow(clamp(way.y, 0.0, 1.0), 0.55));
  return 0.75 * c +
         vec3(1.0, 0.75, 0.45) * (0.25 * pow(max(dot(way, sun), 0.0), 8.0) + 0.9 * pow(max(dot(way, sun), 0.0), 200.0));
}

// Whether a ray meets something that the picture shows, and where. It goes `reach` far in steps that grow.
bool meets(vec3 from, vec3 way, float reach, int steps, float first, out ivec2 where) {
  float jump = random();
  for (int i = 0; i < steps; ++i) {
    float part = (float(i) + jump) / float(steps), t = mix(first, reach, part * part),
          next = mix(first, reach, (part + 1.0 / float(steps)) * (part + 1.0 / float(steps)));
    vec3 at = from + t * way;
    vec4 clip = now.to_clip * vec4(at, 1.0);
    if (clip.w <= 0.1) return false;
    vec2 pixel = (0.5 + 0.5 * clip.xy / clip.w) * now.size.xy + now.size.zw;
    where = ivec2(floor(pixel));
    if (any(lessThan(where, ivec2(0))) || any(greaterThanEqual(where, ivec2(now.size.xy)))) return false;
    float there = texelFetch(guides, where, 0).w, here = distance(now.eye.xyz, at);
    float thick = 0.06 + 1.5 * (next - t);
    if (there > 0.0 && here > there + 0.003 * here && here < there + thick) return true;
  }
  return false;
}

// Where in the picture of the frame before a place of this one was; below 0: nowhere.
int earlier(ivec2 pixel) {
  ivec2 size = ivec2(now.size.xy), was = ivec2(floor(vec2(pixel) + 0.5 + texelFetch(motions, pixel, 0).xy));
  bool inside = all(greaterThanEqual(was, ivec2(0))) && all(lessThan(was, size));
  return now.goes_on && inside ? was.y * size.x + was.x : -1;
}

// One tap of the sun's disc: a first look says how far away what may be in between is, and so how wide its shadow's
// edge.
float sunlit(vec3 from, float wide) {
  vec4 clip = now.to_sun * vec4(from, 1.0);
  vec2 size = vec2(textureSize(shadows, 0)), at = (0.5 + 0.5 * clip.xy) * size;
  if (any(lessThan(at, vec2(1.0))) || any(greaterThan(at, size - 1.0)) || clip.z >= 1.0) return 1.0;
  const float kReach = 40.0, kWidth = 44.0;  // of the depth map, in units
  float per_unit = size.x / kWidth, blocked = 0.0, blockers = 0.0, turn = 6.2831853 * random();
  for (int i = 0; i < 4; ++i) {
    float a = turn + 1.5707963 * float(i), r = (0.25 + 0.25 * float(i)) * 0.35 * per_unit * wide * 8.0;
    float z = texelFetch(shadows, clamp(ivec2(at + r * vec2(cos(a), sin(a))), ivec2(0), ivec2(size) - 1), 0).r;
    if (z < clip.z - 0.0006) blocked += (clip.z - z) * kReach, blockers += 1.0;
  }
  if (blockers == 0.0) return 1.0;
  float a = 6.2831853 * random(), r = sqrt(random()) * max(wide * blocked / blockers * per_unit, 0.75);
  float z = texelFetch(shadows, clamp(ivec2(at + r * vec2(cos(a), sin(a))), ivec2(0), ivec2(size) - 1), 0).r;
  return z < clip.z - 0.0005 - 0.00002 * r ? 0.0 : 1.0;
}

void main() {
  Frame f = Frame(push.frame);
  // All that is uniform is read here: llvmpipe (Mesa 22.3) reads wrong numbers by addresses where pixels have gone
  // different ways.
  now = Now(f.to_clip, f.to_sun, f.eye, f.sun, f.size, f.picture, f.frame.y != 0u);
  ivec2 pixel = ivec2(gl_FragCoord.xy);
  state = uint(pixel.x) * 1973u + uint(pixel.y) * 9277u + f.frame.x * 26699u + 1u;
  random();
  vec4 guide = texelFetch(guides, pixel, 0), surface = texelFetch(surfaces, pixel, 0);
  vec2 screen = 2.0 * (gl_FragCoord.xy - now.size.zw) / now.size.xy - 1.0;
  vec3 way = normalize(f.forward.xyz + screen.x * f.right.w * f.right.xyz - screen.y * f.up.w * f.up.xyz);
  light = gloss = vec4(0.0, 0.0, 0.0, 1.0);
  // The colours that the two rays bring: of a place of the frame before, at an index, or those given.
  ivec2 where = ivec2(0);
  int above = -1, ahead = -1;
  vec3 from_above = vec3(0.0), from_ahead = vec3(0.0), part = vec3(0.0);
  bool there = guide.w > 0.0, lamp = surface.a > 0.99, metal = surface.a > 0.5;
  vec3 n = guide.xyz, at = now.eye.xyz + guide.w * way, from = at + (0.002 + 0.0015 * guide.w) * n;
  if (!there) light.rgb = sky(way, now.sun.xyz);  // whose surface is white
  else if (lamp) light.rgb = vec3(14.0);
  else if (!metal) {
    float facing = max(dot(n, now.sun.xyz), 0.0);
    if (facing > 0.0) light.rgb += facing * vec3(6.6, 5.3, 3.7) * sunlit(from + 0.02 * n, now.sun.w);
    vec3 up = normalize(n + 0.999 * any_direction());
    if (meets(from, up, 3.5, 8, 0.02, where))
      above = earlier(where), from_above = 0.3 * texelFetch(surfaces, where, 0).rgb;
    else from_above = mix(vec3(0.13, 0.10, 0.08), sky(up, now.sun.xyz), smoothstep(-0.1, 0.5, up.y));
  }
  if (there && !lamp && surface.a > 0.02) {
    float rough = metal ? 0.10 : 0.035;
    vec3 bent = normalize(n + rough * any_direction()), mirrored = reflect(way, bent);
    if (dot(mirrored, n) < 0.0) mirrored = reflect(mirrored, n);
    float slant = 1.0 - max(-dot(way, bent), 0.0), coat = mix(0.06, 1.0, slant * slant * slant * slant * slant);
    part = metal ? mix(surface.rgb, vec3(1.0), slant * slant * slant * slant * slant) : vec3(2.0 * surface.a * coat);
    if (meets(from, mirrored, 16.0, 32, 0.05, where))
      ahead = earlier(where), from_ahead = 0.3 * texelFetch(surfaces, where, 0).rgb;
    else from_ahead = mix(vec3(0.24, 0.19, 0.14), sky(mirrored, now.sun.xyz), smoothstep(0.05, 0.45, mirrored.y));
  }
  vec3 was_above = Picture(now.picture).at[max(above, 0)].rgb, was_ahead = Picture(now.picture).at[max(ahead, 0)].rgb;
  light.rgb += above < 0 ? from_above : min(was_above, vec3(8.0));
  gloss.rgb = part * (ahead < 0 ? from_ahead : min(was_ahead, vec3(8.0)));
}
