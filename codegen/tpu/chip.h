// Chip: what is known of a TPU by its name, as a plain value. Nothing here queries a device. Read next: mosaic.h.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "engine/base/dtype.h"

namespace tessera::tpu {

struct Chip {
  std::string_view name;       // "v5e"
  int64_t vmem_bytes = 0;      // of a core; 0: not limited
  bool limits = true;          // blocks have to be aligned, dtypes to be the chip's
  bool int8_products = false;  // of 8-bit integers, in its matrix unit
  bool float8 = false;
};

/// "v4", "v5e", "v5p", "v6e", "tpu7x"; and "any": a chip without limits of its own, to read what is made of a kernel
/// and to test it. Throws CompileError with the names if there is no such chip.
const Chip& chip_named(std::string_view name);
/// Why the chip cannot have elements of dtype t, or nothing.
std::string lacks(const Chip& chip, DType t);

}  // namespace tessera::tpu
