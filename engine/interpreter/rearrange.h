// gather, scatter and sort: move elements to positions given by data.
#pragma once
#include <cstddef>
#include <vector>

#include "engine/ir/kernel.h"

namespace tessera::interpreter {

/// Which element of x belongs to each element of a gather's result or a scatter's updates.
struct Positions {
  Shape at;  // of the result or the updates
  // per dim of `at`: elements of x from one position to the next, 0 where no dim of x follows
  std::vector<int64_t> along;
  struct Indexed {
    int64_t extent, stride;  // of a dim of x
  };
  std::vector<Indexed> indexed;     // one per index operand
  int64_t elements = 0, bytes = 0;  // of x, and of one element
  DType dtype = DType::f32;
  bool scatters = false, combines = false;
  ir::Opcode kind = ir::Opcode::add;  // if it combines
};
Positions plan_positions(const ir::Kernel& k, const ir::Op& op);

void gather(const Positions& p, const std::byte* x, const std::vector<const int32_t*>& indices, std::byte* out);
void scatter(const Positions& p, const std::byte* x, const std::byte* updates,
             const std::vector<const int32_t*>& indices, std::byte* out);

/// A number that orders elements as sort does: unsigned comparison; equal for -0 and 0, and for all NaNs, which come
/// last.
uint64_t sort_key(DType t, uint64_t bits);
struct SortOperand {
  DType dtype;
  const std::byte* in;
  std::byte* out;
};
/// Every line along `axis` by the first `keys` operands; stable.
void sort(const Shape& shape, int64_t axis, size_t keys, const std::vector<SortOperand>& operands);

}  // namespace tessera::interpreter
