#include "runtime/array/bytes.h"

#include <algorithm>

#include "engine/base/error.h"

namespace tessera {

std::string describe(const Shape& shape, DType dtype) {
  std::string s(name(dtype));
  s += '[';
  for (size_t i = 0; i < shape.size(); ++i) s += (i ? ", " : "") + std::to_string(shape[i]);
  return s + ']';
}

int64_t checked_bytes(const char* what, const Shape& shape, DType dtype) {
  int64_t bytes = size_bytes(dtype);
  for (const int64_t d : shape)
    if (d < 0) throw SpecError(std::string(what) + ": shape " + to_string(shape) + " has a negative size");
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  for (const int64_t d : shape)
    if (__builtin_mul_overflow(bytes, d, &bytes))
      throw DeviceError(describe(shape, dtype) + " takes more bytes than a 64-bit number counts");
  return bytes;
}

}  // namespace tessera
