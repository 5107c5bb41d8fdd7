// What the samples share and a user would not write: seeded inputs, and the check against answers stored in
// samples/data. No kernels. samples/data/make_answers.py makes the same inputs, and the answers, with JAX. Pictures are
// in picture.h.
#pragma once
#include <exception>
#include <functional>
#include <string>
#include <tessera/tessera.hpp>

namespace sample {

/// f32 numbers scale * u, with u spread evenly over [-1, 1) in steps of 2^-23: a hash of the seed and the element's
/// position.
tessera::Array random(const tessera::Shape& shape, uint32_t seed, float scale = 1);

/// The greatest allowed difference from the stored answers. Each sample says where its numbers come from.
struct Tolerance {
  double entries, row_sums;
};

/// Compares the result's shape, 500 of its entries and the sums of all its rows (along the last dim) with
/// samples/data/NAME.npy, where NaN stands for an entry that rounding decides and that is not compared. Prints one line
/// and returns what main should: 0 if all agree, and the validation layers, where they are on, said nothing.
int check(const std::string& name, const tessera::Array& result, Tolerance tolerance);

/// The same against a function from an entry's row-major position to its value, at 500 entries: for inputs that have no
/// stored answers.
int check(const std::string& name, const tessera::Array& result, const std::function<double(int64_t)>& expected,
          double tolerance);

/// Prints the error and returns what main should.
int fail(const std::string& name, const std::exception& error);

}  // namespace sample
