// The ops that are not operators: one function per op of the table and a few compositions. All take Operands (Values,
// x[all], numbers) and promote and broadcast as value.h says; ints and bools given to a function of floats become f32.
// Shapes are static. Read next: ir/ops.def for the exact meaning of each op, control.h for loops.
#pragma once
#include <initializer_list>
#include <optional>
#include <vector>

#include "engine/base/function.h"
#include "engine/front/value.h"

namespace tessera {

// -- elementwise
Value exp(Operand x);
Value exp2(Operand x);
Value expm1(Operand x);  ///< e^x - 1, accurate near 0
Value log(Operand x);
Value log2(Operand x);
Value log1p(Operand x);  ///< log(1 + x), accurate near 0
Value sqrt(Operand x);
Value rsqrt(Operand x);
Value cbrt(Operand x);
Value sin(Operand x);
Value cos(Operand x);
Value tan(Operand x);
Value asin(Operand x);
Value acos(Operand x);
Value atan(Operand x);
Value atan2(Operand y, Operand x);  ///< the angle of the point (x, y) in [-pi, pi]
Value sinh(Operand x);
Value cosh(Operand x);
Value tanh(Operand x);
Value asinh(Operand x);
Value acosh(Operand x);
Value atanh(Operand x);
Value erf(Operand x);
Value erf_inv(Operand x);   ///< the y with erf(y) = x
Value logistic(Operand x);  ///< 1 / (1 + e^-x)
/// x to the power y. An integer number for y multiplies x with itself (exact for integer x); else both are floats.
Value pow(Operand x, Operand y);
Value integer_pow(Operand x, int64_t exponent);  ///< x multiplied with itself; floats only for negative exponents
Value square(Operand x);
Value reciprocal(Operand x);  ///< 1 / x
Value abs(Operand x);
Value sign(Operand x);
Value floor(Operand x);  ///< of integers: themselves, as ceil, round and round_even
Value ceil(Operand x);
Value round(Operand x);       ///< halves away from zero, as C's and lax.round's default
Value round_even(Operand x);  ///< halves to even, as jnp.round
/// x rounded to what a float format with these many exponent and mantissa bits can hold, in its own dtype
/// (lax.reduce_precision).
Value reduce_precision(Operand x, int exponent_bits, int mantissa_bits);
Value nextafter(Operand x, Operand to);  ///< the next float after x on the way to `to`
Value is_finite(Operand x);              ///< true of integers; is_nan and is_inf are false
Value is_nan(Operand x);
Value is_inf(Operand x);
Value logaddexp(Operand a, Operand b);  ///< log(e^a + e^b)
Value maximum(Operand a, Operand b);    ///< NaN wins, as in minimum
Value minimum(Operand a, Operand b);
Value clamp(Operand low, Operand x, Operand high);  ///< lax.clamp's order
Value shift_right_logical(Operand a, Operand b);    ///< fills zeros whatever the dtype
Value mulhi(Operand a, Operand b);                  ///< the upper half of the integers' product
Value clz(Operand x);                               ///< zero bits above the highest one; the width for 0
Value population_count(Operand x);
/// condition ? a : b, element by element; a condition that is not bool counts as != 0.
Value where(Operand condition, Operand a, Operand b);
/// cases[which], element by element: false is case 0, true case 1; integers out of range count as the nearest case.
Value select_n(Operand which, std::vector<Operand> cases);
/// To another dtype: floats round to nearest even, float to int truncates and saturates (NaN: 0), ints wrap, to bool is
/// != 0.
Value cast(Operand x, DType dtype);
/// The same bits as another dtype (lax.bitcast_convert_type). A narrower one adds a last dim, the lowest bits first; a
/// wider one takes the last dim, whose elements make one of its own. bits.h has the same along another axis.
Value bitcast(Operand x, DType dtype);
/// Promises of the user's about integers, as Pallas has them: multiples of n, runs of n neighbours. They are x itself,
/// and nothing relies on them.
Value multiple_of(Operand x, int64_t n);
Value max_contiguous(Operand x, int64_t n);

// -- making values
/// without a dtype: the value's own
Value full(Shape shape, Operand value, std::optional<DType> dtype = std::nullopt);
Value zeros(Shape shape, DType dtype = f32, Loc loc = Loc::here());
Value ones(Shape shape, DType dtype = f32, Loc loc = Loc::here());
/// Each element's index along `axis`.
Value iota(DType dtype, Shape shape, int64_t axis = 0, Loc loc = Loc::here());

// -- shape
Value broadcast_to(Operand x, Shape shape);
/// Row-major; one size may be -1: what is left over.
Value reshape(Operand x, Shape shape);
/// Result dim i is x's dim perm[i]; without perm the dims are reversed.
Value transpose(Operand x, std::vector<int64_t> perm);
Value transpose(Operand x);
/// Elements start, start + stride, ... below limit, per dim. Without strides: 1 each.
Value slice(Operand x, std::vector<int64_t> start, std::vector<int64_t> limit, std::vector<int64_t> strides = {});
Value concatenate(std::vector<Operand> parts, int64_t axis = 0);
Value stack(std::vector<Operand> parts, int64_t axis = 0);  ///< along a new dim
/// Parts of these sizes, one after another along axis; or `parts` equal ones.
std::vector<Value> split(Operand x, std::vector<int64_t> sizes, int64_t axis = 0);
std::vector<Value> split(Operand x, int parts, int64_t axis = 0);
Value expand_dims(Operand x, std::vector<int64_t> axes);  ///< dims of size 1, at these positions of the result
Value squeeze(Operand x, std::vector<int64_t> axes);      ///< without these dims, of size 1
Value tile(Operand x, std::vector<int64_t> repeats);      ///< jnp.tile: repeats count from the last dim
Value rev(Operand x, std::vector<int64_t> axes);          ///< in the opposite order along each of them
/// jnp.roll: element i comes to i + shift, round the end
Value roll(Operand x, int64_t shift, int64_t axis = 0);
struct Padding {
  int64_t low = 0, high = 0, interior = 0;  ///< before, behind and between the elements; negative low and high cut
};
Value pad(Operand x, Operand value, std::vector<Padding> dims);  ///< lax.pad: one Padding per dim

// -- products
/// jax.lax.Precision. Products of f32 are of f32 at each of them: nothing is ever computed in less.
enum class Precision { normal, high, highest };
struct DotParams {
  std::vector<int64_t> lhs_contract = {}, rhs_contract = {};  ///< neither these nor the batch dims: a matrix product
  std::vector<int64_t> lhs_batch = {}, rhs_batch = {};
  /// Of the result; else the operands' promoted dtype. Integers may not be narrower than the operands. Operands of one
  /// dtype: integers are converted first for a float result; of floats the sum is, for an integer or a narrower float.
  /// Operands of two dtypes are converted to this dtype if it is an integer's, or if neither of them holds both; they
  /// need no common dtype then. f8e4m3fn and f8e5m2 are converted to f16, for float results of 16 bits and more.
  /// Products of bools are "or" of "and"s, or counts as integers.
  std::optional<DType> preferred_element_type = std::nullopt;
  Precision precision = Precision::normal;
};
/// [m, k] times [k, n] = [m, n]; leading dims are batches that broadcast, a vector counts as a row on the left and a
/// column on the right (jnp.matmul). With dims given (lax.dot_general): the result has batch dims, then a's free dims,
/// then b's. Products accumulate in at least f32 whatever the result's dtype, integers modulo the result's dtype.
Value dot(Operand a, Operand b, DotParams params = {});

// -- reductions and scans
/// The axes of a reduction: one, several ({0, 2}), or (by default) all; negative ones count from the last.
class Axes {
 public:
  Axes() = default;
  Axes(int64_t axis) : axes_(std::vector<int64_t>{axis}) {}  // NOLINT: implicit on purpose
  Axes(int axis) : Axes(static_cast<int64_t>(axis)) {}       // NOLINT
  Axes(std::initializer_list<int64_t> axes) : axes_(std::vector<int64_t>(axes)) {}
  Axes(std::vector<int64_t> axes) : axes_(std::move(axes)) {}  // NOLINT
  const std::optional<std::vector<int64_t>>& list() const { return axes_; }

