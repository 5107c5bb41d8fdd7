// The k greatest elements of each row and where they are. Every block of a row is sorted by one program and leaves its
// first k; what is left is a shorter row, of which the same is done until it is one block. A block holds at least four
// times k elements, so each pass leaves at most a quarter. The order is that of jax.lax.top_k: total, with NaN above
// infinity, 0 above -0 and NaN of the other sign below all; equals by the lowest index. Shanbhag, Pirk and Madden,
// Efficient Top-K Query Processing on Massively Parallel Hardware (2018). Read next: blur.h.
#pragma once
#include <algorithm>

#include "samples/kernels/passes.h"

namespace tessera::kernels {

/// x as unsigned integers of its width, the least for the greatest: descending in the total order of IEEE 754.
inline Value descending_order(const Value& x) {
  const DType t = x.dtype();
  if (is_unsigned_int(t)) return ~x;
  const uint64_t sign = uint64_t{1} << (bits(t) - 1);
  Value b = bitcast(x, unsigned_of(bits(t)));
  if (is_signed_int(t)) return b ^ (sign - 1);
  return where((b & sign) != 0, b, b ^ (sign - 1));
}
/// Its inverse, as dtype t.
inline Value from_descending_order(const Value& key, DType t) {
  if (is_unsigned_int(t)) return ~key;
  const uint64_t sign = uint64_t{1} << (bits(t) - 1);
  Value b = is_signed_int(t) ? key ^ (sign - 1) : where((key & sign) != 0, key, key ^ (sign - 1));
  return bitcast(b, t);
}

namespace top {
inline constexpr int64_t kBlock = 1024;  // at least

struct Pass {
  Shape shape;  // of what it reads
  int64_t k, size, count;
  Pass(const Shape& s, int64_t wanted)
      : shape(s),
        k(wanted),
        size(std::min(std::max(kBlock, 4 * power_of_two(k)), power_of_two(s.back()))),
        count(cdiv(s.back(), size)) {}
  /// k of every block, in all.
  Shape left() const {
    Shape s = shape;
    s.back() = count * k;
    return s;
  }
  std::vector<GridSize> grid() const {
    std::vector<GridSize> g(shape.begin(), shape.end() - 1);
    g.emplace_back(count);
    return g;
  }
  BlockSpec spec(int64_t last, Loc loc) const { return part_of_row(shape.size(), last, loc); }
};

/// One pass over elements of type x (first) or over the keys and indices that one has left; the last one writes values
/// of dtype `values`, the others keys.
inline PallasCall call(const Pass& p, DType read, bool first, std::optional<DType> values, Loc loc) {
  const DType key = unsigned_of(bits(read)), written = values.value_or(key);
  const auto kernel = [=](const std::vector<Ref>& refs) {
    const size_t rank = p.shape.size();
    const Value at = program_id(static_cast<int64_t>(rank) - 1) * p.size + iota(i32, {p.size});
    Value keys = first ? descending_order(refs[0][all]) : Value(refs[0][all]);
    // What hangs over the end comes after its equals: the sort is stable.
    if (p.shape.back() % p.size)
      keys = where(at < p.shape.back(), keys, bits(key) == 64 ? ~uint64_t{0} : (uint64_t{1} << bits(key)) - 1);
    const std::vector<Value> sorted = sort({keys, first ? at : Value(refs[1][all])}, {.axis = 0});
    const Value best = slice(sorted[0], {0}, {p.k});
    refs[first ? 1 : 2][all] = values ? from_descending_order(best, *values) : best;
    refs[first ? 2 : 3][all] = slice(sorted[1], {0}, {p.k});
  };
  std::vector<BlockSpec> in(first ? 1 : 2, p.spec(p.size, loc)), out(2, p.spec(p.k, loc));
  return spec::make_pallas_call({first ? 3 : 4, kernel},
                                {.out_shape = {Type(p.left(), written), Type(p.left(), i32)},
                                 .grid = p.grid(),
                                 .in_specs = in,
                                 .out_specs = out,
                                 .name = "top_k"},
                                loc);
}
}  // namespace top

/// The k greatest elements along the last axis, in descending order, and their positions there (i32): [..., k] each, as
/// jax.lax.top_k. x: integers or floats of 8 bits and more, rows of at least k and less than 2^31 elements. SpecError
/// otherwise.
template <class A>
std::pair<A, A> top_k(const Passes<A>& passes, const A& x, int64_t k, Loc loc = Loc::here()) {
  const Checks c{"top_k", loc};
  const Type t(x);
  c.require(t.dtype != boolean && !is_int4(t.dtype),
            "x is " + std::string(name(t.dtype)) + ", not integers or floats of 8 bits and more");
  axis_of(c, "x", t, -1);
  c.require(t.shape.back() < int64_t{1} << 31,
            "rows of x have " + std::to_string(t.shape.back()) + " elements, not less than 2^31");
  c.require(k >= 0 && k <= t.shape.back(),
            "k is " + std::to_string(k) + ", but rows have " + std::to_string(t.shape.back()) + " elements");
  Shape none = t.shape;
  none.back() = k;
  if (num_elements(none) == 0) return {passes.constant(Array(none, t.dtype)), passes.constant(Array(none, i32))};
  std::vector<A> left = {x};
  Shape shape = t.shape;
  for (bool first = true;; first = false) {
    const top::Pass p(shape, k);
    const bool last = p.count == 1;
    left = passes.call(top::call(p, first ? t.dtype : unsigned_of(bits(t.dtype)), first,
                                 last ? std::optional(t.dtype) : std::nullopt, loc),
                       left);
    if (last) return {left[0], left[1]};
    shape = p.left();
  }
}
inline std::pair<Array, Array> top_k(const Array& x, int64_t k, Loc loc = Loc::here()) {
  return top_k(passes(), x, k, loc);
}

}  // namespace tessera::kernels
