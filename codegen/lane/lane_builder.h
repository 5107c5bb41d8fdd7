// LaneBuilder: ir::Builder for scalars of the lane level, which folds constants and keeps all constants in one region
// at the start of the kernel. Values made inside a region are reused (memo) only while that region is open.
#pragma once
#include <map>
#include <optional>
#include <unordered_map>

#include "codegen/lane/prover.h"
#include "codegen/program/target.h"
#include "engine/base/function.h"
#include "engine/ir/builder.h"

namespace tessera::lowering {

using ir::Value;

class LaneBuilder {
 public:
  explicit LaneBuilder(ir::Kernel& out);
  ir::Builder& raw() { return b_; }
  ir::Kernel& kernel() { return b_.kernel(); }
  ir::RegionId prologue() const { return prologue_; }
  /// Moves the prologue's ops to the front of the body: call once, at the end.
  void finish();

  Value constant(DType t, uint64_t bits);
  Value i32(int64_t v);  ///< InternalError if it does not fit: what may be larger is an i64, or refused before
  Value i64(int64_t v) { return constant(DType::i64, static_cast<uint64_t>(v)); }
  Value boolean(bool v) { return constant(DType::boolean, v); }
  Value zero(DType t) { return constant(t, 0); }
  std::optional<int64_t> known(Value v) const;  ///< value of an integer or bool constant
  DType dtype(Value v) { return kernel().type(v).dtype; }

  /// the same value for the same operands
  Value op(ir::Opcode c, std::vector<Value> operands, DType result = DType::f32);
  Value add(Value a, Value b);
  Value sub(Value a, Value b);
  Value mul(Value a, Value b);
  Value div(Value a, int64_t b);  ///< a >= 0, b > 0
  Value rem(Value a, int64_t b);  ///< a >= 0, b > 0
  Value div(Value a, Value b);
  Value rem(Value a, Value b);
  Value min(Value a, Value b);
  Value max(Value a, Value b);
  Value clamp(Value v, Value lo, Value hi) { return min(max(v, lo), hi); }
  Value clamp(Value v, int64_t lo, int64_t hi);  ///< an i32
  Value wrap(Value v, Value n);                  ///< v + n where v is negative
  Value lt(Value a, Value b);
  Value ge_zero(Value a);
  Value eq(Value a, Value b);
  Value select(Value c, Value a, Value b);
  /// Logical and where an empty Value means true.
  Value both(Value a, Value b);
  Value convert(Value v, DType t);
  Value leaf(ir::Opcode c) { return b_.one({.code = c}, ir::Type::array(DType::i32)); }
  void barrier() { b_.append({.code = ir::Opcode::barrier}); }
  void subgroup_barrier() { b_.append({.code = ir::Opcode::subgroup_barrier}); }
  Value shuffle(Value v, Value lane) { return b_.one({.code = ir::Opcode::subgroup_shuffle, .operands = {v, lane}}); }
  /// Four elements of 8 bits in a word; c plus the products of those in a and b.
  Value pack4(const std::vector<Value>& elements) { return b_.one({.code = ir::Opcode::pack4, .operands = elements}); }
  Value dot4(Value a, Value b, Value c) { return b_.one({.code = ir::Opcode::dot4, .operands = {a, b, c}}); }
  Value shuffle_xor(Value v, int64_t mask);
  Value pack(std::vector<Value> elements);  ///< a word of elements of 8 or 16 bits
  Value load(Value ref, Value index);
  void store(Value ref, Value index, Value v, bool late = false);
  void async_wait(int64_t groups);
  /// What the element was. `kind` is an atomic_rmw's, or atomic_cas with what the element is compared with.
  Value atomic(ir::Opcode kind, Value ref, Value index, Value v, Value compare);
  Value view(Value ref, Value offset);
  /// A ref made in the prologue.
  Value alloc(ir::Opcode c, DType t, int64_t elements, int64_t offset);

  // Scoped memo: entries vanish when the region they were made in is closed.
  void open() { memo_.emplace_back(); }
  void close() { memo_.pop_back(); }
  size_t depth() const { return memo_.size(); }  ///< of open regions
  const Value* recall(const std::vector<uint32_t>& key) const;
  void remember(std::vector<uint32_t> key, Value v) { memo_.back().emplace(std::move(key), v); }

  using Values = std::vector<Value>;
  Values for_loop(Value lower, Value upper, Value step, const Values& init,
                  FunctionRef<Values(Value, const Values&)> body);
  /// over i32s, one by one
  Values for_loop(int64_t lower, int64_t upper, const Values& init, FunctionRef<Values(Value, const Values&)> body);
  Values if_else(Value pred, FunctionRef<Values()> a, FunctionRef<Values()> b);
  void when(Value pred, FunctionRef<void()> body);  ///< an empty pred: always

  /// low <= v < end in all that is emitted from here on.
  void between(Value v, Value low, Value end);
  /// Proved of a sum: it is not negative where the next op goes, provided that `also` is true (empty: always).
  bool not_negative(const std::vector<lane::Prover::Term>& sum, Value also);

 private:
  std::pair<Value, int64_t> split_constant(Value v);
  /// The constant that arithmetic on constants of dtype t gives, which wraps.
  Value wrapped(DType t, uint64_t v) {
    return t == DType::i64 ? constant(t, v) : constant(DType::i32, static_cast<uint32_t>(v));
  }
  struct KeyHash {
    size_t operator()(const std::vector<uint32_t>& k) const {
      size_t h = 1469598103934665603ull;
      for (uint32_t x : k) h = (h ^ x) * 1099511628211ull;
      return h;
    }
  };
  ir::Builder b_;
  lane::Prover bounds_;
  std::vector<lane::Prover::Condition> conditions_;  // of the open regions
  std::vector<lane::Prover::Between> scope_;
  ir::RegionId prologue_;
  std::map<std::pair<DType, uint64_t>, Value> constants_;
  std::vector<std::unordered_map<std::vector<uint32_t>, Value, KeyHash>> memo_;
};

// Values of a subgroup's lanes, joined by an instruction where the device has such (Target::subgroup_reductions).

/// Whether there are instructions for elements of that dtype. None multiplies. Floats' maxima and minima are those of
/// integers in the same order.
bool joins_lanes(const Target& target, ir::Opcode combiner, DType t);
/// `v` of all lanes, in any order, in each of them.
Value joined_lanes(LaneBuilder& b, ir::Opcode combiner, Value v);
/// `v` of the lanes that come before this one; in the first, `identity`.
Value joined_before(LaneBuilder& b, ir::Opcode combiner, Value v, Value lane, Value identity);

}  // namespace tessera::lowering
