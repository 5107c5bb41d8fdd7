// Powers of two that divide integer scalars: where accesses to memory are aligned. Used at both levels: by the plan,
// for layouts (codegen/plan/vector_width.h), and for the accesses that come of them (codegen/lane/vectorize.h).
#pragma once
#include <unordered_map>

#include "engine/ir/kernel.h"

namespace tessera::passes {

class Divisors {
 public:
  static constexpr int64_t kMost = 16;
  explicit Divisors(const ir::Kernel& k);
  /// A power of two, at most kMost, that divides v whatever the call: also where the arithmetic behind v wraps.
  int64_t of(ir::Value v);
  static int64_t of(int64_t constant);

 private:
  int64_t compute(ir::Value v);

  const ir::Kernel& k_;
  std::unordered_map<uint32_t, int64_t> known_;
  std::unordered_map<uint32_t, uint32_t> loop_of_iv_;
};

}  // namespace tessera::passes
