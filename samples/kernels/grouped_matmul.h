// Grouped matmul: the rows of one matrix, sorted by group, times a matrix per group, as a mixture of experts needs it;
// group sizes are known only when the kernel runs. A program makes one tile of the result. It finds the groups that its
// rows belong to from the sizes, which are prefetched, multiplies the tile once with each of them, and stores each
// product to its group's rows: a tile within one group costs one product, and only tiles with a boundary more. The
// problem is MegaBlocks' (Gale et al. 2022) and that of JAX's gmm (megablox), whose list of tiles per group this needs
// no pass on the host for.
#pragma once
#include <algorithm>

#include "samples/kernels/support.h"

namespace tessera::kernels {

struct GroupedMatmulParams {
  bool transpose_rhs = false;                     ///< rhs is [groups, n, k]
  std::optional<DType> out_dtype = std::nullopt;  ///< else lhs's
  int64_t block_rows = 64, block_columns = 64;    ///< at most
};

/// Rows of lhs [m, k], the first group_sizes[0] times rhs[0], the next group_sizes[1] times rhs[1], ..., for rhs
/// [groups, k, n] and group_sizes i32 [groups]; the call's arguments are group_sizes, lhs, rhs, its result [m, n]. Rows
/// behind the last group are zeros; sizes below 0 count as 0, and groups end at m. lhs and rhs f32, f16 or bf16 alike;
/// sums are f32. SpecError for other shapes or dtypes.
inline PallasCall grouped_matmul(const Type& group_sizes, const Type& lhs, const Type& rhs,
                                 const GroupedMatmulParams& params = {}, Loc loc = Loc::here()) {
  const Checks c{"grouped_matmul", loc};
  c.floats("lhs", lhs);
  c.rank("lhs", lhs, 2, "[rows, k]");
  c.dtype("rhs", rhs, {lhs.dtype});
  c.rank("rhs", rhs, 3, params.transpose_rhs ? "[groups, columns, k]" : "[groups, k, columns]");
  const int64_t m = lhs.shape[0], k = lhs.shape[1], groups = rhs.shape[0], n = rhs.shape[params.transpose_rhs ? 1 : 2],
                rhs_k = rhs.shape[params.transpose_rhs ? 2 : 1];
  c.require(k == rhs_k,
            "lhs has " + std::to_string(k) + " columns but matrices of rhs have " + std::to_string(rhs_k) + " rows");
  c.require(k > 0, "lhs has shape " + tessera::to_string(lhs.shape) + ": there is nothing to multiply");
  c.dtype("group_sizes", group_sizes, {i32});
  c.shape("group_sizes", group_sizes, {groups}, "the groups of rhs");
  c.require(groups > 0, "there are no groups");
  c.require(params.block_rows > 0 && params.block_columns > 0, "blocks of " + std::to_string(params.block_rows) +
                                                                   " rows and " + std::to_string(params.block_columns) +
                                                                   " columns");
  const DType out = params.out_dtype.value_or(lhs.dtype);
  c.floats("the result", Type({m, n}, out));
  const int64_t bm = std::min(params.block_rows, power_of_two(m)), bn = std::min(params.block_columns, power_of_two(n));

  const auto kernel = [=](const std::vector<Ref>& r) {
    const Ref &sizes_ref = r[0], &a = r[1], &b = r[2], &o = r[3];
    // Where this tile's rows begin and end, and which groups have rows there: those before `first` end above it.
    const Value top = program_id(1) * bm, bottom = minimum(top + bm, m);
    // i64: many groups of m rows do not overflow
    const Value sizes = clamp(0, sizes_ref[all], m), ends = cumsum(cast(sizes, i64));
    const Value above = ends <= cast(top, i64), begun = ends - cast(sizes, i64) < cast(bottom, i64);
    const Value first = sum(cast(above, i32)), last = sum(cast(begun, i32));
    const Value first_row = cast(max(where(above, ends, 0)), i32);
    const Value row = top + iota(i32, {bm, 1});
    const Value end = fori_loop(first, last, first_row, [&](Value g, Value begin) {
      const Value next = minimum(begin + clamp(0, sizes_ref[g], m), m), inside = (row >= begin) & (row < next);
      when(next > begin, [&] {  // groups without rows cost nothing
        Value product = params.transpose_rhs
                            ? dot(a[all], b[{g, all, all}],
                                  {.lhs_contract = {1}, .rhs_contract = {1}, .preferred_element_type = f32})
                            : dot(a[all], b[{g, all, all}], {.preferred_element_type = f32});
        store(o, all, cast(product, o.dtype()), {.mask = inside});
      });
      return next;
    });
    when(end < bottom, [&] { store(o, all, 0, {.mask = row >= end}); });
  };

  const BlockSpec a_block = {{bm, k}, [](Value, Value i, Ref) { return Indices{i, 0}; }, MemorySpace::vmem, {}, loc};
  BlockSpec b_block = {
      {groups, k, bn}, [](Value j, Value, Ref) { return Indices{0, 0, j}; }, MemorySpace::vmem, {}, loc};
  if (params.transpose_rhs)
    b_block = {{groups, bn, k}, [](Value j, Value, Ref) { return Indices{0, j, 0}; }, MemorySpace::vmem, {}, loc};
  const BlockSpec o_block = {{bm, bn}, [](Value j, Value i, Ref) { return Indices{i, j}; }, MemorySpace::vmem, {}, loc};
  PallasCallParams call;
  // Tiles of one column of tiles, which share a group's columns, come one after another.
  call.grid_spec = GridSpec{.num_scalar_prefetch = 1,
                            .grid = {cdiv(n, bn), cdiv(m, bm)},
                            .in_specs = std::vector<BlockSpec>{a_block, b_block},
                            .out_specs = o_block};
  call.in_shape = std::vector<ShapeDtype>{group_sizes, lhs, rhs};
  call.out_shape = ShapeDtype(Type({m, n}, out));
  call.name = "grouped_matmul";
  return pallas_call_of(4, kernel, std::move(call), loc);
}

}  // namespace tessera::kernels
