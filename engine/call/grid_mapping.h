// GridMapping: the canonical form of grid, block specs and scratch, and the calling convention that follows from them.
//   pallas_call gets  *dynamic_grid_sizes, *index, *inputs     (index: the scalar-prefetch operands)
//   the kernel gets   *index, *inputs, *outputs, *scratch
//   an index map gets *program_ids (i32 scalars, vmapped axes included), *index
// Made from specs (by pallas_call) or from any tile-level kernel. to_kernel() turns it into a Kernel without a body.
#pragma once
#include <iosfwd>
#include <map>
#include <string>
#include <vector>

#include "engine/base/function.h"
#include "engine/front/spec.h"

namespace tessera {

/// Positions start, start + 1, ... below stop.
struct Slice {
  int start = 0, stop = 0;
  int size() const { return stop - start; }
  bool operator==(const Slice&) const = default;
};

struct GridMapping {
  std::vector<Extent> grid;             // dynamic sizes are Extents that are not static
  std::vector<std::string> grid_names;  // none, or one per axis
  std::vector<bool> grid_parallel;      // dimension_semantics, one per axis
  // whole, or where vmap batched one an element of the batch: their index maps see no Refs
  std::vector<ir::BlockMapping> index_operands;
  std::vector<ir::BlockMapping> block_mappings;  // inputs, then outputs; their index maps are regions of index_maps
  std::vector<ir::Type> index_map_avals;         // i32[] per grid axis, then the Refs of scalar prefetch
  std::vector<int> vmapped_dims;                 // axes that vmap added, increasing
  std::vector<ir::Type> scratch_avals;           // Ref types
  int num_index_operands = 0;
  int num_inputs = 0;  // without the index operands
  int num_outputs = 0;
  bool debug = false;
  ir::Kernel index_maps;  // holds the index maps' ops; its own grid and blocks are unused

  int num_dynamic_grid_bounds() const;
  int num_scratch_operands() const { return static_cast<int>(scratch_avals.size()); }
  /// The grid as numbers; SpecError if a size is dynamic.
  Shape static_grid() const;
  /// Of *index, *inputs.
  std::vector<ShapeDtype> in_shapes() const;
  std::vector<ShapeDtype> out_shapes() const;
  /// block_mappings of the outputs.
  std::vector<ir::BlockMapping> block_mappings_output() const;
  // Which of the kernel's parameters are scalar-prefetch operands, blocks (inputs and outputs), scratch.
  Slice slice_index_ops() const { return {0, num_index_operands}; }
  Slice slice_block_ops() const {
    return {num_index_operands, num_index_operands + static_cast<int>(block_mappings.size())};
  }
  Slice slice_scratch_ops() const { return {slice_block_ops().stop, slice_block_ops().stop + num_scratch_operands()}; }

  /// A changed copy, invariants checked: gm.replace([](GridMapping& m) { m.debug = true; }).
  GridMapping replace(FunctionRef<void(GridMapping&)> change) const;
  /// What must hold, as a list atop grid_mapping.cpp; InternalError with everything that does not.
  void check_invariants() const;
  /// A tile-level kernel with this grid, blocks and scratch, index maps included; its body is a region with the Refs as
  /// arguments and no ops.
  ir::Kernel to_kernel(std::string name, Loc loc) const;
};

/// The mapping of a tile-level kernel. num_dynamic_grid_bounds etc. follow.
GridMapping grid_mapping(const ir::Kernel& k);

/// What pallas_call was given, with the inputs' shapes; the specs are one per array.
struct GridMappingRequest {
  std::string name;
  Loc loc;
  std::vector<GridSize> grid;
  std::vector<bool> parallel;               // per axis
  std::vector<ShapeDtype> inputs, outputs;  // *index, *inputs
  int num_scalar_prefetch = 0;
  std::vector<BlockSpec> in_specs, out_specs;  // none for scalar-prefetch operands
  std::vector<ScratchShape> scratch;
  std::map<int, int> aliases;  // input_output_aliases: input, counted from the first scalar-prefetch operand, to output
  bool debug = false;
};
/// Traces the index maps. SpecError naming the spec, what is wrong with both numbers, and its line.
GridMapping make_grid_mapping(const GridMappingRequest& r);

/// Grid, blocks with their index maps, and scratch, one per line.
std::ostream& operator<<(std::ostream& out, const GridMapping& m);

namespace ir {
std::ostream& operator<<(std::ostream& out, const Kernel& k);  ///< the text form
}

}  // namespace tessera
