#include "codegen/tpu/chip.h"

#include <array>

#include "engine/base/error.h"

namespace tessera::tpu {
namespace {
constexpr int64_t kMiB = int64_t{1} << 20;
// Memory of a core, as the Pallas that comes with JAX 0.10 states it.
constexpr std::array<Chip, 6> kChips = {{{"v4", 16 * kMiB, true, false, false},
                                         {"v5e", 128 * kMiB, true, true, true},
                                         {"v5p", 64 * kMiB, true, true, true},
                                         {"v6e", 128 * kMiB, true, true, true},
                                         {"tpu7x", 64 * kMiB, true, false, true},
                                         {"any", 0, false, true, true}}};
}  // namespace

const Chip& chip_named(std::string_view name) {
  std::string names;
  for (const Chip& c : kChips) {
    if (c.name == name) return c;
    names += (names.empty() ? "" : ", ") + std::string(c.name);
  }
  throw CompileError("target tpu:" + std::string(name) + ": there is no such chip", {}, "the chips are " + names);
}

std::string lacks(const Chip& chip, DType t) {
  if (size_bytes(t) == 8) return "a TPU has no " + std::string(name(t));
  if (chip.limits && t == DType::f16) return "a TPU has no f16; bf16 is its float of 16 bits";
  if (chip.limits && is_float8(t) && !chip.float8) return "it has no " + std::string(name(t));
  return "";
}

}  // namespace tessera::tpu
