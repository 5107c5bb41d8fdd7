// Every function that makes values from values, on every dtype and shape, compiled and run on a device, against answers
// of JAX (matrix.h), to which matrix_test.cpp of the unit tests holds the interpreter. A kernel holds many of them.
// Without TESSERA_TESTS_ALL the four other shapes are left to two dtypes.
#include "tests/support/matrix.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>

#include "codegen/compile.h"
#include "runtime/call/call.h"
#include "tests/support/device.h"

namespace matrix_test {
using namespace tessera;
using namespace tessera::test;

TEST_CASE("ops: every function of the matrix on every dtype and shape agrees with JAX on a device") {
  const std::optional<Device> device = test::device_if_any();
  if (!device) return;
  constexpr size_t kPerKernel = 24;
  for (int d = 0; d < kNumDTypes; ++d) {
    const auto t = static_cast<DType>(d);
    const Matrix m = read_matrix(t);
    std::map<Shape, std::vector<const MatrixLine*>> of_shape;
    for (const MatrixLine& line : m.lines) of_shape[line.shape].push_back(&line);
    for (const auto& entry : of_shape) {
      if (!std::getenv("TESSERA_TESTS_ALL") && t != f32 && t != i32 && entry.first != Shape{7} &&
          entry.first != Shape{3, 5, 33})
        continue;
      const std::vector<Array> inputs = matrix_inputs(t, entry.first, m);
      Target target = device->target();
      // as in elementwise_test.cpp: unrolled code takes LLVM minutes
      if (num_elements(entry.first) > 8) target.kind = Target::Kind::gpu;
      CompileOptions options;
      options.strict = true;  // JAX's answers are exact
      for (size_t first = 0; first < entry.second.size(); first += kPerKernel) {
        const auto from = entry.second.begin() + static_cast<std::ptrdiff_t>(first);
        const auto to =
            entry.second.begin() + static_cast<std::ptrdiff_t>(std::min(first + kPerKernel, entry.second.size()));
        const MatrixKernel k = matrix_kernel(t, {from, to}, inputs);
        const CompiledKernel compiled(*device, std::make_shared<const Program>(compile(k.kernel, target, options)));
        compare_matrix(t, k, compiled.run(inputs));
      }
    }
  }
}

}  // namespace matrix_test
