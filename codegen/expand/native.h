// f32 rows of relaxed code (../spirv/precision.md), in fewer instructions: most rest on the device's own exp2. Each
// stays within the row's bound for GPUs although exp2 may be as wrong as Vulkan allows: 3 + 2 |x| ulp, so that it is
// asked inside [-1, 1] alone (by tanh up to 27), and never for an infinity or NaN. (PTX promises more: 2^x there is
// asked of any number.) Read next: exp.cpp, which has the strict forms.
#pragma once
#include "codegen/expand/sink.h"

namespace tessera::expand::native {

/// Whether rows of x's width have a form here, for this code.
inline bool applies(V x) { return x.fn->relaxed && x.reg == Reg::f32; }

V exp(V x);
V exp2(V x);
V logistic(V x);
V tanh(V x);
V log(V x);
V log2(V x);
V sqrt(V x);
V rsqrt(V x);
/// Of NaN and what is not negative; of NaN and positive normal numbers, infinity among them.
V sqrt_of_square(V x);
V rsqrt_of_positive(V x);
/// e^x for x where neither it nor x is special: |x| below some 87.
V exp_ordinary(V x);

}  // namespace tessera::expand::native
