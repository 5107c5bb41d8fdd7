// How many bytes an array takes on a device, and how errors name it. Internal to runtime/.
#pragma once
#include <cstdint>
#include <string>

#include "engine/base/array.h"

namespace tessera {

/// "f32[2, 3]".
std::string describe(const Shape& shape, DType dtype);
/// Throws SpecError, which begins with `what`, on a negative size; DeviceError where 64 bits do not count them.
int64_t checked_bytes(const char* what, const Shape& shape, DType dtype);

}  // namespace tessera
