// Which floats are proved to be no negative numbers, from the ops that make them: sums of squares, say. Roots of those
// need less code around a device's instruction. It claims nothing about NaN and infinity. Read next: native.h.
#pragma once
#include "engine/ir/kernel.h"

namespace tessera::expand {

enum class Sign : uint8_t {
  any,
  not_negative,  // NaN, or a number from -0 on
  positive,      // NaN, or a number that is normal in f32, also where subnormal operands and results are flushed
};
/// Of a lane-level value of a float dtype.
Sign sign_of(const ir::Kernel& k, ir::Value v);

}  // namespace tessera::expand
