// The bits of an element of any dtype as a double, and back.
#pragma once
#include <cstdint>

#include "engine/base/dtype.h"

namespace tessera::reference {

/// Bits <-> double (exact but for 64-bit integers beyond 2^53).
double to_double(DType t, uint64_t bits);
uint64_t from_double(DType t, double x);  ///< as convert from f64

}  // namespace tessera::reference
