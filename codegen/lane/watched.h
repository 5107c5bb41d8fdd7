// For tests of what the prover claims: sums of a kernel's integers that the lane-level interpreter looks at whenever an
// invocation comes to an op, and between which numbers they were. Read next: tests/support/proofs/proofs.h.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "engine/ir/kernel.h"

namespace tessera::lane {

/// Looked at before the op. The values are integers or bools, in scope there; the sum itself is exact.
struct WatchedSum {
  ir::OpId before;
  std::vector<std::pair<int64_t, ir::Value>> sum;  // a factor and a value
  ir::Value mask = {};                             // only where this bool is true
};
/// The least and the greatest that it was, where it depends on no uninitialised memory.
struct SeenSum {
  struct End {
    __int128 value = 0;
    uint32_t workgroup = 0, invocation = 0;
  };
  int64_t times = 0;
  End least, greatest;

  void add(const End& e) {
    if (times == 0 || e.value < least.value) least = e;
    if (times == 0 || e.value > greatest.value) greatest = e;
    ++times;
  }
};

/// A value of an invocation, and where the uninitialised memory it depends on was read (position of the instruction +
/// 1; 0: on none).
struct Register {
  uint64_t bits = 0;
  uint32_t poison = 0;
};

/// A WatchedSum in registers.
struct Watch {
  static constexpr uint32_t kNoMask = UINT32_MAX;
  struct Term {
    int64_t factor = 1;
    uint32_t reg = 0;
    int shift = 0;  // 64 - bits
    bool is_signed = false;
  };
  std::vector<Term> terms;
  uint32_t mask = kNoMask;

  void look(const Register* r, uint32_t workgroup, uint32_t invocation, SeenSum& seen) const {
    if (mask != kNoMask && (r[mask].poison || !r[mask].bits)) return;
    __int128 sum = 0;
    for (const Term& t : terms) {
      if (r[t.reg].poison) return;
      const uint64_t high = r[t.reg].bits << t.shift;
      sum += t.factor * (t.is_signed ? __int128{static_cast<int64_t>(high) >> t.shift} : __int128{high >> t.shift});
    }
    seen.add({sum, workgroup, invocation});
  }
};

}  // namespace tessera::lane
