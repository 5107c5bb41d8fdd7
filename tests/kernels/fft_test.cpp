// Fourier transforms against the definition in double precision, and of long lines against transforms that are known.
#include <array>

#include "samples/kernels/fft_real.h"
#include "tests/kernels/passes.h"

namespace fft_test {
using namespace tessera;
using Complex = std::complex<double>;

namespace {

/// Along an axis of [outer, n, inner] pairs.
std::vector<Complex> transformed(const std::vector<Complex>& x, int64_t outer, int64_t n, int64_t inner, bool inverse) {
  std::vector<Complex> roots, out(x.size());
  for (int64_t j = 0; j < n; ++j)
    roots.push_back(std::polar(1.0, (inverse ? 2 : -2) * M_PI * static_cast<double>(j) / static_cast<double>(n)));
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t i = 0; i < inner; ++i)
      for (int64_t k = 0; k < n; ++k) {
        Complex sum = 0;
        for (int64_t j = 0; j < n; ++j)
          sum += x[static_cast<size_t>((o * n + j) * inner + i)] * roots[static_cast<size_t>(j * k % n)];
        out[static_cast<size_t>((o * n + k) * inner + i)] = inverse ? sum / static_cast<double>(n) : sum;
      }
  return out;
}
std::vector<Complex> complexes(const Array& x) {
  std::vector<Complex> v;
  for (int64_t i = 0; i < x.size(); i += 2) v.emplace_back(x.at(i), x.at(i + 1));
  return v;
}
/// Relative, in the Euclidean norm.
double error(const std::vector<Complex>& got, const std::vector<Complex>& expected) {
  REQUIRE(got.size() == expected.size());
  double errors = 0, squares = 0;
  for (size_t i = 0; i < expected.size(); ++i)
    errors += std::norm(got[i] - expected[i]), squares += std::norm(expected[i]);
  return std::isnan(errors) ? INFINITY : std::sqrt(errors / (squares + 1e-300));
}
double error(const Array& got, const std::vector<Complex>& expected) { return error(complexes(got), expected); }
/// Of numbers without a pattern; kernels::allowed_error says what the worst ones may have, and why these have less.
double usual(int64_t n) { return n <= 1 ? 0 : std::ldexp(2.0, -24) * std::sqrt(std::log2(static_cast<double>(n))); }

void check_fft(const Shape& shape, int64_t axis, bool inverse, const std::vector<test::Way>& ways) {
  CAPTURE(to_string(shape));
  CAPTURE(axis);
  CAPTURE(inverse);
  const Array x = test::random(shape, f32, 17);
  int64_t outer = 1, inner = 1;
  for (int64_t d = 0; d + 1 < static_cast<int64_t>(shape.size()); ++d)
    (d < axis ? outer : inner) *= d == axis ? 1 : shape[static_cast<size_t>(d)];
  const std::vector<Complex> expected =
      transformed(complexes(x), outer, shape[static_cast<size_t>(axis)], inner, inverse);
  for (const test::Way& w : ways) {
    CAPTURE(w.name);
    const Array got = kernels::fft(w.passes, x, {.axis = axis, .inverse = inverse});
    REQUIRE(got.shape() == shape);
    CHECK(error(got, expected) <= usual(shape[static_cast<size_t>(axis)]));
  }
}

}  // namespace

TEST_CASE("fft: short lengths, of every radix and a prime") {
  for (const int64_t n : {1, 2, 3, 4, 5, 6, 7, 8, 11, 13, 15, 16, 17, 36})
    check_fft({3, n, 2}, 1, n % 2, test::ways(n == 4 || n == 6 || n == 7 || n == 15, n == 6));
}

TEST_CASE("fft: longer lengths, batches, axes") {
  const std::vector<test::Way> ways = test::ways(false);
  for (const int64_t n : {105, 243, 500, 1024}) check_fft({2, n, 2}, 1, n % 3 == 0, ways);
  for (const int64_t n : {101, 289}) check_fft({3, n, 2}, 1, n % 3 == 0, ways);  // prime factors above 13
  check_fft({3, 60, 5, 2}, 1, true, ways);
  check_fft({4, 128, 30, 2}, 1, false, ways);  // columns hang over
  check_fft({2, 3, 17, 6, 2}, 2, false, ways);
  check_fft({300, 8, 2}, 1, false, ways);  // rows do
}

