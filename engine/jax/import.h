// Pallas kernels traced by JAX, read from the JSON that the Python package writes (format.md has the format). An import
// is a trace: every equation calls the equivalent function of the C++ front end, so block specs, indices, shapes and
// dtypes are checked there, and errors name the kernel and the line of Python. No Python runs. Read next: primitives.h
// (one row per primitive).
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "engine/ir/kernel.h"

namespace tessera::jax {

struct ImportOptions {
  /// The sizes of the grid's axes that the module leaves open, in order: what JAX passes before all other operands.
  std::vector<int64_t> grid_sizes = {};
  /// Instead, they become run-time sizes that come with every call: grid_0, grid_1, ...
  bool open_grid = false;
};

/// The tile-level kernel of one pallas_call. Its inputs are *prefetch, *inputs, its outputs the call's. Throws
/// SpecError where the text is no such module ("jax module: ..." with the place in it) or the blocks do not fit,
/// TraceError where a primitive is not known or misused.
ir::Kernel import_kernel(std::string_view json, const ImportOptions& options = {});

/// How many sizes the module leaves open: how many operands come before the kernel's inputs.
int num_dynamic_grid_bounds(std::string_view json);

}  // namespace tessera::jax
