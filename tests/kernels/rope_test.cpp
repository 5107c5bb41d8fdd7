// Rotary embedding against its definition: each pair as a complex number, times e^(i angle).
#include "samples/kernels/rope.h"

#include <complex>

#include "tests/kernels/support.h"

namespace rope_test {
using namespace tessera;
using kernels::RopePairs;

namespace {

test::Doubles reference(const Array& x, const Array& positions, RopePairs pairs, double base) {
  const int64_t heads = x.shape()[2], d = x.shape()[3], n = d / 2;
  test::Doubles out(static_cast<size_t>(x.size()));
  for (int64_t row = 0; row < positions.size(); ++row)
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t i = 0; i < n; ++i) {
        const int64_t first = (row * heads + h) * d, a = first + (pairs == RopePairs::halves ? i : 2 * i),
                      b = pairs == RopePairs::halves ? a + n : a + 1;
        const std::complex<double> turned =
            std::complex(x.at(a), x.at(b)) *
            std::polar(1.0, positions.at(row) * std::pow(base, -static_cast<double>(i) / static_cast<double>(n)));
        out[static_cast<size_t>(a)] = turned.real();
        out[static_cast<size_t>(b)] = turned.imag();
      }
  return out;
}

}  // namespace

TEST_CASE("rope: both pairings, shapes and dtypes") {
  const Shape shapes[] = {{1, 1, 1, 2}, {2, 9, 3, 6}, {1, 33, 4, 64}, {2, 5, 40, 128},
                          {1, 0, 2, 8}, {3, 1, 0, 8}, {1, 2, 1, 258}};
  uint32_t seed = 1;
  for (const Shape& shape : shapes)
    for (const DType t : {f32, f16, bf16})
      for (const RopePairs pairs : {RopePairs::interleaved, RopePairs::halves}) {
        CAPTURE(to_string(shape));
        const Array x = test::random(shape, t, seed++),
                    at = test::random_integers({shape[0], shape[1]}, i32, seed++, -3, 100);
        // An angle of up to 100 is known within 100 * 2^-24 of base^(-i/n)'s few roundings.
        test::check(kernels::rope(x, at, {.pairs = pairs}), {x, at}, {reference(x, at, pairs, 10000)},
                    {.absolute = 1e-4, .gpu = x.size() < 9000, .general = shape[3] < 16});
      }
}

TEST_CASE("rope: another base, far positions") {
  const Array x = test::random({1, 4, 2, 16}, f32, 1), at({1, 4}, std::vector<int32_t>{0, 1000, 30'000, 100'000});
  // The fastest pair's angle is the position itself, exact in f32; the others are base^(-1/8) of it and less, with a
  // few 2^-24 of error.
  test::check(kernels::rope(x, at, {.base = 5e5}), {x, at}, {reference(x, at, RopePairs::halves, 5e5)},
              {.absolute = 5e-3});
}

TEST_CASE("rope: what does not fit") {
  using kernels::Type;
  const auto error = [](const Type& x, const Type& p, const kernels::RopeParams& params = {}) {
    return test::error_of([&] { kernels::rope(x, p, params, {}); });
  };
  CHECK(error({{2, 3, 8}, f32}, {{2, 3}, i32}) == "rope: x has shape (2, 3, 8), not [batch, length, heads, head_dim]");
  CHECK(error({{2, 3, 1, 8}, i32}, {{2, 3}, i32}) == "rope: x is i32, not f32, f16 or bf16");
  CHECK(error({{2, 3, 1, 8}, f32}, {{2, 3}, f32}) == "rope: positions is f32, not i32");
  CHECK(error({{2, 3, 1, 8}, f32}, {{3}, i32}) == "rope: positions has shape (3,), not (2, 3) = batch and length of x");
  CHECK(error({{2, 3, 1, 7}, f32}, {{2, 3}, i32}) == "rope: heads of x have 7 elements, which make no pairs");
  CHECK(error({{2, 3, 1, 8}, f32}, {{2, 3}, i32}, {.base = 0}) == "rope: the base 0.000000 is not positive");
}

}  // namespace rope_test