TEST_CASE("fft: lines longer than a program, by several passes") {
  const std::vector<test::Way> ways = test::ways(false);
  CHECK(kernels::fourier::lengths(int64_t{1} << 20) == std::vector<int64_t>{1024, 1024});
  CHECK(kernels::fourier::lengths(6000) == std::vector<int64_t>{80, 75});
  CHECK(kernels::fourier::lengths(8 * 13 * 13 * 13 * 13 * 13) == std::vector<int64_t>{1352, 169, 13});
  check_fft({6000, 2}, 0, true, ways);
  check_fft({2, 5000, 2, 2}, 1, false, {ways.back()});
  check_fft({4099, 2}, 0, false, {ways.back()});  // a prime
  // One wave of frequency 777 becomes one number: nothing without a pattern, so the bound is that of the worst numbers.
  // There and back.
  const int64_t n = 1 << 16;
  std::vector<Complex> wave, line(n);
  for (int64_t j = 0; j < n; ++j) wave.push_back(std::polar(1.0, 2 * M_PI * static_cast<double>(777 * j % n) / n));
  line[777] = n;
  const Array x = kernels::fourier::table(wave), y = kernels::fft(ways.back().passes, x);
  CHECK(error(y, line) <= kernels::allowed_error(n));
  CHECK(error(kernels::fft(ways.back().passes, y, {.inverse = true}), complexes(x)) <= 2 * kernels::allowed_error(n));
}

// lines of 2048 numbers make these longer than tests should be, so the passes are made by hand
TEST_CASE("fft: in more than two passes") {
  const std::vector<test::Way> ways = test::ways(false);
  const Array x = test::random({60, 2}, f32, 9);
  const std::vector<Complex> expected = transformed(complexes(x), 1, 60, 1, false);
  for (const test::Way& w : ways) {
    CAPTURE(w.name);
    Array y = x;
    for (const auto& [n, rest, inner] : {std::array<int64_t, 3>{4, 15, 1}, {3, 5, 4}, {5, 1, 12}}) {
      const kernels::fourier::Pass pass = {1, n, rest, inner, false, 1};
      const kernels::fourier::Factors factors(pass);
      std::vector<Array> arguments = {y};
      arguments.insert(arguments.end(), factors.tables.begin(), factors.tables.end());
      y = w.passes.call(kernels::fourier::pass_call(pass, factors, {60, 2}, Loc{}), arguments)[0];
    }
    CHECK(error(y, expected) <= usual(60));
  }
}

TEST_CASE("fft: there and back, and sums of squares") {
  for (const int64_t n : {12, 64, 77, 98, 1331}) {
    CAPTURE(n);
    const Array x = test::random({5, n, 2}, f32, static_cast<uint32_t>(n));
    const kernels::Passes<Array> passes = test::ways(false).back().passes;
    const Array y = kernels::fft(passes, x), back = kernels::fft(passes, y, {.inverse = true});
    CHECK(error(back, complexes(x)) <= 2 * usual(n));
    double before = 0, after = 0;
    for (const Complex& v : complexes(x)) before += std::norm(v);
    for (const Complex& v : complexes(y)) after += std::norm(v) / static_cast<double>(n);
    CHECK(std::fabs(after / before - 1) <= 2 * usual(n));  // Parseval
  }
}

TEST_CASE("fft2: both axes, there and back") {
  for (const Shape& shape : {Shape{8, 8, 2}, Shape{2, 12, 20, 2}, Shape{33, 64, 2}, Shape{1, 1, 2}}) {
    CAPTURE(to_string(shape));
    const Array x = test::random(shape, f32, 5);
    const int64_t h = shape[shape.size() - 3], w = shape[shape.size() - 2], batch = x.size() / (2 * h * w);
    const std::vector<Complex> expected =
        transformed(transformed(complexes(x), batch * h, w, 1, false), batch, h, w, false);
    for (const test::Way& way : test::ways(false)) {
      CAPTURE(way.name);
      const Array got = kernels::fft2(way.passes, x);
      CHECK(error(got, expected) <= usual(h * w));
      CHECK(error(kernels::fft2(way.passes, got, true), complexes(x)) <= 2 * usual(h * w));
    }
  }
}

TEST_CASE("rfft and irfft: any length, there and back") {
  for (const int64_t n : {1, 2, 3, 4, 9, 10, 34, 600}) {
    CAPTURE(n);
    const Array x = test::random({2, 3, n}, f32, static_cast<uint32_t>(n));
    std::vector<Complex> numbers, expected;
    for (int64_t i = 0; i < x.size(); ++i) numbers.emplace_back(x.at(i));
    const std::vector<Complex> whole = transformed(numbers, 6, n, 1, false);
    for (int64_t i = 0; i < static_cast<int64_t>(whole.size()); ++i)
      if (i % n <= n / 2) expected.push_back(whole[static_cast<size_t>(i)]);
    for (const test::Way& w : test::ways(n == 4 || n == 9, n == 10)) {
      CAPTURE(w.name);
      const Array got = kernels::rfft(w.passes, x);
      REQUIRE(got.shape() == Shape{2, 3, n / 2 + 1, 2});
      CHECK(error(got, expected) <= usual(2 * n));
      Array marked = got;  // what no real numbers have does not count
      for (int64_t row = 0; row < 6; ++row) {
        marked.data<float>()[static_cast<size_t>(row * (n / 2 + 1) * 2 + 1)] = 5;
        if (n % 2 == 0) marked.data<float>()[static_cast<size_t>((row + 1) * (n / 2 + 1) * 2 - 1)] = 7;
      }
      const Array back = kernels::irfft(w.passes, marked, n);
      REQUIRE(back.shape() == x.shape());
      std::vector<Complex> real;
      for (int64_t i = 0; i < back.size(); ++i) real.emplace_back(back.at(i));
      CHECK(error(real, numbers) <= 2 * usual(2 * n));
    }
  }
}