 private:
  std::optional<std::vector<int64_t>> axes_;
};
struct ReduceParams {
  Axes axis = {};
  bool keepdims = false;  ///< reduced dims stay, with size 1
};
/// bools and ints of less than 32 bits add up in 32 bits, as in jnp; prod too
Value sum(Operand x, ReduceParams params = {});
Value prod(Operand x, ReduceParams params = {});
Value max(Operand x, ReduceParams params = {});  ///< NaN wins; of bools: or
Value min(Operand x, ReduceParams params = {});
Value reduce_and(Operand x, ReduceParams params = {});  ///< of bools: jnp.all; of ints: bitwise
Value reduce_or(Operand x, ReduceParams params = {});   ///< of bools: jnp.any

struct ArgParams {
  std::optional<int64_t> axis = std::nullopt;  ///< without: the row-major position in the whole of x
  bool keepdims = false;
  DType index_dtype = i32;
};
Value argmax(Operand x, ArgParams params = {});  ///< the first of equals, the first NaN before all
Value argmin(Operand x, ArgParams params = {});

struct ScanParams {
  int64_t axis = 0;
  bool reverse = false;  ///< running from the last element
};
Value cumsum(Operand x, ScanParams params = {});  ///< inclusive, as all of these
Value cumprod(Operand x, ScanParams params = {});
Value cummax(Operand x, ScanParams params = {});  ///< NaN wins
Value cummin(Operand x, ScanParams params = {});
Value cumlogsumexp(Operand x, ScanParams params = {});  ///< log of the running sum of e^x, which does not overflow
/// f(...f(f(x0, x1), x2)..., xn) for every n, for an associative f of two Values of one shape: log2 of the axis's size
/// rounds of f.
Value associative_scan(FunctionRef<Value(Value, Value)> f, Operand x, ScanParams params = {});

// -- the grid
/// This program's position on a grid axis and the grid's size along it, i32. Axes that vmap added are not counted.
Value program_id(int64_t axis, Loc loc = Loc::here());
Value num_programs(int64_t axis, Loc loc = Loc::here());

}  // namespace tessera
