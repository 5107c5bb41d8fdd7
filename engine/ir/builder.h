// Builder: appends ops to a region of a Kernel, inferring result types (infer.cpp) and keeping the user's line on every
// op. Used by the C++ front end, the parser, passes and the lowering alike. A shape or dtype error throws TraceError
// naming the op, both types and the line.
#pragma once
#include <initializer_list>

#include "engine/base/function.h"
#include "engine/ir/kernel.h"

namespace tessera::ir {

/// The result types of `op` (its operands, attrs, index and regions complete; its results empty). `requested` gives the
/// result dtype or shape where the operands do not: convert, bitcast, constant, iota, broadcast, reshape, argmax,
/// argmin, dot (preferred dtype), extent, alloc_*; others ignore it. Throws TraceError, prefixed with the kernel's and
/// the op's name.
std::vector<Type> infer(const Kernel& k, const Op& op, const Type& requested = {});

class Builder {
 public:
  explicit Builder(Kernel& k) : k_(k) {}
  Kernel& kernel() { return k_; }
  RegionId region() const { return at_; }
  void set_region(RegionId r) { at_ = r; }  ///< further ops go to the end of r
  void set_loc(Loc loc) { loc_ = loc; }
  Loc loc() const { return loc_; }

  RegionId new_region(const std::vector<Type>& args);
  Value arg(RegionId r, size_t i) const { return k_.region(r).args[i]; }
  Value add_arg(RegionId r, const Type& t);

  /// Appends op (results are made here) and returns its id.
  OpId append(Op op, const Type& requested = {});
  Value one(Op op, const Type& requested = {}) { return k_.op(append(std::move(op), requested)).results.at(0); }

  /// An elementwise op over operands of one shape (select: a scalar or same-shape predicate is broadcast by the
  /// caller).
  Value elementwise(Opcode c, std::vector<Value> operands, DType result = DType::f32);
  Value constant(DType t, uint64_t bits, Shape shape = {});
  Value constant_int(DType t, int64_t v, Shape shape = {});  ///< wraps to the dtype; also for floats: the number v
  Value constant_float(DType t, double v, Shape shape = {});
  Value convert(Value v, DType t);  ///< v itself if it has that dtype
  Value broadcast(Value v, Shape shape, std::vector<int64_t> dims);
  void yield(std::vector<Value> values);

  /// for with carried values: body(iv, carries) returns the next carries, called with the builder inside the region.
  std::vector<Value> for_loop(Value lower, Value upper, Value step, const std::vector<Value>& init,
                              FunctionRef<std::vector<Value>(Value, const std::vector<Value>&)> body);
  std::vector<Value> if_else(Value pred, FunctionRef<std::vector<Value>()> then_body,
                             FunctionRef<std::vector<Value>()> else_body);
  void when(Value pred, FunctionRef<void()> body);

 private:
  Kernel& k_;
  RegionId at_;
  Loc loc_;
};

}  // namespace tessera::ir
