// What lane/prover.h proves of a lane-level kernel, held against what its interpreter sees: sums of integers at every
// access, comparison and definition, and at random points, and conditions that lane/known_conditions.h decides. No
// question is about what the kernel needs: each asks for one more than what the interpreter saw, which must not be
// proved.
#pragma once
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "codegen/lane/interpreter.h"
#include "codegen/lane/known_conditions.h"

namespace tessera::fuzz {

class Proofs {
 public:
  /// At most so many sums, chosen by seed, and all conditions that are decided. Only in ops from `first` on.
  Proofs(const ir::Kernel& lanes, uint64_t seed, size_t most, size_t first = 0);
  const std::vector<lane::WatchedSum>& watched() const { return watched_; }
  /// The first claim that does not hold, in words; of a run with watched().
  std::optional<std::string> broken(const std::vector<lane::SeenSum>& seen) const;

 private:
  const ir::Kernel& k_;
  const uint64_t seed_;
  std::vector<lowering::KnownCondition> conditions_;  // of the first of watched_
  std::vector<lane::WatchedSum> watched_;
};

}  // namespace tessera::fuzz
