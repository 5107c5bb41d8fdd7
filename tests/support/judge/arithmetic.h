// The arithmetic of one instruction on Slots: what SPIR-V and GLSL.std.450 define, in C++'s float and double, and which
// of the result's bits hang on poison. What is undefined says so by `undefined`, and gives 0.
#pragma once
#include <bit>
#include <cstdint>

#include "engine/base/splitmix64.h"
#include "tests/support/judge/module.h"

namespace tessera::judge {

using Random = SplitMix64;

struct Arithmetic {
  bool fused = true;  // what Fma does
  // conversions to 16, 32 and 64-bit floats: where the module does not ask for rounding to even
  bool to_zero[3] = {};
  uint64_t errors = 0;  // what f32's inexact instructions are off by hangs on this, and on the operands; 0: exact
  const char* undefined = nullptr;  // why the last one was

  /// Of Code::udiv to Code::smod, and of everything of floats.
  Slot divide(const Instr& i, Slot a, Slot b);
  Slot floating(const Instr& i, Slot a, Slot b, Slot c);
  Slot glsl(const Instr& i, Slot a, Slot b, Slot c);
  /// What an atomic or a reduction makes of two numbers, by its opcode.
  static uint64_t combine(uint32_t op, uint32_t width, uint64_t a, uint64_t b);
  static uint64_t identity(uint32_t op, uint32_t width);  // of an OpGroupNonUniform...

 private:
  /// The f32 that an instruction may give for `exact`, of the operands' bits, where `most` ulp are allowed.
  float inexact(double exact, double most, uint64_t operands) const;
  /// exp2, log2, sqrt and inversesqrt of f32, which may assume that there is no NaN or infinity: poison then.
  Slot imprecise(uint32_t op, Slot a) const;
};

inline uint64_t mask_of(uint32_t width) { return ~uint64_t{0} >> (64 - width); }
inline int64_t signed_of(uint64_t x, uint32_t width) { return static_cast<int64_t>(x << (64 - width)) >> (64 - width); }
/// Bits above the lowest that is unknown may be, too: of sums and products.
inline uint64_t carried(uint64_t poison, uint64_t mask) { return poison ? (poison | (0 - poison)) & mask : 0; }
inline uint64_t whole(uint64_t poison, uint64_t mask) { return poison ? mask : 0; }
/// A 16-bit float's number, and the nearest 16-bit float.
double from_half(uint64_t bits);
uint64_t to_half(double x, bool to_zero);

}  // namespace tessera::judge
