// SPIR-V behind the expansions' Sink (codegen/expand/sink.h): each primitive as instructions that append to a module.
// Integers are always SPIR-V's unsigned types (signed instructions take them as they are). Float add, sub, mul and div
// are NoContraction, so error-free sums and range reductions survive every driver. Read next: module.h, int64.h.
#pragma once
#include <spirv/unified1/GLSL.std.450.h>

#include <array>
#include <map>
#include <optional>

#include "codegen/expand/sink.h"
#include "codegen/spirv/builder/module.h"
#include "engine/base/function.h"

namespace tessera::spirv {

using namespace expand;

/// True if f32 <-> f16 may use the device's own conversion: it rounds to nearest even, with subnormals, infinities and
/// NaN.
inline bool native_f16(const Target& t) { return t.float16 && t.int16 && t.rte16 && t.preserve16; }

class Function final : public Sink {
 public:
  Function(Module& m, const Target& t, bool is_relaxed) : Sink(t, is_relaxed), module(m) {}
  Module& module;

  Id type(Reg r) {
    if (r >= Reg::opaque) return opaque_[static_cast<size_t>(r) - static_cast<size_t>(Reg::opaque)];
    return types_[static_cast<size_t>(r)] ? types_[static_cast<size_t>(r)] : declare(r);
  }
  Reg opaque(Id of);  ///< what stands for that type
  V make_bits(Reg r, uint64_t bits) override;
  V boolean(bool v) override { return {this, module.constant_bool(v), Reg::boolean}; }
  V apply(Prim p, Reg result, const std::vector<V>& a) override;
  std::array<V, 2> product(V a, V b) override;
  V row(ir::Opcode op, DType operand, Reg result, const std::vector<V>& a) override;
  bool converts(DType t) const override { return t == DType::f16 && native_f16(target); }
  V rounded(V v, DType t) override;
  V narrow_bits(V v, DType t) override;
  V widened(V raw, DType t) override;
  std::array<V, 2> shorts(V word) override;
  V word_of_shorts(V low, V high) override;
  V emit(spv::Op code, Reg r, const std::vector<V>& operands);
  V exact(spv::Op code, Reg r, const std::vector<V>& operands);  ///< with NoContraction
  V glsl(GLSLstd450 code, Reg r, const std::vector<V>& operands);

  /// True where 64-bit integers are two words (int64.h).
  bool emulates_int64() const { return !target.int64; }
  V join(V low, V high);                             ///< a 64-bit integer of two words
  std::array<V, 2> halves(V pair);                   ///< its low and its high word
  std::optional<uint32_t> known_word(V word) const;  ///< of a constant
  std::optional<bool> known_zero(V v) const;         ///< of a float constant that is 0: whether it is -0
  std::optional<bool> known_infinity(V v) const;     ///< of one that is infinite: whether it is negative

  // Where f16 is native: the 16-bit float that an f32 of exactly that value holds, and back.
  Id type_f16();
  Id half(V v);
  V from_half(Id h);

  // Control flow.
  void begin(Id label);  ///< OpLabel
  /// Called at the start of each block that computes something, behind its phis.
  tessera::Function<void()> on_block;
  void branch(Id label) { module.op(spv::OpBranch, {label}); }
  void branch_if(V c, Id then_label, Id else_label) {
    module.op(spv::OpBranchConditional, {c.id, then_label, else_label});
  }
  std::vector<V> if_else(V c, FunctionRef<std::vector<V>()> then_body,
                         FunctionRef<std::vector<V>()> else_body) override;
  void when(V c, FunctionRef<void()> body) override;
  std::vector<V> while_loop(const std::vector<V>& init, FunctionRef<V(const std::vector<V>&)> cond,
                            FunctionRef<std::vector<V>(const std::vector<V>&)> body) override;

 private:
  Id type_words() { return module.type_vector(type(Reg::u32), 2); }
  Id declare(Reg r);
  Id type_u16();
  V from_short(Id s);
  Id short_of(V word);
  std::array<Id, 5> types_{};
  std::vector<Id> opaque_;
  std::map<Id, std::array<V, 2>> halves_;  // of pairs made from words: whatever sees the pair sees those
  std::map<Id, uint32_t> words_;           // constants
  std::map<Id, Id> half_of_;               // f32 values that were made of a 16-bit float: that
  std::map<Id, Id> short_of_;              // words that were made of a 16-bit integer: that
  std::map<Id, bool> zeros_, infinities_;  // float constants that are 0, or infinite: whether negative
};

inline Function& function(V a) { return static_cast<Function&>(*a.fn); }
/// One instruction on register values, with what the primitives see to: NoContraction, zeros whose signs drivers
/// forget, 64-bit integers in two words.
V instruction(spv::Op code, Reg result, const std::vector<V>& a);

}  // namespace tessera::spirv
