// JAX's inverse error function, by which jax.random.normal turns uniform numbers into normal ones: the same polynomials
// in the same order. It differs from op erf_inv, which is within its row's bound of the exact value: this one is off by
// tens of units where 1 - x * x cancels (90 in f32), and random numbers must be JAX's. Kernels call random.h.
#pragma once
#include "engine/front/trace.h"

namespace tessera::random {

/// Of x in (-1, 1), f32 or f64.
Value erf_inv_of_jax(Emit& e, const Value& x);

}  // namespace tessera::random
