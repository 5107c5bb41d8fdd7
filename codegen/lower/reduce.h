// ReduceEmitter: reductions, argmin and argmax, scans.
#pragma once

#include "codegen/lower/part.h"
#include "engine/base/function.h"

namespace tessera::lowering {

/// One reduction: `step` takes one element's lane values into the accumulator, `merge` joins two accumulators,
/// `neutral` is an element that changes nothing. `combiner`: what joins two of one value, if that is all.
struct Accumulator {
  std::optional<ir::Opcode> combiner;
  Values identity, neutral;
  Function<Values(const Values& acc, const Values& x)> step, merge;
};

/// The elements of a shape that are reduced, and along which of its dims.
struct Reduced {
  Shape shape;
  std::vector<int> axes;
  std::vector<bool> dims;
  bool needs_layout = false;  // an element reads registers
  bool to_registers = false;  // the result lives in registers, so its layout decides who holds what
  Values reads = {};          // the values behind an element, whose blocks may lie at an edge
  bool in_parts = false;      // each invocation keeps what its own elements make
};

class ReduceEmitter : public Part {
 public:
  using Part::Part;
  void reduce(ir::OpId id);
  void arg_reduce(ir::OpId id);
  void scan(ir::OpId id);
  /// A sum that the loop carries in parts (plan/carried_sums.h), or null; its identity; and the sums of its parts.
  const CarriedSum* in_parts(ir::OpId loop, size_t result) const;
  Value identity(const CarriedSum& sum);
  Values joined(const CarriedSum& sum, const Values& start, const Values& parts);
  /// element(c) gives one element's lane values; sink gets, per kept element that this invocation holds, the result (in
  /// every invocation that holds it).
  void reduction(const Reduced& of, const Accumulator& acc, FunctionRef<Values(const Coords&)> element,
                 FunctionRef<void(const NestPoint&, const Values&)> sink);

  /// Each of `points` joined over all invocations that differ in these bits of their number, in each of them: many
  /// points pass the same two barriers.
  void across_invocations(std::vector<Values>& points, int bits, const Accumulator& acc);

 private:
  Accumulator accumulator(const ir::Op& reduce);
  int bits_of(const ir::Op& reduce) const;
  bool may_stay_in_parts(const CarriedSum& sum) const;
  Reduced reduced_of(Value in, const std::vector<bool>& dims, Value result);
  bool joins_lanes(const Accumulator& acc, const Values& v);
  bool by_instructions(std::vector<Values>& points, int bits, const Accumulator& acc);
  void by_shuffles(std::vector<Values>& points, int bits, const Accumulator& acc);
  void by_shares(Values& points, int stride, int count, const Accumulator& acc);
  void by_exchange(std::vector<Values>& points, int stride, int count, bool same_in_lanes, const Accumulator& acc);
};

}  // namespace tessera::lowering
