// How the kernels of samples/kernels are tested: seeded inputs, and one check that runs a call on the interpreter, on
// the device (with the validation layers, and in the general form where asked) and by a GPU's code on the lane-level
// interpreter, each against a reference in double precision.
#pragma once
#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "codegen/program/target.h"
#include "samples/kernels/support.h"
#include "tests/support/device.h"

namespace tessera::test {

using Doubles = std::vector<double>;

/// Numbers scale * u + offset, u evenly spread over [-1, 1), rounded to dtype (any but bool).
Array random(const Shape& shape, DType dtype, uint32_t seed, double scale = 1, double offset = 0);
/// Integers evenly spread over [low, high].
Array random_integers(const Shape& shape, DType dtype, uint32_t seed, int64_t low, int64_t high);
Array integers(const std::vector<int32_t>& values);  ///< i32, one dim
Doubles doubles(const Array& a);

struct Check {
  /// Of f32 arithmetic, for |got - expected| <= absolute + relative * |expected|; what the output's dtype rounds comes
  /// on top.
  double absolute = 1e-5, relative = 1e-5;
  bool gpu = true;       ///< also by the code for a GPU under the lane-level interpreter: small shapes only
  bool general = false;  ///< also in the general form
  bool device = true;
};
/// One expected vector per output; NaN stands for an element that is not compared.
void check(const PallasCall& call, const std::vector<Array>& arguments, const std::vector<Doubles>& expected,
           Check how = {});

/// The device of all cases, with the validation layers on; or none, with a message that says why.
const std::optional<Device>& device();
/// The outputs of a GPU's code on the lane-level interpreter, whose reports fail the case.
std::vector<Array> on_lanes(const ir::Kernel& k, const std::vector<Array>& arguments, bool general);

/// The text of what f throws; "" for nothing.
std::string error_of(const std::function<void()>& f);

}  // namespace tessera::test
