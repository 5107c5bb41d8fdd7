// The interpreter: the meaning of a tile-level kernel, on host Arrays. Programs run one after another, last grid axis
// fastest. Reads beyond an array's edge, outputs and scratch before their first write are NaN, or the least integer
// (true for bool).
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/array.h"
#include "engine/base/function.h"
#include "engine/base/print_text.h"
#include "engine/ir/kernel.h"

namespace tessera {

/// nan: NaN, the least integer, true. large, small: other values, everywhere the same. pattern: a number of its own in
/// each place. edge: as nan, but overhang is a copy of the nearest element that the block has inside the array, and
/// what a masked load leaves alone one of the nearest element of the Ref, as compiled code may have it.
enum class Uninitialised : uint8_t { nan, zero, large, small, pattern, edge };
enum class OutOfBounds : uint8_t { clamp, raise };

/// A value at the moment it has been computed (`op` made it; none: an argument of a region), or is given to a memory op
/// that is about to run.
struct SeenValue {
  ir::OpId op;
  ir::Value value;
  const std::byte* elements;            // size_bytes(dtype) apart
  const std::vector<int64_t>& program;  // the coordinate on every grid axis
};

struct InterpretOptions {
  DimValues dims = {};  ///< run-time sizes that no input shape gives
  /// What unwritten memory and overhang hold. An output element that differs between two of these hangs
  /// on such memory.
  Uninitialised uninitialised = Uninitialised::nan;
  /// What becomes of a dynamic start whose window does not fit, of an element outside under a true mask, and of a block
  /// index beyond the last block: by the rules (clamped; such an element is left alone), or a KernelError that names
  /// line, program and elements. Overhang is in bounds.
  OutOfBounds out_of_bounds = OutOfBounds::clamp;
  /// Permutes the programs along parallel axes, each coordinate with scratch of its own; also the seed of
  /// Uninitialised::pattern.
  std::optional<uint64_t> seed = std::nullopt;
  /// Finds accesses that parallel axes leave without an order (races.h) and throws a KernelError that names line,
  /// element and both programs.
  bool races = false;
  /// Takes what debug_print prints, line by line; without it that goes to stdout. In the order of the programs, also
  /// where a seed permutes them.
  PrintCallback print = {};
  /// Told of what is allowed but hardly meant, once per line: so far that a program loads through an aliased input what
  /// another program has stored, where the order of the grid decides what it sees.
  Function<void(const std::string&)> warn = {};
  /// Grid axes that are parallel beside those declared so and those added by vmap: one per axis, or empty.
  std::vector<bool> parallel = {};
  /// Sees every value but Refs and the carried ones, in index maps too: for tests of what analyses claim. Costs nothing
  /// where it is not set.
  Function<void(const SeenValue&)> observe = {};
};

/// Runs a tile-level kernel on inputs and returns its outputs. Throws SpecError on wrong argument count, dtype or shape
/// (against the array shapes in k.blocks, run-time sizes taken from the arguments).
std::vector<Array> interpret(const ir::Kernel& k, const std::vector<Array>& inputs,
                             const InterpretOptions& options = {});

/// Binds run-time sizes: matches argument shapes with k.blocks, solving bare names; throws SpecError naming the kernel,
/// the argument and both shapes. Shared with the runtime. Only shapes and dtypes are looked at. The result is complete:
/// bind_shape and bind_grid succeed with it.
DimValues bind_dims(const ir::Kernel& k, const std::vector<std::pair<DType, Shape>>& inputs,
                    const DimValues& given = {});
/// The shape of k.blocks[block]'s array; SpecError if a size is missing or negative.
Shape bind_shape(const ir::Kernel& k, int block, const DimValues& dims);
/// The grid's sizes, one per axis; SpecError if one is missing, negative or beyond i32.
std::vector<int64_t> bind_grid(const ir::Kernel& k, const DimValues& dims);

}  // namespace tessera
