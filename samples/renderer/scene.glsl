// What the vertex and the fragment shaders of the lit scene share: where the spheres are, what they look like, and what both stages are pushed.
const int kSpheres = 11;
struct Look {
  vec3 albedo;
  vec3 light;  // what it sends out itself
};

layout(push_constant) uniform Push {
  mat4 to_clip;
  vec4 eye;  // and the time in seconds
  uvec4 frame;  // its number, and kSpheres
} push;

vec4 sphere(int i, float time) {  // centre and radius
  if (i == 0) return vec4(0.0, 1.0, 0.0, 1.0);
  float a = 6.2831853 * float(i) / 10.0 + 0.4 * time, r = i % 2 == 0 ? 2.6 : 3.4;
  float hop = abs(sin(1.7 * time + 1.3 * float(i)));
  float size = 0.32 + 0.05 * float(i % 3);
  return vec4(r * cos(a), size + 0.9 * hop * float(i % 2), r * sin(a), size);
}

Look look(int i) {
  if (i == 0) return Look(vec3(0.85, 0.83, 0.8), vec3(0.0));
  vec3 hue = 0.5 + 0.5 * cos(6.2831853 * (float(i) / 10.0 + vec3(0.0, 0.33, 0.67)));
  if (i % 3 == 1) return Look(hue, 6.0 * hue + 0.5);
  return Look(mix(vec3(0.8), hue, 0.7), vec3(0.0));
}
