// Arithmetic as C++ expressions, for any backend: V is a value in a register, and its operators append instructions to
// its Sink, which a backend implements (SPIR-V: codegen/spirv/builder/function.h). So of two operands, or arguments, at
// most one may emit instructions: the other gets a name first. Integers have no sign; instructions for which it matters
// say so. The meaning of the table's ops is in elementwise.h and expand.h.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "codegen/program/target.h"
#include "engine/base/dtype.h"
#include "engine/base/function.h"
#include "engine/ir/opcode.h"

namespace tessera::expand {

/// What a register holds. Narrow integers live sign- or zero-extended in u32, floats narrower than f32 as an f32 of
/// exactly that value; u64 may be two words where the device has no 64-bit integers. opaque and above: types of a
/// backend's own, for its own instructions.
enum class Reg : uint8_t { boolean, u32, u64, f32, f64, opaque };
constexpr bool is_float(Reg r) { return r == Reg::f32 || r == Reg::f64; }
constexpr uint32_t width(Reg r) { return r == Reg::u64 || r == Reg::f64 ? 64 : 32; }
constexpr Reg float_of(Reg r) { return width(r) == 64 ? Reg::f64 : Reg::f32; }
constexpr Reg uint_of(Reg r) { return width(r) == 64 ? Reg::u64 : Reg::u32; }

class Sink;
struct V {
  Sink* fn = nullptr;
  uint32_t id = 0;
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

/// The instructions that every backend has, on registers. Floats round to nearest even, and nothing fuses, reassociates
/// or assumes that there are no infinities or NaN, but where said.
// clang-format off
enum class Prim : uint8_t {
  // Of integers (which wrap) and floats; div of floats alone.
  add, sub, mul, div, neg,
  // Of integers and bools.
  and_, or_, xor_, not_,
  // Amounts are in range; sar fills the sign.
  shl, shr, sar,
  // Ordered for floats (false with a NaN), except ne and unordered ones; of integers unsigned, and slt, sle signed.
  lt, le, gt, ge, eq, ne, slt, sle, unordered_lt, unordered_gt,
  select,
  // b neither 0 nor, of sdiv with a the least integer, -1.
  udiv, sdiv, umod,
  // Of 32 bits: the upper half of a product; how many bits are set; of (a, offset, count): those bits, extended.
  umul_high, smul_high, count_bits, extract_uint, extract_sint,
  // Of 32 bits: the position of the highest bit; anything for 0.
  highest_bit,
  // A float's bits and back; integers zero-extended or cut; from u32 to u64 with the sign.
  to_bits, from_bits, resize, sign_extend,
  // To integers: truncates what is in range.
  float_from_uint, float_from_sint, uint_from_float, sint_from_float, float_to_float,
  abs, floor, ceil, trunc,
  // f64 may be wrong from 2^24 on, and there give either neighbour of a tie.
  round_even,
  // Fused or not.
  fma,
  // With the device's own precision: of positive numbers, positive numbers (roots_are_total(): of any), and numbers in
  // [-1, 1].
  sqrt, rsqrt, exp2,
  // Of two, the one that is a number; of zeros either. The last: between two numbers.
  max_number, min_number, clamp_number,
};
// clang-format on

/// Where instructions go.
class Sink {
 public:
  Sink(const Target& t, bool is_relaxed) : target(t), relaxed(is_relaxed) {}
  virtual ~Sink() = default;
  const Target& target;
  uint32_t block = 0;  ///< the basic block that instructions go to
  const bool relaxed;  ///< codegen/spirv/README.md, "Precision"
  /// What relaxed maxima and minima are made of: of what they are, apart from NaN; where that may have been NaN; and an
  /// element that has not been looked at.
  struct Extreme {
    bool larger = false;
    V number = {}, undefined = {}, untested = {};
  };
  std::map<std::pair<Reg, uint32_t>, Extreme> extremes;

  V make(Reg r, Literal x);                       ///< a constant
  virtual V make_bits(Reg r, uint64_t bits) = 0;  ///< a constant given by its bits
  virtual V boolean(bool v) = 0;
  virtual V apply(Prim p, Reg result, const std::vector<V>& a) = 0;
  /// The low and the high word of a product of words.
  virtual std::array<V, 2> product(V a, V b) = 0;
  /// An elementwise row by one instruction, if the backend's column says so; nothing (no fn) if it says EXPAND.
  virtual V row(ir::Opcode op, DType operand, Reg result, const std::vector<V>& a) = 0;

  /// Whether sqrt and rsqrt of f32 know zeros, infinities, NaN and negative numbers, as the op table has them.
  virtual bool roots_are_total() const { return false; }

  /// e^x of f32 for relaxed code, of any x, by instructions that the device alone has; nothing (no fn) if it has none.
  virtual V power_of_e(V) { return {}; }

  /// Whether f32 becomes the narrow float t and back by instructions that round to nearest even and know subnormals,
  /// infinities and NaN: then these, which otherwise are not called.
  virtual bool converts(DType t) const = 0;
  virtual V rounded(V v, DType t) = 0;      ///< the nearest t, as f32
  virtual V narrow_bits(V v, DType t) = 0;  ///< its bits, in u32
  virtual V widened(V raw, DType t) = 0;    ///< from them

  /// The low and the high 16 bits of a word, zero-extended; and the word of two, of which the low 16 bits count.
  virtual std::array<V, 2> shorts(V word);
  virtual V word_of_shorts(V low, V high);

  /// Both sides give values of the same registers, in order; their results are merged.
  virtual std::vector<V> if_else(V c, FunctionRef<std::vector<V>()> then_body,
                                 FunctionRef<std::vector<V>()> else_body) = 0;
  virtual void when(V c, FunctionRef<void()> body) = 0;
  /// while (cond(state)) state = body(state). Only for ops whose loops lane/loops.h counts: elementwise rows have none.
  virtual std::vector<V> while_loop(const std::vector<V>& init, FunctionRef<V(const std::vector<V>&)> cond,
                                    FunctionRef<std::vector<V>(const std::vector<V>&)> body) = 0;
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
V round_even(V a);  // f64: below 2^24, and there either neighbour of a tie

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

}  // namespace tessera::expand
