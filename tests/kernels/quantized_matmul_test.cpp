// Matmul with 8 and 4-bit weights against the product with the weights written out.
#include "samples/kernels/quantized_matmul.h"

#include "tests/kernels/support.h"

namespace quantized_matmul_test {
using namespace tessera;

namespace {

test::Doubles reference(const Array& x, const Array& weights, const Array& scales, int bits) {
  const int64_t m = x.shape()[0], k = x.shape()[1], n = weights.shape()[1], size = k / scales.shape()[0];
  const auto weight = [&](int64_t j, int64_t c) {
    if (bits == 8) return weights.at(j * n + c);
    const auto byte = static_cast<int>(weights.at(j / 2 * n + c));
    const int nibble = j % 2 == 0 ? byte % 16 : byte / 16;
    return static_cast<double>(nibble < 8 ? nibble : nibble - 16);
  };
  test::Doubles out(static_cast<size_t>(m * n), 0);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t c = 0; c < n; ++c)
      for (int64_t j = 0; j < k; ++j)
        out[static_cast<size_t>(i * n + c)] += x.at(i * k + j) * weight(j, c) * scales.at(j / size * n + c);
  return out;
}

void check(int bits, int64_t m, int64_t k, int64_t n, int64_t groups, DType t,
           const kernels::QuantizedMatmulParams& params, uint32_t seed) {
  CAPTURE(bits);
  CAPTURE(m);
  CAPTURE(k);
  CAPTURE(n);
  CAPTURE(groups);
  const Array x = test::random({m, k}, t, seed),
              scales = test::random({groups, n}, seed % 2 ? f32 : t, seed + 1, 0.01, 0.02);
  const Array weights = bits == 8 ? test::random_integers({k, n}, i8, seed + 2, -128, 127)
                                  : test::random_integers({k / 2, n}, u8, seed + 2, 0, 255);
  // Sums of k products of at most 1 * 127 * 0.03 (8 bits), in f32.
  test::check((bits == 8 ? kernels::int8_matmul : kernels::int4_matmul)(x, weights, scales, params, {}),
              {x, weights, scales}, {reference(x, weights, scales, bits)},
              {.absolute = static_cast<double>(k) * 2e-6, .general = k < 10});
}

}  // namespace

TEST_CASE("int8_matmul: shapes, groups and dtypes") {
  check(8, 1, 1, 1, 1, f32, {}, 1);
  check(8, 5, 7, 9, 1, f16, {}, 2);
  check(8, 33, 96, 70, 1, f32, {}, 3);
  check(8, 33, 96, 70, 3, bf16, {.block_rows = 16}, 4);
  check(8, 1, 256, 40, 4, f16, {.out_dtype = f32}, 5);
  check(8, 3, 30, 5, 30, f32, {}, 6);  // a scale per weight
  check(8, 0, 8, 8, 2, f32, {}, 7);
  check(8, 4, 8, 0, 2, f32, {}, 8);
}

TEST_CASE("int4_matmul: shapes, groups and dtypes") {
  check(4, 1, 2, 1, 1, f32, {}, 1);
  check(4, 5, 6, 9, 3, f16, {}, 2);
  check(4, 33, 96, 70, 1, f32, {}, 3);
  check(4, 33, 96, 70, 3, bf16, {.block_rows = 16}, 4);
  check(4, 1, 256, 40, 4, f16, {.out_dtype = f32}, 5);
  check(4, 0, 8, 8, 2, f32, {}, 7);
  check(4, 4, 8, 0, 2, f32, {}, 8);
}

TEST_CASE("quantized matmul: what does not fit") {
  using kernels::Type;
  const Type x({3, 12}, f32), w({12, 5}, i8), w4({6, 5}, u8), s({4, 5}, f32);
  const auto error8 = [](const Type& a, const Type& b, const Type& c) {
    return test::error_of([&] { kernels::int8_matmul(a, b, c, {}, {}); });
  };
  const auto error4 = [](const Type& a, const Type& b, const Type& c) {
    return test::error_of([&] { kernels::int4_matmul(a, b, c, {}, {}); });
  };
  CHECK(error8(x, w4, s) == "int8_matmul: weights is u8, not i8");
  CHECK(error4(x, w, s) == "int4_matmul: weights is i8, not u8");
  CHECK(error8({{3, 11}, f32}, w, s) == "int8_matmul: x has 11 columns but weights hold 12 rows");
  CHECK(error4(x, {{12, 5}, u8}, s) == "int4_matmul: x has 12 columns but weights hold 24 rows");
  CHECK(error8(x, w, {{4, 6}, f32}) == "int8_matmul: weights have 5 columns but scales 6");
  CHECK(error8(x, w, {{5, 5}, f32}) == "int8_matmul: 12 rows of weights do not make 5 groups alike");
  CHECK(error4(x, w4, {{12, 5}, f32}) == "int4_matmul: groups of 1 rows do not begin with a byte");
  CHECK(error8(x, w, {{5}, f32}) == "int8_matmul: scales has shape (5,), not [groups, columns]");
  CHECK(error8({{12}, f32}, w, s) == "int8_matmul: x has shape (12,), not [rows, k]");
  CHECK(error8(x, w, {{4, 5}, i32}) == "int8_matmul: scales is i32, not f32, f16 or bf16");
  CHECK(error8({{3, 0}, f32}, {{0, 5}, i8}, s) == "int8_matmul: x has shape (3, 0): there is nothing to multiply");
}

}  // namespace quantized_matmul_test
