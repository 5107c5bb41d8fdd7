// Prefix sums (scans) along an axis of any length: sums of blocks, their prefix sums (by the same function), then every
// block again from what lies before it. All blocks of a pass run at once; the array is read twice and written once. The
// order of additions hangs on the length alone. Blelloch, Prefix Sums and Their Applications (1990); reduce-then-scan
// as in Merrill and Grimshaw, Parallel Scan for Stream Architectures (2009). Read next: radix_sort.h, which uses it.
#pragma once
#include <algorithm>

#include "samples/kernels/passes.h"

namespace tessera::kernels {

struct PrefixSumParams {
  int64_t axis = -1;
  bool exclusive = false;  ///< without the element itself: the first sum is 0
  bool reverse = false;    ///< from the last element
};

namespace scan {
inline constexpr int64_t kBlock = 2048;              // elements along the axis, if it is the last one
inline constexpr int64_t kRows = 64, kColumns = 64;  // else: elements along the axis and the last one

/// An array cut into blocks along `axis` and, if that is another one, the last axis; every other dim is a grid axis and
/// not seen.
struct Blocks {
  Shape shape;
  size_t axis;
  bool last;  // axis is the last one
  int64_t size, count;
  Blocks(const Shape& s, size_t a) : shape(s), axis(a), last(a + 1 == s.size()) {
    size = std::max<int64_t>(std::min(shape[axis], last ? kBlock : kRows), 1);
    count = cdiv(shape[axis], size);
  }
  int64_t columns() const { return std::max<int64_t>(std::min(shape.back(), kColumns), 1); }
  Shape block() const { return last ? Shape{size} : Shape{size, columns()}; }
  Shape totals() const {  // one per block
    Shape s = shape;
    s[axis] = count;
    return s;
  }
  std::vector<GridSize> grid() const {
    std::vector<GridSize> g;
    for (size_t d = 0; d < shape.size(); ++d)
      g.emplace_back(d == axis ? count : d + 1 == shape.size() ? cdiv(shape[d], columns()) : shape[d]);
    return g;
  }
  /// `along` elements of the array (or, squeezed, one of its totals) at the program's place.
  BlockSpec spec(BlockDim along, Loc loc) const {
    std::vector<BlockDim> dims;
    for (size_t d = 0; d < shape.size(); ++d)
      dims.push_back(d == axis ? along : d + 1 == shape.size() ? BlockDim(columns()) : BlockDim(squeezed));
    return block_of_program(dims, loc);
  }
  /// The block in the sums' dtype, zeros where it hangs over the end of the axis.
  Value load(const Ref& x, DType t) const {
    Value v = cast(x[all], t);
    if (shape[axis] % size == 0) return v;
    return where(program_id(static_cast<int64_t>(axis)) * size + iota(i32, block(), 0) < shape[axis], v, 0);
  }
};

/// The block's prefix sums along its first dim.
inline Value within(const Value& v, const PrefixSumParams& p) {
  Value inclusive = cumsum(v, {.axis = 0, .reverse = p.reverse});
  if (!p.exclusive) return inclusive;
  const Shape s = v.shape();
  Shape first = s, start(s.size(), 0), limit = s;
  first[0] = 1;
  if (p.reverse) start[0] = 1;
  else limit[0] -= 1;
  Value others = slice(inclusive, start, limit), nothing = zeros(first, v.dtype());
  return p.reverse ? concatenate({others, nothing}, 0) : concatenate({nothing, others}, 0);
}

inline PallasCall total_call(const Type& x, size_t axis, DType sums, Loc loc) {
  const Blocks b(x.shape, axis);
  return pallas_call([=](Ref in, Ref o) { o[all] = cast(sum(b.load(in, sums), {.axis = 0}), sums); },
                     {.out_shape = ShapeDtype(Type(b.totals(), sums)),
                      .grid = b.grid(),
                      .in_specs = b.spec(b.size, loc),
                      .out_specs = b.spec(squeezed, loc),
                      .name = "prefix_sum_totals"},
                     loc);
}
/// With `before`, an argument more: what is added to each block.
inline PallasCall scan_call(const Type& x, size_t axis, DType sums, DType result, const PrefixSumParams& p, bool before,
                            Loc loc) {
  const Blocks b(x.shape, axis);
  const PallasCallParams params = {
      .out_shape = ShapeDtype(Type(x.shape, result)),
      .grid = b.grid(),
      .in_specs = before ? BlockSpecs{b.spec(b.size, loc), b.spec(squeezed, loc)} : BlockSpecs{b.spec(b.size, loc)},
      .out_specs = b.spec(b.size, loc),
      .name = "prefix_sum"};
  if (!before)
    return pallas_call([=](Ref in, Ref o) { o[all] = cast(within(b.load(in, sums), p), result); }, params, loc);
  return pallas_call(
      [=](Ref in, Ref offset, Ref o) { o[all] = cast(offset[all] + within(b.load(in, sums), p), result); }, params,
      loc);
}
template <class A>
A run(const Passes<A>& passes, const A& x, size_t axis, DType sums, DType result, PrefixSumParams p, Loc loc) {
  const Type t(x);
  if (Blocks(t.shape, axis).count <= 1) return passes.call(scan_call(t, axis, sums, result, p, false, loc), {x})[0];
  const A totals = passes.call(total_call(t, axis, sums, loc), {x})[0];
  PrefixSumParams before = p;
  before.exclusive = true;
  const A offsets = run(passes, totals, axis, sums, sums, before, loc);
  return passes.call(scan_call(t, axis, sums, result, p, true, loc), {x, offsets})[0];
}
}  // namespace scan

/// Sums of all elements of x up to each along an axis, as jnp.cumsum: of x's shape and dtype. Integers wrap; floats
/// narrower than f32 add up in f32 and are rounded once. x: integers or floats of 8 bits and more, at least one dim.
/// SpecError otherwise, and for an axis that x has not.
template <class A>
A prefix_sum(const Passes<A>& passes, const A& x, PrefixSumParams params = {}, Loc loc = Loc::here()) {
  const Checks c{"prefix_sum", loc};
  const Type t(x);
  c.require(t.dtype != boolean && !is_int4(t.dtype),
            "x is " + std::string(name(t.dtype)) + ", not integers or floats of 8 bits and more");
  const size_t axis = axis_of(c, "x", t, params.axis);
  return scan::run(passes, x, axis, is_narrow_float(t.dtype) ? f32 : t.dtype, t.dtype, params, loc);
}
inline Array prefix_sum(const Array& x, PrefixSumParams params = {}, Loc loc = Loc::here()) {
  return prefix_sum(passes(), x, params, loc);
}

}  // namespace tessera::kernels
