// Whether a device multiplies matrices as it advertises. Before code first uses a shape, a small product of that shape
// is compared with the interpreter; if it is wrong, code is made without the shape. Internal to runtime/call.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "codegen/program/program.h"
#include "codegen/program/target.h"
#include "engine/base/array.h"
#include "engine/base/function.h"
#include "runtime/device.h"

namespace tessera {

/// Runs a Program and returns its outputs.
using RunProgram = Function<std::vector<Array>(const Program&, const std::vector<Array>& inputs)>;

/// Compiles products of several matrices of this shape (plain and with both operands transposed, each added to a
/// sum) for `target`, runs them, and compares them with the interpreter, exactly: all numbers are small integers.
/// Returns what is wrong, or the error that compiling or running them ended with; nothing if they are right, or if no
/// code for the target has such matrices.
std::optional<std::string> wrong_product(const MatrixShape& shape, Target target, const RunProgram& run);

/// `target` without those of the matrices of `program`'s code that the device gets wrong; nothing if it gets none
/// wrong. A shape is tried once per device; one that is wrong is logged. Throws DeviceError if the device is lost.
std::optional<Target> without_wrong_matrices(const Device& device, const Program& program, const Target& target);

}  // namespace tessera
