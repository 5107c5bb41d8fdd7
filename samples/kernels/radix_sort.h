// Radix sort along the last axis, least significant digit first: stable, any length, any number of rows. Per digit of
// four bits three passes of blocks: how often each block has each digit; the prefix sums of these counts, digit by
// digit (prefix_sum.h); and every element to its place. Blocks of a pass run at once. An element's rank among those of
// its block with its digit comes from a scan of packed counters, two to a word. Satish, Harris and Garland, Designing
// Efficient Sorting Algorithms for Manycore GPUs (2009); Merrill and Grimshaw, High Performance and Scalable Radix
// Sorting (2011). Read next: top_k.h.
#pragma once
#include <algorithm>

#include "samples/kernels/prefix_sum.h"

namespace tessera::kernels {

/// x as unsigned integers of its width in the order of jax.lax.sort: -0 and 0 are equal, all NaNs are equal and last.
inline Value sort_order(const Value& x) {
  const DType t = x.dtype();
  if (is_unsigned_int(t)) return x;
  const DType u = unsigned_of(bits(t));
  const uint64_t sign = uint64_t{1} << (bits(t) - 1);
  Value b = bitcast(x, u);
  if (is_signed_int(t)) return b ^ sign;
  const FloatFormat f = float_format(t);
  const uint64_t infinity = f.greatest + (f.has_infinity ? 1 : 0);
  Value magnitude = b & (sign - 1);
  Value ordered = where((b & sign) != 0, ~b, b | sign);
  return where(magnitude > infinity, 2 * sign - 1, where(magnitude == 0, sign, ordered));
}

namespace radix {
inline constexpr int kDigitBits = 4;
inline constexpr int64_t kDigits = 1 << kDigitBits, kWords = kDigits / 2;
inline constexpr int64_t kBlock = 1024;  // at most: ranks have 16 bits

struct Blocks {
  Shape rows;
  int64_t n, size, count;
  explicit Blocks(const Shape& shape)
      : rows(shape.begin(), shape.end() - 1),
        n(shape.back()),
        size(std::min(kBlock, power_of_two(n))),
        count(cdiv(n, size)) {}
  std::vector<GridSize> grid() const {
    std::vector<GridSize> g(rows.begin(), rows.end());
    g.emplace_back(count);
    return g;
  }
  Value number() const { return program_id(static_cast<int64_t>(rows.size())); }  // of the block in its row
  /// The program's row of an array, and there these positions.
  std::vector<IndexItem> in_row(IndexItem positions) const {
    std::vector<IndexItem> at;
    for (size_t d = 0; d < rows.size(); ++d) at.emplace_back(program_id(static_cast<int64_t>(d)));
    at.push_back(std::move(positions));
    return at;
  }
  Shape counts() const {
    Shape s = rows;
    s.push_back(kDigits * count);
    return s;
  }
  BlockSpec spec(Loc loc) const { return part_of_row(rows.size() + 1, size, loc); }
  BackendCompilerParams parallel() const {
    return tpu::CompilerParams{.dimension_semantics = std::vector<std::string>(rows.size() + 1, "parallel")};
  }
};
/// The digit of each element [size], i32; kDigits where the block hangs over the row's end.
inline Value digits(const Value& x, int shift, const Blocks& b) {
  const Value order = sort_order(x);
  const Value digit = cast((order >> shift) & (kDigits - 1), i32);
  if (b.n % b.size == 0) return digit;
  return where(b.number() * b.size + iota(i32, {b.size}) < b.n, digit, static_cast<int32_t>(kDigits));
}
/// One counter of 16 bits per digit: word w holds those of digits w and w + kWords. [size, kWords], 1 where the element
/// has the digit.
inline Value packed(const Value& digit) {
  const Value word = iota(i32, {digit.shape()[0], kWords}, 1), mine = expand_dims(digit, {1});
  return where(word == mine, uint32_t{1}, where(word + kWords == mine, uint32_t{1} << 16, uint32_t{0}));
}
inline Value low(const Value& words) { return cast(words & 0xffff, i32); }
inline Value high(const Value& words) { return cast(words >> 16, i32); }

/// [..., kDigits * count] i32: how many elements of block b have digit d, at d * count + b.
inline PallasCall count_call(const Type& keys, int shift, Loc loc) {
  const Blocks b(keys.shape);
  return pallas_call(
      [=](Ref x, Ref o) {
        const Value totals = sum(packed(digits(x[all], shift, b)), {.axis = 0});  // [kWords]
        o[b.in_row(ds(b.number(), kWords, b.count))] = low(totals);
        o[b.in_row(ds(b.number() + kWords * b.count, kWords, b.count))] = high(totals);
      },
      {.out_shape = ShapeDtype(Type(b.counts(), i32)),
       .grid = b.grid(),
       .in_specs = b.spec(loc),
       .out_specs = no_block_spec,
       .name = "radix_sort_count",
       .compiler_params = b.parallel()},
      loc);
}
/// Every key and value to its place: firsts[..., d * count + b] and on are those of block b's elements with digit d.
inline PallasCall place_call(const Type& keys, const std::vector<Type>& values, int shift, Loc loc) {
  const Blocks b(keys.shape);
  const size_t arrays = 1 + values.size();
  std::vector<ShapeDtype> out_shape = {keys};
  for (const Type& v : values) out_shape.push_back(v);
  std::vector<BlockSpec> in(arrays, b.spec(loc)), out(arrays, no_block_spec);
  in.insert(in.begin(), no_block_spec);
  const auto kernel = [=](const std::vector<Ref>& refs) {
    const Ref& firsts = refs[0];
    const Value key = refs[1][all], digit = digits(key, shift, b);
    const Value mine = packed(digit), before = cumsum(mine, {.axis = 0}) - mine;  // [size, kWords]
    const Value word = iota(i32, {b.size, kWords}, 1), d = expand_dims(digit, {1});
    const Value rank = sum(where(word == d, low(before), where(word + kWords == d, high(before), 0)), {.axis = 1});
    const Value inside = digit < static_cast<int32_t>(kDigits);
    const Value place = rank + load(firsts, b.in_row(digit * b.count + b.number()), {.mask = inside, .other = 0});
    for (size_t a = 0; a < arrays; ++a)
      store(refs[1 + arrays + a], b.in_row(place), refs[1 + a][all], {.mask = inside, .unique_indices = true});
  };
  return spec::make_pallas_call({static_cast<int>(1 + 2 * arrays), kernel},
                                {.out_shape = out_shape,
                                 .grid = b.grid(),
                                 .in_specs = in,
                                 .out_specs = out,
                                 .name = "radix_sort_place",
                                 .compiler_params = b.parallel()},
                                loc);
}
}  // namespace radix

/// keys sorted along the last axis, ascending, and each of `values` in the same order: as jax.lax.sort, stable, NaN
/// last and -0 equal to 0. keys: integers or floats of 8 bits and more, with one dim at least and rows of less than
/// 2^31 elements; values: of keys' shape, of any dtype. Returns the keys, then the values. SpecError otherwise.
template <class A>
std::vector<A> radix_sort(const Passes<A>& passes, const A& keys, const std::vector<A>& values = {},
                          Loc loc = Loc::here()) {
  const Checks c{"radix_sort", loc};
  const Type t(keys);
  c.require(t.dtype != boolean && !is_int4(t.dtype),
            "keys are " + std::string(name(t.dtype)) + ", not integers or floats of 8 bits and more");
  axis_of(c, "keys", t, -1);
  c.require(t.shape.back() < int64_t{1} << 31,
            "rows of keys have " + std::to_string(t.shape.back()) + " elements, not less than 2^31");
  std::vector<Type> value_types;
  for (size_t i = 0; i < values.size(); ++i) {
    value_types.emplace_back(values[i]);
    c.shape("values[" + std::to_string(i) + "]", value_types.back(), t.shape, "the shape of keys");
  }
  std::vector<A> arrays = {keys};
  arrays.insert(arrays.end(), values.begin(), values.end());
  for (int shift = 0; shift < bits(t.dtype) && t.shape.back() > 1 && num_elements(t.shape) > 0;
       shift += radix::kDigitBits) {
    const A counts = passes.call(radix::count_call(t, shift, loc), {arrays[0]})[0];
    std::vector<A> arguments = {prefix_sum(passes, counts, {.exclusive = true}, loc)};
    arguments.insert(arguments.end(), arrays.begin(), arrays.end());
    arrays = passes.call(radix::place_call(t, value_types, shift, loc), arguments);
  }
  return arrays;
}
inline std::vector<Array> radix_sort(const Array& keys, const std::vector<Array>& values = {}, Loc loc = Loc::here()) {
  return radix_sort(passes(), keys, values, loc);
}

}  // namespace tessera::kernels
