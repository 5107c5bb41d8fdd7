// The interpreter: the meaning of a tile-level kernel, on host Arrays. Programs run one after another, last grid axis fastest.
// Reads beyond an array's edge, outputs and scratch before their first write are NaN, or the least integer (true for bool).
#pragma once
#include <cstdint>
#include <vector>

#include "engine/array.h"
#include "engine/ir/kernel.h"

namespace tessera {

struct InterpretOptions {
  DimValues dims;                    ///< run-time sizes that no input shape gives
  /// What unspecified elements hold: 0: as above; 1, 2, 3: another value, everywhere the same; from 4 on: a number of its own in each place,
  /// by this seed. An output element that differs from run to run depends on unspecified memory.
  int fill = 0;
};

/// Runs a tile-level kernel on inputs and returns its outputs. Throws SpecError on wrong argument count, dtype or shape (against the array
/// shapes in k.blocks, run-time sizes taken from the arguments).
std::vector<Array> interpret(const ir::Kernel& k, const std::vector<Array>& inputs, const InterpretOptions& options = {});

/// Binds run-time sizes: matches argument shapes with k.blocks, solving bare names; throws SpecError naming the kernel, the argument and
/// both shapes. Shared with the runtime. Only shapes and dtypes are looked at. The result is complete: bind_shape and bind_grid succeed with it.
DimValues bind_dims(const ir::Kernel& k, const std::vector<std::pair<DType, Shape>>& inputs, const DimValues& given = {});
/// The shape of k.blocks[block]'s array; SpecError if a size is missing or negative.
Shape bind_shape(const ir::Kernel& k, int block, const DimValues& dims);
/// The grid's sizes, one per axis; SpecError if one is missing, negative or beyond i32.
std::vector<int64_t> bind_grid(const ir::Kernel& k, const DimValues& dims);

}  // namespace tessera
