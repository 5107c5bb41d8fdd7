// Products of arrays with any contracting and batch dims: operands are permuted to batches of matrices, multiplied, and
// converted. f32 and narrower floats accumulate in f32 (in f64 for an f64 result), integers modulo the result dtype;
// sums run over k in order.
#pragma once
#include <cstddef>
#include <vector>

#include "engine/ir/kernel.h"

namespace tessera::interpreter {

/// What a dot needs at run time, worked out from its op once.
struct DotPlan {
  DType operand, accumulator, result;
  struct Operand {
    Shape shape;                   // permuted: [batch..., m..., k...] or [batch..., k..., n...]
    std::vector<int64_t> strides;  // of the operand, in that order
  };
  Operand lhs, rhs;
  int64_t batch = 1, m = 1, n = 1, k = 1;
};
DotPlan plan_dot(const ir::Kernel& kernel, const ir::Op& op);
/// `start`: what the product is added to, if anything; the sum is rounded to the result's dtype once.
void dot(const DotPlan& plan, const std::byte* lhs, const std::byte* rhs, const std::byte* start, std::byte* out);

}  // namespace tessera::interpreter
