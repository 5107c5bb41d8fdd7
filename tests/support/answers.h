// Comparing an element with the answer that it should be: exact, or within units in the last place, and subnormal
// numbers as zeros of the same sign where one side flushes them.
#pragma once
#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>
#include <string>

#include "engine/ir/reference.h"

namespace tessera::test {

inline bool is_subnormal(DType t, uint64_t bits) {
  if (!is_float(t) || is_float8(t)) return false;  // nobody flushes those of 8-bit floats
  const double x = std::fabs(reference::to_double(t, bits));
  return x > 0 && x < std::ldexp(1.0, float_format(t).least_exponent);
}
inline uint64_t flushed(DType t, uint64_t b) { return is_subnormal(t, b) ? b & uint64_t{1} << (bits(t) - 1) : b; }
// Distance in units in the last place of the wanted value, 0 for equal bits or two NaNs, infinity where no distance
// makes sense.
inline double distance(DType t, uint64_t got, uint64_t wanted) {
  if (got == wanted) return 0;
  const double a = reference::to_double(t, got), b = reference::to_double(t, wanted);
  if (std::isnan(a) && std::isnan(b)) return 0;
  if (std::isnan(a) || std::isnan(b) || std::isinf(a) || std::isinf(b) || std::signbit(a) != std::signbit(b))
    return std::numeric_limits<double>::infinity();
  const int exponent =
      b == 0 ? float_format(t).least_exponent : std::max(std::ilogb(b), float_format(t).least_exponent);
  return std::fabs(a - b) / std::ldexp(1.0, exponent - float_format(t).mantissa);
}
inline bool agrees(DType t, uint64_t got, uint64_t wanted, double ulp) {
  if (!is_float(t)) return got == wanted;
  return distance(t, got, wanted) <= ulp || distance(t, flushed(t, got), flushed(t, wanted)) <= ulp;
}
inline std::string show(DType t, uint64_t b) {
  std::ostringstream s;
  s.precision(17);
  s << reference::to_double(t, b) << " (0x" << std::hex << b << ")";
  return s.str();
}

}  // namespace tessera::test
