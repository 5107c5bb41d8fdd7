// Radix sort against std::stable_sort by a comparison of its own: awkward lengths, special floats, values that go
// along.
#include "samples/kernels/radix_sort.h"

#include <algorithm>
#include <numeric>

#include "tests/kernels/passes.h"

namespace radix_sort_test {
using namespace tessera;

namespace {

bool before(const Array& x, int64_t a, int64_t b) {
  if (is_float(x.dtype())) {
    const double u = x.at(a), v = x.at(b);
    return std::isnan(v) ? !std::isnan(u) : u < v;
  }
  const uint64_t u = x.element_bits(a), v = x.element_bits(b),
                 flip = is_signed_int(x.dtype()) ? uint64_t{1} << (bits(x.dtype()) - 1) : 0;
  return (u ^ flip) < (v ^ flip);
}

/// Which element of each row comes first, second, ...: row-major positions.
std::vector<int64_t> order(const Array& x) {
  const int64_t n = x.shape().back();
  std::vector<int64_t> at(static_cast<size_t>(x.size()));
  std::iota(at.begin(), at.end(), 0);
  for (int64_t r = 0; n > 0 && r < x.size() / n; ++r)
    std::stable_sort(at.begin() + r * n, at.begin() + (r + 1) * n,
                     [&](int64_t a, int64_t b) { return before(x, a, b); });
  return at;
}
Array permuted(const Array& x, const std::vector<int64_t>& at) {
  Array out(x.shape(), x.dtype());
  for (int64_t i = 0; i < x.size(); ++i) out.set_element_bits(i, x.element_bits(at[static_cast<size_t>(i)]));
  return out;
}
/// The same bits, those of NaNs and zeros too.
void check_bits(const Array& got, const Array& expected) {
  REQUIRE(got.shape() == expected.shape());
  REQUIRE(got.dtype() == expected.dtype());
  int64_t wrong = 0, first = 0;
  for (int64_t i = 0; i < got.size(); ++i)
    if (got.element_bits(i) != expected.element_bits(i) && wrong++ == 0) first = i;
  CHECK_MESSAGE(wrong == 0, wrong, " of ", got.size(), " elements differ, first element ", first, ": ", got.at(first),
                ", expected ", expected.at(first));
}

Array random_bits(const Shape& shape, DType t, uint32_t seed) {
  const Array low = test::random_integers(shape, u32, seed, 0, 0xffffffff),
              high = test::random_integers(shape, u32, seed + 1000, 0, 0xffffffff);
  Array out(shape, t);
  const uint64_t mask = bits(t) == 64 ? ~uint64_t{0} : (uint64_t{1} << bits(t)) - 1;
  for (int64_t i = 0; i < out.size(); ++i)
    out.set_element_bits(i, (low.element_bits(i) | high.element_bits(i) << 32) & mask);
  return out;
}

void check_sort(const Array& keys, const std::vector<Array>& values, const std::vector<test::Way>& ways) {
  const std::vector<int64_t> at = order(keys);
  for (const test::Way& w : ways) {
    CAPTURE(w.name);
    const std::vector<Array> got = kernels::radix_sort(w.passes, keys, values);
    REQUIRE(got.size() == 1 + values.size());
    check_bits(got[0], permuted(keys, at));
    for (size_t i = 0; i < values.size(); ++i) check_bits(got[i + 1], permuted(values[i], at));
  }
}

Array positions(const Shape& shape) {
  Array p(shape, i32);
  for (int64_t i = 0; i < p.size(); ++i) p.set_element_bits(i, static_cast<uint64_t>(i));
  return p;
}

}  // namespace

TEST_CASE("radix_sort: lengths, rows, dtypes") {
  const Shape shapes[] = {{1}, {2}, {37}, {512}, {1024}, {1025}, {2500}, {3, 700}, {2, 2, 1500}, {0}, {3, 0}, {0, 5}};
  const DType dtypes[] = {u32, i32, f32};
  uint32_t seed = 1;
  for (const Shape& shape : shapes) {
    const DType t = dtypes[seed % 3];
    CAPTURE(to_string(shape));
    CAPTURE(name(t));
    const Array keys = random_bits(shape, t, seed);
    std::vector<Array> values;
    if (seed % 2) values = {positions(shape), random_bits(shape, u8, seed)};
    check_sort(keys, values, test::ways(keys.size() < 3, keys.size() < 3));
    ++seed;
  }
}

TEST_CASE("radix_sort: every other dtype of keys") {
  for (const DType t : {u8, i8, u16, i16, f16, bf16, f8e5m2, f8e4m3fn, u64, i64}) {
    CAPTURE(name(t));
    const int64_t n = size_bytes(t) == 1 ? 13 : 300;
    check_sort(random_bits({n}, t, 5), {positions({n})}, test::ways(n == 13));
  }
}

TEST_CASE("radix_sort: equal keys keep their order; zeros of both signs are equal, every NaN is last") {
  check_sort(test::random_integers({3000}, i32, 3, -2, 2), {positions({3000})}, test::ways(false));
  Array odd({1500}, f32);
  const uint32_t special[] = {0x00000000, 0x80000000, 0x7fc00000, 0xffc00001, 0x7f800000, 0xff800000,
                              0x00000001, 0x80000001, 0x3f800000, 0xbf800000, 0x7f800001, 0x007fffff};
  for (int64_t i = 0; i < odd.size(); ++i) odd.set_element_bits(i, special[static_cast<size_t>(i * 7 % 12)]);
  // order() compares doubles, in which subnormal floats are numbers.
  check_sort(odd, {positions({1500})}, test::ways(false));
}

TEST_CASE("radix_sort: sorted, reversed and constant keys, many blocks") {
  Array up({10'000}, u32), down({10'000}, u32), same({5000}, u32);
  for (int64_t i = 0; i < 10'000; ++i)
    up.set_element_bits(i, static_cast<uint64_t>(i)), down.set_element_bits(i, static_cast<uint64_t>(10'000 - i) << 10);
  const std::vector<test::Way> ways = test::ways(false);
  for (const Array& keys : {up, down, same}) check_sort(keys, {}, {ways.back()});
  check_sort(random_bits({50'001}, f32, 9), {positions({50'001})}, {ways.back()});
}

TEST_CASE("radix_sort: host arrays on the best device, device arrays without waiting") {
  const Array keys = random_bits({5000}, i32, 11), at = positions({5000});
  const std::vector<int64_t> wanted = order(keys);
  check_bits(kernels::radix_sort(keys)[0], permuted(keys, wanted));
  if (const auto device = test::device_if_any()) {
    const auto got =
        kernels::radix_sort(kernels::passes(*device), DeviceArray(*device, keys), {DeviceArray(*device, at)});
    check_bits(got[1].download(), permuted(at, wanted));
  }
}

TEST_CASE("radix_sort: what does not fit") {
  CHECK(test::error_of([&] { kernels::radix_sort(Array({4}, boolean), {}, Loc{"sort.cpp", 9}); }) ==
        "radix_sort: keys are bool, not integers or floats of 8 bits and more\n  at sort.cpp:9");
  CHECK(test::error_of([&] { kernels::radix_sort(Array({}, f32), {}, Loc{}); }) ==
        "radix_sort: axis -1 is out of range for keys, f32()");
  CHECK(test::error_of([&] { kernels::radix_sort(Array({4}, f32), {Array({4}, f32), Array({5}, i32)}, Loc{}); }) ==
        "radix_sort: values[1] has shape (5,), not (4,) = the shape of keys");
  // By its type alone: nobody has so long an array.
  const kernels::Passes<kernels::Type> none;
  const kernels::Type long_rows({2, int64_t{1} << 31}, u8);
  CHECK(test::error_of([&] { kernels::radix_sort(none, long_rows, {}, Loc{}); }) ==
        "radix_sort: rows of keys have 2147483648 elements, not less than 2^31");
}

}  // namespace radix_sort_test
