// Sums and products of floats whose roundings show, on a device and by the interpreter: within the "n roundings" of
// ops.def of a reference in double (for f64 in long double). structured_test.cpp has sums that are exact in any order;
// elementwise rows are held to their ulp by elementwise_test.cpp.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "codegen/compile.h"
#include "engine/front.h"
#include "runtime/call/call.h"
#include "tests/support/answers.h"
#include "tests/support/device.h"

namespace bounds_test {
using namespace tessera;

namespace {
struct Expected {
  long double value, magnitude;  // of the terms; n of them
  int64_t n;
};

void compare(DType t, const char* op, int64_t i, const Array& got, const Expected& e) {
  const double unit = std::ldexp(1.0, t == f64 ? -52 : -23), value = reference::to_double(t, got.element_bits(i));
  const FloatFormat f = float_format(t);
  const double magnitude = static_cast<double>(e.magnitude), exact = static_cast<double>(e.value);
  const double half =
      std::ldexp(0.5, std::max(exact == 0 ? f.least_exponent : std::ilogb(exact), f.least_exponent) - f.mantissa);
  const double bound = static_cast<double>(e.n) * unit * magnitude + (is_narrow_float(t) ? half * 1.001 : 0);
  CHECK_MESSAGE(std::fabs(static_cast<long double>(value) - e.value) <= bound, op, " of ", name(t), ": element ", i,
                " is ", value, " but exactly ", exact, ", bound ", bound);
}
}  // namespace

TEST_CASE("ops: float sums and products are within their bounds, on a device and by the interpreter") {
  constexpr int64_t rows = 8, n = 125;
  const std::optional<Device> device = test::device_if_any();
  for (const DType t : {f8e4m3fn, f8e5m2, f16, bf16, f32, f64}) {
    std::mt19937 random(17);
    Array x({rows, n}, t), factor({rows, n}, t);
    for (int64_t i = 0; i < x.size(); ++i) {
      x.set_element_bits(i, reference::from_double(t, std::ldexp(static_cast<double>(random()) / 4294967296.0 - 0.4,
                                                                 static_cast<int>(random() % 3))));
      factor.set_element_bits(i, reference::from_double(t, 0.75 + 0.5 * static_cast<double>(random()) / 4294967296.0));
    }
    const auto call = spec::make_pallas_call(
        {7,
         [&](const std::vector<Ref>& refs) {
           const Value a = refs[0][all], b = refs[1][all];
           refs[2][all] = sum(a, {.axis = 1});
           refs[3][all] = prod(b, {.axis = 1});
           refs[4][all] = cumsum(a, {.axis = 1});
           refs[5][all] = cumprod(b, {.axis = 1});
           refs[6][all] = dot(a, b,
                              {.lhs_contract = {1},
                               .rhs_contract = {1},
                               .preferred_element_type = t,
                               .precision = Precision::highest});
         }},
        {.out_shape = {{{rows}, t}, {{rows}, t}, {{rows, n}, t}, {{rows, n}, t}, {{rows, rows}, t}}}, Loc::here());
    const ir::Kernel kernel = call.trace({{{rows, n}, t}, {{rows, n}, t}});
    std::vector<std::vector<Array>> results{interpret(kernel, {x, factor})};
    if (device) {
      Target target = device->target();
      target.kind = Target::Kind::gpu;  // as in elementwise_test.cpp: unrolled code takes LLVM minutes
      const CompiledKernel compiled(*device, std::make_shared<const Program>(compile(kernel, target)));
      results.push_back(compiled.run({x, factor}));
    }
    const auto at = [&](const Array& a, int64_t row, int64_t i) {
      return static_cast<long double>(reference::to_double(t, a.element_bits(row * n + i)));
    };
    for (const std::vector<Array>& got : results)
      for (int64_t row = 0; row < rows; ++row) {
        Expected total{0, 0, 0}, product{1, 1, 0};
        for (int64_t i = 0; i < n; ++i) {
          total = {total.value + at(x, row, i), total.magnitude + std::fabs(at(x, row, i)), i + 1};
          product = {product.value * at(factor, row, i), product.magnitude * at(factor, row, i), i + 1};
          compare(t, "cumsum", row * n + i, got[2], total);
          compare(t, "cumprod", row * n + i, got[3], product);
        }
        compare(t, "sum", row, got[0], total);
        compare(t, "prod", row, got[1], product);
        for (int64_t column = 0; column < rows; ++column) {
          Expected dots{0, 0, n + 1};
          for (int64_t i = 0; i < n; ++i) {
            const long double term = at(x, row, i) * at(factor, column, i);
            dots.value += term;
            dots.magnitude += std::fabs(term);
          }
          compare(t, "dot", row * rows + column, got[4], dots);
        }
      }
  }
}

}  // namespace bounds_test
