// Algorithms of several kernels on every way to run them: Passes of the interpreter (races looked for), of the device
// with the validation layers, by a GPU's code on the lane-level interpreter.
#pragma once
#include "samples/kernels/passes.h"
#include "tests/kernels/support.h"

namespace tessera::test {

struct Way {
  std::string name;
  kernels::Passes<Array> passes;
};
/// "interpreter" first; without `lanes` not by the lane-level interpreter, which is for small arrays.
std::vector<Way> ways(bool lanes = true, bool general = false);

/// x's bits, element by element, are y's; NaN equals NaN.
void check_equal(const Array& got, const Array& expected);

}  // namespace tessera::test
