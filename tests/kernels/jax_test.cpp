// The kernels that JAX has a counterpart of, against its answers: tests/data/kernels, by tests/data/make_kernel_answers.py, whose inputs are these. The transformer
// sample, by tests/jax, compares the others.
#include "samples/kernels/cross_entropy.h"
#include "samples/kernels/flash_attention.h"
#include "samples/kernels/grouped_matmul.h"
#include "samples/kernels/norm.h"
#include "samples/kernels/quantized_matmul.h"
#include "tests/kernels/support.h"

using namespace tessera;

namespace {

/// A file's numbers, taken in pieces.
class Answers {
 public:
  explicit Answers(const std::string& name) : numbers_(test::doubles(read_npy("tests/data/kernels/" + name + ".npy"))) {}
  ~Answers() { CHECK(at_ == numbers_.size()); }
  test::Doubles next(int64_t n) {
    at_ += static_cast<size_t>(n);
    REQUIRE(at_ <= numbers_.size());
    return {numbers_.begin() + static_cast<std::ptrdiff_t>(at_ - static_cast<size_t>(n)), numbers_.begin() + static_cast<std::ptrdiff_t>(at_)};
  }

 private:
  test::Doubles numbers_;
  size_t at_ = 0;
};

constexpr test::Check kPlain = {.gpu = false};

}  // namespace

TEST_CASE("JAX: flash_attention is jax.nn.dot_product_attention") {
  const Array q = test::random({2, 11, 4, 16}, f32, 1, 2), k = test::random({2, 11, 2, 16}, f32, 2, 2), v = test::random({2, 11, 2, 16}, f32, 3);
  Answers a("flash_attention");
  test::check(kernels::flash_attention(q, k, v), {q, k, v}, {a.next(q.size())}, kPlain);
  test::check(kernels::flash_attention(q, k, v, {.causal = true}), {q, k, v}, {a.next(q.size())}, kPlain);
  const Array lengths({2, 2}, std::vector<int32_t>{11, 6, 7, 11});
  test::check(kernels::flash_attention(lengths, q, k, v), {lengths, q, k, v}, {a.next(q.size())}, kPlain);
}

TEST_CASE("JAX: layer_norm is jax.nn.standardize, scaled and moved") {
  const Array x = test::random({5, 77}, f32, 1, 3, 1), w = test::random({77}, f32, 2, 1, 1), b = test::random({77}, f32, 3);
  Answers a("layer_norm");
  test::check(kernels::layer_norm(x, w, b), {x, w, b}, {a.next(x.size())}, kPlain);
}

TEST_CASE("JAX: grouped_matmul is jax.lax.ragged_dot") {
  const Array lhs = test::random({30, 19}, f32, 1), rhs = test::random({4, 19, 21}, f32, 2), sizes = test::integers({7, 0, 12, 9});
  Answers a("grouped_matmul");
  test::check(kernels::grouped_matmul(sizes, lhs, rhs), {sizes, lhs, rhs}, {a.next(30 * 21)}, kPlain);
}

TEST_CASE("JAX: int8_matmul, and int4_matmul of what jax.lax.bitcast_convert_type unpacks") {
  const Array x = test::random({9, 48}, f32, 1), scales = test::random({3, 20}, f32, 2, 0.01, 0.02);
  const Array weights = test::random_integers({48, 20}, i8, 3, -128, 127), packed = test::random_integers({24, 20}, u8, 4, 0, 255);
  Answers a("quantized_matmul");
  test::check(kernels::int8_matmul(x, weights, scales), {x, weights, scales}, {a.next(9 * 20)}, {.absolute = 1e-4, .gpu = false});
  test::check(kernels::int4_matmul(x, packed, scales), {x, packed, scales}, {a.next(9 * 20)}, kPlain);
}

TEST_CASE("JAX: cross_entropy is jax.nn.log_softmax's, and its gradient jax.grad's") {
  const Array logits = test::random({6, 50}, f32, 1, 5), scale = test::random({6}, f32, 2), labels = test::random_integers({6}, i32, 3, 0, 49);
  Answers a("cross_entropy");
  const test::Doubles losses = a.next(6), sums = a.next(6);
  test::check(kernels::cross_entropy_forward(logits, labels), {logits, labels}, {losses, sums}, kPlain);
  Array log_sum_exp({6}, f32);
  for (size_t i = 0; i < 6; ++i) log_sum_exp.data<float>()[i] = static_cast<float>(sums[i]);
  test::check(kernels::cross_entropy_backward(logits, labels, log_sum_exp, scale), {logits, labels, log_sum_exp, scale}, {a.next(300)}, kPlain);
}
