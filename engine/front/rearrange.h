// Functions that move elements to positions given by other Values: sorting, gathers, scatters and slices at computed
// positions. No index into a Value is ever out of range: each function states what it does with an index beyond its
// dim. Read next: ops.h for moves that are known while tracing; ir/ops.def: gather, scatter, sort.
#pragma once
#include "engine/front/ops.h"

namespace tessera {

// -- sorting
struct SortParams {
  int64_t axis = -1;
  int num_keys = 1;  ///< operands that are compared, the first before the second; the others go along
};
/// Ascending along axis, as jnp.sort: NaN last, -0 and 0 equal, false before true, equals in the order they had.
Value sort(Operand x, SortParams params = {});
/// lax.sort: operands of one shape, sorted together by the first num_keys of them.
std::vector<Value> sort(std::vector<Operand> operands, SortParams params = {});
Value argsort(Operand x, int64_t axis = -1);  ///< i32: which element of x comes first, second, ...

// -- gathers
/// What becomes of an index that the dim does not have. All but `wrap` and `clip` count a negative one from the end
/// first.
enum class IndexMode {
  nearest,  ///< x[idx] of JAX: the first or last element
  fill,     ///< NaN, the least signed integer, the greatest unsigned one, or true
  clip,     ///< the first element for all negative ones, the last for all beyond
  wrap,     ///< round and round: index modulo size
};
/// jnp.take: the elements of x along axis at `indices` (integers of any shape, whose dims take axis's place).
Value take(Operand x, Operand indices, int64_t axis, IndexMode mode = IndexMode::fill);
/// jnp.take_along_axis: indices have x's rank; sizes other than axis's broadcast. Mode clip is nearest here, as in JAX.
Value take_along_axis(Operand x, Operand indices, int64_t axis, IndexMode mode = IndexMode::fill);
/// x[i, j, ...] of NumPy and JAX: integer indices, which broadcast to one shape, for these axes of x (without: its
/// first ones). Their shape comes where the axes were if these are neighbours, else first; the other dims follow in
/// order. Modes nearest and fill.
Value gather(Operand x, std::vector<Operand> indices, std::vector<int64_t> axes = {},
             IndexMode mode = IndexMode::nearest);

// -- scatters
enum class Update { set, add, multiply, min, max };
/// x.at[i, j, ...].set(updates), .add(updates), ...: updates broadcast to gather(x, indices, axes)'s shape and convert
/// to x's dtype. Indices wrap once below 0; updates whose index is still out of range are dropped. Where several meet
/// in one element all count, in row-major order.
Value scatter(Operand x, std::vector<Operand> indices, Operand updates, Update update = Update::set,
              std::vector<int64_t> axes = {});

// -- slices at computed positions: a negative start wraps once, then it is clamped so that the window fits
Value dynamic_slice(Operand x, std::vector<Operand> starts, Shape sizes);            ///< lax.dynamic_slice
Value dynamic_update_slice(Operand x, Operand update, std::vector<Operand> starts);  ///< lax.dynamic_update_slice
Value dynamic_index_in_dim(Operand x, Operand index, int64_t axis = 0, bool keepdims = true);
/// Element i comes to i + shift, round the end, for a shift that a Value gives; with a stride the shift grows by it
/// from one element of stride_axis to the next (pltpu.roll).
Value roll(Operand x, Operand shift, int64_t axis, int64_t stride = 0, int64_t stride_axis = 0);

// -- shapes by name
/// "ab(cd)->(ba)cd": dims in parentheses are split on the left and merged on the right, in the order in which they are
/// named. `sizes` gives those of split dims that the shape leaves open.
Value einshape(const std::string& equation, Operand x, const std::vector<std::pair<char, int64_t>>& sizes = {});
std::vector<Value> unstack(Operand x, int64_t axis = 0);  ///< the slices along axis, without it

}  // namespace tessera
