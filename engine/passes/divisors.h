// What integer scalars leave when divided by powers of two: where accesses to memory are aligned. Used at both levels:
// by the plan, for layouts (codegen/plan/vector_width.h), and for the accesses that come of them
// (codegen/lane/vectorize.h).
#pragma once
#include <algorithm>
#include <unordered_map>

#include "engine/ir/kernel.h"

namespace tessera::passes {

class Divisors {
 public:
  static constexpr int64_t kMost = 16;
  /// What is `rest` more than a multiple of the power of two `divisor`; 0 <= rest < divisor <= kMost.
  struct Residue {
    int64_t divisor = kMost, rest = 0;
    static Residue of(int64_t constant) { return {kMost, constant & (kMost - 1)}; }
    /// A power of two that divides it.
    int64_t power() const { return std::min(divisor, Divisors::of(rest)); }
    Residue operator+(const Residue& other) const;
    Residue operator-(const Residue& other) const;
    Residue operator*(const Residue& other) const;
  };

  explicit Divisors(const ir::Kernel& k);
  /// A power of two, at most kMost, that divides v whatever the call: also where the arithmetic behind v wraps.
  int64_t of(ir::Value v) { return residue(v).power(); }
  static int64_t of(int64_t constant);
  /// As of(): also where the arithmetic behind v wraps.
  Residue residue(ir::Value v);

 private:
  Residue compute(ir::Value v);

  const ir::Kernel& k_;
  std::unordered_map<uint32_t, Residue> known_;
  std::unordered_map<uint32_t, uint32_t> loop_of_iv_;
};

}  // namespace tessera::passes
