#include "codegen/plan/matrices.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "engine/base/extent.h"

namespace tessera::lowering {

std::optional<MatrixShape> matrix_shape(const Target& target, DType a, DType b, DType sum) {
  const auto word = [](DType t) { return t == DType::i32 || t == DType::u32; };
  std::optional<MatrixShape> best;
  const auto size = [](const MatrixShape& s) { return int64_t{s.m} * s.n * s.k; };
  for (const MatrixShape& s : target.matrices) {
    if (s.a != a || s.b != b || !(s.sum == sum || (word(s.sum) && word(sum)))) continue;
    if ((a == DType::f16 && !target.float16) || (is_int(a) && !target.int8)) continue;
    const auto power = [](int32_t x) { return x > 0 && std::has_single_bit(static_cast<uint32_t>(x)); };
    if (!power(s.m) || !power(s.n) || !power(s.k) || size_bytes(a) != size_bytes(b) || size_bytes(a) > 2) continue;
    // The largest; of those, one that sums in that dtype.
    if (!best || size(s) > size(*best) || (size(s) == size(*best) && best->sum != sum && s.sum == sum)) best = s;
  }
  return best;
}

std::optional<MatrixLanes> matrix_lanes(const MatrixShape& s, int subgroup) {
  if (s.m > subgroup || subgroup % s.m != 0 || s.n % (subgroup / s.m) != 0) return std::nullopt;
  return MatrixLanes{s.m, subgroup / s.m};
}

namespace {
// Of the lanes' own layout: lanes across, the elements that each has beside each other, rows of lanes.
constexpr int kAcross = 4, kPair = 2, kDown = 8;
}  // namespace

void lay_out_rows(AxisPlan& p, const MatrixShape& s, int subgroup, int subgroups, int64_t rows, bool by_lanes) {
  const int across = by_lanes ? kAcross : matrix_lanes(s, subgroup)->across;
  p.invocation_stride = across;
  p.invocations = subgroups * subgroup / across;
  p.vec = 1;
  p.run = by_lanes ? kDown : 0;
  p.between = by_lanes ? s.m / kDown : 1;
  p.reg = static_cast<int>(rows) * p.between;
}

void lay_out_columns(AxisPlan& p, const MatrixShape& s, int subgroup, int64_t cols, bool by_lanes) {
  p.invocation_stride = 1;
  p.invocations = by_lanes ? kAcross : matrix_lanes(s, subgroup)->across;
  p.reg = static_cast<int>(cols / p.invocations);
  p.vec = by_lanes ? kPair : std::gcd(p.reg, 8);
}

MatrixProduct matrix_product(const ir::Kernel& k, const ir::Op& dot) {
  const DType t = k.type(dot.results[0]).dtype;
  return {k.type(dot.operands[0]).dtype, k.type(dot.operands[1]).dtype, is_narrow_float(t) ? DType::f32 : t};
}

int64_t contracted(const ir::Kernel& k, const ir::Op& dot) {
  int64_t n = 1;
  for (const int64_t d : dot.ints(ir::Attr::lhs_contract)) n *= k.type(dot.operands[0]).shape[static_cast<size_t>(d)];
  return n;
}

std::string describe(const Target& target, const MatrixShape& s, const MatrixTile& t, int64_t depth, bool by_lanes) {
  const bool together = by_warpgroups(target, s);
  return "dots of " + std::string(name(s.a)) + ": matrices of " + to_string(s) + ", " + std::to_string(t.rows) + " x " +
         std::to_string(t.cols / s.n) + " of them in each subgroup" +
         (together ? ", four of which work together" : "") + "; chunks of " +
         std::to_string(matrix_chunk(target, s, depth)) + " packed in shared memory, the next one prefetched" +
         (target.async_stores && !together ? " there, or into registers" : " into registers") +
         (by_lanes ? "; their sums are registers like others" : "");
}

std::optional<MatrixShape> matrices_for(const Target& target, int subgroup, const MatrixProduct& p, std::string& why) {
  const auto no = [&](std::string reason) {
    why = std::move(reason);
    return std::optional<MatrixShape>();
  };
  const auto shape = matrix_shape(target, p.a, p.b, p.sum);
  if (!shape)
    return no("the device has none of " + std::string(name(p.a)) + " and " + std::string(name(p.b)) + " with sums of " +
              std::string(name(p.sum)));
  if (!target.subgroup_shuffle || !target.can_require_subgroup_size || subgroup != target.subgroup_size ||
      target.max_loop_iterations != 0)
    return no("subgroups of one size cannot be relied on");
  if (!matrix_lanes(*shape, subgroup)) return no("the lanes of a subgroup do not hold the rows of one");
  if (p.rows <= 8 || p.cols < shape->n || p.depth < shape->k)
    return no("the largest product does not fill one of " + to_string(*shape));
  return shape;
}

int64_t matrix_columns(const MatrixShape& s, MatrixLanes lanes, int64_t columns, int smaller) {
  const int64_t least = std::max<int64_t>(s.n, lanes.across);
  int64_t all = std::max<int64_t>(MatrixTile{}.cols >> smaller, least);
  while (all > least && all / 2 >= columns) all /= 2;
  return all;
}

MatrixTile matrix_tile(const MatrixShape& s, MatrixLanes lanes, const MatrixTileWish& wish) {
  const int64_t least = std::max<int64_t>(s.n, lanes.across);
  MatrixTile t;
  t.rows = std::max<int64_t>(t.rows >> wish.smaller, 1);
  t.cols = matrix_columns(s, lanes, wish.cols, wish.smaller);
  const bool all_rows = wish.all_rows && wish.rows <= int64_t{2} * wish.down;
  if (all_rows) t.rows = cdiv(wish.rows, int64_t{wish.down});
  while (!all_rows && t.rows > 1 && (t.rows / 2) * wish.down >= wish.rows) t.rows /= 2;
  while (!all_rows && t.rows > 1 && wish.units(t) < wish.compute_units) t.rows /= 2;
  while (!wish.all_cols && t.cols > std::max<int64_t>(32, least) && wish.units(t) < wish.compute_units) t.cols /= 2;
  return t;
}

bool by_warpgroups(const Target& target, const MatrixShape& s) {
  return target.warpgroup_matrices && s.m == 16 && s.k * size_bytes(s.a) == 32 &&
         !(is_float(s.a) && size_bytes(s.a) == 1);
}

int64_t matrix_chunk(const Target& target, const MatrixShape& s, int64_t depth) {
  const int64_t size = size_bytes(s.a), wide = 128 / size;
  return std::max<int64_t>(by_warpgroups(target, s) && depth % wide == 0 ? wide : 64 / size, s.k);
}

}  // namespace tessera::lowering
