// Arithmetic in SPIR-V as C++ expressions: V is a value in a register, and its operators append instructions to the
// function. So of two operands, or arguments, at most one may emit instructions: the other gets a name first. Integers
// are always SPIR-V's unsigned types (signed instructions take them as they are). Float add, sub, mul and div are
// NoContraction, so error-free sums and range reductions survive every driver. The meaning of the table's ops is in
// spirv/elementwise.h and spirv/expand/expand.h.
#pragma once
#include <spirv/unified1/GLSL.std.450.h>

#include <array>
#include <functional>
#include <map>
#include <optional>

#include "codegen/program/target.h"
#include "codegen/spirv/builder/module.h"

namespace tessera::spirv {

/// What a register holds. Narrow integers live sign- or zero-extended in u32, floats narrower than f32 as an f32 of
/// exactly that value; u64 is two words where the device has no 64-bit integers.
enum class Reg : uint8_t { boolean, u32, u64, f32, f64 };
constexpr bool is_float(Reg r) { return r == Reg::f32 || r == Reg::f64; }
constexpr uint32_t width(Reg r) { return r == Reg::u64 || r == Reg::f64 ? 64 : 32; }
constexpr Reg float_of(Reg r) { return width(r) == 64 ? Reg::f64 : Reg::f32; }
constexpr Reg uint_of(Reg r) { return width(r) == 64 ? Reg::u64 : Reg::u32; }

class Function;
struct V {
  Function* fn = nullptr;
  Id id = 0;
  Reg reg = Reg::u32;
};

/// A literal operand: adopts the other side's register type.
struct Literal {
  double number = 0;
  uint64_t integer = 0;
  // NOLINT: implicit on purpose
  Literal(double x) : number(x), integer(0) {}
  Literal(int x) : number(x), integer(static_cast<uint64_t>(static_cast<int64_t>(x))) {}     // NOLINT
  Literal(uint32_t x) : number(x), integer(x) {}                                             // NOLINT
  Literal(uint64_t x) : number(static_cast<double>(x)), integer(x) {}                        // NOLINT
  Literal(int64_t x) : number(static_cast<double>(x)), integer(static_cast<uint64_t>(x)) {}  // NOLINT
};

class Function {
 public:
  Function(Module& m, const Target& t, bool is_relaxed) : module(m), target(t), relaxed(is_relaxed) {}
  Module& module;
  const Target& target;
  const bool relaxed;  ///< README.md, "Precision"
  Id block = 0;        ///< label of the block that instructions go to

  Id type(Reg r) { return types_[static_cast<size_t>(r)] ? types_[static_cast<size_t>(r)] : declare(r); }
  V make(Reg r, Literal x);           ///< a constant
  V make_bits(Reg r, uint64_t bits);  ///< a float constant given by its bits
  V boolean(bool v) { return {this, module.constant_bool(v), Reg::boolean}; }
  V emit(spv::Op code, Reg r, const std::vector<V>& operands);
  V exact(spv::Op code, Reg r, const std::vector<V>& operands);  ///< with NoContraction
  V glsl(GLSLstd450 code, Reg r, const std::vector<V>& operands);

  /// True where 64-bit integers are two words (int64.h).
  bool pairs() const { return !target.int64; }
  V join(V low, V high);                             ///< such a pair
  std::array<V, 2> halves(V pair);                   ///< its low and its high word
  std::optional<uint32_t> known_word(V word) const;  ///< of a constant
  std::optional<bool> known_zero(V v) const;         ///< of a float constant that is 0: whether it is -0
  std::map<Id, Id> half_of;                          ///< f32 values that were made of a 16-bit float: that

  // Control flow.
  void begin(Id label);  ///< OpLabel
  /// Called at the start of each block that computes something, behind its phis.
  std::function<void()> on_block;
  void branch(Id label) { module.op(spv::OpBranch, {label}); }
  void branch_if(V c, Id then_label, Id else_label) {
    module.op(spv::OpBranchConditional, {c.id, then_label, else_label});
  }
  /// Both sides give values of the same registers, in order; their results are merged.
  std::vector<V> if_else(V c, const std::function<std::vector<V>()>& then_body,
                         const std::function<std::vector<V>()>& else_body);
  void when(V c, const std::function<void()>& body);
  /// while (cond(state)) state = body(state). Only for ops whose loops lane/loops.h counts: elementwise rows have none.
  std::vector<V> while_loop(const std::vector<V>& init, const std::function<V(const std::vector<V>&)>& cond,
                            const std::function<std::vector<V>(const std::vector<V>&)>& body);

