// Top-k against a stable sort on the host by IEEE 754's total order, which is jax.lax.top_k's.
#include "samples/kernels/top_k.h"

#include <algorithm>
#include <numeric>

#include "tests/kernels/passes.h"

namespace top_k_test {
using namespace tessera;

namespace {

/// Greater bits for greater elements.
uint64_t rank_of(const Array& x, int64_t i) {
  const uint64_t b = x.element_bits(i), sign = uint64_t{1} << (bits(x.dtype()) - 1), every = sign | (sign - 1);
  return is_unsigned_int(x.dtype()) ? b : is_signed_int(x.dtype()) ? b ^ sign : b & sign ? ~b & every : b | sign;
}

void check_top_k(const Array& x, int64_t k, const std::vector<test::Way>& ways) {
  const int64_t n = x.shape().back(), rows = n ? x.size() / n : 0;
  Shape shape = x.shape();
  shape.back() = k;
  Array values(shape, x.dtype()), indices(shape, i32);
  for (int64_t r = 0; r < rows; ++r) {
    std::vector<int64_t> at(static_cast<size_t>(n));
    std::iota(at.begin(), at.end(), r * n);
    std::stable_sort(at.begin(), at.end(), [&](int64_t a, int64_t b) { return rank_of(x, a) > rank_of(x, b); });
    for (int64_t i = 0; i < k; ++i) {
      values.set_element_bits(r * k + i, x.element_bits(at[static_cast<size_t>(i)]));
      indices.set_element_bits(r * k + i, static_cast<uint64_t>(at[static_cast<size_t>(i)] - r * n));
    }
  }
  for (const test::Way& w : ways) {
    CAPTURE(w.name);
    const auto [v, i] = kernels::top_k(w.passes, x, k);
    test::check_equal(v, values);
    test::check_equal(i, indices);
  }
}

}  // namespace

TEST_CASE("top_k: rows, lengths, k") {
  struct Case {
    Shape shape;
    int64_t k;
  };
  const Case cases[] = {{{1}, 1},      {{7}, 7},         {{5, 40}, 3}, {{1000}, 10}, {{2, 1025}, 1}, {{3, 5000}, 50},
                        {{4500}, 300}, {{2, 2, 30}, 30}, {{0, 8}, 2},  {{4, 8}, 0},  {{3, 0}, 0},    {{1024}, 1024}};
  const DType dtypes[] = {f32, i32, u32};
  uint32_t seed = 1;
  for (const Case& c : cases) {
    const DType t = dtypes[seed % 3];
    CAPTURE(to_string(c.shape));
    CAPTURE(c.k);
    CAPTURE(name(t));
    const Array x = t == f32 ? test::random(c.shape, t, seed) : test::random_integers(c.shape, t, seed, 0, 1000);
    check_top_k(x, c.k, test::ways(x.size() < 100, x.size() < 10));
    ++seed;
  }
}

TEST_CASE("top_k: every other dtype of keys") {
  for (const DType t : {u8, i8, i16, u16, f16, bf16, f8e5m2, f8e4m3fn, i64, u64}) {
    CAPTURE(name(t));
    const Array x = is_float(t) ? test::random({2, 30}, t, 4)
                                : test::random_integers({2, 30}, t, 4, is_unsigned_int(t) ? 0 : -100, 100);
    check_top_k(x, 12, test::ways(size_bytes(t) == 1));
  }
}

TEST_CASE("top_k: equals by the lowest index; special floats in JAX's order") {
  check_top_k(test::random_integers({2, 3000}, i32, 3, -1, 1), 200, test::ways(false));
  // jax.lax.top_k of these gives the indices 1 3 0 4 7 5 8 6 2.
  const Array x({9}, std::vector<float>{1, NAN, -NAN, INFINITY, 0, -0.0f, -INFINITY, 0, -0.0f});
  const auto [values, indices] = kernels::top_k(test::ways()[0].passes, x, 9);
  const int wanted[] = {1, 3, 0, 4, 7, 5, 8, 6, 2};
  for (int64_t i = 0; i < 9; ++i) CHECK(indices.at(i) == wanted[i]);
  check_top_k(x, 9, test::ways());
  Array odd({2500}, f32);
  const uint32_t special[] = {0x00000000, 0x80000000, 0x7fc00000, 0xffffffff, 0x7f800000, 0xff800000,
                              0x00000001, 0x80000001, 0x3f800000, 0xbf800000, 0x7fffffff};
  for (int64_t i = 0; i < odd.size(); ++i) odd.set_element_bits(i, special[static_cast<size_t>(i * 7 % 11)]);
  for (const int64_t k : {30, 2500}) check_top_k(odd, k, test::ways(false));
}

TEST_CASE("top_k: what does not fit") {
  const Array x({2, 8}, f32);
  CHECK(test::error_of([&] { kernels::top_k(x, 9, Loc{"search.cpp", 4}); }) ==
        "top_k: k is 9, but rows have 8 elements\n  at search.cpp:4");
  CHECK(test::error_of([&] { kernels::top_k(x, -1, Loc{}); }) == "top_k: k is -1, but rows have 8 elements");
  CHECK(test::error_of([&] { kernels::top_k(Array({4}, boolean), 1, Loc{}); }) ==
        "top_k: x is bool, not integers or floats of 8 bits and more");
  CHECK(test::error_of([&] { kernels::top_k(Array({}, f32), 0, Loc{}); }) ==
        "top_k: axis -1 is out of range for x, f32()");
  // By its type alone: nobody has so long an array.
  const kernels::Passes<kernels::Type> none;
  const kernels::Type long_rows({2, int64_t{1} << 31}, u8);
  CHECK(test::error_of([&] { kernels::top_k(none, long_rows, 1, Loc{}); }) ==
        "top_k: rows of x have 2147483648 elements, not less than 2^31");
}

}  // namespace top_k_test
