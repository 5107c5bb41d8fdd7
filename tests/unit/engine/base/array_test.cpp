// Host arrays: value semantics, element access, printing.
#include "engine/base/array.h"

#include <doctest/doctest.h>

#include <cmath>
#include <sstream>

namespace array_test {
using namespace tessera;
namespace {
std::string text(const Array& a) {
  std::ostringstream s;
  s << a;
  return s.str();
}
}  // namespace

TEST_CASE("array: copies share storage until one is written") {
  Array a({2, 2}, std::vector<int32_t>{1, 2, 3, 4});
  const Array b = a;
  CHECK(b.bytes() == static_cast<const Array&>(a).bytes());
  a.data<int32_t>()[0] = 9;
  CHECK(b.data<int32_t>()[0] == 1);
  CHECK(a.at(0) == 9);
}

TEST_CASE("array: elements by bits and as double in every dtype") {
  for (int i = 0; i < kNumDTypes; ++i) {
    Array a({3}, static_cast<DType>(i));
    CHECK(a.nbytes() == 3 * size_bytes(a.dtype()));
    a.set_element_bits(1, 1);
    CHECK(a.element_bits(0) == 0);
    CHECK(a.element_bits(1) == 1);
    if (!is_float(a.dtype())) CHECK(a.at(1) == 1.0);
    a.set_element_bits(2, ~uint64_t{0});
    CHECK(a.element_bits(2) == (bits(a.dtype()) == 64
                                    ? ~uint64_t{0}
                                    : (uint64_t{1} << (is_int4(a.dtype()) ? 4 : 8 * size_bytes(a.dtype()))) - 1));
  }
  const Array h({2}, std::vector<half_t>{half_t(1.5f), half_t(-2)});
  CHECK(h.at(0) == 1.5);
  CHECK(h.at(1) == -2);
  CHECK(Array({1}, std::vector<int8_t>{-3}).at(0) == -3);
  CHECK(Array({1}, std::vector<bfloat16_t>{bfloat16_t(3)}).at(0) == 3);
  CHECK(Array({1}, std::vector<float8_e4m3fn_t>{float8_e4m3fn_t(3.2f)}).at(0) == 3.25);
  CHECK(Array({1}, std::vector<float8_e5m2_t>{float8_e5m2_t(1e6f)}).at(0) == INFINITY);
  CHECK(Array({2}, std::vector<int4_t>{int4_t(-3), int4_t(9)}).at(1) == -7);
  CHECK(Array({1}, std::vector<uint4_t>{uint4_t(-1)}).at(0) == 15);
}

TEST_CASE("array: what is refused") {
  CHECK_THROWS_WITH_AS(Array({2, 2}, std::vector<float>{1}), "Array: shape (2, 2) has 4 elements but the data has 1",
                       SpecError);
  CHECK_THROWS_WITH_AS(Array({2, -1}, f32), "Array: shape (2, -1) has a negative size", SpecError);
  CHECK_THROWS_WITH_AS(Array({int64_t{1} << 62, 4, 0}, f32),
                       "Array: shape (4611686018427387904, 4, 0) of f32 exceeds 64-bit sizes", SpecError);
  CHECK_THROWS_WITH_AS(Array({int64_t{1} << 60}, f32),
                       "Array: no memory for 4611686018427387904 bytes (f32 (1152921504606846976,))", Error);
  const Array a({1}, f32);
  CHECK_THROWS_WITH_AS(a.data<int32_t>(), "Array: data<i32>() of an array of f32", SpecError);
}

TEST_CASE("array: printing") {
  CHECK(text(Array({2, 3}, std::vector<float>{1, 2, 3, 4, 5, 6.5})) == "f32[2, 3] [[1 2 3] [4 5 6.5]]");
  CHECK(text(Array({}, std::vector<int64_t>{-7})) == "i64[] -7");
  CHECK(text(Array({0, 3}, f16)) == "f16[0, 3] []");
  CHECK(text(Array({2}, std::vector<bool>{true, false})) == "bool[2] [true false]");
  CHECK(text(Array({2}, std::vector<half_t>{half_t(0.1f), half_t(NAN)})) == "f16[2] [0.09998 nan]");
  CHECK(text(Array({2}, std::vector<uint64_t>{~uint64_t{0}, 3})) == "u64[2] [18446744073709551615 3]");
  CHECK(text(Array({2}, std::vector<double>{-INFINITY, 1e-300})) == "f64[2] [-inf 1e-300]");
  Array big({100, 2}, i32);
  for (int i = 0; i < 200; ++i) big.data<int32_t>()[static_cast<size_t>(i)] = i;
  CHECK(text(big) == "i32[100, 2] [[0 1] [2 3] [4 5] ... [194 195] [196 197] [198 199]]");
}

}  // namespace array_test
