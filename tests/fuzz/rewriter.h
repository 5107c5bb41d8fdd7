// What rewritings are written with (rewrite.h): ops inserted at a place, numbers that are known at run time only,
// further arguments. Read next: rewrite.cpp, which lists the rewritings.
#pragma once
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "engine/ir/builder.h"
#include "tests/support/generator/generator.h"
#include "tests/support/generator/random.h"

namespace tessera::fuzz {

/// A place in a region: before its op `at`.
struct Spot {
  ir::RegionId region;
  size_t at = 0;
};

class Rewriter {
 public:
  Rewriter(Case& of, uint64_t seed) : c(of), k(of.kernel), random(seed) {}

  Case& c;
  ir::Kernel& k;
  Random random;
  /// What undoes each rewriting in the outputs; the last comes first.
  std::vector<std::function<void(std::vector<Array>&)>> undo;

  ir::Op& op_at(const Spot& s) { return k.op(k.region(s.region).ops[s.at]); }
  /// Every op of the body (and of the index maps) before a region's yield, inner ops behind the op that holds them.
  std::vector<Spot> spots(bool maps = false) const;
  std::vector<ir::RegionId> regions(bool maps = false) const;
  /// Each value of the body that some op takes and that is no Ref, with the place behind its op or at the beginning of
  /// its region.
  std::vector<std::pair<ir::Value, Spot>> values(bool maps = false) const;
  bool in_map(ir::RegionId r) const;

  /// The op is made at `s`, which is behind it afterwards.
  ir::OpId insert(Spot& s, ir::Op op, const ir::Type& requested = {});
  ir::Value one(Spot& s, ir::Op op, const ir::Type& requested = {}) {
    return k.op(insert(s, std::move(op), requested)).results.at(0);
  }
  ir::Value elementwise(Spot& s, ir::Opcode code, std::vector<ir::Value> operands, DType result = DType::i32) {
    return one(s, {.code = code, .operands = std::move(operands)}, ir::Type::array(result));
  }
  ir::Value constant(Spot& s, const ir::Type& t, uint64_t bits);
  ir::Value constant_i32(Spot& s, int64_t v) {
    return constant(s, ir::Type::array(DType::i32), static_cast<uint32_t>(v));
  }
  ir::Value reshape(Spot& s, ir::Value v, const Shape& shape);
  ir::Value broadcast(Spot& s, ir::Value scalar, const Shape& shape);
  ir::Value convert(Spot& s, ir::Value v, DType t);
  /// `v` as an i32 scalar that is known at run time only: a size, an argument by value, an element of an array. In an
  /// index map a constant without prefetch().
  ir::Value number(Spot& s, int64_t v);
  /// An element of any dtype, likewise; in the body alone.
  ir::Value element(Spot& s, DType t, uint64_t bits);
  /// A bool scalar that is true.
  ir::Value truth(Spot& s);
  /// A value that is not used for anything, of type t.
  ir::Value garbage(Spot& s, const ir::Type& t);

  /// Ops made from op `first` on keep `from`; all others have `to` instead.
  void replace_uses(ir::Value from, ir::Value to, size_t first);
  void erase(const Spot& s);
  /// Uses of v by ops that are reached.
  std::vector<Spot> uses(ir::Value v) const;

  /// A name for a size that has `value`.
  Extent named(int64_t value);
  /// A form of `value` that is known at run time only.
  Extent dynamic(int64_t value);
  /// A further input behind the others, whole and in space any; the body's argument.
  ir::Value add_input(Array a, bool by_value);
  /// A further scalar-prefetch operand, from which number() loads in index maps; moves the blocks behind it, so it
  /// comes first.
  void prefetch();
  ir::Value add_scratch(const ir::Type& t);
  void renumber(ir::RegionId r);
  /// The array of block i as it is called, or as it results.
  Shape shape(size_t i) const;

 private:
  void collect(ir::RegionId r, std::vector<Spot>& list) const;

  static constexpr int64_t kPrefetched = 16;
  int prefetched_ = -1;  // the block of prefetch()
  int64_t used_ = 0;     // elements of it
};

// -- the rewritings; false: it does not apply, and nothing has changed that matters
bool rewrite_sizes(Rewriter& e);
bool rewrite_axis(Rewriter& e);
bool rewrite_two_calls(Rewriter& e);
bool rewrite_merged_axes(Rewriter& e);
bool rewrite_split_axis(Rewriter& e);
bool rewrite_turned_axes(Rewriter& e);
bool rewrite_order(Rewriter& e);
bool rewrite_array_dim(Rewriter& e);
bool rewrite_squeezed(Rewriter& e);
bool rewrite_transposed(Rewriter& e);
bool rewrite_padded(Rewriter& e);
bool rewrite_windows(Rewriter& e);
bool rewrite_bounded(Rewriter& e);
bool rewrite_blocked_whole(Rewriter& e);
bool rewrite_twice(Rewriter& e);
bool rewrite_stored_wide(Rewriter& e);
bool rewrite_given_constants(Rewriter& e);
bool rewrite_kept(Rewriter& e);
bool rewrite_chosen(Rewriter& e);
bool rewrite_moved(Rewriter& e);
bool rewrite_wide(Rewriter& e);
bool rewrite_wrapped(Rewriter& e);
bool rewrite_split_loop(Rewriter& e);
bool rewrite_unrolled(Rewriter& e);
bool rewrite_while(Rewriter& e);
bool rewrite_dynamic_index(Rewriter& e);
bool rewrite_split_access(Rewriter& e);
bool rewrite_masked(Rewriter& e);
bool rewrite_swaps(Rewriter& e);

}  // namespace tessera::fuzz
