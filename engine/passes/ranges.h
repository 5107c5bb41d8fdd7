// Ranges: bounds on the elements of integer and bool values, from constants, grid and workgroup sizes, loop bounds and arithmetic that
// provably does not wrap. Floats and u64 have none. Each value's range is computed once, when the walk reaches its definition.
#pragma once
#include <optional>
#include <vector>

#include "engine/ir/kernel.h"

namespace tessera::passes {

struct Range {
  int64_t lo = 0, hi = 0;  // both included
  bool operator==(const Range&) const = default;
};

class Ranges {
 public:
  explicit Ranges(const ir::Kernel& k) : k_(k) {}
  /// Every value of the dtype; nothing for floats and u64.
  static std::optional<Range> all_of(DType t);
  std::optional<Range> of(ir::Value v) const;
  /// Bounds of a single result of type t; `op`'s operands have theirs.
  std::optional<Range> compute(const ir::Op& op, const ir::Type& t) const;
  void set(ir::Value v, std::optional<Range> r);
  /// The operation on exact integers stays within dtype t for all elements: it does not wrap. Only add, sub and mul.
  bool exact(ir::Opcode code, ir::Value a, ir::Value b, DType t) const;

 private:
  const ir::Kernel& k_;
  std::vector<std::optional<Range>> known_;
};

}  // namespace tessera::passes
