// Attention, layer norm, matmuls by group and of quantized weights, cross-entropy, prefix sums, sorts and top k against
// JAX's answers, Fourier transforms against NumPy's: tests/data/kernels, by tests/data/make_kernel_answers.py, whose
// inputs are these. The transformer sample, by tests/jax, compares what a model is made of.
#include <algorithm>
#include <functional>
#include <limits>

#include "samples/kernels/cross_entropy.h"
#include "samples/kernels/fft_real.h"
#include "samples/kernels/flash_attention.h"
#include "samples/kernels/grouped_matmul.h"
#include "samples/kernels/norm.h"
#include "samples/kernels/quantized_matmul.h"
#include "samples/kernels/radix_sort.h"
#include "samples/kernels/top_k.h"
#include "tests/kernels/passes.h"
#include "tests/kernels/support.h"

namespace jax_test {
using namespace tessera;

namespace {

/// A file's numbers, taken in pieces.
class Answers {
 public:
  explicit Answers(const std::string& name)
      : numbers_(test::doubles(read_npy("tests/data/kernels/" + name + ".npy"))) {}
  ~Answers() { CHECK(at_ == numbers_.size()); }
  test::Doubles next(int64_t n) {
    at_ += static_cast<size_t>(n);
    REQUIRE(at_ <= numbers_.size());
    return {numbers_.begin() + static_cast<std::ptrdiff_t>(at_ - static_cast<size_t>(n)),
            numbers_.begin() + static_cast<std::ptrdiff_t>(at_)};
  }

