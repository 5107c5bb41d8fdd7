// Binding the arguments of a call: run-time sizes are solved from the arguments' shapes, and every mismatch is a
// SpecError that names the kernel, the argument and both sides. The interpreter (kernels) and the runtime (compiled
// programs) share it, so that both give the same errors.
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/dtype.h"
#include "engine/base/error.h"
#include "engine/base/extent.h"

namespace tessera {

/// What a call takes and makes, as views into a kernel or program that outlives it.
struct CallSignature {
  struct Arg {
    std::string_view origin;  // "in_specs[0]"
    DType dtype;
    const std::vector<Extent>& shape;
    Loc loc;
  };
  std::string_view name;
  Loc loc;
  std::vector<Arg> args;  // inputs, then outputs
  size_t num_inputs = 0;
  std::vector<const Extent*> grid;  // one size per axis
  std::vector<std::string> sizes;   // the names of all run-time sizes
};

/// Matches the shapes of `inputs` with the signature's, solving bare names; `given` has the sizes that no input shows.
/// The result is complete: the functions below succeed with it.
DimValues bind_dims(const CallSignature& call, const std::vector<std::pair<DType, Shape>>& inputs,
                    const DimValues& given = {});
/// The shape of args[position]; SpecError if a size is missing or negative.
Shape bind_shape(const CallSignature& call, size_t position, const DimValues& dims);
/// " for m = 3, n = 5" over the names in `extents` that are bound; empty without any.
std::string bindings(const std::vector<Extent>& extents, const DimValues& dims);
/// The value of an expression of sizes; SpecError if one is missing.
int64_t bind_extent(std::string_view kernel, Loc loc, const Extent& size, const DimValues& dims);
/// The value of a size that a kernel reads (ir::Kernel::sizes); SpecError if it is missing or beyond i32.
int32_t bind_size(std::string_view kernel, Loc loc, const Extent& size, const DimValues& dims);
/// Sizes by name, as expressions of others.
using NamedExtents = std::vector<std::pair<std::string, Extent>>;
/// A size with what `by` has for its names. SpecError if a name is missing there, or the result has more than 1000
/// terms.
Extent substitute(const Extent& size, const NamedExtents& by);
/// The run-time sizes of a graph with such inputs, from the arguments of a call. SpecError on what does not fit.
DimValues bind_graph_sizes(std::string_view graph, Loc loc,
                           const std::vector<std::pair<DType, std::vector<Extent>>>& inputs,
                           const std::vector<std::pair<DType, Shape>>& arguments);
/// Of types, as in messages: "f32[n, 128]".
std::string type_text(DType dtype, const std::vector<Extent>& dims);
/// The grid's sizes, one per axis; SpecError if one is missing, negative or beyond i32.
std::vector<int64_t> bind_grid(const CallSignature& call, const DimValues& dims);

}  // namespace tessera
