// Axis variables: one per set of dims of tile values (and of Refs held in registers) that must be iterated together.
// Element-wise ops equate dims, broadcast all but the repeated ones, transpose permutes, dot has batch, free and
// contracted dims, a reduction drops some, loop carries equate in and out. An op that mixes dims (slice, concatenate, a
// mixing reshape) starts new axes and leaves its operand's axes `mixed`: values with a mixed axis live in the
// arena. Dims of size 1 have no axis.
#pragma once
#include <vector>

#include "engine/ir/kernel.h"

namespace tessera::lowering {

inline constexpr int kNoAxis = -1;

struct Axis {
  int64_t extent = 1;
  bool mixed = false;    // read at computed positions, or twice in one value: no layout, no registers, no splitting
  bool reduced = false;  // dropped by some reduction
  bool contracted = false;
  bool scanned = false;  // running sums go along it, from layout to layout
  bool stored = false;   // some store has it
  // it could be split, but most of the work lacks it, and each slice would repeat that (set by the schedule)
  bool repeats = false;
  bool splittable = false;  // different workgroups may take different parts (set by the schedule)
};

class Axes {
 public:
  /// `resident[r]`: whole loads and stores of body argument r equate its dims with the value's. `scans`: those keep
  /// their axes, else they mix the one that they go along; and stores that share no axis are iterated together (GPUs).
  Axes(const ir::Kernel& k, const std::vector<bool>& resident, bool scans);
  int of(ir::Value v, size_t dim) const;  ///< kNoAxis for dims of size 1
  int of_ref(int ref, size_t dim) const;  ///< of a resident Ref
  std::vector<int> of(ir::Value v) const;
  /// Whether any element-wise op (transcendental ones alone) has values over both axes.
  bool elementwise_over(int i, int j, bool transcendental = false) const;
  size_t size() const { return axes.size(); }
  std::vector<Axis> axes;

 private:
  size_t node(ir::Value v, size_t dim) const { return first_[v.index] + dim; }
  size_t find(size_t n) const;
  void equate(size_t a, size_t b);
  void equate(ir::Value a, size_t i, ir::Value b, size_t j);
  void equate_all(ir::Value a, ir::Value b);
  void mix(ir::Value v, size_t dim) { mixed_[node(v, dim)] = true; }
  void visit(const ir::Op& op);
  void move(const ir::Op& op);
  void dot(const ir::Op& op);
  void rearrange(const ir::Op& op);
  void control(const ir::Op& op);
  void walk(ir::RegionId r);
  void join_stores();

  const ir::Kernel& k_;
  const std::vector<bool>& resident_;
  const bool scans_;
  std::vector<size_t> first_;  // per value: its first node
  mutable std::vector<size_t> parent_;
  std::vector<int64_t> extent_;
  std::vector<bool> mixed_, reduced_, contracted_, scanned_, stored_;
  std::vector<int> axis_of_root_;
};

/// A load, store or swap of every element of its Ref, in order, without a mask.
bool is_whole_access(const ir::Kernel& k, const ir::Op& op);

}  // namespace tessera::lowering
