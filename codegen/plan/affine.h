// Facts about integer scalars of a tile-level kernel: affine in the program ids, plus a bounded rest. Every proof of
// disjoint blocks, interior blocks and unneeded clamps starts here. Read next: parallel.h.
#pragma once
#include <algorithm>
#include <optional>
#include <unordered_map>
#include <vector>

#include "engine/passes/interval.h"

namespace tessera::lowering {

/// An inclusive interval; kUnbounded or beyond on either side means nothing is known there. What lies beyond is not
/// followed: sums of two bounds stay inside int64_t.
struct Range {
  static constexpr int64_t kUnbounded = int64_t{1} << 60;
  int64_t lo = -kUnbounded, hi = kUnbounded;
  bool bounded() const { return lo > -kUnbounded && hi < kUnbounded; }
};

/// sum over grid axes of coef[a] * pid[a], plus something in `rest`: exactly, as integers that do not wrap. Where a
/// coefficient is not 0, all of it is bounded, and stays within the value's dtype for every program of the grid.
struct Affine {
  std::vector<int64_t> coef;  // one per grid axis, vmapped ones included; of axes of one program 0
  Range rest;
  bool varies() const {
    return std::any_of(coef.begin(), coef.end(), [](int64_t c) { return c != 0; });
  }
};

class ScalarAnalysis {
 public:
  explicit ScalarAnalysis(const ir::Kernel& k);
  /// `v` is integers or bools of the body or of an index map; of an array the form holds every element.
  const Affine& of(ir::Value v);
  /// All values `a` can take, given the grid's static sizes.
  Range range(const Affine& a) const;
  Range range(ir::Value v) { return range(of(v)); }
  /// One and the same value in all programs that differ along these grid axes alone, in every iteration of their loops.
  bool constant_along(ir::Value v, const std::vector<int>& axes);
  /// The grid axis that program_id(axis) means: vmapped axes are not counted.
  int grid_axis(int64_t axis) const;
  Affine constant(int64_t v) const;
  Affine bounded(Range r) const;
  /// a + sign * b and a * factor as integers; what is not bounded then says nothing.
  Affine sum(const Affine& a, const Affine& b, int64_t sign = 1) const;
  Affine scaled(const Affine& a, int64_t factor) const;

 private:
  std::optional<Affine> linear(ir::Value v);
  Affine axis(size_t a) const;
  Affine checked(Affine a) const;
  Bounds bounds(ir::Value v);
  Bounds transfer(ir::Value v);

  const ir::Kernel& k_;
  std::vector<std::pair<int64_t, int64_t>> size_;   // per grid axis: [0, second]; second is kUnbounded if dynamic
  std::unordered_map<uint32_t, int> map_arg_axis_;  // argument of an index map -> grid axis
  std::unordered_map<uint32_t, ir::OpId> loop_of_iv_;
  std::unordered_map<uint32_t, Affine> memo_;
};

}  // namespace tessera::lowering
