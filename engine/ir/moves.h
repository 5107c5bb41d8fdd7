// Which element of its operand each element of a move is: the one description of broadcast, transpose, slice and the
// like, which the passes, the interpreter, the analyses and the lowering read. What type a move's result has is in
// infer.cpp. A new move is a case here.
#pragma once
#include <optional>
#include <utility>
#include <vector>

#include "engine/ir/kernel.h"

namespace tessera::ir {

/// Where along one dim of its operand a move reads: at `offset` + `stride` times the position along the result's `dim`.
struct DimSource {
  int dim = -1;  // none: at 0, the operand has one element there
  int64_t stride = 1, offset = 0;
  bool whole = false;  // the two dims have the same elements in the same order
};

/// The elements of a move's result at [begin, end) along the MoveMap's axis: a DimSource for each dim of the operand.
struct MovePiece {
  Value operand;
  std::vector<DimSource> dims;
  int64_t begin = 0, end = 0;
};

/// The result in pieces along one axis: one for each operand of a concatenation, else a single one.
struct MoveMap {
  size_t axis = 0;
  std::vector<MovePiece> pieces = {};
};

/// None for a reshape that mixes dims: the element with the same place in row-major order.
std::optional<MoveMap> move_map(const Kernel& k, const Op& move);
/// The dims of a move that is a single piece; none for any other op.
std::optional<std::vector<DimSource>> move_dims(const Kernel& k, const Op& op);

/// True if a reshape only adds or drops dims of size 1: pairs of (operand dim, result dim) otherwise in order.
bool reshape_keeps_dims(const Shape& from, const Shape& to, std::vector<std::pair<size_t, size_t>>* pairs = nullptr);

}  // namespace tessera::ir
