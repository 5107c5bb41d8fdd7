#include "engine/ir/moves.h"

#include <algorithm>
#include <utility>

namespace tessera::ir {

bool reshape_keeps_dims(const Shape& from, const Shape& to, std::vector<std::pair<size_t, size_t>>* pairs) {
  size_t j = 0;
  std::vector<std::pair<size_t, size_t>> found;
  for (size_t i = 0; i < from.size(); ++i) {
    if (from[i] == 1) continue;
    while (j < to.size() && to[j] == 1) ++j;
    if (j == to.size() || to[j] != from[i]) return false;
    found.emplace_back(i, j++);
  }
  while (j < to.size() && to[j] == 1) ++j;
  if (j != to.size()) return false;
  if (pairs) *pairs = found;
  return true;
}

namespace {

DimSource whole(size_t dim) { return {.dim = static_cast<int>(dim), .whole = true}; }

std::vector<DimSource> all_whole(size_t rank) {
  std::vector<DimSource> dims;
  for (size_t d = 0; d < rank; ++d) dims.push_back(whole(d));
  return dims;
}

MoveMap concatenation(const Kernel& k, const Op& move) {
  MoveMap map{.axis = static_cast<size_t>(move.attr(Attr::axis))};
  int64_t begin = 0;
  for (const Value x : move.operands) {
    const Shape& from = k.type(x).shape;
    MovePiece piece{x, all_whole(from.size()), begin, begin + from[map.axis]};
    if (move.operands.size() > 1) piece.dims[map.axis] = {.dim = static_cast<int>(map.axis), .offset = -begin};
    begin = piece.end;
    map.pieces.push_back(std::move(piece));
  }
  return map;
}

}  // namespace

std::optional<MoveMap> move_map(const Kernel& k, const Op& move) {
  const Value x = move.operands[0];
  const Shape &from = k.type(x).shape, &to = k.type(move.results[0]).shape;
  std::vector<DimSource> dims(from.size());
  switch (Move(move.code)) {
    case Move::broadcast:
      for (size_t i = 0; i < from.size(); ++i)
        if (const auto d = static_cast<size_t>(move.ints(Attr::dims)[i]); from[i] == to[d]) dims[i] = whole(d);
      break;
    case Move::reshape: {
      std::vector<std::pair<size_t, size_t>> pairs;
      if (!reshape_keeps_dims(from, to, &pairs)) return std::nullopt;
      for (const auto& [i, j] : pairs) dims[i] = whole(j);
      break;
    }
    case Move::transpose:
      for (size_t d = 0; d < to.size(); ++d) dims[static_cast<size_t>(move.ints(Attr::perm)[d])] = whole(d);
      break;
    case Move::slice:
      dims = all_whole(from.size());
      for (size_t d = 0; d < to.size(); ++d)
        if (from[d] != to[d])
          dims[d] = {
              .dim = static_cast<int>(d), .stride = move.ints(Attr::stride)[d], .offset = move.ints(Attr::start)[d]};
      break;
    case Move::rev:
      dims = all_whole(from.size());
      for (const int64_t axis : move.ints(Attr::axes)) {
        const auto d = static_cast<size_t>(axis);
        if (from[d] > 1) dims[d] = {.dim = static_cast<int>(d), .stride = -1, .offset = from[d] - 1};
      }
      break;
    case Move::concatenate: return concatenation(k, move);
  }
  return MoveMap{.axis = 0, .pieces = {{x, std::move(dims), 0, to.empty() ? 1 : to[0]}}};
}

std::optional<std::vector<DimSource>> move_dims(const Kernel& k, const Op& op) {
  if (!is_move(op.code)) return std::nullopt;
  std::optional<MoveMap> map = move_map(k, op);
  if (!map || map->pieces.size() != 1) return std::nullopt;
  return std::move(map->pieces[0].dims);
}

}  // namespace tessera::ir
