// Random tile-level values with what is known about them: how large they get, how far a device may be from the
// interpreter, and whether elements may hang on unspecified memory. Values stay tame (no infinities, no NaN, no
// rounding that decides a branch) but for wild inputs. elementwise.cpp has the facts of elementwise ops. Read next:
// generator.h, which builds whole kernels from these.
#pragma once
#include <cmath>
#include <optional>
#include <vector>

#include "engine/ir/builder.h"
#include "tests/support/generator/random.h"

namespace tessera::fuzz {

struct Fact {
  double bound = 0;  // of the absolute value
  // absolute: how far another correct evaluation may be; 0: the same bits (but for the sign of a zero)
  double err = 0;
  bool whole = true;  // integer-valued, and so exact under sums and products while it fits the mantissa
  // some elements may come from unspecified memory: such values meet only elementwise ops, moves and stores
  bool dirty = false;
};
Fact join(const Fact& a, const Fact& b);
/// Floats may be anything, NaN and infinities too: such values meet only ops that are exact whatever they get.
inline bool wild(const Fact& f) { return std::isinf(f.bound); }
double epsilon(DType t);
double largest(DType t);      ///< absolute value of an integer or bool
double tame_limit(DType t);   ///< floats beyond this are not computed
double exact_limit(DType t);  ///< all integers up to here are representable
/// The fact of a result of at most `bound`, `err` off before rounding; none: it would not be tame.
std::optional<Fact> rounded(DType t, double bound, double err, bool whole, bool dirty);

class Values {
 public:
  Values(ir::Kernel& k, Random& random, std::vector<DType> dtypes)
      : b(k), random_(random), dtypes_(std::move(dtypes)) {}

  ir::Builder b;
  /// Operands of one shape, whole blocks, sizes from a few: kernels as people write them rather than a heap of odd
  /// slices.
  bool plain = false;
  std::vector<int64_t> sizes{4};           // plain: of dims that are free to choose
  ir::Opcode favourite = ir::Opcode::add;  // made more often: over many seeds every op has its turn
  std::vector<ir::Value> pool;             // what may be used at this place; regions truncate it again when they end

  struct Counter {
    ir::Value v;
    int64_t most;
  };
  std::vector<Counter> counters;  // program ids and loop variables that count from 0 to `most`; truncated like the pool

  const Fact& fact(ir::Value v) const { return facts_[v.index]; }
  ir::Value note(ir::Value v, const Fact& f);                ///< keeps the fact; returns v
  ir::Type type(ir::Value v) { return b.kernel().type(v); }  // a copy: a reference would not outlive the next op made
  DType some_dtype() { return random_.pick(dtypes_); }

  // leaves
  ir::Value constant(DType t, double v, const Shape& shape = {});
  ir::Value leaf(DType t, const Shape& shape);
  // conversions of what is there to what is wanted
  std::optional<ir::Value> cast(ir::Value v, DType t);
  ir::Value coerce(ir::Value v, const Shape& shape);
  /// A value of this type, from the pool where it goes.
  ir::Value want(DType t, const Shape& shape, bool clean);
  /// v made integer-valued (floats) and no larger than `bound`, or something else that is.
  ir::Value conform(ir::Value v, double bound);
  ir::Value scalar_int(int64_t low, int64_t high);  ///< a clean i32 scalar within [low, high]
  ir::Value scalar_bool();
  ir::Value any_int();                  ///< a program id or counter, or another clean i32 scalar
  ir::Value wrapped_scalar(int64_t n);  ///< some i32, mostly within [-n, n], whose arithmetic wraps
  ir::Value scalar_wrapped_bool();
  /// An i32 scalar within [0, most], affine in the counters, without a clamp that hides it from analysis.
  ir::Value counted_index(int64_t most);

  // random ops on v; their results keep to the facts
  ir::Value elementwise(ir::Value v);
  ir::Value movement(ir::Value v);
  std::optional<ir::Value> rearranged(ir::Value v);  ///< a gather, scatter or sort
  /// Steps of a butterfly, a scan, a network of exchanges: each value is used where it is and at other positions, many
  /// times over.
  std::optional<ir::Value> chained(ir::Value v);
  std::optional<ir::Value> reduction(ir::Value v);
  /// v against its own reduction, as in a softmax: v - max(v, axis, keepdims) and the like.
  std::optional<ir::Value> normalised(ir::Value v);
  ir::Value dot();
  std::optional<ir::Value> dot_of(ir::Value v);
  struct DotDims {
    std::vector<int64_t> lhs_contract, rhs_contract, lhs_batch, rhs_batch;
  };
  /// of clean values; conforms them where it must
  ir::Value product(ir::Value x, ir::Value y, const DotDims& dims, DType to);

  std::optional<ir::Value> apply(ir::Opcode op, const std::vector<ir::Value>& operands);
  ir::Value broadcast(ir::Value v, const Shape& shape, const std::vector<int64_t>& dims);
  ir::Value reshape(ir::Value v, const Shape& shape);
  ir::Value transpose(ir::Value v, const std::vector<int64_t>& perm);
  ir::Value slice(ir::Value v, const std::vector<int64_t>& start, const std::vector<int64_t>& limit,
                  const std::vector<int64_t>& stride);
  ir::Value concatenate(const std::vector<ir::Value>& parts, int64_t axis);

 private:
  std::optional<Fact> predict(ir::Opcode op, DType t, const std::vector<Fact>& f) const;
  std::optional<ir::Value> any_row(ir::Value v);
  std::optional<ir::Value> shifted(ir::Value v);
  std::optional<ir::Value> on_grid(ir::Opcode op, const std::vector<ir::Value>& operands, double middle);
  std::optional<ir::Value> by_bits(ir::Value v);
  std::optional<ir::Value> plain_operand(DType t, const Shape& shape, bool clean);
  ir::Value binary(ir::Opcode op, ir::Value x, ir::Value y);

  Random& random_;
  std::vector<DType> dtypes_;
  std::vector<Fact> facts_;
};

}  // namespace tessera::fuzz
