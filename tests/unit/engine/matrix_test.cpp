// Every function that makes values from values, on every dtype and shape, run by the interpreter, against answers of JAX (matrix.h).
#include <doctest/doctest.h>

#include <set>

#include "engine/interpreter/interpreter.h"
#include "engine/ir/text.h"
#include "engine/ir/verify.h"
#include "tests/support/matrix.h"

using namespace tessera;
using namespace tessera::test;

TEST_CASE("matrix: every function on every dtype and shape agrees with JAX") {
  for (int d = 0; d < kNumDTypes; ++d) {
    const auto t = static_cast<DType>(d);
    const Matrix m = read_matrix(t);
    std::map<Shape, std::vector<const MatrixLine*>> of_shape;
    for (const MatrixLine& line : m.lines) of_shape[line.shape].push_back(&line);
    CHECK(of_shape.size() == 6);
    for (const auto& entry : of_shape) {
      const std::vector<Array> inputs = matrix_inputs(t, entry.first, m);
      const MatrixKernel k = matrix_kernel(t, entry.second, inputs);
      compare_matrix(t, k, interpret(k.kernel, inputs));
    }
  }
}
