// What the kernels of this folder share: the types of their arguments, checks of them, and blocks of whole rows. No
// kernels. Each kernel is a header with one or a few functions that take the types of the arguments (arrays say their
// own), check them, and return the PallasCall:
//   ts::Array y = ts::kernels::rms_norm(x, weight)(x, weight);
// Read next: norm.h, the simplest.
#pragma once
#include <algorithm>
#include <functional>
#include <initializer_list>
#include <string>
#include <tessera/tessera.hpp>
#include <utility>
#include <vector>

namespace tessera::kernels {

/// Shape and dtype of an argument: {{rows, columns}, ts::f32}, or whatever has a shape() and a dtype().
struct Type {
  Shape shape;
  DType dtype;
  Type(Shape s, DType t) : shape(std::move(s)), dtype(t) {}
  template <class A>
    requires requires(const A& a) {
      Shape(a.shape());
      DType(a.dtype());
    }
  Type(const A& a) : shape(a.shape()), dtype(a.dtype()) {}  // NOLINT: implicit on purpose
  int rank() const { return static_cast<int>(shape.size()); }
  // NOLINT: implicit on purpose
  operator ShapeDtype() const { return {std::vector<Extent>(shape.begin(), shape.end()), dtype}; }
};
/// "f32(8, 128)"
inline std::string to_string(const Type& t) { return std::string(name(t.dtype)) + tessera::to_string(t.shape); }

/// The checks of one kernel's arguments: SpecErrors that begin with its name and end with the line that asked for it.
struct Checks {
  std::string kernel;
  Loc loc;
  void require(bool holds, const std::string& what, const std::string& note = "") const {
    if (!holds) throw SpecError(kernel + ": " + what, loc, note);
  }
  void dtype(const std::string& argument, const Type& t, std::initializer_list<DType> allowed) const {
    std::string names;
    for (const DType d : allowed)
      names += (names.empty() ? "" : d == *(allowed.end() - 1) ? " or " : ", ") + std::string(name(d));
    require(std::find(allowed.begin(), allowed.end(), t.dtype) != allowed.end(),
            argument + " is " + std::string(name(t.dtype)) + ", not " + names);
  }
  void floats(const std::string& argument, const Type& t) const { dtype(argument, t, {f32, f16, bf16}); }
  void shape(const std::string& argument, const Type& t, const Shape& wanted, const std::string& meaning) const {
    require(t.shape == wanted, argument + " has shape " + tessera::to_string(t.shape) + ", not " +
                                   tessera::to_string(wanted) + " = " + meaning);
  }
  void rank(const std::string& argument, const Type& t, int wanted, const std::string& meaning) const {
    require(t.rank() == wanted, argument + " has shape " + tessera::to_string(t.shape) + ", not " + meaning);
  }
};

/// pallas_call of a kernel whose number of Refs depends on what was asked for.
inline PallasCall pallas_call_of(size_t refs, std::function<void(const std::vector<Ref>&)> kernel,
                                 PallasCallParams params, Loc loc) {
  return spec::make_pallas_call({static_cast<int>(refs), std::move(kernel)}, std::move(params), loc);
}

/// For kernels whose programs, each with a tile of a picture, are in any order.
inline PallasCallParams over_tiles(int64_t down, int64_t across, std::string name) {
  PallasCallParams p;
  p.grid = {down, across};
  p.name = std::move(name);
  p.compiler_params = CompilerParams{.dimension_semantics = {"parallel", "parallel"}};
  return p;
}

/// The least power of two that is not below n.
inline int64_t power_of_two(int64_t n) {
  int64_t p = 1;
  while (p < n) p *= 2;
  return p;
}

/// Blocks whose index is the program's ids, one per dim.
inline BlockSpec block_of_program(const std::vector<BlockDim>& dims, Loc loc) {
  BlockSpec s{
      dims, IndexMap::of(static_cast<int>(dims.size()), 0, [](const std::vector<Value>& ids, const std::vector<Ref>&) {
        return Indices(std::vector<BlockIndex>(ids.begin(), ids.end()));
      })};
  s.loc = loc;
  return s;
}
/// The program's `size` elements of its row: every dim but the last one squeezed.
inline BlockSpec part_of_row(size_t rank, int64_t size, Loc loc) {
  std::vector<BlockDim> dims(rank - 1, squeezed);
  dims.emplace_back(size);
  return block_of_program(dims, loc);
}

/// How an array [..., rows, columns] is cut into blocks of some rows, whole in the last dim: a grid axis per leading
/// dim, and one for the rows.
struct RowBlocks {
  int64_t rows = 1;  // of a block
  std::vector<GridSize> grid = {};
  BlockSpec spec = {};
  /// About `elements` elements to a block, a power of two of rows.
  RowBlocks(const Shape& shape, int64_t elements, Loc loc) {
    const size_t rank = shape.size();
    const int64_t columns = std::max<int64_t>(shape[rank - 1], 1);
    while (rows * 2 * columns <= elements && rows < shape[rank - 2]) rows *= 2;
    std::vector<BlockDim> block(rank - 2, squeezed);
    block.emplace_back(rows);
    block.emplace_back(columns);
    for (size_t d = 0; d + 2 < rank; ++d) grid.emplace_back(shape[d]);
    grid.emplace_back(cdiv(shape[rank - 2], rows));
    spec = {block,
            IndexMap::of(static_cast<int>(rank - 1), 0, [](const std::vector<Value>& ids, const std::vector<Ref>&) {
              std::vector<BlockIndex> at;
              for (const Value& i : ids) at.emplace_back(i);
              at.emplace_back(0);
              return Indices(at);
            })};
    spec.loc = loc;
  }
};

}  // namespace tessera::kernels
