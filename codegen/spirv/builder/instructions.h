// The SPIR-V columns of engine/ir/ops.def as instructions: of an elementwise row, and of a subgroup op or atomic by its
// combiner. Not how instructions are written (function.h), nor the sequences for rows that say EXPAND
// (codegen/expand/elementwise.cpp). Read next: function.h.
#pragma once
#include <array>

#include "codegen/spirv/builder/module.h"
#include "engine/ir/opcode.h"

namespace tessera::spirv {

inline constexpr spv::Op kNone = spv::OpNop;    // not defined for the dtype, or no instruction means the same
inline constexpr spv::Op kExpand = spv::OpMax;  // a sequence

struct Instructions {
  spv::Op flt = kNone, sint = kNone, uint = kNone, boolean = kNone;
  constexpr spv::Op of(DType t) const {
    return is_float(t) ? flt : t == DType::boolean ? boolean : is_signed_int(t) ? sint : uint;
  }
};

struct InstructionTable {
  std::array<Instructions, ir::kNumOpcodes> elementwise, group, atomic;  // by the elementwise op
};
constexpr InstructionTable instruction_table() {
  using namespace spv;
  constexpr Op NONE = kNone, EXPAND = kExpand;
  InstructionTable t;
#define TESSERA_ELEMENTWISE(name, arity, operands, result, flags, reference, flt, sint, uint, boolean, ...) \
  t.elementwise[static_cast<size_t>(ir::Opcode::name)] = {flt, sint, uint, boolean};
#define TESSERA_COMBINER(name, identity, accumulator, atomics, flt, sint, uint, boolean, atomic_sint, atomic_uint, \
                         ...)                                                                                      \
  t.group[static_cast<size_t>(ir::Opcode::name)] = {flt, sint, uint, boolean};                                     \
  t.atomic[static_cast<size_t>(ir::Opcode::name)] = {NONE, atomic_sint, atomic_uint, NONE};
#include "engine/ir/ops.def"
  return t;
}
inline constexpr InstructionTable kInstructions = instruction_table();

}  // namespace tessera::spirv
