// What the lane interpreter does with matrices element by element: products, and what each lane holds of a matrix.
// Registers are its own; `element(base, e)` is that of element e of the matrix whose registers begin at base.
#pragma once
#include <vector>

#include "codegen/lane/bytecode.h"

namespace tessera::lane {

/// Sums as the device may make them: beginning anywhere, start_below(depth). `subgroup`: which of four it is.
template <class Start, class Element>
void multiply_add(const MatrixOp& m, const Instr& op, int64_t subgroup, const Start& start_below,
                  const Element& element) {
  const auto& p = std::get<MatrixOp::Product>(m.what);
  const int64_t first_row = p.of_four ? subgroup * m.rows : 0, start = start_below(p.depth);
  std::vector<std::decay_t<decltype(element(op.c, 0))>> out;
  for (int64_t e = 0; e < m.rows * m.cols; ++e) {
    const int64_t row = e / m.cols, col = e % m.cols;
    auto sum = element(op.c, e);
    for (int64_t i = 0; i < p.depth; ++i) {
      const int64_t k = (start + i) % p.depth;
      const auto &a = element(op.a, (first_row + row) * p.depth + k),
                 &b = element(op.b, (p.right_row + k) * p.right_cols + p.right_col + col);
      sum.bits = p.add(m.dtype, sum.bits, a.bits, b.bits);
      if (!sum.poison) sum.poison = a.poison ? a.poison : b.poison;
    }
    out.push_back(sum);
  }
  for (int64_t e = 0; e < m.rows * m.cols; ++e) element(op.dst, e) = out[static_cast<size_t>(e)];
}

/// Between a matrix and what each of 32 lanes holds of it; own(lane, register) is a register of a lane.
template <class Element, class Own>
void of_lanes(const MatrixOp& m, const Instr& op, const Element& element, const Own& own) {
  const auto& lanes = std::get<MatrixOp::Lanes>(m.what);
  for (int64_t lane = 0; lane < 32; ++lane)
    for (int64_t e = 0; e < m.rows * m.cols / 32; ++e) {
      const int64_t row = lane / 4 + e / 2 % 2 * 8, col = e / 4 * 8 + lane % 4 * 2 + e % 2;
      auto& held = own(lane, lanes.registers[static_cast<size_t>(lanes.words ? e / 2 : e)]);
      if (op.code == Code::matrix_elements) {
        held = element(op.a, row * m.cols + col);
        continue;
      }
      auto& to = element(op.dst, row * m.cols + col);
      to = held;
      if (lanes.words) to.bits = held.bits >> (e % 2 * 16) & 0xffff;
    }
}

}  // namespace tessera::lane
