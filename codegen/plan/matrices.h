// Which products a target's matrix instructions can make (Target::matrices), and how large a part of them a workgroup
// takes at once.
#pragma once
#include <optional>
#include <string>

#include "codegen/plan/schedule.h"
#include "codegen/program/target.h"
#include "engine/base/function.h"
#include "engine/ir/kernel.h"

namespace tessera::lowering {

/// The target's largest shape for factors of dtypes a and b whose products are summed in `sum`. Integers of 32 bits
/// wrap alike whatever their sign. None: no shape fits.
std::optional<MatrixShape> matrix_shape(const Target& target, DType a, DType b, DType sum);

/// How the invocations of a subgroup hold the rows of a matrix of sums: `down` invocations under each other, `across`
/// beside each other; none where the rows are more than the subgroup.
struct MatrixLanes {
  int down = 1, across = 1;
};
std::optional<MatrixLanes> matrix_lanes(const MatrixShape& s, int subgroup);

/// The rows of matrices under each other, `rows` of them in each of so many subgroups, and `cols` columns: by lanes, as
/// the device holds the matrices (Target::matrix_lanes), or in rows that two lanes share.
void lay_out_rows(AxisPlan& p, const MatrixShape& s, int subgroup, int subgroups, int64_t rows, bool by_lanes);
void lay_out_columns(AxisPlan& p, const MatrixShape& s, int subgroup, int64_t cols, bool by_lanes);

/// A product of `rows` by `cols` by `depth` elements, of dtypes a and b summed in `sum`.
struct MatrixProduct {
  DType a, b, sum;
  int64_t rows = 0, cols = 0, depth = 0;
};
MatrixProduct matrix_product(const ir::Kernel& k, const ir::Op& dot);  // without sizes
/// The shape to plan for, or nothing and the reason in `why`.
std::optional<MatrixShape> matrices_for(const Target& target, int subgroup, const MatrixProduct& p, std::string& why);

/// What a workgroup makes at once: `rows` matrices under each other in each of its subgroups, and `cols` columns.
struct MatrixTile {
  int64_t rows = 2, cols = 128;
};
struct MatrixTileWish {
  int64_t rows = 0, cols = 0;               // of the product
  int down = 1;                             // rows that one matrix of each subgroup has together
  bool all_rows = false, all_cols = false;  // are held at once, if that is possible
  int smaller = 0;                          // halved so often
  int compute_units = 1;
  Function<double(const MatrixTile&)> units;  // workgroups that tiles make
};
/// As large as leaves each compute unit a workgroup.
MatrixTile matrix_tile(const MatrixShape& s, MatrixLanes lanes, const MatrixTileWish& wish);

/// Columns of a tile, halved so often, of a product with so many.
int64_t matrix_columns(const MatrixShape& s, MatrixLanes lanes, int64_t columns, int smaller);

std::string describe(const Target& target, const MatrixShape& s, const MatrixTile& t, int64_t depth,
                     bool by_lanes);                         ///< for explain
int64_t contracted(const ir::Kernel& k, const ir::Op& dot);  ///< elements of k

/// Whether the four subgroups of a warpgroup multiply matrices of that shape together, where there are such and the
/// tile allows it. Not 8-bit floats, whose sums lose bits so.
bool by_warpgroups(const Target& target, const MatrixShape& s);
/// Elements of a row (of k) that pass through shared memory at once: 64 bytes, for warpgroups 128 where all chunks are
/// whole, and at least one matrix.
int64_t matrix_chunk(const Target& target, const MatrixShape& s, int64_t depth);

}  // namespace tessera::lowering
