// The hand-made code that the runtime's tests launch, one entry per KIND. The argument block is laid out as
// codegen/program/program.h says.
#version 460
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#define ADD 0        // o = a + b            args a, b, o           extents n
#define SCALE 1      // o = 2 a + 1          args a, o              extents n
// o = 3 a, by way of the arena: one element per invocation, each workgroup loops over its units    extents n, units
#define SCRATCH 2
#define TABLE 3      // o = a + b, the same block behind one address
#define BUSY 4       // as SCALE, after a long loop
#define SUBGROUP 5   // o[i] = gl_SubgroupSize   args o   extents n
#if KIND == SUBGROUP
#extension GL_KHR_shader_subgroup_basic : require
#endif

layout(local_size_x = 64) in;
layout(buffer_reference, std430) buffer Floats { float v[]; };
#if KIND == ADD || KIND == TABLE
#define BLOCK Floats a; Floats b; Floats o; int n;
#elif KIND == SCRATCH
#define BLOCK Floats a; Floats o; Floats scratch; int n; int units;
#elif KIND == SUBGROUP
#define BLOCK Floats o; int n;
#else
#define BLOCK Floats a; Floats o; int n;
#endif
#if KIND == TABLE
layout(buffer_reference, std430) readonly buffer Table { BLOCK };
layout(push_constant, std430) uniform Push { Table t; };
#else
layout(push_constant, std430) uniform Push { BLOCK } t;
#endif

void main() {
  uint group = gl_WorkGroupID.x + gl_NumWorkGroups.x * (gl_WorkGroupID.y + gl_NumWorkGroups.y * gl_WorkGroupID.z);
  uint groups = gl_NumWorkGroups.x * gl_NumWorkGroups.y * gl_NumWorkGroups.z;
#if KIND == SCRATCH
  uint mine = group * 64 + gl_LocalInvocationID.x;
  for (uint unit = group; unit < uint(t.units); unit += groups) {
    uint i = unit * 64 + gl_LocalInvocationID.x;
    if (i < uint(t.n)) {
      t.scratch.v[mine] = 3 * t.a.v[i];
      t.o.v[i] = t.scratch.v[mine];
    }
  }
#else
  uint i = group * 64 + gl_LocalInvocationID.x;
  if (i >= uint(t.n)) return;
#if KIND == ADD || KIND == TABLE
  t.o.v[i] = t.a.v[i] + t.b.v[i];
#elif KIND == SUBGROUP
  t.o.v[i] = float(gl_SubgroupSize);
#else
  float x = t.a.v[i];
#if KIND == BUSY
  for (int k = 0; k < 1000; ++k) x = x * 0.5 + t.a.v[i] * 0.5;
#endif
  t.o.v[i] = 2 * x + 1;
#endif
#endif
}
