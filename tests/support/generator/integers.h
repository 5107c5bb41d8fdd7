// Random integer scalars that meet the ends of their dtype: chains of arithmetic that wraps in every width, conversions
// and bools included, from program ids and loop counters. What analyses claim of them is easily wrong.
#pragma once
#include "engine/ir/builder.h"
#include "tests/support/generator/random.h"

namespace tessera::fuzz {

/// Some i32 made from the i32s a and b, mostly between -n and n. The same numbers make the same ops.
ir::Value wrapped_int(ir::Builder& b, Random random, ir::Value x, ir::Value y, int64_t n);
/// Some bool made from them.
ir::Value wrapped_bool(ir::Builder& b, Random random, ir::Value x, ir::Value y);

/// A for's bounds whose counter comes near the ends of i32: at most about `rounds` rounds.
struct ExtremeLoop {
  int64_t lower, upper, step;
};
ExtremeLoop extreme_loop(Random& random, int64_t rounds);

}  // namespace tessera::fuzz
