// Softmax cross-entropy, forward and backward, against the definitions.
#include "samples/kernels/cross_entropy.h"

#include <algorithm>

#include "tests/kernels/support.h"

namespace cross_entropy_test {
using namespace tessera;

namespace {

struct Reference {
  test::Doubles losses, sums, gradients;
  Reference(const Array& logits, const Array& labels, const Array& scale)
      : gradients(static_cast<size_t>(logits.size()), 0) {
    const int64_t n = logits.shape()[1];
    for (int64_t r = 0; r < logits.shape()[0]; ++r) {
      double greatest = -INFINITY, total = 0;
      for (int64_t c = 0; c < n; ++c) greatest = std::max(greatest, logits.at(r * n + c));
      for (int64_t c = 0; c < n; ++c) total += std::exp(logits.at(r * n + c) - greatest);
      const auto label = static_cast<int64_t>(labels.at(r));
      const bool counts = label >= 0 && label < n;
      sums.push_back(greatest + std::log(total));
      losses.push_back(counts ? std::log(total) + (greatest - logits.at(r * n + label)) : 0);
      for (int64_t c = 0; counts && c < n; ++c)
        gradients[static_cast<size_t>(r * n + c)] =
            (std::exp(logits.at(r * n + c) - sums.back()) - (c == label)) * scale.at(r);
    }
  }
};

void check(int64_t rows, int64_t classes, DType t, uint32_t seed, double size = 5) {
  CAPTURE(rows);
  CAPTURE(classes);
  CAPTURE(name(t));
  const Array logits = test::random({rows, classes}, t, seed, size), scale = test::random({rows}, f32, seed + 1);
  Array labels = test::random_integers({rows}, i32, seed + 2, 0, classes - 1);
  if (rows > 2) labels.data<int32_t>()[1] = -100;
  if (rows > 3) labels.data<int32_t>()[2] = static_cast<int32_t>(classes);
  if (rows > 0) labels.data<int32_t>()[0] = static_cast<int32_t>(classes - 1);
  const Reference r(logits, labels, scale);
  test::check(kernels::cross_entropy_forward(logits, labels), {logits, labels}, {r.losses, r.sums},
              {.absolute = 2e-6 * size + 2e-6, .relative = 1e-5, .general = classes < 20});
  Array sums({rows}, f32);
  for (int64_t i = 0; i < rows; ++i)
    sums.data<float>()[static_cast<size_t>(i)] = static_cast<float>(r.sums[static_cast<size_t>(i)]);
  // The log-sum-exp as f32 is off by size * 2^-24, and each probability by that much of itself.
  test::check(kernels::cross_entropy_backward(logits, labels, sums, scale), {logits, labels, sums, scale},
              {r.gradients}, {.absolute = 1e-6 * size, .relative = 1e-5, .general = classes < 20});
}

}  // namespace

TEST_CASE("cross_entropy: shapes and dtypes") {
  uint32_t seed = 1;
  for (const auto& [rows, classes] :
       {std::pair<int64_t, int64_t>{1, 1}, {5, 2}, {33, 10}, {7, 1000}, {0, 5}, {4, 8193}, {3, 20'000}})
    for (const DType t : {f32, f16, bf16}) check(rows, classes, t, seed += 3);
}

TEST_CASE("cross_entropy: large logits, and ones that are minus infinity") {
  check(4, 50, f32, 1, 1e4);
  check(4, 9000, f32, 2, 1e3);
  for (const int64_t classes : {12, 9000}) {
    Array logits = test::random({2, classes}, f32, 3);
    // whole chunks of the first row
    for (int64_t i = 5; i < classes; ++i) logits.data<float>()[static_cast<size_t>(i)] = -INFINITY;
    for (int64_t i = 0; i + 5 < classes; ++i) logits.data<float>()[static_cast<size_t>(classes + i)] = -INFINITY;
    const Array labels = test::integers({2, static_cast<int32_t>(classes - 1)}), scale({2}, std::vector<float>{1, 2});
    const Reference r(logits, labels, scale);
    test::check(kernels::cross_entropy_forward(logits, labels), {logits, labels}, {r.losses, r.sums});
    const Array sums({2}, std::vector<float>{static_cast<float>(r.sums[0]), static_cast<float>(r.sums[1])});
    test::check(kernels::cross_entropy_backward(logits, labels, sums, scale), {logits, labels, sums, scale},
                {r.gradients});
  }
}

TEST_CASE("cross_entropy: the loss of logits so large that their log-sum-exp is the greatest of them") {
  for (const int64_t classes : {12, 9000}) {
    Array logits({3, classes}, f32);
    const auto x = logits.data<float>();
    for (int64_t c = 0; c < classes; ++c) {
      x[static_cast<size_t>(c)] = -1e30f;
      x[static_cast<size_t>(classes + c)] = 1e30f;
      x[static_cast<size_t>(2 * classes + c)] = c % 2 ? 123456784 : 123456792;
    }
    const Array labels = test::integers({0, static_cast<int32_t>(classes - 1), 1});
    const double n = static_cast<double>(classes);
    test::check(kernels::cross_entropy_forward(logits, labels), {logits, labels},
                {{std::log(n), std::log(n), 8 + std::log(n / 2 * (1 + std::exp(-8)))}, {-1e30f, 1e30f, 123456792}},
                {.absolute = 4e-6, .relative = 1e-6});
  }
}

TEST_CASE("cross_entropy: rows without a finite logit") {
  for (const int64_t classes : {12, 9000}) {
    Array logits({1, classes}, f32);
    for (float& v : logits.data<float>()) v = -INFINITY;
    const Array labels = test::integers({3});
    const Arrays out = interpret(kernels::cross_entropy_forward(logits, labels), logits, labels);
    CHECK(std::isnan(out[0].at(0)));   // as jax.nn.log_softmax
    CHECK(out[1].at(0) == -INFINITY);  // as jax.nn.logsumexp
  }
}

TEST_CASE("cross_entropy: what does not fit") {
  using kernels::Type;
  const Type logits({4, 9}, f32), labels({4}, i32), numbers({4}, f32);
  CHECK(test::error_of([&] { kernels::cross_entropy_forward(labels, labels, {}); }) ==
        "cross_entropy_forward: logits is i32, not f32, f16 or bf16");
  CHECK(test::error_of([&] { kernels::cross_entropy_forward(numbers, labels, {}); }) ==
        "cross_entropy_forward: logits has shape (4,), not [rows, classes]");
  CHECK(test::error_of([&] { kernels::cross_entropy_forward(logits, Type({5}, i32), {}); }) ==
        "cross_entropy_forward: labels has shape (5,), not (4,) = the rows of logits");
  CHECK(test::error_of([&] { kernels::cross_entropy_forward(logits, numbers, {}); }) ==
        "cross_entropy_forward: labels is f32, not i32");
  CHECK(test::error_of([&] { kernels::cross_entropy_forward(Type({4, 0}, f32), labels, {}); }) ==
        "cross_entropy_forward: logits has shape (4, 0), which has no classes");
  CHECK(test::error_of([&] { kernels::cross_entropy_backward(logits, labels, numbers, labels, {}); }) ==
        "cross_entropy_backward: gradient is i32, not f32");
  CHECK(test::error_of([&] { kernels::cross_entropy_backward(logits, labels, Type({3}, f32), numbers, {}); }) ==
        "cross_entropy_backward: log_sum_exp has shape (3,), not (4,) = the rows of logits");
}

}  // namespace cross_entropy_test
