// The plain parts of a transformer: rows of a table by token, a product with a matrix (with a residual added, and heads
// split or joined on the way), the gated product of SwiGLU, and new rows of a cache. Products are tiles with the whole
// inner dim in one dot, which the compiler stages through shared memory. Shazeer, GLU Variants Improve Transformer
// (2020), for SwiGLU. The attention between them: flash_attention.h.
#pragma once
#include <algorithm>

#include "samples/kernels/support.h"

namespace tessera::kernels {

namespace linear_ {
inline int64_t product(const Shape& s, size_t from) {
  int64_t n = 1;
  for (size_t d = from; d < s.size(); ++d) n *= s[d];
  return n;
}
inline constexpr int64_t kRows = 64, kColumns = 64;

/// [batch, length, ...] in blocks of `rows` rows; the last dims whole, or `first` elements of the third one.
inline BlockSpec rows_of(const Shape& s, int64_t rows, std::optional<int64_t> first, Loc loc) {
  std::vector<BlockDim> block = {squeezed, rows};
  for (size_t d = 2; d < s.size(); ++d) block.emplace_back(d == 2 && first ? *first : std::max<int64_t>(s[d], 1));
  const size_t rank = s.size();
  const bool columns = first.has_value();
  BlockSpec spec{block, IndexMap::of(3, 0, [rank, columns](const std::vector<Value>& i, const std::vector<Ref>&) {
                   std::vector<BlockIndex> at = {i[0], i[1]};
                   if (rank > 2) at.emplace_back(columns ? Operand(i[2]) : Operand(0));
                   for (size_t d = 3; d < rank; ++d) at.emplace_back(0);
                   return Indices(at);
                 })};
  spec.loc = loc;
  return spec;
}
inline void check(const Checks& c, const Type& x, const std::vector<std::pair<const char*, const Type*>>& matrices) {
  c.floats("x", x);
  c.require(x.rank() >= 3, "x has shape " + tessera::to_string(x.shape) + ", not [batch, length, ...]");
  const int64_t k = product(x.shape, 2);
  c.require(k > 0, "x has shape " + tessera::to_string(x.shape) + ": there is nothing to multiply");
  for (const auto& [name, type] : matrices) {
    c.dtype(name, *type, {x.dtype});
    c.rank(name, *type, 2, "[k, columns]");
    c.require(type->shape[0] == k, "rows of x have " + std::to_string(k) + " elements but " + name + " has " +
                                       std::to_string(type->shape[0]) + " rows");
  }
}
}  // namespace linear_

/// Row tokens[b, i] of table [rows, columns] (f32, f16 or bf16), for tokens i32 [batch, length]: [batch, length,
/// columns]. Tokens below 0 count from the end, and those that the table does not have are its first or last row. The
/// call's arguments are table, tokens. SpecError for other shapes or dtypes.
inline PallasCall embed(const Type& table, const Type& tokens, Loc loc = Loc::here()) {
  const Checks c{"embed", loc};
  c.floats("table", table);
  c.rank("table", table, 2, "[rows, columns]");
  c.require(table.shape[0] > 0, "table has shape " + tessera::to_string(table.shape) + ", which has no rows");
  c.dtype("tokens", tokens, {i32});
  c.rank("tokens", tokens, 2, "[batch, length]");
  const int64_t batch = tokens.shape[0], length = tokens.shape[1], columns = std::max<int64_t>(table.shape[1], 1),
                rows = std::min<int64_t>(power_of_two(length), 8);
  const BlockSpec token_block{
      {squeezed, rows}, [](Value b, Value i) { return Indices{b, i}; }, MemorySpace::vmem, {}, loc};
  const BlockSpec out_block{
      {squeezed, rows, columns}, [](Value b, Value i) { return Indices{b, i, 0}; }, MemorySpace::vmem, {}, loc};
  return pallas_call(
      [](Ref t, Ref token, Ref o) {
        if (t.shape()[1] > 0) o[all] = t[{token[all], all}];
      },
      {.out_shape = ShapeDtype(Type({batch, length, table.shape[1]}, table.dtype)),
       .grid = {batch, cdiv(length, rows)},
       .in_specs = {no_block_spec, token_block},
       .out_specs = out_block,
       .name = "embed",
       .in_shape = {table, tokens}},
      loc);
}

/// x [batch, length, ...] times weights [k, n], where x's dims from the third on hold k elements: `out`, [batch,
/// length, ...] with n elements from the third dim on, so that heads are split and joined without moving anything. f32,
/// f16 or bf16 alike; sums are f32. SpecError for other shapes or dtypes.
inline PallasCall linear(const Type& x, const Type& weights, const Shape& out,
                         const std::optional<Type>& residual = std::nullopt, Loc loc = Loc::here()) {
  const Checks c{"linear", loc};
  linear_::check(c, x, {{"weights", &weights}});
  c.require(
      out.size() >= 3 && out[0] == x.shape[0] && out[1] == x.shape[1] && linear_::product(out, 2) == weights.shape[1],
      "the result " + tessera::to_string(out) + " does not hold the batch and length of x, " +
          tessera::to_string(x.shape) + ", and " + std::to_string(weights.shape[1]) + " columns");
  const Type result(out, x.dtype);
  if (residual) {
    c.dtype("residual", *residual, {x.dtype});
    c.shape("residual", *residual, out, "the result's");
  }
  // of one element of the third dim
  const int64_t k = weights.shape[0], inner = std::max<int64_t>(linear_::product(out, 3), 1);
  const int64_t rows = std::min(linear_::kRows, power_of_two(out[1])),
                units = std::min(power_of_two(out[2]), std::max<int64_t>(linear_::kColumns / power_of_two(inner), 1)),
                columns = units * inner;
  const auto kernel = [=](const std::vector<Ref>& r) {
    const Ref &x_ref = r[0], &w = r[1], &o = r[residual ? 3 : 2];
    if (linear_::product(out, 2) == 0) return;
    Value sums = dot(x_ref.reshape({rows, k})[all], w[all], {.preferred_element_type = f32});
    if (residual) sums = sums + cast(r[2].reshape({rows, columns})[all], f32);
    o.reshape({rows, columns})[all] = cast(sums, o.dtype());
  };
  const BlockSpec w_block{
      {k, columns}, [](Value, Value, Value j) { return Indices{0, j}; }, MemorySpace::vmem, {}, loc};
  const BlockSpec o_block = linear_::rows_of(out, rows, units, loc);
  PallasCallParams call;
  call.grid = {out[0], cdiv(out[1], rows), linear_::product(out, 2) == 0 ? 0 : cdiv(out[2], units)};
  std::vector<BlockSpec> specs = {linear_::rows_of(x.shape, rows, std::nullopt, loc), w_block};
  std::vector<ShapeDtype> inputs = {x, weights};
  if (residual) {
    specs.push_back(o_block);
    inputs.push_back(*residual);
  }
  call.in_specs = specs;
  call.in_shape = inputs;
  call.out_specs = o_block;
  call.out_shape = ShapeDtype(result);
  call.name = "linear";
  return pallas_call_of(inputs.size() + 1, kernel, std::move(call), loc);
}
/// The same plus `residual`, of the result's shape and dtype; the call's third argument.
inline PallasCall linear_and_add(const Type& x, const Type& weights, const Type& residual, Loc loc = Loc::here()) {
  return linear(x, weights, residual.shape, residual, loc);
}

/// silu(x gate) * (x up) for x [batch, length, k] and matrices [k, n]: [batch, length, n]; silu(t) = t / (1 + e^-t).
/// Dtypes as linear.
inline PallasCall swiglu(const Type& x, const Type& gate, const Type& up, Loc loc = Loc::here()) {
  const Checks c{"swiglu", loc};
  linear_::check(c, x, {{"gate", &gate}, {"up", &up}});
  c.shape("up", up, gate.shape, "that of gate");
  const int64_t k = gate.shape[0], n = gate.shape[1];
  const Shape out = {x.shape[0], x.shape[1], n};
  const int64_t rows = std::min(linear_::kRows, power_of_two(out[1])), columns = std::min<int64_t>(power_of_two(n), 32);
  const BlockSpec w_block{
      {k, columns}, [](Value, Value, Value j) { return Indices{0, j}; }, MemorySpace::vmem, {}, loc};
  const BlockSpec x_block = linear_::rows_of(x.shape, rows, std::nullopt, loc),
                  o_block = linear_::rows_of(out, rows, columns, loc);
  return pallas_call(
      [=](Ref x_ref, Ref g, Ref u, Ref o) {
        const Value input = x_ref.reshape({rows, k})[all];
        Value a = dot(input, g[all], {.preferred_element_type = f32}),
              b = dot(input, u[all], {.preferred_element_type = f32});
        o[all] = cast(a * logistic(a) * b, o.dtype());
      },
      {.out_shape = ShapeDtype(Type(out, x.dtype)),
       .grid = {out[0], cdiv(out[1], rows), cdiv(n, columns)},
       .in_specs = {x_block, w_block, w_block},
       .out_specs = o_block,
       .name = "swiglu",
       .in_shape = {x, gate, up}},
      loc);
}

/// cache [batch, most, heads, head_dim] with rows [batch, length, heads, head_dim] from row start[0] on (i32 [1]); rows
/// that would lie behind its end go to its last row, and those before its beginning (start < 0) to its first; where
/// several go to one row, the last of them stays. The result is aliased to the cache: where nobody needs that any more,
/// the rows alone are written. The call's arguments are start, cache, rows.
inline PallasCall update_cache(const Type& start, const Type& cache, const Type& rows, Loc loc = Loc::here()) {
  const Checks c{"update_cache", loc};
  c.dtype("start", start, {i32});
  c.shape("start", start, {1}, "one number");
  c.rank("cache", cache, 4, "[batch, most, heads, head_dim]");
  c.dtype("rows", rows, {cache.dtype});
  c.shape("rows", rows, {cache.shape[0], rows.rank() > 1 ? rows.shape[1] : 0, cache.shape[2], cache.shape[3]},
          "the batch, any length, the heads of cache");
  const std::vector<BlockDim> row = {squeezed, squeezed, std::max<int64_t>(cache.shape[2], 1),
                                     std::max<int64_t>(cache.shape[3], 1)};
  const BlockSpec from{row, [](Value b, Value i, Ref) { return Indices{b, i, 0, 0}; }, MemorySpace::vmem, {}, loc};
  const BlockSpec to{row,
                     [](Value b, Value i, Ref first) { return Indices{b, maximum(first[0] + i, 0), 0, 0}; },
                     MemorySpace::vmem,
                     {},
                     loc};
  return pallas_call([](Ref, Ref, Ref r, Ref o) { o[all] = r[all]; },
                     {.out_shape = ShapeDtype(cache),
                      .grid_spec = GridSpec{.num_scalar_prefetch = 1,
                                            .grid = {cache.shape[0], rows.shape[1]},
                                            .in_specs = {no_block_spec, from},
                                            .out_specs = to},
                      .input_output_aliases = {{1, 0}},
                      .name = "update_cache",
                      .in_shape = {start, cache, rows}},
                     loc);
}

}  // namespace tessera::kernels