TEST_CASE("fft: empty arrays, device arrays, graphs") {
  const kernels::Passes<Array> passes = test::ways()[0].passes;
  test::check_equal(kernels::fft(passes, Array({0, 4, 2}, f32)), Array({0, 4, 2}, f32));
  test::check_equal(kernels::fft(passes, Array({4, 0, 2}, f32)), Array({4, 0, 2}, f32));
  test::check_equal(kernels::rfft(passes, Array({0, 5}, f32)), Array({0, 3, 2}, f32));
  test::check_equal(kernels::irfft(passes, Array({0, 3, 2}, f32), 5), Array({0, 5}, f32));
  const Array x = test::random({4, 30, 2}, f32, 6);
  const std::vector<Complex> expected = transformed(complexes(x), 4, 30, 1, false);
  if (const auto device = test::device_if_any())
    CHECK(error(kernels::fft(kernels::passes(*device), DeviceArray(*device, x)).download(), expected) <= usual(30));
  // A convolution with itself: back from the square of the transform.
  const auto f = jit([](Tensor v) {
    Tensor y = kernels::rfft(kernels::graph_passes(), v);
    Tensor re = slice(y, {0, 0}, {17, 1}), im = slice(y, {0, 1}, {17, 2});
    return Tensor(kernels::irfft(kernels::graph_passes(), concatenate({re * re - im * im, 2 * re * im}, 1), 32));
  });
  const Array v = test::random({32}, f32, 7);
  std::vector<Complex> sums(32);
  for (int64_t i = 0; i < 32; ++i)
    for (int64_t j = 0; j < 32; ++j) sums[static_cast<size_t>((i + j) % 32)] += v.at(i) * v.at(j);
  for (const Array& got : std::vector<Array>{interpret(f, v), f(v)}) {
    std::vector<Complex> real;
    for (int64_t i = 0; i < 32; ++i) real.emplace_back(got.at(i));
    CHECK(error(real, sums) <= 4 * usual(64));  // both ways, and two in the square
  }
}

TEST_CASE("fft: what does not fit") {
  const Array x({4, 30, 2}, f32);
  CHECK(
      test::error_of([&] { kernels::fft(Array({4, 3}, f32), {}, Loc{"waves.cpp", 8}); }) ==
      "fft: x has shape (4, 3), not [..., 2] of at least 2 dims: pairs of real and imaginary parts\n  at waves.cpp:8");
  CHECK(test::error_of([&] { kernels::fft(Array({4, 2}, f16), {}, Loc{}); }) == "fft: x is f16, not f32");
  CHECK(test::error_of([&] { kernels::fft(x, {.axis = 2}, Loc{}); }) ==
        "fft: axis 2 is out of range for the complex dims of x, f32(4, 30)");
  CHECK(test::error_of([&] { kernels::fft2(Array({4, 2}, f32), false, Loc{}); }) ==
        "fft2: x has shape (4, 2), not [..., rows, columns, 2]");
  CHECK(test::error_of([&] { kernels::fourier::check_length({"fft", Loc{}}, int64_t{1} << 31); }) ==
        "fft: an axis of 2147483648 elements is too long: less than 2^31");
  CHECK(test::error_of([&] { kernels::fourier::check_length({"fft", Loc{}}, 536870923); }) ==
        "fft: an axis of 536870923 elements is too long: less than 2^29, as it has prime factors above 13");
  CHECK(test::error_of([&] { kernels::rfft(Array({4, 0}, f32), Loc{}); }) ==
        "rfft: x has shape (4, 0), not [..., n] with n of at least 1");
  CHECK(test::error_of([&] { kernels::irfft(x, 60, Loc{}); }) ==
        "irfft: x has shape (4, 30, 2), not [..., 31, 2] = [..., n / 2 + 1, 2]");
  CHECK(test::error_of([&] { kernels::irfft(x, 0, Loc{}); }) == "irfft: n is 0, not at least 1");
}

}  // namespace fft_test