 private:
  test::Doubles numbers_;
  size_t at_ = 0;
};

constexpr test::Check kPlain = {.gpu = false};

void check_close(const Array& got, const test::Doubles& expected, double tolerance) {
  REQUIRE(got.size() == static_cast<int64_t>(expected.size()));
  int64_t wrong = 0;
  double worst = 0;
  for (int64_t i = 0; i < got.size(); ++i) {
    const double g = got.at(i), e = expected[static_cast<size_t>(i)];
    if (g == e || std::fabs(g - e) <= tolerance || (std::isnan(g) && std::isnan(e))) continue;
    ++wrong;
    worst = std::max(worst, std::isnan(g - e) ? std::numeric_limits<double>::infinity() : std::fabs(g - e));
  }
  CHECK_MESSAGE(wrong == 0, wrong, " of ", got.size(), " elements are off, by ", worst, " at most; ", tolerance,
                " is allowed");
}

/// Rows with equals, both zeros, infinities and NaNs.
Array orders() {
  Array x = test::random_integers({2, 1100}, f32, 1, -40, 40);
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (float& v : x.data<float>()) v /= 4;
  for (size_t row : {0, 1100})
    for (const auto& [at, v] :
         {std::pair<size_t, float>{5, -0.f}, {900, -0.f}, {6, nan}, {901, nan}, {7, -inf}, {8, inf}, {902, inf}})
      x.data<float>()[row + at] = v;
  return x;
}

}  // namespace

TEST_CASE("JAX: flash_attention is jax.nn.dot_product_attention") {
  const Array q = test::random({2, 11, 4, 16}, f32, 1, 2), k = test::random({2, 11, 2, 16}, f32, 2, 2),
              v = test::random({2, 11, 2, 16}, f32, 3);
  Answers a("flash_attention");
  test::check(kernels::flash_attention(q, k, v), {q, k, v}, {a.next(q.size())}, kPlain);
  test::check(kernels::flash_attention(q, k, v, {.causal = true}), {q, k, v}, {a.next(q.size())}, kPlain);
  const Array lengths({2, 2}, std::vector<int32_t>{11, 6, 7, 11});
  test::check(kernels::flash_attention(lengths, q, k, v), {lengths, q, k, v}, {a.next(q.size())}, kPlain);
}

TEST_CASE("JAX: layer_norm is jax.nn.standardize, scaled and moved") {
  const Array x = test::random({5, 77}, f32, 1, 3, 1), w = test::random({77}, f32, 2, 1, 1),
              b = test::random({77}, f32, 3);
  Answers a("layer_norm");
  test::check(kernels::layer_norm(x, w, b), {x, w, b}, {a.next(x.size())}, kPlain);
}

TEST_CASE("JAX: grouped_matmul is jax.lax.ragged_dot") {
  const Array lhs = test::random({30, 19}, f32, 1), rhs = test::random({4, 19, 21}, f32, 2),
              sizes = test::integers({7, 0, 12, 9});
  Answers a("grouped_matmul");
  test::check(kernels::grouped_matmul(sizes, lhs, rhs), {sizes, lhs, rhs}, {a.next(30 * 21)}, kPlain);
}

TEST_CASE("JAX: int8_matmul, and int4_matmul of what jax.lax.bitcast_convert_type unpacks") {
  const Array x = test::random({9, 48}, f32, 1), scales = test::random({3, 20}, f32, 2, 0.01, 0.02);
  const Array weights = test::random_integers({48, 20}, i8, 3, -128, 127),
              packed = test::random_integers({24, 20}, u8, 4, 0, 255);
  Answers a("quantized_matmul");
  test::check(kernels::int8_matmul(x, weights, scales), {x, weights, scales}, {a.next(9 * 20)},
              {.absolute = 1e-4, .gpu = false});
  test::check(kernels::int4_matmul(x, packed, scales), {x, packed, scales}, {a.next(9 * 20)}, kPlain);
}

TEST_CASE("JAX: cross_entropy is jax.nn.log_softmax's, and its gradient jax.grad's") {
  const Array logits = test::random({6, 50}, f32, 1, 5), scale = test::random({6}, f32, 2),
              labels = test::random_integers({6}, i32, 3, 0, 49);
  Answers a("cross_entropy");
  const test::Doubles losses = a.next(6), sums = a.next(6);
  test::check(kernels::cross_entropy_forward(logits, labels), {logits, labels}, {losses, sums}, kPlain);
  Array log_sum_exp({6}, f32);
  for (size_t i = 0; i < 6; ++i) log_sum_exp.data<float>()[i] = static_cast<float>(sums[i]);
  test::check(kernels::cross_entropy_backward(logits, labels, log_sum_exp, scale), {logits, labels, log_sum_exp, scale},
              {a.next(300)}, kPlain);
}

TEST_CASE("JAX: prefix_sum is jnp.cumsum") {
  const Array x = test::random({2, 2100}, f32, 1);
  Answers a("prefix_sum");
  const test::Doubles rows = a.next(x.size()), columns = a.next(x.size()), from_the_end = a.next(x.size());
  // Every addition rounds once, by 2^-24 of a sum at most.
  const auto bound = [](const test::Doubles& sums) {
    double greatest = 0;
    for (const double s : sums) greatest = std::max(greatest, std::fabs(s));
    return std::ldexp(2100 * greatest, -24);
  };
  for (const test::Way& way : test::ways(false)) {
    CAPTURE(way.name);
    check_close(kernels::prefix_sum(way.passes, x), rows, bound(rows));
    check_close(kernels::prefix_sum(way.passes, x, {.axis = 0}), columns, 1e-6);
    check_close(kernels::prefix_sum(way.passes, x, {.reverse = true}), from_the_end, bound(from_the_end));
  }
}

TEST_CASE("JAX: radix_sort is jax.lax.sort, top_k jax.lax.top_k") {
  const Array x = orders();
  Array where(x.shape(), i32);
  for (int64_t i = 0; i < where.size(); ++i)
    where.data<int32_t>()[static_cast<size_t>(i)] = static_cast<int32_t>(i % 1100);
  Answers sorted("radix_sort"), best("top_k");
  const test::Doubles keys = sorted.next(x.size()), values = sorted.next(x.size()), greatest = best.next(2 * 17),
                      places = best.next(2 * 17);
  for (const test::Way& way : test::ways(false)) {
    CAPTURE(way.name);
    const std::vector<Array> s = kernels::radix_sort(way.passes, x, {where});
    check_close(s[0], keys, 0);
    check_close(s[1], values, 0);
    const auto [v, i] = kernels::top_k(way.passes, x, 17);
    check_close(v, greatest, 0);
    check_close(i, places, 0);
  }
}

TEST_CASE("NumPy: fft, fft2, rfft, irfft and their inverses are numpy.fft's") {
  using Calls = kernels::Passes<Array>;
  Answers a("fft");
  // Of numbers without a pattern (kernels::allowed_error says more), in the Euclidean norm: no number is off by more
  // than all together.
  const auto usual = [](int64_t n) {
    return n <= 1 ? 0 : std::ldexp(std::sqrt(std::log2(static_cast<double>(n))), -23);
  };
  const auto compare = [&](const std::function<Array(const Calls&)>& transform, int64_t n, int64_t numbers) {
    CAPTURE(n);
    const test::Doubles expected = a.next(numbers);
    double squares = 0;
    for (const double e : expected) squares += e * e;
    for (const test::Way& way : test::ways(false)) {
      CAPTURE(way.name);
      check_close(transform(way.passes), expected, usual(n) * std::sqrt(squares));
    }
  };
  for (const int64_t n : {1, 12, 60, 101})
    for (const bool inverse : {false, true}) {
      const Array x = test::random({2, n, 2}, f32, static_cast<uint32_t>(n));
      compare([&](const Calls& p) { return kernels::fft(p, x, {.inverse = inverse}); }, n, x.size());
    }
  for (const bool inverse : {false, true}) {
    const Array x = test::random({7, 15, 2}, f32, 3);
    compare([&](const Calls& p) { return kernels::fft2(p, x, inverse); }, 105, x.size());
  }
  for (const int64_t n : {1, 10, 33}) {
    const Array x = test::random({2, n}, f32, static_cast<uint32_t>(n));
    compare([&](const Calls& p) { return kernels::rfft(p, x); }, 2 * n, 4 * (n / 2 + 1));
  }
  for (const int64_t n : {1, 10, 33}) {
    const Array x = test::random({2, n / 2 + 1, 2}, f32, static_cast<uint32_t>(n));
    compare([&](const Calls& p) { return kernels::irfft(p, x, n); }, 2 * n, 2 * n);
  }
}

}  // namespace jax_test
