#version 450
#extension GL_GOOGLE_include_directive : require
#include "scene.glsl"
// Light by one random ray per pixel: towards a point of the sun's disc, of a glowing sphere, and of the sky. That is noisy; the denoiser is to mend it.
layout(location = 0) in vec3 world;
layout(location = 1) in vec3 normal;
layout(location = 2) flat in int which;
layout(location = 0) out vec4 color;  // the light that arrives, as if all were white: the surface's own colour comes after the denoiser
layout(location = 1) out vec4 guide;  // the normal and the distance from the eye
layout(location = 2) out vec4 surface;

uint state;
float random() {  // PCG (O'Neill, 2014)
  state = state * 747796405u + 2891336453u;
  uint word = ((state >> ((state >> 28u) + 4u)) ^ state) * 277803737u;
  return float(((word >> 22u) ^ word) >> 8) * (1.0 / 16777216.0);
}

// Whether something lies between `from` and `from + most * direction`, apart from sphere `without`.
bool hidden(vec3 from, vec3 direction, float most, int without) {
  for (int i = 0; i < int(push.frame.y); ++i) {  // a bound that no compiler knows: written out, these loops keep CPU drivers busy for long
    if (i == without) continue;
    vec4 s = sphere(i, push.eye.w);
    vec3 o = from - s.xyz;
    float b = dot(o, direction), d = b * b - dot(o, o) + s.w * s.w;
    if (d <= 0.0) continue;
    float t = -b - sqrt(d);
    if (t > 1e-3 && t < most) return true;
  }
  return false;
}

vec3 any_direction() {
  float z = 2.0 * random() - 1.0, a = 6.2831853 * random(), r = sqrt(max(1.0 - z * z, 0.0));
  return vec3(r * cos(a), r * sin(a), z);
}

void main() {
  uvec2 pixel = uvec2(gl_FragCoord.xy);
  state = pixel.x * 1973u + pixel.y * 9277u + push.frame.x * 26699u + 1u;
  random();
  vec3 n = normalize(normal);
  vec3 albedo, light = vec3(0.0);
  if (which == kSpheres) {
    bool odd = (int(floor(world.x)) + int(floor(world.z))) % 2 != 0;
    albedo = odd ? vec3(0.35) : vec3(0.6, 0.58, 0.55);
  } else {
    Look l = look(which);
    albedo = max(l.albedo, vec3(0.05)), light = l.light / albedo;
  }
  vec3 from = world + 1e-3 * n;
  // The sun, wide enough for soft shadows.
  vec3 sun = normalize(normalize(vec3(0.5, 0.8, 0.35)) + 0.12 * any_direction());
  float facing = max(dot(n, sun), 0.0);
  if (facing > 0.0 && !hidden(from, sun, 1e3, -1)) light += facing * vec3(1.3, 1.15, 0.95);
  // One of the glowing spheres, as if all light came from the point chosen on it: four of eleven glow, hence the factor.
  int chosen = 1 + 3 * int(random() * 3.999);
  vec4 lamp = sphere(chosen, push.eye.w);
  if (chosen != which) {
    vec3 to = lamp.xyz + lamp.w * any_direction() - from;
    float distance = length(to);
    to /= distance;
    float lit = max(dot(n, to), 0.0) * lamp.w * lamp.w / max(distance * distance, 1e-2);
    if (lit > 0.0 && !hidden(from, to, distance, chosen)) light += lit * 4.0 * look(chosen).light;
  }
  // The sky.
  vec3 up = normalize(n + any_direction());
  if (!hidden(from, up, 6.0, -1)) light += mix(vec3(0.25, 0.28, 0.35), vec3(0.5, 0.65, 0.9), max(up.y, 0.0)) * 0.6;
  color = vec4(light, 1.0);
  surface = vec4(albedo, 1.0);
  guide = vec4(n, distance(push.eye.xyz, world));
}
