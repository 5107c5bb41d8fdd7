// What is known about integer scalars of a tile-level kernel: affine in the program ids, plus a bounded rest. Every proof of disjoint
// blocks, interior blocks and needless clamps starts here. Read next: parallel.h.
#pragma once
#include <unordered_map>
#include <vector>

#include "engine/ir/kernel.h"

namespace tessera::lowering {

/// An inclusive interval; kUnbounded on either side means nothing is known there.
struct Range {
  static constexpr int64_t kUnbounded = int64_t{1} << 40;
  int64_t lo = -kUnbounded, hi = kUnbounded;
  bool bounded() const { return lo > -kUnbounded && hi < kUnbounded; }
};

/// sum over grid axes of coef[a] * pid[a], plus something in `rest`.
struct Affine {
  std::vector<int64_t> coef;  // one per grid axis, vmapped ones included
  Range rest;
};

class ScalarAnalysis {
 public:
  explicit ScalarAnalysis(const ir::Kernel& k);
  /// `v` is integers or bools of the body or of an index map; of an array the form holds every element.
  const Affine& of(ir::Value v);
  /// All values `a` can take, given the grid's static sizes.
  Range range(const Affine& a) const;
  Range range(ir::Value v) { return range(of(v)); }
  /// The grid axis that program_id(axis) means: vmapped axes are not counted.
  int grid_axis(int64_t axis) const;
  Affine constant(int64_t v) const;

 private:
  Affine compute(ir::Value v);
  Affine argument(ir::Value v);
  Affine combine(const Affine& a, const Affine& b, int64_t sign) const;
  Affine scaled(const Affine& a, int64_t factor) const;
  Affine bounded(Range r) const;

  const ir::Kernel& k_;
  std::vector<std::pair<int64_t, int64_t>> size_;  // per grid axis: [0, second]; second is kUnbounded if dynamic
  std::unordered_map<uint32_t, int> map_arg_axis_;  // argument of an index map -> grid axis
  std::unordered_map<uint32_t, ir::OpId> loop_of_iv_;
  std::unordered_map<uint32_t, Affine> memo_;
};

}  // namespace tessera::lowering
