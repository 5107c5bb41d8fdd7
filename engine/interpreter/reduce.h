// Reductions, argmax and argmin, and running sums. An array is seen as [outer, n, inner] around the reduced axis.
#pragma once
#include <cstddef>
#include <vector>

#include "engine/ir/kernel.h"
#include "engine/ir/reference.h"

namespace tessera::interpreter {

/// Over the sorted `axes` of `shape`. Elements are combined in pairs, so the error of a sum grows with log n; narrow
/// floats' sums and products are kept in f32 and rounded once. Planned once for many runs, which share its memory: one
/// at a time.
class Reduction {
 public:
  Reduction(ir::Opcode op, DType t, Shape shape, const std::vector<int64_t>& axes);
  void run(const std::byte* in, std::byte* out);

 private:
  struct Group {
    int64_t outer, n, inner;
  };  // neighbouring axes as one: [outer, n, inner] -> [outer, inner]
  DType t_, wide_;
  int64_t elements_, kept_;
  reference::ArrayFunction combine_, widen_, narrow_;
  std::vector<Group> groups_;
  std::vector<std::byte> buffer_, identity_;  // the latter: what sums of floats start with, kept_ of them; else empty
};
/// Of an array of this type, the index of the first greatest (least) element along `axis`, the first NaN before all.
void arg_reduce(ir::Opcode op, const ir::Type& type, int64_t axis, DType index, const std::byte* in, std::byte* out);
/// Inclusive running sum along `axis`, from its end if `reverse`; narrow floats run in f32 and round each element once.
void cumsum(const ir::Type& type, int64_t axis, bool reverse, const std::byte* in, std::byte* out);
/// The same for any scan: cumsum, cumprod, cummax, cummin.
void scan(ir::Opcode op, const ir::Type& type, int64_t axis, bool reverse, const std::byte* in, std::byte* out);

}  // namespace tessera::interpreter
