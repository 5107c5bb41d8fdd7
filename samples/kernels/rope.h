// Rotary position embedding: pairs of elements of each head are turned by an angle that grows with the position, so
// that products of queries and keys depend on distances. A program turns some positions of some heads; cosines and
// sines are made once per position and shared by its heads. Su et al., RoFormer (2021), which pairs neighbours;
// GPT-NeoX and Llama pair an element with the one half a head further on.
#pragma once
#include <algorithm>
#include <cmath>

#include "samples/kernels/support.h"

namespace tessera::kernels {

enum class RopePairs {
  interleaved,  ///< elements 2 i and 2 i + 1
  halves,       ///< elements i and i + head_dim / 2
};
struct RopeParams {
  RopePairs pairs = RopePairs::halves;
  double base = 10000;  ///< pair i of n turns by position * base^(-i / n)
};

inline constexpr int64_t kRopeBlock = 4096;  // elements of a program

/// x [batch, length, heads, head_dim] (f32, f16 or bf16) with pair i of every head turned by positions * base^(-2 i /
/// head_dim); positions i32 [batch, length]. In f32, as x's dtype. An angle is as exact as f32: at position p within
/// some units of p 2^-24. SpecError for other shapes or dtypes, and for an odd head_dim.
inline PallasCall rope(const Type& x, const Type& positions, RopeParams params = {}, Loc loc = Loc::here()) {
  const Checks c{"rope", loc};
  c.floats("x", x);
  c.rank("x", x, 4, "[batch, length, heads, head_dim]");
  c.dtype("positions", positions, {i32});
  const int64_t batch = x.shape[0], length = x.shape[1], heads = x.shape[2], head_dim = x.shape[3],
                pairs = head_dim / 2;
  c.shape("positions", positions, {batch, length}, "batch and length of x");
  c.require(head_dim > 0 && head_dim % 2 == 0,
            "heads of x have " + std::to_string(head_dim) + " elements, which make no pairs");
  c.require(params.base > 0, "the base " + std::to_string(params.base) + " is not positive");
  const int64_t block_heads =
      std::min(power_of_two(heads), std::max<int64_t>(power_of_two(kRopeBlock / head_dim + 1) / 2, 1));
  const int64_t rows =
      std::min(power_of_two(length), std::max<int64_t>(power_of_two(kRopeBlock / (head_dim * block_heads) + 1) / 2, 1));

  const BlockSpec block = {{squeezed, rows, block_heads, head_dim},
                           [](Value b, Value i, Value h) { return Indices{b, i, h, 0}; },
                           MemorySpace::vmem,
                           {},
                           loc};
  const BlockSpec row = {
      {squeezed, rows}, [](Value b, Value i, Value) { return Indices{b, i}; }, MemorySpace::vmem, {}, loc};
  return pallas_call(
      [=](Ref x_ref, Ref at, Ref o) {
        const Value pair = cast(iota(i32, {1, 1, pairs}, 2), f32);
        // base^(-i / n) = 2^(-i step). The step in two parts: i times the first, of few bits, is exact, and the second
        // is small, so that no bits are lost.
        const double step = -std::log2(params.base) / static_cast<double>(pairs),
                     coarse = std::round(step * 4096) / 4096;
        const Value frequency = exp2(pair * coarse) * exp2(pair * (step - coarse));
        const Value angle = reshape(cast(at[all], f32), {rows, 1, 1}) * frequency;  // [rows, 1, pairs]
        const Value cosine = cos(angle), sine = sin(angle);
        const bool halves = params.pairs == RopePairs::halves;
        const auto part = [&](int64_t which) {
          return halves ? RefIndex{all, all, range(which * pairs, (which + 1) * pairs)}
                        : RefIndex{all, all, range(which, head_dim, 2)};
        };
        Value a = cast(x_ref[part(0)], f32), b = cast(x_ref[part(1)], f32);  // [rows, heads, pairs]
        o[part(0)] = cast(a * cosine - b * sine, o.dtype());
        o[part(1)] = cast(b * cosine + a * sine, o.dtype());
      },
      {.out_shape = ShapeDtype(x),
       .grid = {batch, cdiv(length, rows), cdiv(heads, block_heads)},
       .in_specs = {block, row},
       .out_specs = block,
       .name = "rope",
       .in_shape = {x, positions}},
      loc);
}

}  // namespace tessera::kernels
