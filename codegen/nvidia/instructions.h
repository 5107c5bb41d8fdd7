// The PTX columns of engine/ir/ops.def as instructions: of an elementwise row, and of a subgroup op or atomic by its
// combiner. Not how they are written down (function.h). Read next: function.h.
#pragma once
#include <array>

#include "engine/ir/opcode.h"

namespace tessera::nvidia {

/// What a column may say. Types are appended where the instruction is written, but for those that have one form.
enum class Ins : uint8_t {
  NONE,    // not defined for the dtype, or no instruction means the same
  EXPAND,  // a sequence
  add_rn,
  sub_rn,
  mul_rn,
  div_rn,
  fma_rn,
  sqrt_rn,
  neg_f,
  abs_f,
  max_nan,
  min_nan,
  cvt_rmi,
  cvt_rpi,
  cvt_rni,
  add,
  sub,
  mul_lo,
  neg,
  abs,
  max,
  min,
  and_,
  or_,
  xor_,
  not_,
  setp_eq,
  setp_ne,
  setp_neu,
  setp_lt,
  setp_le,
  setp_gt,
  setp_ge,
  eq_pred,
  selp,
};

struct Column {
  Ins flt = Ins::NONE, sint = Ins::NONE, uint = Ins::NONE, boolean = Ins::NONE;
  constexpr Ins of(DType t) const {
    return is_float(t) ? flt : t == DType::boolean ? boolean : is_signed_int(t) ? sint : uint;
  }
};

struct Columns {
  std::array<Column, ir::kNumOpcodes> elementwise;  // by the elementwise op, as the others
  // of 32-bit integers in a subgroup, of integers in memory; or null
  std::array<const char*, ir::kNumOpcodes> redux, atom;
};
constexpr Columns columns() {
  Columns t{};
#define TESSERA_ELEMENTWISE(name, arity, operands, result, flags, reference, flt, sint, uint, boolean, ptx_flt, \
                            ptx_sint, ptx_uint, ptx_boolean, ...)                                               \
  t.elementwise[static_cast<size_t>(ir::Opcode::name)] = {Ins::ptx_flt, Ins::ptx_sint, Ins::ptx_uint, Ins::ptx_boolean};
#define TESSERA_COMBINER(name, identity, accumulator, atomics, flt, sint, uint, boolean, atomic_sint, atomic_uint, \
                         redux_op, atom_op)                                                                        \
  t.redux[static_cast<size_t>(ir::Opcode::name)] = redux_op;                                                       \
  t.atom[static_cast<size_t>(ir::Opcode::name)] = atom_op;
#include "engine/ir/ops.def"
  return t;
}
inline constexpr Columns kColumns = columns();

}  // namespace tessera::nvidia