 private:
  Id declare(Reg r);
  std::array<Id, 5> types_{};
  std::map<Id, std::array<V, 2>> halves_;  // of pairs made from words: whatever sees the pair sees those
  std::map<Id, uint32_t> words_;           // constants
  std::map<Id, bool> zeros_;               // float constants that are 0: whether negative
};

// Arithmetic: both sides of one register type. Integers wrap; >> fills zeros; shift amounts must be in range.
V operator+(V a, V b);
V operator-(V a, V b);
V operator*(V a, V b);
V operator/(V a, V b);  // floats only
V operator-(V a);
V operator&(V a, V b);  // bool, too
V operator|(V a, V b);
V operator^(V a, V b);
V operator~(V a);
V operator<<(V a, V b);
V operator>>(V a, V b);
V sar(V a, V b);  // fills the sign
// Comparisons: ordered for floats (false with a NaN), except ne; unsigned for integers.
V operator<(V a, V b);
V operator<=(V a, V b);
V operator>(V a, V b);
V operator>=(V a, V b);
V eq(V a, V b);
V ne(V a, V b);
V slt(V a, V b);  // signed
V sle(V a, V b);

V literal(V like, Literal x);
#define TESSERA_LITERAL(f)                                   \
  inline V f(V a, Literal b) { return f(a, literal(a, b)); } \
  inline V f(Literal a, V b) { return f(literal(b, a), b); }
TESSERA_LITERAL(operator+)
TESSERA_LITERAL(operator-)
TESSERA_LITERAL(operator*)
TESSERA_LITERAL(operator/)
TESSERA_LITERAL(operator&)
TESSERA_LITERAL(operator|)
TESSERA_LITERAL(operator^)
TESSERA_LITERAL(operator<<)
TESSERA_LITERAL(operator>>)
TESSERA_LITERAL(sar)
TESSERA_LITERAL(operator<)
TESSERA_LITERAL(operator<=)
TESSERA_LITERAL(operator>)
TESSERA_LITERAL(operator>=)
TESSERA_LITERAL(eq)
TESSERA_LITERAL(ne)
TESSERA_LITERAL(slt)
TESSERA_LITERAL(sle)
#undef TESSERA_LITERAL

V select(V c, V a, V b);
inline V select(V c, V a, Literal b) { return select(c, a, literal(a, b)); }
inline V select(V c, Literal a, V b) { return select(c, literal(b, a), b); }
V udiv(V a, V b);
V sdiv(V a, V b);  // b neither 0 nor, with a the least integer, -1
V umod(V a, V b);
V bits(V a);                        // a float's bits, or an integer as it is
V floating(V a);                    // the float that has those bits
V to_uint(V a, Reg r);              // integer to integer: zero-extended or cut
V sign_extend(V a);                 // u32 to u64
V sign_extend(V a, int from_bits);  // within u32: the low bits' sign
V float_from_uint(V a, Reg r);
V float_from_sint(V a, Reg r);
V uint_from_float(V a, Reg r);  // truncates; a >= 0 and in range
V sint_from_float(V a, Reg r);  // truncates; a in range
V float_to_float(V a, Reg r);   // the native conversion
V abs(V a);                     // of a float
V floor(V a);
V trunc(V a);
V round_even(V a);  // f64: below 2^24, and there either neighbour of a tie (function.cpp: trunc)

// IEEE 754 layout of a float register.
struct Layout {
  int mantissa, bias;
  uint64_t sign, infinity, fraction, one;
};
constexpr Layout layout(Reg r) {
  return width(r) == 64
             ? Layout{52, 1023, uint64_t{1} << 63, uint64_t{0x7ff} << 52, (uint64_t{1} << 52) - 1, uint64_t{1023} << 52}
             : Layout{23, 127, 0x80000000u, 0x7f800000u, 0x7fffffu, 0x3f800000u};
}
V magnitude_bits(V a);  // the bits without the sign
V sign_bit(V a);        // the sign bit alone, in place
V is_nan(V a);          // by bits: holds where a driver assumes that there are none
V is_inf(V a);
V nan(V like);
V infinity(V like);
/// Never select between its result and `sign`: compilers for AVX-512 (LLVM 19, in lavapipe of Mesa 25) make one masked
/// instruction of both, and mix its operands up. Select the magnitude.
V copy_sign(V magnitude, V sign);
V highest_bit(V v);    // position of an integer's highest set bit, as u32; any value below the width for 0
V fma(V a, V b, V c);  // fused or not: for polynomials, where either will do
/// One instruction on register values, with what the operators above see to: NoContraction, zeros whose signs drivers
/// forget, 64-bit integers in two words.
V instruction(spv::Op code, Reg result, const std::vector<V>& a);

}  // namespace tessera::spirv
