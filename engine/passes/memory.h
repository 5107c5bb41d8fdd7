// Which memory an access may touch, for the passes. Refs fall into classes: two Refs of different classes never share
// memory. Tile level: every body argument (input, output, scratch) and every argument of a run_scoped is a class of its
// own (index maps see the first of them), except that an input and the output aliased to it are one class if
// Kernel::shares_at_once; otherwise a program sees the input as of its start. Lane level: the same, plus one class for
// all of the shared arena and one for all of the scratch arena, since allocations there may overlap; a view has its
// base's class.
#pragma once
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "engine/ir/kernel.h"

namespace tessera::passes {

class MemoryClasses {
 public:
  explicit MemoryClasses(const ir::Kernel& k);
  uint32_t count() const { return count_; }
  uint32_t of(ir::Value ref) const;
  /// No op of the kernel stores to the class.
  bool read_only(uint32_t c) const { return !stored_[c]; }

  /// The classes whose contents an op may change, regions in it left out: a wait those of every copy's target.
  /// Semaphores are left out: what reads them is ordered.
  std::vector<uint32_t> stores(const ir::Op& op) const;

  struct Effects {
    std::vector<uint32_t> stored;  // classes, each once
    bool barrier = false;
  };
  /// What the ops of a region and of all regions in it do.
  const Effects& effects(ir::RegionId r) const { return effects_[r.index]; }

 private:
  void collect(ir::RegionId r);
  const ir::Kernel& k_;
  std::unordered_map<uint32_t, uint32_t> scoped_;  // by argument of a run_scoped: its class
  std::vector<uint32_t> copied_to_;                // by some asynchronous copy, each once
  uint32_t count_ = 0;
  std::vector<bool> stored_;
  std::vector<Effects> effects_;
};

}  // namespace tessera::passes
