// Matmul with weights in 8 or 4 bits and activations in floats, as language models are served: the weights are never in
// memory as floats. A program makes one tile of the result; weights are widened on their way into shared memory, and
// sums are scaled once per group of rows of the weights. Symmetric scales per column, or per column and group of rows,
// as in Dettmers et al., LLM.int8() (2022), and Frantar et al., GPTQ (2022).
#pragma once
#include <algorithm>

#include "samples/kernels/support.h"

namespace tessera::kernels {

struct QuantizedMatmulParams {
  std::optional<DType> out_dtype = std::nullopt;  ///< else x's
  int64_t block_rows = 64, block_columns = 64;    ///< at most
};

namespace quantized {
/// bits 8: weights i8 [k, n]. bits 4: u8 [k / 2, n], row 2 i in the lower four bits of row i and row 2 i + 1 in the
/// upper ones, two's complement.
inline PallasCall matmul(const std::string& name, int bits, const Type& x, const Type& weights, const Type& scales,
                         const QuantizedMatmulParams& params, Loc loc) {
  const Checks c{name, loc};
  const int64_t packed = 8 / bits;  // rows to a byte
  c.floats("x", x);
  c.rank("x", x, 2, "[rows, k]");
  c.dtype("weights", weights, {bits == 8 ? i8 : u8});
  c.rank("weights", weights, 2, bits == 8 ? "[k, columns]" : "[k / 2, columns]");
  c.floats("scales", scales);
  c.rank("scales", scales, 2, "[groups, columns]");
  const int64_t m = x.shape[0], k = x.shape[1], n = weights.shape[1], groups = scales.shape[0];
  c.require(weights.shape[0] * packed == k, "x has " + std::to_string(k) + " columns but weights hold " +
                                                std::to_string(weights.shape[0] * packed) + " rows");
  c.require(scales.shape[1] == n,
            "weights have " + std::to_string(n) + " columns but scales " + std::to_string(scales.shape[1]));
  c.require(k > 0, "x has shape " + tessera::to_string(x.shape) + ": there is nothing to multiply");
  c.require(groups > 0 && k % groups == 0,
            std::to_string(k) + " rows of weights do not make " + std::to_string(groups) + " groups alike");
  const int64_t size = k / groups;
  c.require(size % packed == 0, "groups of " + std::to_string(size) + " rows do not begin with a byte");
  c.require(params.block_rows > 0 && params.block_columns > 0, "blocks of " + std::to_string(params.block_rows) +
                                                                   " rows and " + std::to_string(params.block_columns) +
                                                                   " columns");
  const DType out = params.out_dtype.value_or(x.dtype);
  c.floats("the result", Type({m, n}, out));
  const int64_t bm = std::min(params.block_rows, power_of_two(m)), bn = std::min(params.block_columns, power_of_two(n)),
                bytes = size / packed;

  const BlockSpec x_block = {{bm, k}, [](Value i, Value) { return Indices{i, 0}; }, MemorySpace::vmem, {}, loc};
  const BlockSpec w_block = {
      {k / packed, bn}, [](Value, Value j) { return Indices{0, j}; }, MemorySpace::vmem, {}, loc};
  const BlockSpec s_block = {{groups, bn}, [](Value, Value j) { return Indices{0, j}; }, MemorySpace::vmem, {}, loc};
  const BlockSpec o_block = {{bm, bn}, [](Value i, Value j) { return Indices{i, j}; }, MemorySpace::vmem, {}, loc};
  return pallas_call(
      [=](Ref x_ref, Ref w, Ref scale, Ref o) {
        // Integers of 8 bits are exact in each of x's dtypes.
        const auto product = [&](const Value& first, const Value& group) {
          if (bits == 8)
            return dot(x_ref[{all, ds(first, size)}], cast(w[{ds(first, size), all}], x_ref.dtype()),
                       {.preferred_element_type = f32});
          const Value pairs = cast(w[{ds(group * bytes, bytes), all}], i32);  // [bytes, bn]
          const Ref x_pairs = x_ref.reshape({bm, k / 2, 2});
          const auto half = [&](int64_t which) {
            const Value nibble = which == 0 ? pairs & 15 : pairs >> 4;
            return dot(x_pairs[{all, ds(group * bytes, bytes), which}], cast((nibble ^ 8) - 8, x_ref.dtype()),
                       {.preferred_element_type = f32});
          };
          return half(0) + half(1);
        };
        Value sums = fori_loop(0, groups, zeros({bm, bn}), [&](Value g, Value total) {
          return total + product(g * size, g) * cast(scale[{ds(g, 1), all}], f32);
        });
        o[all] = cast(sums, o.dtype());
      },
      {.out_shape = ShapeDtype(Type({m, n}, out)),
       .grid = {cdiv(m, bm), cdiv(n, bn)},
       .in_specs = {x_block, w_block, s_block},
       .out_specs = o_block,
       .name = name,
       .in_shape = {x, weights, scales}},
      loc);
}
}  // namespace quantized

/// x [m, k] (f32, f16 or bf16) times weights i8 [k, n] * scales: [1, n] for one per column, [groups, n] for one per
/// column and k / groups rows. Sums are f32; the result [m, n] is of x's dtype. SpecError for other shapes or dtypes.
inline PallasCall int8_matmul(const Type& x, const Type& weights, const Type& scales,
                              const QuantizedMatmulParams& params = {}, Loc loc = Loc::here()) {
  return quantized::matmul("int8_matmul", 8, x, weights, scales, params, loc);
}
/// The same of 4-bit weights, two to a byte: u8 [k / 2, n], whose byte i of a column holds row 2 i in its lower four
/// bits and row 2 i + 1 in its upper ones, each from -8 to 7 in two's complement. Groups have an even number of rows.
inline PallasCall int4_matmul(const Type& x, const Type& weights, const Type& scales,
                              const QuantizedMatmulParams& params = {}, Loc loc = Loc::here()) {
  return quantized::matmul("int4_matmul", 4, x, weights, scales, params, loc);
}

}  // namespace tessera::kernels
