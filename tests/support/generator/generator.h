// Random valid tile-level kernels, the same for the same seed on every machine, with inputs and with what a comparison
// may demand of the outputs. What the kernels contain is listed atop generator.cpp.
#pragma once
#include <cstdint>
#include <vector>

#include "engine/base/array.h"
#include "engine/ir/kernel.h"

namespace tessera::fuzz {

/// How far a float may be from the one that is wanted: `absolute`, and so many ulps of that one, or of `least` where
/// that is larger. Nothing else may differ, but the bits of a NaN and, in relaxed code, the sign of a zero.
struct Tolerance {
  double absolute = 0, ulps = 0, least = 0;
};

struct Case {
  ir::Kernel kernel;
  std::vector<Array> inputs;
  DimValues dims;                    // all run-time sizes
  std::vector<Tolerance> tolerance;  // per output
  bool relaxed = false;              // of a file: its answers are the same where code is relaxed
};

/// Kernels of the forms that single passes and lowerings wait for (patterns.h, threads.h, control.h).
enum class Pattern { none, revisits, sums, reshapes, bytes, columns, residues, threads, control };
inline constexpr const char* kPatternNames[] = {"none",    "revisits", "sums",    "reshapes", "bytes",
                                                "columns", "residues", "threads", "control"};
/// Of three seeds in ten; by numbers of its own, so that the kernels of the other seeds stay.
Pattern pattern_of(uint64_t seed);

Case generate(uint64_t seed, Pattern pattern);
inline Case generate(uint64_t seed) { return generate(seed, pattern_of(seed)); }
/// Drops the sizes that the kernel does not name.
void keep_used_dims(Case& c);

}  // namespace tessera::fuzz
